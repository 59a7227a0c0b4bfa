"""A function of records in batches of one fixed shape, so that a record's result has the same bits whatever the others.

One record must not change the terms of the others in a sum, not even by rounding; otherwise the sum's sensitivity is
more than that of one term. Programs that are compiled for another number of rows round differently, so there is one
program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

BATCH = 64


def in_fixed_batches(function: Callable[[np.ndarray], Any], x: np.ndarray) -> np.ndarray:
    """The function's rows, one for each record; without records, an array of the right shape without rows."""
    batches = []
    for first in range(0, max(len(x), 1), BATCH):
        part = x[first : first + BATCH]
        filled = np.concatenate([part, np.zeros((BATCH - len(part), *x.shape[1:]), x.dtype)])
        batches.append(np.asarray(function(filled))[: len(part)])
    return np.concatenate(batches)
