"""How good the starts of BPC-fKL are before any update, pooled over a hundred clients that no table is about.

`python benchmarks/bpc_starts.py` takes clients 100 to 199 of emnist62, makes each start of the preset's learner, trains
a small ConvNet on all of them (the learner's proxy network, by Adam) and prints its accuracy and NLL on 4,000 records
of clients 200 to 299, for each seed. `neighbour_mix` was chosen by these numbers: docs/bpc.md.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
from bpc_curves import clients_and_judge

from coreshot.experiments.preset import load_preset
from coreshot.fitted.metrics import metrics, sums
from coreshot.inference.map_estimate import MapEstimate
from coreshot.learners.starts import draw_start, proportional_labels
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--clients", default="100:200")
    parser.add_argument("--judge", default="200:300")
    parser.add_argument("--seeds", default="100,101")
    parser.add_argument("--starts", default=",".join(STARTS))
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
            coresets = {}
            for index, (name, points) in enumerate(data.clients.items()):
                key = jax.random.fold_in(jax.random.key(seed), index)
                padded = pad_points(points, size)
                made = make_start(model, start, learner.num_points, learner.init_scale, key, padded)
                coresets[name] = Coreset(made, jnp.asarray(float(points.num_points)))
            init = jax.vmap(small.init)(jax.random.split(jax.random.key(seed), 1))
            pooled = LogDensity(small, pool_coresets(coresets, "mass"))
            posterior, _ = JUDGE(jax.random.key(seed + 1), pooled, init)
            found = metrics(small, sums(small, posterior, data.test, None))
            row = {"start": start, "clients": options.clients, "seed": seed}
            row |= {"accuracy": round(found.accuracy, 4), "nll": round(found.nll, 4)}
            print(json.dumps(row), flush=True)
            if options.out:
                with options.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
