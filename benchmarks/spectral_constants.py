"""The constants of `coreshot.spectral.calibration` and the factor of the evidence's ridge, on records of no table.

`python benchmarks/spectral_constants.py collect emnist62 --out FOLDER` learns from clients 100 to 199 of EMNIST-62 and
keeps the scores of records that they and clients 200 to 299 held back; `collect unipen62` learns from 100 of the extra
writers (133 and later) and keeps the scores of the other 51; `collect cifar10` learns from 60 Dirichlet clients of
CIFAR-10's training images and keeps the scores of other training images. A set must be in the store; CIFAR-10's under
the name "cifar10". `choose FOLDER` then compares constants on all scores that were kept, and writes
results/constants/spectral.json.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy as np
import scipy.special

from coreshot.config import decode
from coreshot.data import TASKS
from coreshot.experiments.preset import load_preset
from coreshot.fitted.metrics import class_sums
from coreshot.methods import Spectral
from coreshot.methods.spectral import _find_group
from coreshot.runtime.simulate import simulate
from coreshot.spectral import calibration
from coreshot.spectral.calibration import ClassMeans, HeldOutScores, score_held_out
from coreshot.spectral.evidence import maximize_evidence, solve_ridge
from coreshot.study import Study
from coreshot.types import Points, make_points
from coreshot.wire.ledger import Ledger

OUT = Path(__file__).resolve().parent.parent / "results" / "constants" / "spectral.json"
FACTORS = (1.0, 0.3, 0.1, 0.03)
CHOICES = (  # factor of the ridge, weight of the discriminants, caution, whether the held-out variance counts
    *((factor, 1.5, 0.5, True) for factor in FACTORS),
    *((0.1, weight, 0.5, True) for weight in (1.0, 1.25, 1.75, 2.1)),
    (0.1, 1.5, 1.0, True),
    (0.1, 2.1, 0.5, False),  # the link as it was
)
SEED = 100  # of the map and of the divisions; tables have seeds 0 to 4
NUM_JUDGED = 6000
Clients = Mapping[str, Points]


def emnist62() -> tuple[Clients, Points]:
    """A fifth of the records of clients 100 to 299 is held back; the first hundred of them learn from the others."""
    task = load_preset("spectral_emnist62", ["task.num_clients=300"]).task
    every = list(task.make(0).clients.items())[100:300]
    draws, learn, judged = np.random.default_rng(SEED), {}, []
    for index, (name, points) in enumerate(every):
        order = draws.permutation(points.num_points)
        cut = points.num_points // 5
        judged.append(_rows(points, order[:cut]))
        if index < 100:
            learn[name] = _rows(points, order[cut:])
    return learn, _join(judged)


def unipen62() -> tuple[Clients, Points]:
    task = load_preset("spectral_unipen62", ["task.num_clients=251", "task.train_fraction=1.0"]).task
    every = list(task.make(0).clients.items())[100:251]
    order = np.random.default_rng(SEED).permutation(len(every))
    return dict(every[index] for index in sorted(order[:100])), _join([every[index][1] for index in order[100:]])


def cifar10() -> tuple[Clients, Points]:
    task: Any = decode(TASKS["federated"], {"data": "cifar10"}, "cifar10")
    pooled = _join(list(task.make(0).clients.values()))
    draws = np.random.default_rng(SEED)
    order, labels = draws.permutation(pooled.num_points), np.argmax(np.asarray(pooled.y), axis=1)
    rest = order[NUM_JUDGED:][:24_000]
    learners: list[list[int]] = [[] for _ in range(60)]
    for label in range(10):
        own = rest[labels[rest] == label]
        cuts = (np.cumsum(draws.dirichlet(np.full(60, 0.1))) * len(own)).astype(int)[:-1]
        for client, part in zip(learners, np.split(own, cuts), strict=True):
            client.extend(part)
    clients = {f"client-{index}": _rows(pooled, np.asarray(rows)) for index, rows in enumerate(learners) if rows}
    return clients, _rows(pooled, order[:NUM_JUDGED])


SETS = {"emnist62": emnist62, "unipen62": unipen62, "cifar10": cifar10}


def _rows(points: Points, index: np.ndarray) -> Points:
    return make_points(np.asarray(points.x)[index], np.asarray(points.y)[index])


def _join(parts: list[Points]) -> Points:
    return make_points(*(np.concatenate([np.asarray(getattr(part, name)) for part in parts]) for name in "xy"))


def collect(name: str, dimension: int, max_bytes: int, out: Path) -> None:
    """One file of scores for one set and one number of bytes."""
    clients, judged = SETS[name]()
    if judged.num_points > NUM_JUDGED:
        judged = _rows(judged, np.random.default_rng(0).permutation(judged.num_points)[:NUM_JUDGED])
    features = {"name": "random_conv", "dimension": dimension}
    method = decode(Spectral, {"features": features, "max_bytes": max_bytes}, name)
    preset = load_preset("spectral_emnist62")
    shape, outputs = judged.x.shape[1:], judged.y.shape[1]
    study = Study(preset.agreement(SEED, tuple(shape), outputs), preset.network, method)
    state = simulate(jax.random.key(SEED), study, clients, Ledger())
    order = sorted(state.groups, key=str)
    groups = [state.groups[one] for one in order]
    seen, total = state.map(np.asarray(judged.x)), sum(groups[1:], groups[0])
    evidence, kept = maximize_evidence(total).ridge, {"labels": np.argmax(np.asarray(judged.y), axis=1)}
    for factor in FACTORS:
        held, solution = score_held_out(groups, factor * evidence), solve_ridge(total, factor * evidence)
        leverage = np.sum(np.linalg.solve(np.tril(solution.factor), seen.T.astype(np.float64)) ** 2, axis=0)
        means = [_scored(held.heads, state, one, order) for one in sorted(state.class_means)]
        parts = {
            "scores": seen @ solution.mean,
            "variance": solution.noise_variance * leverage,
            **{f"held.{field}": getattr(held, field) for field in ("sizes", "means", "second", "products", "variance")},
            **{f"means.{field}": np.concatenate([one[field] for one in means]) for field in means[0]},
        }
        kept |= {f"{factor:g}.{field}": array for field, array in parts.items()}
    out.mkdir(parents=True, exist_ok=True)
    np.savez(out / f"{name}-{dimension}-{max_bytes}.npz", **kept)


def _scored(heads: dict[int, np.ndarray], state: Any, client: str, order: list[Any]) -> dict[str, np.ndarray]:
    one, group = state.class_means[client], order.index(_find_group(state, client))
    number = np.full(len(one.labels), sorted(state.class_means).index(client))
    return {"scores": one.means @ heads[group], "labels": one.labels, "sizes": one.sizes, "client": number}


def choose(folder: Path) -> list[dict[str, Any]]:
    """For each file of scores: quality with each factor of the ridge, weight of the discriminants, and caution."""
    rows = []
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as file:
            kept = dict(file)
        for factor, discriminant, caution, counts in CHOICES:
            part = {
                name.removeprefix(f"{factor:g}."): one for name, one in kept.items() if name.startswith(f"{factor:g}.")
            }
            part["held.variance"] = part["held.variance"] * counts
            found = judge(part, kept["labels"], discriminant, caution)
            choice = {"factor": factor, "discriminant": discriminant, "caution": caution, "variance": counts}
            rows.append({"scores": path.stem, **choice, **found})
            print(json.dumps(rows[-1]), flush=True)
    return rows


def judge(part: dict[str, np.ndarray], labels: np.ndarray, discriminant: float, caution: float) -> dict[str, float]:
    """The link is fitted to held-out sums and class means, as a server does; it sees none of the judged records."""
    sizes, means, second, products = (part[f"held.{name}"] for name in ("sizes", "means", "second", "products"))
    heads = {0: np.eye(len(sizes))}  # the class means are scores already
    seen = HeldOutScores(sizes, means, second, products, heads, float(part["held.variance"]))
    link = calibration.link_from_scores(seen, discriminant)
    calibration.CAUTION = caution
    grouped = [(0, ClassMeans(part["means.scores"], part["means.labels"], part["means.sizes"]))]
    link = replace(link, scale=calibration._fit_scale(link, seen, grouped))
    probabilities = scipy.special.softmax(link.logits(part["scores"], part["variance"]), axis=1)
    chosen = probabilities[np.arange(len(labels)), labels]
    total = class_sums(probabilities, np.eye(probabilities.shape[1])[labels], float(np.sum(np.log(chosen))))
    gaps = np.abs(np.asarray(total.bin_confidence) - np.asarray(total.bin_correct))
    found = {"accuracy": total.correct, "nll": -total.log_prob, "ece": float(np.sum(gaps))}
    return {name: round(value / total.count, 4) for name, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    commands = parser.add_subparsers(dest="command", required=True)
    collecting = commands.add_parser("collect")
    collecting.add_argument("name", choices=SETS)
    collecting.add_argument("--dimension", type=int, default=1024)
    collecting.add_argument("--max-bytes", type=int, default=65_000)
    collecting.add_argument("--out", type=Path, required=True)
    commands.add_parser("choose").add_argument("folder", type=Path)
    options = parser.parse_args()
    if options.command == "collect":
        collect(options.name, options.dimension, options.max_bytes, options.out)
    else:
        rows = choose(options.folder)
        OUT.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


if __name__ == "__main__":
    main()
