"""Handwritten digits that come with scikit-learn: 1,797 images of 8 x 8, divided among clients by a Dirichlet draw."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from coreshot.config import Count, Positive, settings
from coreshot.data.display import Display
from coreshot.data.federated import FederatedData
from coreshot.data.partition import Dirichlet
from coreshot.types import Kind, Points, make_points

HIGHEST_PIXEL = 16


@cache
def _digits() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits  # takes a second, which other tasks do not need

    bunch = load_digits()
    return bunch.images.astype(np.float32)[..., None] / HIGHEST_PIXEL, bunch.target


@settings
class Digits:
    """Test images are held out first. Every client has at least two classes, because a learner needs them."""

    num_clients: Count
    alpha: Positive  # of the Dirichlet draw: small gives each client few classes
    min_partition_size: Count = 10
    test_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.2

    kind: ClassVar[Kind] = "classification"
    input_shape: ClassVar[tuple[int, ...]] = (8, 8, 1)
    num_outputs: ClassVar[int] = 10
    display: ClassVar[Display] = Display(high_is_dark=True)

    def make(self, seed: int) -> FederatedData:
        _, labels = _digits()
        order = np.random.default_rng([seed, 0]).permutation(len(labels))
        test, rest = np.split(order, [round(self.test_fraction * len(labels))])
        partitioner = Dirichlet(
            num_partitions=self.num_clients,
            alpha=self.alpha,
            min_partition_size=self.min_partition_size,
            min_classes_per_partition=2,
            seed=seed,
        )
        clients = {name: _points(rest[rows]) for name, rows in partitioner.partition({"label": labels[rest]}).items()}
        return FederatedData(self.kind, clients, _points(test), None)

    def summaries(self, predict: Callable[[np.ndarray], Any]) -> dict[str, float]:
        return {}


def _points(rows: np.ndarray) -> Points:
    images, labels = _digits()
    return make_points(images[rows], np.eye(10, dtype=np.float32)[labels[rows]])
