"""Numbers far from the middle of a column count as a limit (winsorising), so that a few wrong cells weigh little.

A cell that has lost its decimal point, or that has another unit, would otherwise be the end of the public range, and
its square the largest number of all; how much it weighs would follow from how wide the range was chosen. A site's
limits follow from three quantiles, 10, 50 and 90 %, so that up to a tenth of the cells may be wrong at either end. The
longer of the two steps between them is 1.28 deviations of Gaussian numbers, and the limits are three steps from the
middle: Gaussian numbers stay as they are.

Many cells also tell how skewed they are. There, steps grow to one side by the factor by which its first step is longer
than the other side's, as quantiles of a skewed distribution do (Tukey's g-distribution, of which log-normal numbers are
an example: their logarithms are limited at 3.8 deviations). With few cells a long tail is moved: it would weigh more
than it is known. A new record is moved inside the widest limits of all sites. benchmarks/winsorising_constants.py chose
the numbers, on the development tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from coreshot.glm.filling import Pairs

TAIL = 0.1  # the quantiles are this, and 1 minus this
LARGEST_GROWTH = 4.0  # of steps: where a tenth of the cells or more are equal, quantiles do not tell how they grow
FEWEST_FOR_GROWTH = 2000  # cells; steps of fewer do not grow
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
        found, indicators = cls.none(x.shape[1]), dict(pairs)
        for entry in numbers:
            cells = x[x[:, indicators[entry]] < 0.5, entry] if entry in indicators else x[:, entry]
            if len(cells) < FEWEST_CELLS or len(np.unique(cells)) < FEWEST_VALUES:
                continue
            low, middle, high = np.quantile(cells, [TAIL, 0.5, 1 - TAIL])
            most = LARGEST_GROWTH if len(cells) >= FEWEST_FOR_GROWTH else 1.0
            if low < high:
                found.lowest[entry] = np.float32(middle - _three_steps(middle - low, high - middle, most))
                found.highest[entry] = np.float32(middle + _three_steps(high - middle, middle - low, most))
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


def _three_steps(first: float, opposite: float, most: float) -> float:
    """The first step, and two more that grow by its ratio to the step on the other side of the middle."""
    first = max(first, opposite / most)
    growth = min(first / opposite, most) if opposite > 0 else most
    return first * (1 + growth + growth**2)
