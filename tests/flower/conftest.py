"""What the tests of federations share: commands as processes, sites with faults, and results of a local run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from flwr.supercore.task_identity import TaskIdentity

from coreshot.experiments.preset import Preset, load_preset
from coreshot.experiments.run import run

FAULTS = Path(__file__).parent / "faults"
CHEAP = """
base = "moons_quick"
title = "moons, cheap"

[inference.sgd]
num_steps = 5

[[arm]]
label = "class mean + SGD"
learner = "class_mean"
inference = "sgd"
weighting = "mass"
"""


@pytest.fixture(scope="session")
def wait_until() -> Callable[[Callable[[], Any], float, str], None]:
    def wait(is_true: Callable[[], Any], seconds: float, what: str) -> None:
        until = time.monotonic() + seconds
        while not is_true():
            assert time.monotonic() < until, f"{what}: not within {seconds} s"
            time.sleep(0.1)

    return wait


@pytest.fixture
def as_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process as one that Flower has started: only such a one may make messages."""
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    return {**os.environ, "COLUMNS": "160"}


@pytest.fixture(scope="session")
def coreshot(environment: dict[str, str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    def call(*arguments: Any, timeout: float = 400) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "coreshot", *map(str, arguments)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=timeout)

    return call


@pytest.fixture(scope="session")
def cheap(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A preset whose clients need no compilation."""
    path = tmp_path_factory.mktemp("presets") / "cheap.toml"
    path.write_text(CHEAP)
    return path


@pytest.fixture(scope="session")
def messages_in() -> Callable[[Path], dict[str, Path]]:
    """What has arrived, by client."""
    return lambda folder: {path.stem: path for path in sorted(folder.glob("messages/*/round-0/*.safetensors"))}


@dataclass
class Sites:
    """Processes of `coreshot flower site`, ended with all that they have started."""

    folder: Path
    environment: dict[str, str]
    address: str = ""
    processes: dict[str, psutil.Popen] = field(default_factory=dict)

    def data_of(self, preset: Preset, name: str) -> Path:
        points = preset.task.make(0).clients[name]
        path = self.folder / f"{name}.npz"
        np.savez(path, x=np.asarray(points.x), y=np.asarray(points.y))
        return path

    def start(self, name: str, data: Path, *options: str) -> None:
        command = [
            sys.executable,
            "-m",
            "coreshot",
            "flower",
            "site",
            str(data),
            "--superlink",
            self.address,
            "--client",
            name,
        ]
        command += ["--home", str(self.folder / f"home-{name}"), "--insecure", *options]
        paths = os.pathsep.join(filter(None, [str(FAULTS), os.environ.get("PYTHONPATH")]))
        environment = {**self.environment, "FAULT": str(self.fault_of(name)), "PYTHONPATH": paths}
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = psutil.Popen(
                command, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def fault_of(self, name: str) -> Path:
        """The file that says what is wrong with a site; nothing is where there is none."""
        return self.folder / f"{name}.fault"

    def times_begun(self, name: str) -> int:
        """How often its work has begun."""
        marks = self.folder / f"{name}.fault.began"
        return len(marks.read_text().splitlines()) if marks.exists() else 0

    def kill(self, name: str) -> None:
        """As if its machine had lost its power."""
        process = self.processes[name]
        for member in [*process.children(recursive=True), process]:
            with suppress(psutil.NoSuchProcess):
                member.kill()
        process.wait()

    def run_command(self, preset: Path, out: Path, *options: Any) -> list[str]:
        return list(
            map(str, ["flower", "run", preset, "--federation", self.folder / "federation", "--out", out, *options])
        )

    def started(self, command: list[str]) -> subprocess.Popen[str]:
        line = [sys.executable, "-m", "coreshot", *command]
        return subprocess.Popen(line, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def log_of(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str], coreshot: Any) -> Iterator[Sites]:
    """A SuperLink without TLS, and no site yet; shared by the tests of a file."""
    sites = Sites(tmp_path_factory.mktemp("sites"), environment)
    found = coreshot("flower", "up", sites.folder / "federation")
    assert found.returncode == 0, found.stderr
    sites.address = json.loads((sites.folder / "federation" / "federation.json").read_text())["address"]
    yield sites
    for name in sites.processes:
        if sites.processes[name].is_running():
            sites.kill(name)
    assert coreshot("flower", "down", sites.folder / "federation").returncode == 0


@pytest.fixture
def run_locally(tmp_path: Path) -> Callable[..., tuple[Path, list[dict[str, Any]]]]:
    """The same preset by the local runner."""

    def local(preset: Path, *overrides: str) -> tuple[Path, list[dict[str, Any]]]:
        out = tmp_path / "local"
        return out, run([load_preset(str(preset), overrides)], out, [0])

    return local


TIMES = ("seconds_client", "seconds_server")


def without_times(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key not in TIMES} for row in rows]


def same_files(one: Path, other: Path, pattern: str) -> bool:
    """Bit for bit, and there is something to compare."""
    names = {path.relative_to(one) for path in one.glob(pattern)}
    return bool(names) and all(
        (other / name).is_file() and (one / name).read_bytes() == (other / name).read_bytes() for name in names
    )


@pytest.fixture(scope="session")
def check_same_run() -> Callable[[Path, Path], None]:
    """What crossed, what was booked, what was inferred, and what came out."""

    def check(one: Path, other: Path) -> None:
        for pattern in ("messages/*/*/*.safetensors", "arms/*/*/*/ledger.jsonl", "arms/*/*/*/posterior.safetensors"):
            assert same_files(one, other, pattern), pattern
        rows = [json.loads((folder / "results.json").read_text()) for folder in (one, other)]
        assert without_times(rows[0]) == without_times(rows[1])

    return check
