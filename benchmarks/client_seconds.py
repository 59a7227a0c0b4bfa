"""What a one-shot client costs in time: BPC-fKL's seconds over those of FedAvg until it was as accurate, on the
digits task.

Both are the seconds of all clients on all cores, as the run directory has them; FedAvg's rounds take the same time
each. BPC-fKL's include
compilation, where its programs are not yet in the user's cache.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from coreshot.experiments.communication import first_match
from coreshot.storage import read_json

PRESET = Path(__file__).with_suffix(".toml")
ONE_SHOT, ROUNDS = "BPC-FL + SGD", "FedAvg (10 local steps)"


def from_run(folder: Path) -> dict[str, float]:
    rows = {row["arm"]: row for row in read_json(folder / "results.json")}
    (path,) = folder.glob("arms/*/fedavg*/seed-*/curve.json")
    curve = read_json(path)
    match = first_match(curve, "accuracy", rows[ONE_SHOT]["accuracy"])
    if match is None:
        print("  FedAvg never was as accurate: its whole time counts, and the ratio is an upper bound", flush=True)
    share = (match or curve[-1])["round"] / curve[-1]["round"]
    ours, theirs = rows[ONE_SHOT]["seconds_client"], share * rows[ROUNDS]["seconds_client"]
    return {"client_seconds": ours, "fedavg_client_seconds": theirs, "client_seconds_over_fedavg": ours / theirs}


def client_seconds() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-c",
            "from coreshot.cli.commands import main; main()",
            "run",
            str(PRESET),
            "--out",
            folder,
        ]
        subprocess.run(command, check=True)
        return from_run(Path(folder))
