"""A function of records, one batch of one fixed shape at a time: compiled once, so a record's answer has the same bits whoever is beside it.

A sum over records has the sensitivity that one record's term has only if that record's coming or going does not move the others' terms, not even by
a rounding: and programs that are compiled for another number of rows round differently.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

BATCH = 64


def in_fixed_batches(function: Callable[[np.ndarray], Any], x: np.ndarray) -> np.ndarray:
    """Of no records, the right shape without rows."""
    batches = []
    for first in range(0, max(len(x), 1), BATCH):
        part = x[first : first + BATCH]
        filled = np.concatenate([part, np.zeros((BATCH - len(part), *x.shape[1:]), x.dtype)])
        batches.append(np.asarray(function(filled))[: len(part)])
    return np.concatenate(batches)
