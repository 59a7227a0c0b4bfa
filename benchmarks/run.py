"""`make bench`: coreshot beside its peers and this machine's own limits, in one run, as ratios. Writes bench.json,
{name: value}, and prints each figure beside its bar. A figure that misses its bar, or a part that fails, does not stop
the others: they are listed at the end, and the exit code is 1.

`python benchmarks/run.py --only fkl_update` measures one part and writes nothing; with --keep its figures replace those
of bench.json, so that the whole can be measured part by part, at times when the machine is idle. A peer runs in an
environment of its own (.venv-fedjax, .venv-torch: `make bench` makes them), or in this one if that is missing:
`pip install -e '.[bench]'` brings torch.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from client_seconds import client_seconds
from store import store
from turns import take_turns

HERE = Path(__file__).parent
OUTPUT = Path("bench.json")
UPDATES_PER_TURN = {"moons": 20, "emnist": 1}  # a chunk, as runs compile it; of EMNIST one update is long enough
TORCH_WAYS = {
    "moons": ["in_threads"],
    "emnist": ["in_turn", "in_threads"],
}  # moons has one client, and a second core slows its small products down
MEANING = {
    "cores": "of this machine",
    "part_seconds": "what each part took; with --only and --keep, when it was last measured",
    "bench_seconds": "the sum of what the parts took",
    "fedavg_round_seconds": "coreshot's, one FedAvg round of the paper's ConvNet, 10 clients x 10 steps x batch 25",
    "fedjax_round_seconds": "FedJAX's, the same round",
    "fedavg_round_over_fedjax": "their ratio; below 1 coreshot is faster",
    "sgemm_gflops": "of a 2048 x 2048 float32 matrix product in jax",
    "conv_chain_gflops": "nominal, of the compiled coreset chain (ConvNet, K = 62, 5 chains), a client on each core",
    "conv_chain_over_sgemm": "their ratio: how much of the matrix product's speed the chain keeps",
    "conv_chain_alone_over_sgemm": "the same with one client alone on all cores",
    "second_call_compilations": "programs that the chain's later calls compile",
    "patches_over_lax_conv": "how many times as fast the chain is with our convolution as with XLA's own",
    "fkl_update_seconds_moons": "coreshot's, one BPC-fKL pseudodata update at the paper's moons settings",
    "torch_update_seconds_moons": "plain torch's, the same update",
    "fkl_update_over_torch_moons": "how many times as fast coreshot is",
    "fkl_update_seconds_emnist": "an update of two clients at the paper's EMNIST settings, a tenth of chain and noise",
    "torch_update_seconds_emnist": "plain torch's, the same updates",
    "fkl_update_over_torch_emnist": "how many times as fast coreshot is",
    "store_over_float32": "bytes of the experts at the paper's EMNIST settings, over float32 (72.9 GB a client)",
    "store_float16_over_float32": "the same with the drawable checkpoints in float16",
    "client_seconds": "of all clients with BPC-fKL, digits_quick",
    "fedavg_client_seconds": "of all clients with FedAvg until it was as accurate",
    "client_seconds_over_fedavg": "their ratio: what one round of communication costs in time",
    "peak_memory_mb": "of a process for one client's update at the paper's EMNIST settings",
    "time_growth_k_half": "time of an EMNIST update with K = 31 over K = 62",
    "time_growth_k_2x": "with K = 124 over K = 62",
    "time_growth_clients_half": "for 1 client over 2",
    "time_growth_clients_2x": "for 4 clients over 2",
    "time_growth_width_half": "with half the channels and hidden units (a quarter of the work)",
    "time_growth_width_2x": "with twice the channels and hidden units (four times the work)",
    "spectral_seconds": "of 100 clients and the server, spectral, 260 kB (230 images of 28 x 28 each, d = 4,096)",
    "spectral_growth": "time of 100 clients over 4 times that of 25: 1 is linear",
    "spectral_peak_gb": "of that process, images and messages of all clients included",
    "spectral_over_products": "their time over that of matrix products of as many operations",
    "spectral_1024_seconds": "of 100 clients and the server, d = 1,024, 70 kB",
    "spectral_over_ridge": "100 clients and the server, d = 1,024 Fourier features, all rows as float32, over "
    "scikit-learn's RBFSampler and RidgeClassifier, pooled",
    "spectral_coded_over_ridge": "the same with rows coded to 69 kB",
    "spectral_coded_over_ridge_cv": "that over RidgeClassifierCV, which chooses its ridge too",
    "server_over_afl": "time of the server over AFL's aggregation of as many matrices, d = 1,024",
    "fit_10000_seconds": "of `coreshot fit` of 10,000 coresets of glm of 9 kB",
    "fit_10000_gb": "its memory",
    "fit_growth": "its time over ten times that of 1,000",
    "add_to_10000_seconds": "of `coreshot fit --add` of one more",
    "forget_of_10000_seconds": "of `coreshot forget`",
    "distill_csv_seconds": "of `coreshot distill` of 1,000,000 records x 20 columns, CSV",
    "distill_csv_gb": "its memory",
    "distill_parquet_seconds": "the same of parquet",
    "image_fit_seconds": "of `coreshot fit` of four image coresets of 70 kB, with the slowest number of threads",
    "image_fit_busy_seconds": "the same beside a process whose two BLAS threads keep both cores busy",
    "help_seconds": "of `coreshot --help`",
    "distill_small_seconds": "of `coreshot distill` of a table of 1,000 records",
}
# What a figure is to keep to: at most, or at least. They are for two idle cores, matrix products of 170 GFLOP/s.
AT_MOST = {
    "bench_seconds": 900.0,
    "spectral_seconds": 30.0,
    "spectral_over_products": 2.5,
    "spectral_1024_seconds": 10.0,
    "spectral_over_ridge": 1.0,
    "spectral_coded_over_ridge": 1.0,
    "spectral_coded_over_ridge_cv": 1.0,
    "server_over_afl": 1.0,
    "fit_10000_seconds": 40.0,
    "fit_10000_gb": 1.0,
    "fit_growth": 1.0,
    "add_to_10000_seconds": 4.0,
    "forget_of_10000_seconds": 6.0,
    "distill_csv_seconds": 40.0,
    "distill_csv_gb": 1.0,
    "distill_parquet_seconds": 15.0,
    "image_fit_seconds": 8.0,
    "image_fit_busy_seconds": 16.0,
    "help_seconds": 0.5,
    "distill_small_seconds": 3.0,
    "fedavg_round_over_fedjax": 1.0,
    "second_call_compilations": 0.0,
}
AT_LEAST = {"fkl_update_over_torch_emnist": 1.5, "fkl_update_over_torch_moons": 10.0}


def peer(name: str) -> str:
    """The interpreter that has it."""
    own = HERE.parent / f".venv-{name}" / "bin" / "python"
    return str(own) if own.exists() else sys.executable


def script(name: str, *arguments: str, python: str = sys.executable) -> list[str]:
    return [python, str(HERE / name), *arguments]


def measured(name: str) -> dict[str, float]:
    """By a script that prints what it found, in a process of its own."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    return json.loads(
        subprocess.run(script(name), check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
    )


def last_line(name: str, *arguments: str) -> dict[str, Any]:
    """Of a script that prints a table, and then all of it as JSON."""
    done = subprocess.run(script(name, *arguments), check=True, stdout=subprocess.PIPE, text=True)
    *table, found = done.stdout.splitlines()
    print("\n".join(table), flush=True)
    return dict(json.loads(found))


def spectral_profile() -> dict[str, float]:
    large = last_line("profile_spectral.py")
    small = last_line("profile_spectral.py", "--dimension", "1024", "--bytes", "69000")
    return {
        "spectral_seconds": large["seconds"],
        "spectral_growth": large["growth"],
        "spectral_peak_gb": large["peak_gb"],
        "spectral_over_products": large["over_products"],
        "spectral_1024_seconds": small["seconds"],
    }


def spectral_peers() -> dict[str, float]:
    found = last_line("spectral_peers.py")
    return {
        "spectral_over_ridge": found["rows"] / found["ridge"],
        "spectral_coded_over_ridge": found["coreshot"] / found["ridge"],
        "spectral_coded_over_ridge_cv": found["coreshot"] / found["ridge_cv"],
        "server_over_afl": found["server"] / found["afl"],
    }


def many_clients() -> dict[str, float]:
    found = last_line("many_clients.py", "--sizes", "1000,10000")
    fit = found["fit 10000"]
    return {
        "fit_10000_seconds": fit["seconds"],
        "fit_10000_gb": fit["gb"],
        "fit_growth": fit["seconds"] / 10 / found["fit 1000"]["seconds"],
        "add_to_10000_seconds": found["fit --add 10000"]["seconds"],
        "forget_of_10000_seconds": found["forget 10000"]["seconds"],
    }


def large_tables() -> dict[str, float]:
    small = last_line("large_tables.py", "--sizes", "1000", "--formats", "csv")["csv 1000"]
    found = last_line("large_tables.py", "--sizes", "1000000")
    csv = found["csv 1000000"]
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "coreshot", "--help"], check=True, stdout=subprocess.DEVNULL)
    return {
        "distill_csv_seconds": csv["seconds"],
        "distill_csv_gb": csv["gb"],
        "distill_parquet_seconds": found["parquet 1000000"]["seconds"],
        "help_seconds": time.perf_counter() - began,
        "distill_small_seconds": small["seconds"],
    }


def image_fit() -> dict[str, float]:
    found = {name: row["seconds"] for name, row in last_line("image_fit.py").items()}
    busy, slowest = found.pop("busy"), max(found.values())
    return {"image_fit_seconds": slowest, "image_fit_busy_seconds": busy}


def fedavg_round() -> dict[str, float]:
    sides = {"coreshot": script("coreshot_round.py"), "fedjax": script("fedjax_round.py", python=peer("fedjax"))}
    seconds = {name: median(turns) for name, turns in take_turns("FedAvg round", sides, num_timed=5).items()}
    ours, theirs = seconds["coreshot"], seconds["fedjax"]
    return {"fedavg_round_seconds": ours, "fedjax_round_seconds": theirs, "fedavg_round_over_fedjax": ours / theirs}


def fkl_update() -> dict[str, float]:
    """Where torch has two ways to use the cores, the faster one counts."""
    with tempfile.TemporaryDirectory() as folder:
        case = f"{folder}/case.safetensors"
        subprocess.run(script("agreement.py", case), check=True, env={**os.environ, "JAX_PLATFORMS": "cpu"})
        subprocess.run(script("torch_update.py", "check", case, python=peer("torch")), check=True)
    found = {}
    for task, updates in UPDATES_PER_TURN.items():
        sides = {"coreshot": script("coreshot_update.py", task, str(updates))}
        sides |= {
            f"torch {way}": script("torch_update.py", task, way, python=peer("torch")) for way in TORCH_WAYS[task]
        }
        seconds = {
            name: median(turns) for name, turns in take_turns(f"{task} update", sides, num_timed=4, num_warm=1).items()
        }
        ours = seconds.pop("coreshot") / updates
        theirs = min(seconds.values())
        found |= {
            f"fkl_update_seconds_{task}": ours,
            f"torch_update_seconds_{task}": theirs,
            f"fkl_update_over_torch_{task}": theirs / ours,
        }
    return found


PARTS: dict[str, Callable[[], dict[str, float]]] = {
    "store": store,
    "conv_chain": lambda: measured("chain.py"),
    "convolutions": lambda: measured("convolutions.py"),
    "fkl_update": fkl_update,
    "fedavg_round": fedavg_round,
    "peak_memory": lambda: measured("peak_memory.py"),
    "time_growth": lambda: measured("time_growth.py"),
    "spectral_profile": spectral_profile,
    "spectral_peers": spectral_peers,
    "many_clients": many_clients,
    "large_tables": large_tables,
    "image_fit": image_fit,
    "client_seconds": client_seconds,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures coreshot; writes bench.json.")
    parser.add_argument("--only", choices=PARTS, help="this part; bench.json stays as it is")
    parser.add_argument("--keep", action="store_true", help="with --only: put this part's figures into bench.json")
    chosen = parser.parse_args()
    # An old result must not pass for one of this run.
    found = json.loads(OUTPUT.read_text()) if chosen.only and OUTPUT.exists() else {}
    found |= {"cores": float(os.cpu_count() or 0), "part_seconds": found.get("part_seconds", {})}
    if not chosen.only:
        OUTPUT.unlink(missing_ok=True)
    missed = list[str]()
    for name in [chosen.only] if chosen.only else PARTS:
        print(f"{name} ...", flush=True)
        began = time.perf_counter()
        try:
            measured_now = PARTS[name]()
        except (subprocess.CalledProcessError, OSError, KeyError, ValueError) as error:
            missed.append(f"{name}: failed ({error})")
            continue
        values = {key: float(f"{value:.4g}") for key, value in measured_now.items()}
        missed += print_beside_bars(values)
        found |= values
        found["part_seconds"][name] = round(time.perf_counter() - began)
        print(f"{name} took {found['part_seconds'][name]} s", flush=True)
        if chosen.keep or not chosen.only:
            OUTPUT.write_text(json.dumps(found, indent=1) + "\n")
    missed += print_beside_bars({"bench_seconds": float(sum(found["part_seconds"].values()))})
    if missed:
        sys.exit("missed:\n" + "\n".join(missed))


def print_beside_bars(values: dict[str, float]) -> list[str]:
    """Those that miss their bar."""
    missed = []
    for key, value in values.items():
        bar, is_met = bar_of(key, value)
        print(f"{key:30} {value:10g}  {bar:14}  {MEANING[key]}", flush=True)
        missed += [] if is_met else [f"{key}: {value:g}, {bar}"]
    return missed


def bar_of(name: str, value: float) -> tuple[str, bool]:
    """In words, and whether the value keeps to it."""
    if name in AT_MOST:
        return f"at most {AT_MOST[name]:g}", value <= AT_MOST[name]
    if name in AT_LEAST:
        return f"at least {AT_LEAST[name]:g}", value >= AT_LEAST[name]
    return "", True


if __name__ == "__main__":
    main()
