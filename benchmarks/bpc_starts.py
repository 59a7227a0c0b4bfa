"""How good the starts of BPC-fKL are before any update, pooled over a hundred clients that no table is about.

`python benchmarks/bpc_starts.py` takes clients 100 to 199 of emnist62, makes each start of the preset's learner, trains
a small ConvNet on all of them (the learner's proxy network, by Adam) and prints its accuracy and NLL on 4,000 records
of clients 200 to 299, for each seed. `--near` prints instead how near the points are to single records of the client:
the distance to the nearest record of the class, over the distance from that record to its own nearest. A midpoint of
two nearest records has 0.5. `neighbour_mix` was chosen by these numbers: docs/bpc.md.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from bpc_curves import clients_and_judge

from coreshot.experiments.preset import load_preset
from coreshot.fitted.metrics import metrics, sums
from coreshot.inference.map_estimate import MapEstimate
from coreshot.learners.starts import MIN_GROUP, draw_start, proportional_labels
from coreshot.methods.one_shot import pool_coresets
from coreshot.models import LogDensity, Model
from coreshot.runtime.compilation import keep_compiled
from coreshot.types import Coreset, Points, PRNGKey, pad_points, padded_size

STARTS = ("mean", "class_mean", "class_draw", "neighbour_mix", "between", "records")
JUDGE = MapEstimate(optimizer="adam", step_size=1e-3, num_steps=2000, batch_size=64)


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def make_start(model: Model, start: str, num_points: int, scale: float, key: PRNGKey, records: Points) -> Points:
    labels, share = proportional_labels(model, records, num_points)
    x = draw_start(start, key, model, records, labels, scale)  # type: ignore[arg-type]
    return Points(jnp.clip(x, 0.0, 1.0), labels, share)


def nearness(made: Points, records: Points) -> np.ndarray:
    """Of each point whose class has MIN_GROUP records; records that stand twice are at no distance, and left out."""
    x, z = (np.asarray(points.x).reshape(points.num_points, -1) for points in (records, made))
    of_record, of_point = (np.argmax(points.y, axis=1) for points in (records, made))
    is_large = np.bincount(of_record, minlength=records.y.shape[1])[of_point] >= MIN_GROUP
    is_other = (of_record[:, None] == of_record) & ~np.eye(len(x), dtype=bool)
    between = np.where(is_other, np.linalg.norm(x[:, None] - x[None], axis=2), np.inf).min(axis=1)
    distance = np.where(of_point[:, None] == of_record, np.linalg.norm(z[:, None] - x[None], axis=2), np.inf)
    nearest = distance.argmin(axis=1)
    is_large &= between[nearest] > 0
    return distance.min(axis=1)[is_large] / between[nearest][is_large]


def judge(model: Model, coresets: dict[str, Coreset], test: Points, seed: int) -> dict[str, float]:
    init = jax.vmap(model.init)(jax.random.split(jax.random.key(seed), 1))
    pooled = LogDensity(model, pool_coresets(coresets, "mass"))
    posterior, _ = JUDGE(jax.random.key(seed + 1), pooled, init)
    found = metrics(model, sums(model, posterior, test, None))
    return {"accuracy": round(found.accuracy, 4), "nll": round(found.nll, 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--clients", default="100:200")
    parser.add_argument("--judge", default="200:300")
    parser.add_argument("--seeds", default="100,101")
    parser.add_argument("--starts", default=",".join(STARTS))
    parser.add_argument("--near", action="store_true", help="Only how near the points are to single records.")
    parser.add_argument("--out", type=Path, help="A file to which a line is added for each start and seed.")
    options = parser.parse_args()
    keep_compiled()
    preset = load_preset("emnist62", [])
    learner, model = preset.learners["bpc"], preset.model
    small = replace(model, network=learner.proxy_network)
    for seed in map(int, options.seeds.split(",")):
        data = clients_and_judge(preset, seed, options.clients, options.judge)
        size = max(padded_size(points.num_points) for points in data.clients.values())
        for start in options.starts.split(","):
            coresets, ratios = {}, []
            for index, (name, points) in enumerate(data.clients.items()):
                key = jax.random.fold_in(jax.random.key(seed), index)
                padded = pad_points(points, size)
                made = make_start(model, start, learner.num_points, learner.init_scale, key, padded)
                coresets[name] = Coreset(made, jnp.asarray(float(points.num_points)))
                if options.near:
                    ratios.append(nearness(made, points))
            row = {"start": start, "clients": options.clients, "seed": seed}
            if options.near:
                ratio = np.concatenate(ratios)
                row |= {
                    "median": round(float(np.median(ratio)), 3),
                    "below 0.5": round(float(np.mean(ratio < 0.499)), 3),
                }
            else:
                row |= judge(small, coresets, data.test, seed)
            print(json.dumps(row), flush=True)
            if options.out:
                with options.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
