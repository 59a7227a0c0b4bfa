"""How good the points of a learner are after each chunk of updates, as the server judges: a curve from the start.

`python benchmarks/bpc_curves.py digits --seeds 100,101` learns with the preset's learner `bpc` and prints accuracy and
NLL of the preset's inference `adam` after 0, 20, 40, ... updates; `--flip` ascends the KL instead (a negative control).
`--clients 100:112 --judge 200:300` takes clients of a stored task that no table is about, and judges on the records of
others: so every choice of docs/bpc.md was made. `--set` changes the preset, as everywhere. Baselines without updates
(`--learner random_subset`) have a curve of one point. Several inferences (`--inference sgd,adam`) judge the same
points, a row each.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from coreshot.data import FederatedData
from coreshot.experiments.preset import Preset, load_preset
from coreshot.fitted.metrics import metrics, sums
from coreshot.keys import client_key, fold_each
from coreshot.learners.descent import Descent
from coreshot.learners.loop import distill
from coreshot.methods.one_shot import pool_coresets
from coreshot.models import LogDensity
from coreshot.models.parallel import map_in_threads
from coreshot.privacy.guarded_records import guard_records, stacked
from coreshot.runtime.compilation import keep_compiled
from coreshot.types import Coreset, Points, padded_size

NUM_JUDGED = 4000  # records of other clients


def clients_and_judge(preset: Preset, seed: int, learn: str | None, judge: str | None) -> FederatedData:
    if learn is None:
        return preset.task.make(seed)
    first, last = (slice(*map(int, text.split(":"))) for text in (learn, judge or learn))
    everyone = replace(preset.task, num_clients=last.stop).make(seed)
    names = sorted(everyone.clients, key=lambda name: list(everyone.clients).index(name))
    others = [everyone.clients[name] for name in names[last]]
    x, y = (np.concatenate([np.asarray(getattr(points, part)) for points in others]) for part in "xy")
    chosen = np.random.default_rng(0).permutation(len(x))[:NUM_JUDGED]
    test = Points(jnp.asarray(x[chosen]), jnp.asarray(y[chosen]), jnp.ones(len(chosen)))
    return replace(everyone, clients={name: everyone.clients[name] for name in names[first]}, test=test)


def _coresets(preset: Preset, name: str, data: FederatedData, seed: int, flip: bool) -> tuple[list[Any], float]:
    """Of each number of chunks {client: coreset}; and the core-seconds of a client, compilation included."""
    learner, model = preset.learners[name], preset.model
    if flip:
        learner = _flipped(learner)
    records = guard_records(data.clients, learner.releases(model))
    shared_key, key = jax.random.key(seed), jax.random.key(seed + 1)
    if not isinstance(learner, Descent):
        keys = {client: client_key(key, 0, client) for client in data.clients}
        found = distill(model, learner, records, keys, shared_key)
        return [{client: one.coreset for client, one in found.items()}], 0.0

    def one(client: str) -> list[Coreset]:
        keys = jnp.stack([client_key(key, 0, client)])
        group = stacked([records[client]], padded_size(records[client].num_points))
        state = learner.init(fold_each(keys, 0), model, group, shared_key)
        seen = [learner.coreset(state)]
        for chunk in range(learner.num_chunks):
            state, _ = learner.step(fold_each(keys, chunk + 1), model, state)
            seen.append(learner.coreset(state))
        return [jax.tree.map(lambda array: jnp.asarray(array[0]), coreset) for coreset in seen]

    began = time.process_time()
    all_seen = dict(zip(data.clients, map_in_threads(one, data.clients), strict=True))
    seconds = (time.process_time() - began) / len(all_seen)
    return [
        {client: seen[chunk] for client, seen in all_seen.items()} for chunk in range(learner.num_chunks + 1)
    ], seconds


def _flipped(learner: Any) -> Any:
    cls = type(learner)

    class Flipped(cls):  # type: ignore[misc,valid-type]
        def gradient(self, *arguments: Any) -> Points:
            return jax.tree.map(jnp.negative, super().gradient(*arguments))

    return Flipped(**{name: getattr(learner, name) for name in learner.__dataclass_fields__})


def _judge(preset: Preset, inference: str, coresets: Any, test: Points, seed: int) -> tuple[float, float]:
    model, sampler = preset.model, preset.inferences[inference]
    init = jax.vmap(model.init)(jax.random.split(jax.random.key(seed + 2), sampler.num_chains))
    posterior, _ = sampler(jax.random.key(seed + 3), LogDensity(model, pool_coresets(coresets, "mass")), init)
    found = metrics(model, sums(model, posterior, test, None))
    return round(found.accuracy, 4), round(found.nll, 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("preset")
    parser.add_argument("--learner", default="bpc")
    parser.add_argument("--inference", default="adam", help="Of the preset; several with commas between them.")
    parser.add_argument("--seeds", default="100")
    parser.add_argument("--clients", help="Which clients learn, as 100:112; default: those of the preset.")
    parser.add_argument("--judge", help="Which clients' records judge, as 200:300; default: the test records.")
    parser.add_argument("--every", type=int, default=1, help="Chunks between two judgements.")
    parser.add_argument("--flip", action="store_true", help="Ascend the KL: a negative control.")
    parser.add_argument("--set", action="append", default=[], dest="changes")
    parser.add_argument("--label", default="")
    parser.add_argument("--out", type=Path, help="A file to which a line is added for each seed.")
    options = parser.parse_args()
    keep_compiled()
    preset = load_preset(options.preset, options.changes)
    for seed in map(int, options.seeds.split(",")):
        data = clients_and_judge(preset, seed, options.clients, options.judge)
        chunks, seconds = _coresets(preset, options.learner, data, seed, options.flip)
        wanted = sorted({*range(0, len(chunks), options.every), len(chunks) - 1})
        for inference in options.inference.split(","):
            row = {
                "preset": options.preset,
                "label": options.label or options.learner,
                "changes": options.changes,
                "clients": options.clients or "preset",
                "inference": inference,
                "seed": seed,
                "flipped": options.flip,
                "core-seconds a client": round(seconds, 1),
                "updates, accuracy, NLL": [
                    (20 * chunk, *_judge(preset, inference, chunks[chunk], data.test, seed)) for chunk in wanted
                ],
            }
            print(json.dumps(row), flush=True)
            if options.out:
                with options.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
