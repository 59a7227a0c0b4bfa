"""Intervals for shares: exact ones, so that a small number of trials says little and never too much."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.stats
from jaxtyping import Float

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A number with its two-sided interval."""

    value: float
    low: float
    high: float


def at_least(successes: Any, num: int, confidence: float) -> Float[np.ndarray, ...]:
    """One-sided lower limit of the chance of success (Clopper and Pearson 1934)."""
    successes = np.asarray(successes, np.float64)
    limit = scipy.stats.beta.ppf(1 - confidence, np.maximum(successes, 1), num - successes + 1)
    return np.where(successes > 0, limit, 0.0)


def at_most(successes: Any, num: int, confidence: float) -> Float[np.ndarray, ...]:
    """One-sided upper limit: failures are at least so many, seen from the other side."""
    return 1 - at_least(num - np.asarray(successes), num, confidence)


def wilson(value: float, num: int, confidence: float) -> Estimate:
    """For a mean of numbers in [0, 1] whose variance is at most value (1 - value) / num (Wilson 1927)."""
    far = float(scipy.stats.norm.ppf((1 + confidence) / 2)) ** 2 / num
    centre, half = (value + far / 2) / (1 + far), np.sqrt(value * (1 - value) * far + far**2 / 4) / (1 + far)
    return Estimate(
        value, min(value, max(0.0, float(centre - half))), max(value, min(1.0, float(centre + half)))
    )  # rounding moves no end past it
