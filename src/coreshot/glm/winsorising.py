"""Numbers far from the middle of a column count as a limit (winsorising), so that a few wrong cells weigh little.

A cell that has lost its decimal point, or that has another unit, would otherwise be the end of the public range, and
its square the largest number of all; how much it weighs would follow from how wide the range was chosen. A site's
limits are its 10 % and 90 % quantiles, each moved out by their distance: 3.8 deviations of Gaussian numbers, which stay
as they are, and up to a tenth of the cells may be wrong at either end. A new record is moved inside the widest limits
of all sites. benchmarks/winsorising_constants.py chose the numbers, on the development tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from coreshot.glm.filling import Pairs

TAIL = 0.1  # the quantiles are this, and 1 minus this
REACH = 1.0  # of their distance, by which they are moved out
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
            low, high = np.quantile(cells, [TAIL, 1 - TAIL])
            if low < high:
                found.lowest[entry] = np.float32(low - REACH * (high - low))
                found.highest[entry] = np.float32(high + REACH * (high - low))
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
