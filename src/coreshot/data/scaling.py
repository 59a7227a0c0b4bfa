"""Means and deviations of a data set's training records, by which a task may scale inputs and quantities.

In a real federation such constants are public and agreed on before; in an experiment they are those of all training
records together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

ROWS_AT_ONCE = 4096


@dataclass(frozen=True)
class Scaling:
    """What is subtracted from inputs and targets, and what they are divided by; one number a column or a channel."""

    input_mean: np.ndarray
    input_deviation: np.ndarray
    target_mean: np.ndarray
    target_deviation: np.ndarray

    @classmethod
    def from_lists(cls, lists: dict[str, list[float]]) -> Scaling:
        return cls(**{name: np.array(values) for name, values in lists.items()})

    def lists(self) -> dict[str, list[float]]:
        return {name: values.tolist() for name, values in vars(self).items()}

    def scale(self, inputs: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scaled = (inputs - self.input_mean) / self.input_deviation, (targets - self.target_mean) / self.target_deviation
        return scaled[0].astype(np.float32), scaled[1].astype(np.float32)


def measure(inputs: np.ndarray, input_scale: float, targets: np.ndarray, rows: np.ndarray) -> Scaling:
    """Of these rows of memory-mapped arrays, read some at a time. Targets of classes are not scaled."""
    input_mean, input_deviation = _moments(inputs, rows)
    zero, one = np.zeros(1), np.ones(1)
    target_mean, target_deviation = _moments(targets, rows) if targets.ndim == 2 else (zero, one)
    return Scaling(input_mean / input_scale, input_deviation / input_scale, target_mean, target_deviation)


def _moments(array: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation over all but the last axis; a deviation of 0 becomes 1. Parts are merged as Chan et al. do."""
    count, mean, squares = 0, np.zeros(array.shape[-1]), np.zeros(array.shape[-1])
    for first in range(0, len(rows), ROWS_AT_ONCE):
        part = array[rows[first : first + ROWS_AT_ONCE]].astype(np.float64).reshape(-1, array.shape[-1])
        shift = part.mean(axis=0) - mean
        squares += np.sum((part - part.mean(axis=0)) ** 2, axis=0) + shift**2 * count * len(part) / (count + len(part))
        mean = mean + shift * len(part) / (count + len(part))
        count += len(part)
    deviation: Any = np.sqrt(squares / max(count, 1))
    return mean, np.where(deviation > 1e-12 * (1 + np.abs(mean)), deviation, 1.0)
