"""`coreshot fit` of four image coresets of 70 kB (d = 1,024), as a command: with any number of BLAS threads, and beside
a process that keeps BLAS busy. The models are the same bytes, or it fails.

    python benchmarks/image_fit.py

Seconds are of the clock, and of the process's own work in brackets. The last line is JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from many_clients import run

from coreshot.api import distill
from coreshot.study.file import parse_study

STUDY = """format = 1
name = "images"
task = "classification"
[target]
name = "digit"
classes = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
[method]
name = "spectral"
max_bytes = 69000
[method.features]
name = "random_conv"
dimension = 1024
[image]
shape = [28, 28, 1]
"""
BUSY = "import numpy as np\none = np.ones((2000, 2000))\nwhile True: one @ one"


def main() -> None:
    study, found, bytes_of = parse_study(STUDY, "benchmark").study, {}, {}
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "study.toml").write_text(STUDY)
        for seed in range(4):
            draws = np.random.default_rng(seed)
            images, labels = draws.random((230, 28, 28, 1), np.float32), draws.integers(10, size=230)
            (work / f"{seed}.coreset").write_bytes(distill(study, images, labels, client=f"site-{seed}"))
        files = sorted(work.glob("*.coreset"))
        ways = {"threads 1": "1", "threads 2": "2", "default": None, "busy": None}
        for name, threads in ways.items():
            for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
                os.environ.pop(variable, None)
                if threads is not None:
                    os.environ[variable] = threads
            busy = subprocess.Popen([sys.executable, "-c", BUSY]) if name == "busy" else None
            model = work / name
            found[name] = run("fit", *files, "--study", work / "study.toml", "--out", model)
            if busy is not None:
                busy.kill()
                busy.wait()
            bytes_of[name] = {path.name for path in model.glob("posterior-*")}
            row = found[name]
            print(f"{name:10} {row['seconds']:7.1f} s [{row['cpu']:6.1f}] {row['gb']:.2f} GB", flush=True)
    if len({str(names) for names in bytes_of.values()}) > 1:
        sys.exit(f"the models differ: {bytes_of}")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
