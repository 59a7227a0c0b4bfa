"""Missing numbers as the mean of those that are there, so that products with them do not depend on a public range.

A missing number reaches a method as 0, the middle of its public range, beside an indicator that is 1. Where the range
is far too wide, the middle is far from all records, and products with it are outliers. A site puts the mean of its own
cells there; a new record gets the mean of all sites' cells, and so do the records of a site that has no cell of a
column at all. The indicator stays, so that a linear term takes up whatever missing cells say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

Pairs = tuple[tuple[int, int], ...]  # an input, and the input that is 1 where it is missing

ALL_MISSING = 1 - 1e-6  # the mean of an indicator from which on no cell is there
PRESENT = 1e-3  # records; with fewer, a column has no mean


@dataclass(frozen=True)
class Filling:
    pairs: Pairs = ()
    values: tuple[float, ...] = ()

    @classmethod
    def of_records(cls, x: Float[np.ndarray, "n inputs"], pairs: Pairs) -> Filling:
        """The means of the cells that are there; 0 where none is."""
        return cls.of_columns(lambda entry: x[:, entry], lambda entry: x[:, entry], pairs)

    @classmethod
    def of_columns(cls, column: Callable[[int], np.ndarray], raw: Callable[[int], np.ndarray], pairs: Pairs) -> Filling:
        values = []
        for entry, indicator in pairs:
            present = column(entry)[raw(indicator) < 0.5]
            values.append(float(np.mean(present)) if len(present) else 0.0)
        return cls(pairs, tuple(values))

    @classmethod
    def of_sites(
        cls,
        counts: Sequence[float] | Float[np.ndarray, " sites"],
        centers: Sequence[Float[np.ndarray, " inputs"]] | Float[np.ndarray, "sites inputs"],
        pairs: Pairs,
    ) -> Filling:
        """The means of all sites' cells. Centers are the means of each site's inputs, filled and indicators alike."""
        values, every, sizes = [], np.asarray(centers), np.asarray(counts)
        for entry, indicator in pairs:
            present = sizes * (1 - every[:, indicator])
            total = float(np.sum(present))
            values.append(float(np.sum(present * every[:, entry])) / total if total > PRESENT else 0.0)
        return cls(pairs, tuple(values))

    def is_needed(self, center: Float[np.ndarray, " inputs"]) -> bool:
        """Whether this site has no cell of some column."""
        return any(center[indicator] > ALL_MISSING for _, indicator in self.pairs)

    def center_of(self, center: Float[np.ndarray, " inputs"]) -> Float[np.ndarray, " inputs"]:
        """A site's, with these values for the columns of which it has no cell."""
        moved = center.copy()
        for (entry, indicator), value in zip(self.pairs, self.values, strict=True):
            if center[indicator] > ALL_MISSING:
                moved[entry] = value
        return moved

    def __call__(self, x: Float[np.ndarray, "n inputs"]) -> Float[np.ndarray, "n inputs"]:
        if not self.pairs:
            return x
        filled = x.copy()
        for (entry, indicator), value in zip(self.pairs, self.values, strict=True):
            filled[x[:, indicator] > 0.5, entry] = value
        return filled


NOT_FILLED = Filling()


def without_filling(joint: Float[np.ndarray, "entries entries"], pairs: Pairs) -> Float[np.ndarray, "entries entries"]:
    """One site's sums of products of [1, inputs, labels], as if a missing number were 0.

    Filled cells do not move a mean, so that the mean of all is what they were filled with."""
    change = np.eye(len(joint))
    for entry, indicator in pairs:
        change[1 + indicator, 1 + entry] = -joint[0, 1 + entry] / joint[0, 0]
    return change.T @ joint @ change
