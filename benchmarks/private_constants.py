"""What the constants of private spectral coresets are worth: each a third less and a third more, on clients that no
private table is about.

`python benchmarks/private_constants.py emnist62 --learn 100:200 --judge 200:300` learns from the second hundred
clients and looks at the records of
the third; `unipen62 --learn 0:100 --judge 100:251` looks at the extra writers, not at those of its tests. Moments are
exact sums to which the noise
of each promise is added from a seed: this is a search, nothing is released.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from coreshot.experiments.preset import load_preset
from coreshot.fitted.metrics import metrics, sums
from coreshot.methods import private_spectral
from coreshot.privacy.accounting import Privacy, noise_multiplier
from coreshot.privacy.gaussian_moments import LABEL_UNIT, UNIT, Deviations, deviations, exact_moments
from coreshot.runtime.compilation import keep_compiled
from coreshot.spectral import private_posterior
from coreshot.types import Points

CONSTANTS = ("RIDGE", "FLOOR", "COUNT_NOISE", "MORE_LOGARITHM", "LESS_DISCRIMINANT", "LESS_FREQUENCY", "CROSS_SHARE")
FACTORS = (2 / 3, 4 / 3)
EPSILONS, DELTA = (8.0, 3.0, 1.0), 1e-5
NUM_JUDGED = 6000  # records
SEEDS = (0, 1)  # of the noise


def _exact(clients: Sequence[Points], rows_of: Any) -> tuple[np.ndarray, np.ndarray]:
    gram, cross = (sum(parts) for parts in zip(*(exact_moments(*rows_of(points)) for points in clients), strict=True))
    return gram / UNIT**2, cross / (UNIT * LABEL_UNIT)


def _noisy(moments: tuple[np.ndarray, np.ndarray], noise: Deviations, seed: int) -> tuple[np.ndarray, np.ndarray]:
    draws, (gram, cross) = np.random.default_rng(seed), moments
    beside = np.triu(noise.off_diagonal * draws.normal(size=gram.shape), 1)
    added = beside + beside.T + np.diag(noise.diagonal * draws.normal(size=len(gram)))
    return gram + added, cross + noise.cross * draws.normal(size=cross.shape)


def _quality(
    model: Any, moments: tuple[np.ndarray, np.ndarray], judged: Points, num_noises: float, epsilon: float
) -> list[float]:
    share = private_spectral.CROSS_SHARE
    noise = deviations(noise_multiplier(Privacy(epsilon=epsilon, delta=DELTA)), share, num_noises)
    found = []
    for seed in SEEDS:
        head = private_posterior.fit_private_posterior(lambda rows: rows, *_noisy(moments, noise, seed), noise)  # type: ignore[arg-type]
        seen = metrics(model, sums(model, head, judged, None))
        found.append([seen.accuracy, seen.nll, seen.ece])
    return np.mean(found, axis=0).round(4).tolist()


@contextmanager
def _changed(name: str, factor: float) -> Iterator[None]:
    module = private_spectral if name == "CROSS_SHARE" else private_posterior
    usual = getattr(module, name)
    # A share is moved between 0 and 1: its odds are changed.
    value = (
        factor * usual if name != "CROSS_SHARE" else factor * usual / (1 - usual) / (1 + factor * usual / (1 - usual))
    )
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, usual)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("task")
    parser.add_argument("--learn", default="100:200", help="Which clients, counted from 0.")
    parser.add_argument("--judge", default="200:300")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    keep_compiled()
    learn, judge = (slice(*map(int, text.split(":"))) for text in (options.learn, options.judge))
    preset = load_preset("private_emnist62", [f"task.name={options.task}", f"task.num_clients={judge.stop}"])
    clients, study = list(preset.task.make(0).clients.values()), preset.method_study("own_8", 0)
    drawn = study.method.draw_public(study.model, study.shared_key)  # type: ignore[union-attr]
    moments = _exact(clients[learn], lambda points: private_spectral.moment_rows(drawn, points))
    x, y = (np.concatenate([np.asarray(getattr(points, name)) for points in clients[judge]]) for name in "xy")
    chosen = np.random.default_rng(0).permutation(len(x))[:NUM_JUDGED]
    judged = Points(drawn(x[chosen]), jnp.asarray(y[chosen]), jnp.ones(len(chosen)))  # type: ignore[arg-type]
    rows: list[dict[str, Any]] = []
    for name, factor in [("as it is", 1.0), *((name, factor) for name in CONSTANTS for factor in FACTORS)]:
        with _changed(name, factor) if factor != 1 else _changed("RIDGE", 1.0):
            each = {
                f"{'sum' if num_noises == 1 else 'own'} {epsilon:g}": _quality(
                    study.model, moments, judged, num_noises, epsilon
                )
                for num_noises in (float(len(clients[learn])), 1.0)
                for epsilon in EPSILONS
            }
        rows.append({"task": options.task, "constant": name, "factor": round(factor, 3), "accuracy, NLL, ECE": each})
        means = np.mean(list(each.values()), axis=0)
        print(f"{name:18s} x {factor:.2f}: accuracy {means[0]:.4f}, NLL {means[1]:.4f}, ECE {means[2]:.4f}", flush=True)
    if options.out:
        options.out.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


if __name__ == "__main__":
    main()
