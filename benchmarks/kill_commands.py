"""SIGKILL at random moments of `distill` and `fit`: python benchmarks/kill_commands.py --kills 50

Real processes, each in a folder of its own, as many beside each other as there are cores. Every
other pair of kills comes at times drawn evenly over a whole run, of which most is imports; the others come within
milliseconds after the first
temporary file is seen, so while the command writes. After each kill the output is whole or not there (a model: as it
was, or as it was to be), and
the same command, run again to its end, gives the bytes of an undisturbed run. Prints how many kills came when, and
what they left; exit code 1 at
the first that left anything else.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

STUDY = """
format = 1
name = "kill"
task = "classification"

[target]
name = "label"
classes = ["0", "1"]

[table]
[[table.column]]
name = "a"
kind = "number"
range = [0, 1]

[[table.column]]
name = "b"
kind = "number"
range = [0, 1]

[method]
name = "spectral"
features = { name = "random_vector", dimension = 400 }
"""


WRITING_SECONDS = 0.01  # after the first temporary file is seen, within which a kill comes


@dataclass(frozen=True)
class Moment:
    """So many seconds after the start, or after something is first being written."""

    is_writing: bool
    delay: float


def command(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(
        [sys.executable, "-m", "coreshot", *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def contents(path: Path) -> dict[str, bytes]:
    """Of a file or a folder, without what a killed run may have left under temporary names."""
    files = (
        [path]
        if path.is_file()
        else sorted(file for file in path.rglob("*") if file.is_file())
        if path.exists()
        else []
    )
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in files
        if not (file.name.startswith(".") and file.name.endswith(".tmp"))
    }


def prepare(folder: Path) -> float:
    """Three sites' files, a model before and after the third, and an undisturbed output; how long a command takes
    here.
    """
    draws = random.Random(0)
    folder.mkdir()
    (folder / "study.toml").write_text(STUDY)
    for name in ("north", "south", "west"):
        rows = [f"{draws.random():.3f},{draws.random():.3f},{draws.randrange(2)}" for _ in range(300)]
        (folder / f"{name}.csv").write_text("\n".join(["a,b,label", *rows]) + "\n")
    seconds = run(folder, "distill", "study.toml", "north.csv", "--out", "whole.coreset", "--client", "north")
    # Nobody disturbs these, so they need no processes of their own, which would take longer than all they do.
    for name in ("south", "west"):
        inside(folder, "distill", "study.toml", f"{name}.csv", "--out", f"{name}.coreset")
    inside(folder, "fit", "whole.coreset", "south.coreset", "--study", "study.toml", "--out", "before")
    inside(folder, "fit", "whole.coreset", "south.coreset", "west.coreset", "--study", "study.toml", "--out", "after")
    return seconds


def inside(folder: Path, *words: str) -> None:
    from coreshot.cli.commands import app

    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        app([*words, "--json"], standalone_mode=False)


def run(folder: Path, *words: str) -> float:
    began = time.monotonic()
    if command(folder, *words).wait():
        raise RuntimeError(f"{' '.join(words)}: ended with an error")
    return time.monotonic() - began


def kill_at(folder: Path, moment: Moment, *words: str) -> str:
    """When it came: before anything was written, while something was, or after the end."""
    process, began = command(folder, *words), time.monotonic()
    while process.poll() is None:
        if moment.is_writing and temporaries(folder):
            time.sleep(moment.delay)
            break
        if not moment.is_writing and time.monotonic() - began > moment.delay:
            break
        time.sleep(0.0005)
    process.send_signal(signal.SIGKILL)
    if process.wait() != -signal.SIGKILL:
        return "after the end"
    return "while writing" if temporaries(folder) else "with no temporary file"


def temporaries(folder: Path) -> list[Path]:
    return list(folder.rglob(".*.tmp"))


def kill_distill(given: Path, folder: Path, moment: Moment) -> str:
    shutil.copytree(given, folder)
    whole, out = (folder / "whole.coreset").read_bytes(), folder / "north.coreset"
    words = ("distill", "study.toml", "north.csv", "--out", out.name)
    when = kill_at(folder, moment, *words)
    was_there = out.exists()
    if was_there and out.read_bytes() != whole:
        raise RuntimeError("distill: a kill left a file that is not whole")
    if not was_there:
        run(folder, *words)
    if out.read_bytes() != whole:
        raise RuntimeError("distill: the rerun gave other bytes")
    return f"distill: killed {when}, {'output whole' if was_there else 'no output'}"


def kill_fit(given: Path, folder: Path, moment: Moment) -> str:
    """Of `fit --add`, which changes a model that is there."""
    shutil.copytree(given, folder)
    before, after = contents(folder / "before"), contents(folder / "after")
    when = kill_at(folder, moment, "fit", "--add", "west.coreset", "before")
    clients = clients_of(folder / "before")
    if clients not in (["north", "south"], ["north", "south", "west"]):
        raise RuntimeError(f"fit: a kill left a model of {clients}")
    if len(clients) == 2:
        run(folder, "fit", "--add", "west.coreset", "before")
    else:
        run(folder, "forget", "before", "--client", "west")
    if contents(folder / "before") != (after if len(clients) == 2 else before):
        raise RuntimeError("fit: the rerun gave other bytes")
    return f"fit: killed {when}, {len(clients)} clients"


def clients_of(model: Path) -> list[str]:
    """The clients of a model that can be read and asked."""
    from coreshot.fitted.folder import open_model

    opened = open_model(model)
    opened.load()
    opened.coresets()
    return list(opened.clients)


def kill_all(kills: int, seed: int, jobs: int) -> Counter[str]:
    draws = random.Random(seed)
    with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(jobs) as pool:
        given = Path(place) / "given"
        seconds = prepare(given)
        work = []
        for index in range(kills):
            is_writing = index // 2 % 2 == 1
            moment = Moment(
                is_writing, draws.uniform(0, WRITING_SECONDS) if is_writing else draws.uniform(0, 1.1 * seconds)
            )
            work.append(pool.submit(kill_distill if index % 2 else kill_fit, given, Path(place) / str(index), moment))
        try:
            return Counter(one.result() for one in as_completed(work))
        finally:
            pool.shutdown(cancel_futures=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="SIGKILL at random moments of distill and fit.")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="commands beside each other")
    options = parser.parse_args()
    try:
        told = kill_all(options.kills, options.seed, options.jobs)
    except RuntimeError as error:
        print(f"kill: {error}", file=sys.stderr)
        sys.exit(1)
    for name, number in sorted(told.items()):
        print(f"{name}: {number}")


if __name__ == "__main__":
    main()
