"""`make bench`: coreshot beside its peers, in one run, as ratios. The two sides take turns, so that a busy machine slows both alike.

Writes bench.json, {name: value}.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

HERE = Path(__file__).parent
NUM_TIMED = 7


def fedavg_round(fedjax_python: str) -> dict[str, float]:
    """Seconds of one FedAvg round (ConvNet, 10 clients x 10 local steps x batch 25), the median of turns taken warm, and their ratio."""
    commands = {"coreshot": (sys.executable, "coreshot_round.py"), "fedjax": (fedjax_python, "fedjax_round.py")}
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    sides = {
        name: subprocess.Popen([python, str(HERE / script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        for name, (python, script) in commands.items()
    }
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(2 + NUM_TIMED):  # the first two warm up: compilation, and the allocator
        for name, side in sides.items():
            assert side.stdin is not None
            assert side.stdout is not None
            side.stdin.write("\n")
            side.stdin.flush()
            line = side.stdout.readline()
            if not line:
                sys.exit(f"bench: {name} ended with {side.wait()}; its own words are above.")
            took = float(line)
            print(f"{name} round {turn}: {took:.2f} s{' (warming up)' if turn < 2 else ''}", flush=True)
            if turn >= 2:
                seconds[name].append(took)
    for side in sides.values():
        side.communicate()
    ours, theirs = median(seconds["coreshot"]), median(seconds["fedjax"])
    return {
        "cores": float(os.cpu_count() or 0),
        "fedavg_round_seconds": ours,
        "fedjax_round_seconds": theirs,
        "fedavg_round_over_fedjax": ours / theirs,
    }


def main() -> None:
    Path("bench.json").unlink(missing_ok=True)  # an old result must not pass for one of this run
    found = {name: round(value, 4) for name, value in fedavg_round(sys.argv[1]).items()}
    Path("bench.json").write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
