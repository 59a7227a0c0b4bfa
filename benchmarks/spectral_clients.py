"""A hundred clients and the server of `spectral_emnist62` (d = 4,096, 260 kB a client), from images to posterior, as
JSON: seconds, memory, growth.

Clients have 230 random images each: the work does not depend on what is in them. The first clients compile, and are
not timed.
"""

from __future__ import annotations

import json
import resource
import time
from typing import Any

import jax
import numpy as np
from peak_memory import UNIT

from coreshot.experiments.preset import load_preset
from coreshot.runtime.simulate import simulate
from coreshot.types import Points, make_points
from coreshot.wire.ledger import Ledger

IMAGES_EACH = 230
METHOD = "spectral_260"


def some_clients(first: int, num: int, shape: tuple[int, ...], num_classes: int) -> dict[str, Points]:
    def one(seed: int) -> Points:
        draws = np.random.default_rng(seed)
        images = draws.random((IMAGES_EACH, *shape), np.float32)
        return make_points(images, np.eye(num_classes, dtype=np.float32)[draws.integers(num_classes, size=IMAGES_EACH)])

    return {f"client-{seed}": one(seed) for seed in range(first, first + num)}


def seconds_of(study: Any, clients: dict[str, Points]) -> float:
    began = time.perf_counter()
    state = simulate(jax.random.key(0), study, clients, Ledger())
    study.method.posterior(jax.random.key(0), study.model, state)
    return time.perf_counter() - began


def main(few: int = 25, many: int = 100) -> None:
    study = load_preset("spectral_emnist62").method_study(METHOD)
    shape, num_classes = study.model.input_shape, study.model.num_outputs
    seconds_of(study, some_clients(0, 4, shape, num_classes))
    half, whole = (
        seconds_of(study, some_clients(first, num, shape, num_classes)) for first, num in ((10, few), (1000, many))
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT
    print(
        json.dumps(
            {"spectral_seconds": whole, "spectral_growth": whole / half / (many / few), "spectral_peak_gb": peak / 1e9}
        )
    )


if __name__ == "__main__":
    main()
