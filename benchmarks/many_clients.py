"""Many coresets on one server: `fit`, `fit --add` and `forget`, as commands, with their memory.

    python benchmarks/many_clients.py [--sizes 1000,10000] [--max-bytes 9000]

Sites are drawn from one logistic distribution of 20 columns, BASES of them distilled; of each many coresets are made by
moving its numbers a little, so that no two are copies. (A server's work does not depend on what the numbers are.)
Seconds are of the clock, and of the process's own work in brackets. Prints a table; the last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from coreshot.api import distill
from coreshot.study.file import parse_study
from coreshot.wire.messages import pack, unpack

BASES, RECORDS, COLUMNS = 16, 200, 20
MOVED = 1e-3  # of a number, in its relative size
STUDY = """format = 1
name = "many clients"
task = "classification"
[target]
name = "ill"
classes = ["no", "yes"]
[method]
name = "glm"
max_bytes = {max_bytes}
[table]
missing = "mean"
"""


def study_text(max_bytes: int) -> str:
    column = '[[table.column]]\nname = "x{}"\nkind = "number"\nrange = [-4, 4]\noutside = "clip"\n'
    return STUDY.format(max_bytes=max_bytes) + "".join(column.format(number) for number in range(COLUMNS))


def base_messages(text: str) -> list[bytes]:
    study, slopes = parse_study(text, "benchmark").study, np.random.default_rng(0).normal(size=COLUMNS)
    found = []
    for seed in range(BASES):
        draws = np.random.default_rng(seed + 1)
        x = draws.normal(size=(RECORDS, COLUMNS)).clip(-4, 4) / 4
        y = draws.uniform(size=RECORDS) < 1 / (1 + np.exp(-3 * x @ slopes))
        found.append(distill(study, np.c_[x, np.zeros_like(x)], y.astype(int), client=f"base-{seed}"))
    return found


def write_coresets(folder: Path, bases: list[bytes], count: int) -> None:
    """As many as there are not yet."""
    folder.mkdir(parents=True, exist_ok=True)
    parsed = [unpack(data) for data in bases]
    for number in range(count):
        path = folder / f"{number // 1000:03d}" / f"site-{number}.coreset"
        if path.exists():
            continue
        path.parent.mkdir(exist_ok=True)
        header, arrays = parsed[number % len(parsed)]
        draws = np.random.default_rng(number)
        moved = {
            name: array * draws.uniform(1 - MOVED, 1 + MOVED, array.shape).astype(np.float32)
            for name, array in arrays.items()
            if name in ("center", "scale", "weights", "gradient")
        }
        path.write_bytes(pack({**header, "client": f"site-{number}"}, {**arrays, **moved}))


def run(*words: object) -> dict[str, float]:
    """Seconds of the clock and of the process, and its peak memory."""
    code = (
        "import resource, sys\n"
        "try:\n    from coreshot.cli import main; main()\n"
        "finally:\n    used = resource.getrusage(resource.RUSAGE_SELF)\n"
        "    print(used.ru_utime + used.ru_stime, used.ru_maxrss, file=sys.stderr)\n"
    )
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)], text=True, capture_output=True, env=os.environ, check=False
    )
    seconds = time.perf_counter() - began
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words[:2]))}: {done.stderr or done.stdout}")
    cpu, memory = done.stderr.split()[-2:]
    return {"seconds": seconds, "cpu": float(cpu), "gb": float(memory) * 1024 / 1e9}


def measure(work: Path, text: str, bases: list[bytes], size: int) -> dict[str, dict[str, float]]:
    """With one client more than size, which comes and leaves again; the bytes at the end are those of the first fit."""
    (work / "study.toml").write_text(text)
    arrived, late = work / f"arrived-{size}", work / "late"
    write_coresets(arrived, bases, size)
    late.mkdir(exist_ok=True)
    header, arrays = unpack(bases[0])
    arrays = {**arrays, "center": arrays["center"] * np.float32(1.01)}
    (late / "late.coreset").write_bytes(pack({**header, "client": "late"}, arrays))
    model = work / f"model-{size}"
    shutil.rmtree(model, ignore_errors=True)
    found = {"fit": run("fit", arrived, "--study", work / "study.toml", "--out", model)}
    before = sorted(path.name for path in model.rglob("*"))
    found["fit --add"] = run("fit", "--add", late / "late.coreset", model)
    found["forget"] = run("forget", model, "--client", "late")
    if sorted(path.name for path in model.rglob("*")) != before:  # names have hashes of what is in the files
        sys.exit("the model is another one after a client has come and left")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures fits of many coresets.")
    parser.add_argument("--sizes", default="1000,10000")
    parser.add_argument("--max-bytes", type=int, default=9_000)
    parser.add_argument("--work", type=Path, help="a folder that keeps the coresets; the default is a temporary one")
    chosen = parser.parse_args()
    text, rows = study_text(chosen.max_bytes), {}
    bases = base_messages(text)
    with tempfile.TemporaryDirectory() as temporary:
        work = chosen.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        for size in map(int, chosen.sizes.split(",")):
            for name, row in measure(work, text, bases, size).items():
                rows[f"{name} {size}"] = row
                print(
                    f"{size:8,} {name:10} {row['seconds']:8.1f} s [{row['cpu']:7.1f}] {row['gb']:6.2f} GB", flush=True
                )
    print(json.dumps({"bytes": len(bases[0]), **rows}))


if __name__ == "__main__":
    main()
