"""Whether pseudo-points are copies: how near each is to a real record, against how near real records are to each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Array, Float
from scipy.spatial.distance import cdist

from coreshot.types import Points

ROWS_AT_ONCE = 1024
COPY = 1e-4  # of the records' median distance: nearer is a copy, but for rounding
NEAR = 0.05  # a pseudo-point counts as near where it is nearer than this share of real records are to their neighbours
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


@dataclass(frozen=True)
class Distances:
    """Quantiles of both, and how many of the points are near or copies; no record can be read off it."""

    quantiles: tuple[float, ...]
    points_to_records: tuple[float, ...]
    records_to_records: tuple[float, ...]
    num_points: int
    num_near: int
    num_copies: int


def compared(points_to_records: Sequence[float], records_to_records: Float[np.ndarray, " n"]) -> Distances:
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
    """Of each point to the nearest record."""
    return np.concatenate([np.min(part, axis=1) for part in _parts(_flat(x), _flat(records.x))])


def between_records(records: Points) -> Float[np.ndarray, " n"]:
    """Of each record to the nearest other; of two equal records that is 0."""
    rows = _flat(records.x)
    if len(rows) == 1:
        return np.array([np.inf])
    return np.concatenate([np.partition(part, 1, axis=1)[:, 1] for part in _parts(rows, rows)])


def classes_of_one(records: Points) -> dict[int, int]:
    """Classes of which the client has one record, and its position: what is said of the class is said of the record."""
    y = np.asarray(records.y)
    return {int(label): int(np.argmax(y[:, label])) for label in np.flatnonzero(np.sum(y, axis=0) == 1)}


def _flat(x: Float[Array | np.ndarray, "n ..."]) -> Float[np.ndarray, "n numbers"]:
    return np.asarray(x, np.float64).reshape(len(x), -1)


def _parts(
    rows: Float[np.ndarray, "k numbers"], others: Float[np.ndarray, "n numbers"]
) -> Iterator[Float[np.ndarray, "part n"]]:
    """One after another, so that not all pairs are in memory at once."""
    return (cdist(rows[first : first + ROWS_AT_ONCE], others) for first in range(0, len(rows), ROWS_AT_ONCE))
