"""Do 90 % intervals for a site that did not take part hold what they say, where sites differ by a known variance?

`python benchmarks/new_site_coverage.py` draws 200 federations of a quantity and 200 of two classes: 12 sites of 150
records, each with an intercept of its own, N(0, variance). The model of their files meets 20 new sites with other
intercepts. Counted is how often the 90 % interval holds the new site's expected value (of classes: its log odds) at a
record, and, of a quantity, the record's own value; with what the sites' differences say (`predict --new-site`), and
without (negative control). It writes results/at_work/new_site_coverage.json.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np
import scipy.special
import scipy.stats

from coreshot.glm.between_sites import compare_residuals
from coreshot.glm.head import fit_head
from coreshot.glm.posterior import GlmPosterior
from coreshot.glm.site import sorted_records, sum_records
from coreshot.glm.site_effects import fit_with_sites
from coreshot.glm.summary import add_summaries
from coreshot.methods.glm import Glm
from coreshot.models.networks import Mlp
from coreshot.study import Agreement, Study
from coreshot.types import make_points

OUT = Path(__file__).resolve().parent.parent / "results" / "at_work" / "new_site_coverage.json"
NUM_SITES, NUM_RECORDS, NUM_NEW, NUM_ASKED = 12, 150, 20, 20
VARIANCE = {"quantity": 0.04, "classes": 0.5}  # between sites; a quantity's noise has the variance 0.04
NOISE = 0.2
SLOPES = {"quantity": np.asarray([0.3, -0.2, 0.0]), "classes": np.asarray([1.5, -1.0, 0.0])}
REACH = float(scipy.stats.norm.ppf(0.95))


def make_study(kind: str) -> Study:
    terms = Agreement(
        task=kind,
        kind="regression" if kind == "quantity" else "classification",
        input_shape=(3,),
        num_outputs=1 if kind == "quantity" else 2,
        prior_precision=1.0,
    )
    return Study(terms, Mlp(hidden=(), activation="relu"), Glm(dimension=3))


def records(kind: str, size: int, own: float, draws: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Inputs, what the site expects at them, and what was found."""
    x = draws.uniform(-1, 1, size=(size, 3)).astype(np.float32)
    expected = x @ SLOPES[kind] + own
    if kind == "quantity":
        return x, expected, expected + NOISE * draws.normal(size=size)
    return x, expected, (draws.uniform(size=size) < scipy.special.expit(expected)).astype(int)


def fit_sites(study: Study, parts: list[tuple[np.ndarray, np.ndarray]]) -> GlmPosterior:
    """As `coreshot fit`; rounding is left out, because hundreds of searches for it would take long."""
    polynomials, model = study.method.polynomials(study.model), study.model  # type: ignore[attr-defined]
    detail: Any = "moments" if model.kind == "regression" else "groups"
    sums = [sum_records(model, polynomials, *sorted_records(make_points(x, y))).summary(detail) for x, y in parts]
    head = fit_head(polynomials, add_summaries(sums))
    if model.kind == "regression":
        new = compare_residuals(head, sums)
    else:
        new = fit_with_sites(head, [one.sites[0] for one in sums], polynomials.groups)
    return GlmPosterior(polynomials, model.kind, head, new_site=new)


def try_federation(kind: str, seed: int) -> dict[str, list[float]]:
    draws, study, deviation = np.random.default_rng(seed), make_study(kind), np.sqrt(VARIANCE[kind])
    sites = [records(kind, NUM_RECORDS, deviation * draws.normal(), draws) for _ in range(NUM_SITES)]
    posterior = fit_sites(study, [(x, y[:, None] if kind == "quantity" else np.eye(2)[y]) for x, _, y in sites])
    found: dict[str, list[float]] = {}
    for _ in range(NUM_NEW):
        x, expected, y = records(kind, NUM_ASKED, deviation * draws.normal(), draws)
        for name, one in (("with", posterior.at_new_site()), ("without", posterior)):
            mean, variance = one.scores(x)
            inside = np.abs(mean[:, 0] - expected) <= REACH * np.sqrt(variance[:, 0])
            found.setdefault(f"{name}: expected value", []).append(float(np.mean(inside)))
            if kind == "quantity":
                total = variance[:, 0] + one._noise_variance
                inside = np.abs(mean[:, 0] - y) <= REACH * np.sqrt(total)
                found.setdefault(f"{name}: record", []).append(float(np.mean(inside)))
    head = posterior.at_new_site().head
    return {**{name: [float(np.mean(values))] for name, values in found.items()}, "variance": [head.site_variance]}


def measure(kind: str, num_federations: int) -> dict[str, Any]:
    rows = [try_federation(kind, seed) for seed in range(num_federations)]
    table = {name: np.asarray([row[name][0] for row in rows]) for name in rows[0]}
    errors = {name: float(np.std(one) / np.sqrt(len(one))) for name, one in table.items()}
    return {
        name: {"mean": round(float(np.mean(one)), 4), "standard error": round(errors[name], 4)}
        for name, one in table.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--federations", type=int, default=200)
    options = parser.parse_args()
    found = {kind: measure(kind, options.federations) for kind in VARIANCE}
    OUT.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
