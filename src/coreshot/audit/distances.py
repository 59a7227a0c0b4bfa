"""Are pseudo-points copies of records? Their distances to records, beside the distances between records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Array, Float
from scipy.spatial.distance import cdist

from coreshot.types import Points

DISTANCE_ROWS = 1024
COPY = 1e-4  # of the records' median distance: a smaller distance is a copy, up to rounding
NEAR = 0.05  # a point is near where this share of records, or less, is nearer to its neighbour
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


@dataclass(frozen=True)
class Distances:
    """Quantiles of both kinds of distance, and how many points are near or copies. It reveals no record."""

    quantiles: tuple[float, ...]
    points_to_records: tuple[float, ...]
    records_to_records: tuple[float, ...]
    num_points: int
    num_near: int
    num_copies: int


def compare_distances(points_to_records: Sequence[float], records_to_records: Float[np.ndarray, " n"]) -> Distances:
    own, real = np.asarray(points_to_records), np.asarray(records_to_records)
    near, copy = np.quantile(real, NEAR), COPY * np.median(real)
    return Distances(
        QUANTILES,
        tuple(np.quantile(own, QUANTILES).tolist()),
        tuple(np.quantile(real, QUANTILES).tolist()),
        len(own),
        int(np.sum(own < near)),
        int(np.sum(own <= copy)),
    )


def to_records(x: Float[Array | np.ndarray, "k ..."], records: Points) -> Float[np.ndarray, " k"]:
    """The distance of each point to the nearest record."""
    return np.concatenate([np.min(part, axis=1) for part in _distance_blocks(_flat(x), _flat(records.x))])


def between_records(records: Points) -> Float[np.ndarray, " n"]:
    """The distance of each record to the nearest other record; 0 where two records are equal."""
    rows = _flat(records.x)
    if len(rows) == 1:
        return np.array([np.inf])
    return np.concatenate([np.partition(part, 1, axis=1)[:, 1] for part in _distance_blocks(rows, rows)])


def single_record_classes(records: Points) -> dict[int, int]:
    """The classes of which the client has one record, and that record's position.

    What a message says about such a class, it says about the record.
    """
    y = np.asarray(records.y)
    return {int(label): int(np.argmax(y[:, label])) for label in np.flatnonzero(np.sum(y, axis=0) == 1)}


def _flat(x: Float[Array | np.ndarray, "n ..."]) -> Float[np.ndarray, "n numbers"]:
    return np.asarray(x, np.float64).reshape(len(x), -1)


def _distance_blocks(
    rows: Float[np.ndarray, "k numbers"], others: Float[np.ndarray, "n numbers"]
) -> Iterator[Float[np.ndarray, "part n"]]:
    """Distances of some rows at a time, so that not all pairs are in memory at once."""
    return (cdist(rows[first : first + DISTANCE_ROWS], others) for first in range(0, len(rows), DISTANCE_ROWS))
