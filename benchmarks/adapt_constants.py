"""Constants of `coreshot adapt`, on development tables and generated hospitals alone.

`python benchmarks/adapt_constants.py` divides the development tables of benchmarks/tables.py into sites by label, by a
column and by chance, and draws the hospitals of examples/heart that nobody has. Three quarters of each site train. It
compares, on the other quarter, the federation's model, the site's own and the adapted one with each choice of
`INTERCEPT_VARIANCE` (src/coreshot/glm/personal.py); and, with the site left out, on all its records without their
labels, shares that are always corrected, and each choice of `WORSE` (src/coreshot/glm/base_rate_trial.py). It writes
means of NLL and accuracy to results/constants/adapt.json and prints them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples" / "heart"))

import numpy as np
import run as heart
import table_splits
from table_runs import Job, _read, make_study, make_table
from table_sources import DEVELOPMENT, PACKAGES

from coreshot import read_study
from coreshot.data.files import read_records
from coreshot.glm import base_rate_trial, personal
from coreshot.glm.base_rates import estimate_shares
from coreshot.glm.filling import Filling
from coreshot.glm.head import Head, fit_head
from coreshot.glm.personal_among import personalise_among
from coreshot.glm.polynomials import Polynomials
from coreshot.glm.posterior import GlmPosterior
from coreshot.glm.site import sorted_records, sum_records
from coreshot.glm.summary import Summary, add_summaries
from coreshot.models import Model
from coreshot.study import Study
from coreshot.types import make_points

OUT = Path(__file__).resolve().parent.parent / "results" / "constants" / "adapt.json"
TABLES = [name for name in DEVELOPMENT if name not in ("led7digit", "segment", "ring", "twonorm", "tae")]
ROWS = 800  # of a table: sites as small as hospitals' departments
DIRICHLET = 1.0
INTERCEPT_VARIANCES = (1.0, 4.0, 16.0)
WORSE = (0.003, 0.01, 0.03, 0.1)
Arrays = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Place:
    """A site: what it has, what tests it, and the models of all sites and of the others."""

    name: str
    split: str
    polynomials: Polynomials
    model: Model
    full: Head
    others: Head
    left: list[Summary]  # the others' sums
    own: Head
    train: Arrays
    test: Arrays


def places(seed: int, packages: Path) -> Iterator[Place]:
    for name in TABLES:
        for split in ("label", "natural", "iid"):
            yield from _places_of_table(name, split, seed, packages)
    for draw in range(3):
        with tempfile.TemporaryDirectory() as folder:
            heart.look_alike(Path(folder), seed=100 + 10 * seed + draw)
            study = read_study(heart.STUDY)
            files = [Path(folder) / f"{name}.csv" for name in heart.HOSPITALS]
            read = [read_records(file, study.inputs, study.target) for file in files]  # type: ignore[arg-type]
            yield from _fit("hospitals", "generated", study, [(one.x, one.y) for one in read], seed)


def _places_of_table(name: str, split: str, seed: int, packages: Path) -> Iterator[Place]:
    job = Job(name, split, seed)
    table, draws = make_table(job, packages), np.random.default_rng([seed, 7])
    rows = draws.permutation(table.num_rows)[:ROWS]
    table_splits.DIRICHLET = DIRICHLET
    owner = {
        "iid": lambda: np.arange(len(rows)) % 4,
        "label": lambda: table_splits._by_label(table.labels[rows], False, draws),
        "natural": lambda: table_splits._by_column(table.cells[str(table.natural)][rows]),
    }[split]()
    with tempfile.TemporaryDirectory() as folder:
        study = make_study(job, table, Path(folder))
        sites = table_splits._gather(rows, owner)
        parts = [_read(study, table, table.cells, one, Path(folder) / "records") for one in sites]
    yield from _fit(name, split, study, parts, seed)


def _fit(name: str, split: str, study: Study, parts: list[Arrays], seed: int) -> Iterator[Place]:
    """Sums are exact: rounding is left out. Missing numbers are filled with the means of all."""
    polynomials, size = study.method.polynomials(study.model), study.agreement.num_outputs
    filling = Filling.of_records(np.concatenate([x for x, _ in parts]).astype(np.float64), study.method.fills)
    draws, train, test = np.random.default_rng([seed, 8]), [], []
    for x, y in parts:
        filled, order, cut = filling(x.astype(np.float64)), draws.permutation(len(y)), max(len(y) // 4, 1)
        test.append((filled[order[:cut]], y[order[:cut]]))
        train.append((filled[order[cut:]], y[order[cut:]]))
    sums = [
        sum_records(study.model, polynomials, *sorted_records(make_points(x, np.eye(size)[y]))).summary("groups")
        for x, y in train
    ]
    full = fit_head(polynomials, add_summaries(sums))
    for site, one in enumerate(sums):
        if len(train[site][1]) >= 15:
            left = [sums[index] for index in range(len(sums)) if index != site]
            others = fit_head(polynomials, add_summaries(left))
            own = fit_head(polynomials, one)
            yield Place(name, split, polynomials, study.model, full, others, left, own, train[site], test[site])


def score(place: Place, head: Head, data: Arrays, log_ratios: np.ndarray | None = None) -> tuple[float, float]:
    """NLL and accuracy."""
    x, y = data
    probabilities = np.asarray(GlmPosterior(place.polynomials, "classification", head).predict(x).mean)
    if log_ratios is not None:
        probabilities = probabilities * np.exp(log_ratios)
        probabilities /= probabilities.sum(axis=1, keepdims=True)
    nll = -np.mean(np.log(np.maximum(probabilities[np.arange(len(y)), y], 1e-6)))
    return float(nll), float(np.mean(probabilities.argmax(axis=1) == y))


def try_choices(place: Place) -> dict[str, tuple[float, float]]:
    found = {name: score(place, getattr(place, name), place.test) for name in ("full", "own")}
    x, y = sorted_records(make_points(place.train[0], np.eye(place.model.num_outputs)[place.train[1]]))
    head, others = place.others, add_summaries(place.left)
    for variance in INTERCEPT_VARIANCES:
        personal.INTERCEPT_VARIANCE = variance
        made = personalise_among(place.model, place.polynomials, others, x, y)
        found[f"adapted, {variance:g}"] = score(place, made.head, place.test)
    every = (np.concatenate([place.train[0], place.test[0]]), np.concatenate([place.train[1], place.test[1]]))
    found["left out"] = score(place, head, every)
    said = np.asarray(GlmPosterior(place.polynomials, "classification", head).predict(every[0]).mean)
    rates = estimate_shares(said, np.asarray(head.class_shares))
    found["shares, always"] = score(place, head, every, rates.log_ratios)
    for worse in WORSE:
        base_rate_trial.WORSE = worse
        trust = base_rate_trial.try_at_sites(place.polynomials, place.left).trust
        found[f"shares, {worse:g}"] = score(place, head, every, rates.scaled(trust))
        found[f"shares were corrected, {worse:g}"] = trust, float(trust > 0)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--packages", type=Path, default=PACKAGES)
    options = parser.parse_args()
    rows: dict[str, list[dict[str, tuple[float, float]]]] = {}
    for seed in range(options.seeds):
        for place in places(seed, options.packages):
            rows.setdefault(place.split, []).append(try_choices(place))
            print(place.name, place.split, len(place.train[1]), file=sys.stderr, flush=True)
    means = {
        split: {
            "sites": len(found),
            **{
                name: [round(float(np.mean([one[name][entry] for one in found])), 4) for entry in (0, 1)]
                for name in found[0]
            },
        }
        for split, found in rows.items()
    }
    OUT.write_text(json.dumps(means, indent=1) + "\n")
    print(json.dumps(means, indent=1))


if __name__ == "__main__":
    main()
