"""Flower's own commands with the right switches, each role in a home of its own, and a note of what was started.

FOLDER/federation.json      address, certificate of the authority, names of nodes, and the processes that `up` has started
FOLDER/superlink/           home of the SuperLink: database, log
FOLDER/operator/            home of whoever starts runs: connection, app, orders and their outcomes
FOLDER/sites/NAME/          home of a site that `up` has made: data, log
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from coreshot.errors import CoreshotError
from coreshot.storage import read_json, write_bytes, write_json

# Flower otherwise reports its use, looks for updates, and installs packages for every run.
SWITCHES = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
CONNECTION = "coreshot"
# An app without code: both sides have coreshot installed, and what is shipped only names it.
APP = """[project]
name = "coreshot-app"
version = "0.1.0"

[tool.flwr.app]
publisher = "coreshot"

[tool.flwr.app.components]
serverapp = "coreshot.flower.server_app:app"
clientapp = "coreshot.flower.client_app:app"

[tool.flwr.app.config]
order = ""
"""


@dataclass(frozen=True)
class Process:
    role: str
    pid: int
    created: float


@dataclass
class Federation:
    folder: Path
    address: str
    certificate: str = ""  # of the authority that has signed the SuperLink's; empty: no TLS
    processes: list[Process] = field(default_factory=list)
    registered: dict[str, str] = field(
        default_factory=dict
    )  # names of sites by their nodes; Flower knows them, but does not list them

    def save(self) -> None:
        values = asdict(self)
        del values["folder"]
        write_json(self.folder / "federation.json", values)

    @classmethod
    def load(cls, folder: Path) -> Federation:
        path = folder / "federation.json"
        if not path.is_file():
            raise CoreshotError(
                f"{folder}: holds no federation (there is no federation.json); start one with `coreshot flower up {folder}`."
            )
        values = read_json(path)
        processes = [Process(**process) for process in values["processes"]]
        return cls(folder, values["address"], values["certificate"], processes, values["registered"])

    @property
    def operator(self) -> Path:
        return self.folder / "operator"

    def start(self, role: str, command: Sequence[str], home: Path) -> Process:
        home.mkdir(parents=True, exist_ok=True)
        with (home / "log").open("ab") as log:
            started = subprocess.Popen(
                command,
                env=environment(home),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        process = Process(role, started.pid, psutil.Process(started.pid).create_time())
        self.processes.append(process)
        self.save()
        return process

    def stop(self, role: str | None = None) -> list[str]:
        """All that run, or those of a role, and whatever they have started."""
        chosen = [process for process in self.processes if role in (None, process.role)]
        end(chosen)
        self.processes = [process for process in self.processes if process not in chosen]
        self.save()
        return [process.role for process in chosen]

    def flwr(self, *arguments: str) -> Any:
        """The answer of one of Flower's own commands, as JSON."""
        found = subprocess.run(
            [program("flwr"), *arguments, "--format", "json"],
            env=environment(self.operator),
            capture_output=True,
            text=True,
            check=False,
        )
        answer = _last_json(found.stdout)
        if found.returncode or answer is None or answer.get("success") is False:
            said = (
                (answer or {}).get("error-message")
                or (found.stderr or found.stdout).strip().splitlines()[-1:]
                or ["nothing"]
            )
            raise CoreshotError(
                f"SuperLink {self.address}: `flwr {arguments[0]}` failed ({_one_line(said)}); is it running? See {self.folder}."
            )
        return answer

    def write_operator_home(self) -> None:
        lines = [f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\naddress = "{self.address}"']
        lines.append(f'root-certificates = "{self.certificate}"' if self.certificate else "insecure = true")
        write_bytes(self.operator / "config.toml", ("\n".join(lines) + "\n").encode())
        write_bytes(self.operator / "app" / "pyproject.toml", APP.encode())

    def await_superlink(self, seconds: float = 60.0) -> None:
        host, port = self.address.rsplit(":", 1)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                socket.create_connection((host, int(port)), timeout=1).close()
                return
            except OSError:
                time.sleep(0.2)
        raise CoreshotError(
            f"SuperLink {self.address}: does not answer after {seconds:g} s; see {self.folder / 'superlink' / 'log'}."
        )


def _one_line(text: Any) -> str:
    return " ".join(str(text[0] if isinstance(text, list) else text).split())


def _last_json(text: str) -> Any:
    """Flower may say other things first."""
    start = text.find("{")
    try:
        return json.loads(text[start:]) if start >= 0 else None
    except ValueError:
        return None


def environment(home: Path) -> dict[str, str]:
    scripts = str(Path(sys.executable).parent)  # Flower finds its parts by name
    return {
        **os.environ,
        **SWITCHES,
        "FLWR_HOME": str(home.resolve()),
        "PATH": os.pathsep.join([scripts, os.environ.get("PATH", "")]),
    }


def program(name: str) -> str:
    path = Path(sys.executable).parent / name
    if not path.exists():
        raise CoreshotError(f"{name}: is not installed beside {sys.executable}; install coreshot[flower].")
    return str(path)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def superlink_command(home: Path, host: str, port: int, certs: Path | None, is_simulation: bool = False) -> list[str]:
    command = [
        program("flower-superlink"),
        "--host",
        host,
        "--port",
        str(port),
        "--database",
        str(home.resolve() / "link.db"),
    ]
    command += ["--simulation"] if is_simulation else []
    if certs is None:
        return [*command, "--insecure"]
    files = {"--ssl-ca-certfile": "ca.pem", "--ssl-certfile": "superlink.pem", "--ssl-keyfile": "superlink.key"}
    return [
        *command,
        *(part for option, name in files.items() for part in (option, str(certs.resolve() / name))),
        "--enable-supernode-auth",
    ]


def site_command(superlink: str, config: dict[str, str | float], certificate: str = "", key: str = "") -> list[str]:
    """What a site runs; without an authority's certificate nothing is encrypted, and nobody is authenticated."""
    command = [program("flower-supernode"), "--superlink", superlink, "--port", str(free_port())]
    command += (
        ["--root-certificates", certificate, "--auth-supernode-private-key", key] if certificate else ["--insecure"]
    )
    for name, value in config.items():
        if '"' in str(value) or "\n" in str(value):
            raise CoreshotError(f"{name} {value!r}: Flower cannot take a quotation mark or a line end here; rename it.")
    pairs = [f'{name}="{value}"' if isinstance(value, str) else f"{name}={value}" for name, value in config.items()]
    return [*command, "--node-config", " ".join(pairs)]


def is_alive(process: Process) -> bool:
    found = _found(process)
    return found is not None and found.status() != psutil.STATUS_ZOMBIE


def _found(process: Process) -> psutil.Process | None:
    """Not another one that has got its number since."""
    try:
        found = psutil.Process(process.pid)
        return found if found.create_time() == process.created else None
    except psutil.NoSuchProcess:
        return None


def end(processes: Sequence[Process], seconds: float = 5.0) -> None:
    """Together, and with all that they have started: a SuperNode's apps and their workers would go on without it."""
    found = [one for process in processes if (one := _found(process)) is not None]
    family = [*found, *(child for one in found for child in one.children(recursive=True))]
    for one in found:
        with suppress(psutil.NoSuchProcess):
            one.terminate()
    psutil.wait_procs(found, timeout=seconds)
    for member in family:
        with suppress(psutil.NoSuchProcess):
            member.kill()
    psutil.wait_procs(family, timeout=seconds)
