"""A site's records in an order of their own, as float32; moved, filled in, centred and scaled where they are used.

Float64 copies of all records would take several times their memory. A part of them is made when it is asked for, by the
same operations in the same order, so that every number is the one of a copy of all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from coreshot.data.large_arrays import forget_pages, sort_rows, take
from coreshot.glm.filling import NOT_FILLED, Filling, Pairs
from coreshot.glm.polynomials import deviations
from coreshot.glm.winsorising import Limits
from coreshot.types import Points

CHUNK = 8192  # records at once


@dataclass(frozen=True)
class Prepared:
    """Inputs of records; `records[part]` is an array of float64."""

    raw: Float[np.ndarray, "n inputs"]  # float32
    limits: Limits | None = None
    filling: Filling = field(default=NOT_FILLED)
    center: Float[np.ndarray, " inputs"] | None = None
    scale: Float[np.ndarray, " inputs"] | None = None

    def __len__(self) -> int:
        return len(self.raw)

    def __getitem__(self, part: slice) -> Float[np.ndarray, "_ inputs"]:
        x = take(self.raw, part).astype(np.float64, order="C")
        x = x if self.limits is None else self.limits(x)
        x = self.filling(x)
        return x if self.center is None else (x - self.center) / self.scale

    def parts(self) -> Iterable[Float[np.ndarray, "_ inputs"]]:
        return (self[first : first + CHUNK] for first in range(0, len(self), CHUNK))

    @property
    def whole(self) -> Float[np.ndarray, "n inputs"]:
        return self[:]

    def center_and_scale(self) -> tuple[Float[np.ndarray, " inputs"], Float[np.ndarray, " inputs"]]:
        """Mean and deviation of each input, as float32, as they are sent. NumPy adds rows one after the other, and so
        does this."""
        count = len(self)
        center = _sum_rows(self.parts()) / count
        scale = deviations(_sum_rows((x - center) ** 2 for x in self.parts()) / count)
        return center.astype(np.float32).astype(np.float64), scale.astype(np.float32).astype(np.float64)


def _sum_rows(parts: Iterable[Float[np.ndarray, "_ inputs"]]) -> Float[np.ndarray, " inputs"]:
    total: np.ndarray | None = None
    for part in parts:
        total = np.sum(part if total is None else np.concatenate([total[None], part]), axis=0)
    assert total is not None
    return total


def prepare(
    points: Points, numbers: Sequence[int], pairs: Pairs
) -> tuple[Prepared, Float[np.ndarray, "n outputs"], Limits]:
    """Moved inside the site's own limits, then filled in with the means of what was moved."""
    raw, y = sort_records(points)

    def column(entry: int) -> np.ndarray:
        found = raw[:, entry].copy()
        forget_pages(raw)
        return found

    limits = Limits.of_columns(column, raw.shape[1], numbers, pairs)

    def moved(entry: int) -> np.ndarray:
        return np.clip(column(entry).astype(np.float64), limits.lowest[entry], limits.highest[entry])

    filling = Filling.of_columns(moved, column, pairs)
    return Prepared(raw, limits, filling), y, limits


def sort_records(points: Points) -> tuple[Float[np.ndarray, "n inputs"], Float[np.ndarray, "n outputs"]]:
    """In an order of their own, so that a file with its lines in another order gives the same bytes: by labels, the
    last first, then by inputs, the last first. Float32, as the points are."""
    present = np.asarray(points.weight) > 0
    x, y = np.asarray(points.x, np.float32), np.asarray(points.y, np.float32)
    x = x.reshape(len(x), -1)
    if not np.all(present):
        x, y = x[present], y[present]
    num_inputs, num_outputs = x.shape[1], y.shape[1]
    keys = [*range(num_inputs, num_inputs + num_outputs)[::-1], *range(num_inputs)[::-1]]

    def read(part: slice) -> np.ndarray:
        return np.concatenate([take(x, part), y[part]], axis=1)

    rows = sort_rows(read, len(x), num_inputs + num_outputs, lambda rows: _order([rows[:, key] for key in keys]))
    return rows[:, :num_inputs], rows[:, num_inputs:].copy()


def _order(keys: Sequence[Float[np.ndarray, " n"]]) -> Int[np.ndarray, " n"]:
    """By the first key, where it is equal by the second, and so on; as np.lexsort of the keys turned round. Only
    records that are still equal are compared further: most are told apart by a few keys."""
    size = len(keys[0])
    order, tied, groups = np.arange(size), np.arange(size), np.zeros(size, np.int64)
    for key in keys:
        values = key[order[tied]]
        if len(values) == 0 or np.min(values) == np.max(values):
            continue
        within = np.lexsort((values, groups))
        order[tied], values = order[tied][within], values[within]
        is_new = np.append(True, (groups[1:] != groups[:-1]) | (values[1:] != values[:-1]))
        is_alone = is_new & np.append(is_new[1:], True)
        tied, groups = tied[~is_alone], np.cumsum(is_new)[~is_alone]
    return order
