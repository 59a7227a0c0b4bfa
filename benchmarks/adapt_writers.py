"""A writer's own 20 records through `coreshot adapt`: UNIPEN-62, a model of 100 writers, and writers that it never saw.

`python benchmarks/adapt_writers.py unipen62.npz` sends the spectral coreset of 80 % of the images of writers 0 to 99
(random convolutions as in the preset spectral_unipen62, with 2,048 features, rows not rounded), and fits the model.
Each unseen writer then adapts it to 20 images, chosen at random; all its other images test it, before and after.
`--writers extra` takes other writers, 133 to 283, of whom no table is made: constants are chosen on them, with
`--each`, which prints what each candidate would do alone. It writes results/at_work/adapt_writers.json, or with the
writers' name.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np

from coreshot.api import distill
from coreshot.fitted.metrics import class_sums
from coreshot.fitted.model import FittedModel, fit
from coreshot.methods.spectral import Spectral
from coreshot.models.networks import Mlp
from coreshot.spectral import personal
from coreshot.spectral.features import RandomConv
from coreshot.study import Agreement, Study

OUT = Path(__file__).resolve().parent.parent / "results" / "at_work"
NUM_OWN, NUM_CLASSES, TRAIN_SHARE = 20, 62, 0.8
ROLES = {"train": 0, "test": 1, "extra": 2}
FEWEST = 80  # images of an extra writer
Arrays = tuple[np.ndarray, np.ndarray]


def read_writers(path: Path) -> dict[str, dict[int, Arrays]]:
    """By role; dark ink on light paper is 0 on 1, as the store has it."""
    with np.load(path) as data:
        images, labels, writers, split = (data[name] for name in ("images", "labels", "writers", "split"))
    found: dict[str, dict[int, Arrays]] = {}
    for role, number in ROLES.items():
        names = np.unique(writers[split == number]).tolist()
        parts = {name: np.flatnonzero(writers == name) for name in names}
        found[role] = {name: (pixels(images[rows]), labels[rows].astype(int)) for name, rows in parts.items()}
    return found


def pixels(images: np.ndarray) -> np.ndarray:
    return (images.astype(np.float32) / 255)[..., None]


def fit_federation(study: Any, writers: dict[int, Arrays], seed: int) -> FittedModel:
    messages = []
    for name, (x, y) in writers.items():
        rows = np.random.default_rng([seed, name]).permutation(len(y))[: round(TRAIN_SHARE * len(y))]
        messages.append(distill(study, x[rows], y[rows], client=f"writer-{name}"))
        print(f"writer {name} of {len(writers)}", file=sys.stderr, end="\r", flush=True)
    return fit(study, messages)


def measure(parts: list[Arrays]) -> dict[str, float]:
    """Of all records of all writers together."""
    said, y = (np.concatenate([part[entry] for part in parts]) for entry in (0, 1))
    log_prob = np.log(np.maximum(said[np.arange(len(y)), y], 1e-12))
    total = class_sums(said, np.eye(NUM_CLASSES)[y], float(np.sum(log_prob)))
    ece = float(np.sum(np.abs(np.asarray(total.bin_confidence) - np.asarray(total.bin_correct))) / total.count)
    return {"accuracy": total.correct / total.count, "nll": -total.log_prob / total.count, "ece": ece}


def adapt_each(
    model: FittedModel,
    writers: dict[int, Arrays],
    seed: int,
    candidates: tuple[personal.Candidate, ...] = personal.CANDIDATES,
) -> dict[str, Any]:
    said: dict[str, list[Arrays]] = {"before": [], "after": []}
    gains, chosen = [], np.zeros(len(candidates))
    for name, (x, y) in writers.items():
        order = np.random.default_rng([seed, name]).permutation(len(y))
        own, rest = order[:NUM_OWN], order[NUM_OWN:]
        labels = np.eye(NUM_CLASSES)[y[own]]
        made = personal.personalise(model.posterior, x[own], labels, candidates)  # type: ignore[arg-type]
        local = FittedModel(model.study, made.posterior)
        for key, one in (("before", model), ("after", local)):
            said[key].append((np.asarray(one.predict(x[rest]).mean, np.float64), y[rest]))
        right = [float(np.mean(said[key][-1][0].argmax(axis=1) == y[rest])) for key in ("before", "after")]
        gains.append(right[1] - right[0])
        chosen += [weight for _, weight in made.weights]
    pairs = zip(candidates, chosen / len(gains), strict=True)
    return {
        "writers": len(gains),
        "mean gain of accuracy": float(np.mean(gains)),
        "worst gain": min(gains),
        "writers that lost": int(np.sum(np.asarray(gains) < 0)),
        **{key: measure(parts) for key, parts in said.items()},
        "weights": {str(one): round(float(weight), 3) for one, weight in pairs},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--writers", choices=("test", "extra"), default="test")
    parser.add_argument("--seeds", type=int, default=3, help="of the draws of 20 records")
    parser.add_argument("--dimension", type=int, default=2048, help="of the features")
    parser.add_argument("--each", action="store_true", help="print each candidate alone, and write nothing")
    options = parser.parse_args()
    writers = read_writers(options.data)
    asked = {name: part for name, part in writers[options.writers].items() if len(part[1]) >= FEWEST}
    terms = Agreement(
        task="unipen62", kind="classification", input_shape=(28, 28, 1), num_outputs=NUM_CLASSES, prior_precision=1.0
    )
    method = Spectral(features=RandomConv(dimension=options.dimension))
    study = Study(terms, Mlp(hidden=(), activation="relu"), method)
    model = fit_federation(study, writers["train"], 0)
    if options.each:
        for one in personal.CANDIDATES:
            found = adapt_each(model, asked, 0, (one,))
            print(
                one, json.dumps({key: found[key] for key in ("mean gain of accuracy", "before", "after")}), flush=True
            )
        return
    rows = [adapt_each(model, asked, seed) for seed in range(options.seeds)]
    name = "adapt_writers" if options.writers == "test" else f"adapt_writers_{options.writers}"
    (OUT / f"{name}.json").write_text(json.dumps(rows, indent=1) + "\n")
    print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
