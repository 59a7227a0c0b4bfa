"""Numbers far from the middle of a column count as a limit (winsorising), so that a few wrong cells weigh little.

A cell that has lost its decimal point, or that has another unit, would otherwise be the end of the public range, and
its square the largest number of all; how much it weighs would follow from how wide the range was chosen. A site's
limits are its 10 % and 90 % quantiles, each moved out by their distance: 3.8 deviations of Gaussian numbers, which stay
as they are, and up to a tenth of the cells may be wrong at either end. A long tail is moved too: of few cells it would
weigh more than it is known.

Many cells tell how skewed they are. From the middle to a quantile is a step of 1.28 deviations of Gaussian numbers; the
limits are three steps away, and the steps grow by the factor by which the first is longer than that of the other side,
as quantiles of a skewed distribution do (Tukey's g-distribution: of log-normal numbers, the logarithms are limited at
3.8 deviations). A new record is moved inside the widest limits of all sites. benchmarks/winsorising_constants.py chose
TAIL and REACH, on the development tables. That many cells follow the skewness, and how many they are, was set after the
logistic data of docs/tables.md had been seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from coreshot.glm.filling import Pairs

TAIL = 0.1  # the quantiles are this, and 1 minus this
REACH = 1.0  # of the quantiles' distance, by which they are moved out
LARGEST_GROWTH = 4.0  # of steps: where a tenth of the cells or more are equal, quantiles do not tell how they grow
FEWEST_FOR_GROWTH = 2000  # cells; the skewness of fewer is not used
FEWEST_CELLS = 20  # fewer have no quantiles
FEWEST_VALUES = 11  # fewer are codes or counts, of which a rare one may be what matters
UNLIMITED = 2.0**49  # the limit of an input that has none; the same number as float32


@dataclass(frozen=True)
class Limits:
    lowest: Float[np.ndarray, " inputs"]
    highest: Float[np.ndarray, " inputs"]

    @classmethod
    def none(cls, num_inputs: int) -> Limits:
        return cls(np.full(num_inputs, -UNLIMITED), np.full(num_inputs, UNLIMITED))

    @classmethod
    def of_records(cls, x: Float[np.ndarray, "n inputs"], numbers: Sequence[int], pairs: Pairs) -> Limits:
        """Of these inputs, from the cells that are there; as float32, as they are sent."""
        return cls.of_columns(lambda entry: x[:, entry], x.shape[1], numbers, pairs)

    @classmethod
    def of_columns(
        cls, column: Callable[[int], np.ndarray], num_inputs: int, numbers: Sequence[int], pairs: Pairs
    ) -> Limits:
        found, indicators = cls.none(num_inputs), dict(pairs)
        for entry in numbers:
            cells = column(entry).astype(np.float64)
            cells = cells[column(indicators[entry]) < 0.5] if entry in indicators else cells
            if len(cells) < FEWEST_CELLS or not _has_many_values(cells):
                continue
            low, middle, high = np.quantile(cells, [TAIL, 0.5, 1 - TAIL])
            if low < high:
                below = above = (high - low) * REACH
                if len(cells) >= FEWEST_FOR_GROWTH:
                    below, above = _two_steps(middle - low, high - middle), _two_steps(high - middle, middle - low)
                found.lowest[entry], found.highest[entry] = np.float32(low - below), np.float32(high + above)
        return found

    @classmethod
    def of_sites(cls, sites: Sequence[Limits]) -> Limits:
        """The widest of the sites that have any."""
        lowest, highest = np.stack([site.lowest for site in sites]), np.stack([site.highest for site in sites])
        limited = highest < UNLIMITED
        found = cls.none(lowest.shape[1])
        some = np.any(limited, axis=0)
        found.lowest[some] = np.min(np.where(limited, lowest, np.inf), axis=0)[some]
        found.highest[some] = np.max(np.where(limited, highest, -np.inf), axis=0)[some]
        return found

    def __call__(self, x: Float[np.ndarray, "n inputs"]) -> Float[np.ndarray, "n inputs"]:
        return np.clip(x, self.lowest, self.highest)


def _has_many_values(cells: Float[np.ndarray, " cells"]) -> bool:
    """A few cells mostly tell."""
    return any(len(np.unique(some)) >= FEWEST_VALUES for some in (cells[:FEWEST_FOR_GROWTH], cells))


def _two_steps(first: float, opposite: float) -> float:
    """The second and the third step, which grow by the ratio of the first to that on the other side of the middle."""
    first = max(first, opposite / LARGEST_GROWTH)
    growth = min(first / opposite, LARGEST_GROWTH) if opposite > 0 else LARGEST_GROWTH
    return first * (growth + growth**2)
