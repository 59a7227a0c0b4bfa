"""SIGKILL at random moments of `distill` and `fit`: python benchmarks/kill_commands.py --kills 50

After each kill the output is whole or not there (a model: as it was, or as it was to be), and the same command, run again to its end, gives the bytes
of an undisturbed run. Prints how many kills came before, during and after the work; exit code 1 at the first that left anything else.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
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


def command(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(
        [sys.executable, "-m", "coreshot.cli", *words], cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def contents(path: Path) -> dict[str, bytes]:
    """Of a file or a folder, without what a killed run may have left under temporary names."""
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file()) if path.exists() else []
    return {str(file.relative_to(path)): file.read_bytes() for file in files if not (file.name.startswith(".") and file.name.endswith(".tmp"))}


def prepare(folder: Path) -> None:
    draws = random.Random(0)
    (folder / "study.toml").write_text(STUDY)
    for name in ("north", "south", "west"):
        rows = [f"{draws.random():.3f},{draws.random():.3f},{draws.randrange(2)}" for _ in range(300)]
        (folder / f"{name}.csv").write_text("\n".join(["a,b,label", *rows]) + "\n")


def run(folder: Path, *words: str) -> float:
    began = time.monotonic()
    if command(folder, *words).wait():
        raise RuntimeError(f"{' '.join(words)}: ended with an error")
    return time.monotonic() - began


def kill_at(folder: Path, delay: float, *words: str) -> bool:
    """Whether the command was still running."""
    process = command(folder, *words)
    try:
        process.wait(timeout=delay)
        return False
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
        return True


def kill_distill(folder: Path, kills: int, draws: random.Random) -> Counter[str]:
    told: Counter[str] = Counter()
    seconds = run(folder, "distill", "study.toml", "north.csv", "--out", "whole.coreset", "--client", "north")
    whole = contents(folder / "whole.coreset")
    for _ in range(kills):
        out = folder / "north.coreset"
        was_running = kill_at(folder, draws.uniform(0, 1.1 * seconds), "distill", "study.toml", "north.csv", "--out", out.name)
        found = contents(out)
        if found and list(found.values()) != list(whole.values()):
            raise RuntimeError("distill: a kill left a file that is not whole")
        told[f"distill: {'killed, ' if was_running else 'ended, '}{'output whole' if found else 'no output'}"] += 1
        if not found:
            run(folder, "distill", "study.toml", "north.csv", "--out", out.name)
        if list(contents(out).values()) != list(whole.values()):
            raise RuntimeError("distill: the rerun gave other bytes")
        out.unlink()
    return told


def kill_fit(folder: Path, kills: int, draws: random.Random) -> Counter[str]:
    """Kills of `fit --add`, which changes a model that is there."""
    told: Counter[str] = Counter()
    for name in ("north", "south", "west"):
        run(folder, "distill", "study.toml", f"{name}.csv", "--out", f"{name}.coreset")
    run(folder, "fit", "north.coreset", "south.coreset", "--study", "study.toml", "--out", "before")
    seconds = run(folder, "fit", "north.coreset", "south.coreset", "west.coreset", "--study", "study.toml", "--out", "after")
    before, after = contents(folder / "before"), contents(folder / "after")
    for index in range(kills):
        model = folder / f"model{index}"
        run(folder, "fit", "north.coreset", "south.coreset", "--study", "study.toml", "--out", model.name)
        was_running = kill_at(folder, draws.uniform(0, 1.1 * seconds), "fit", "--add", "west.coreset", model.name)
        clients = clients_of(folder, model.name)
        if clients not in (["north", "south"], ["north", "south", "west"]):
            raise RuntimeError(f"fit: a kill left a model of {clients}")
        told[f"fit: {'killed, ' if was_running else 'ended, '}{len(clients)} clients"] += 1
        if len(clients) == 2:
            run(folder, "fit", "--add", "west.coreset", model.name)
        else:
            run(folder, "forget", model.name, "--client", "west")
        if contents(model) != (after if len(clients) == 2 else before):
            raise RuntimeError("fit: the rerun gave other bytes")
    return told


def clients_of(folder: Path, model: str) -> list[str]:
    """The clients of a model that can be read and asked."""
    from coreshot.model_folder import open_model

    opened = open_model(folder / model)
    opened.load()
    opened.coresets()
    return list(opened.clients)


def kill_all(kills: int, seed: int) -> Counter[str]:
    draws = random.Random(seed)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        prepare(folder)
        return kill_distill(folder, kills - kills // 2, draws) + kill_fit(folder, kills // 2, draws)


def main() -> None:
    parser = argparse.ArgumentParser(description="SIGKILL at random moments of distill and fit.")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    try:
        told = kill_all(options.kills, options.seed)
    except RuntimeError as error:
        print(f"kill: {error}", file=sys.stderr)
        sys.exit(1)
    for name, number in sorted(told.items()):
        print(f"{name}: {number}")


if __name__ == "__main__":
    main()
