"""Clients of a spectral study of images, for benchmarks: 230 random images each, because the work does not depend on
what is in them."""

from __future__ import annotations

import numpy as np

from coreshot.types import Points, make_points

IMAGES_EACH = 230


def some_clients(first: int, num: int, shape: tuple[int, ...], num_classes: int) -> dict[str, Points]:
    def one(seed: int) -> Points:
        draws = np.random.default_rng(seed)
        images = draws.random((IMAGES_EACH, *shape), np.float32)
        return make_points(images, np.eye(num_classes, dtype=np.float32)[draws.integers(num_classes, size=IMAGES_EACH)])

    return {f"client-{seed}": one(seed) for seed in range(first, first + num)}
