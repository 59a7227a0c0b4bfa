"""Confidence intervals for shares. They hold for any number of trials, so few trials give wide intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import scipy.stats
from jaxtyping import Float, Int

CONFIDENCE = 0.95
Counts: TypeAlias = Int[np.ndarray, "*counts"] | int


@dataclass(frozen=True)
class Estimate:
    """A number with its two-sided interval."""

    value: float
    low: float
    high: float


def lower_limit(successes: Counts, num: int, confidence: float) -> Float[np.ndarray, "*counts"]:
    """One-sided lower limit of a probability of success, for each count of successes (Clopper and Pearson 1934).

    As `scipy.stats.binomtest(successes, num, alternative="greater").proportion_ci(confidence).low`.
    """
    successes = np.asarray(successes)
    limit = scipy.stats.beta.ppf(1 - confidence, np.maximum(successes, 1), num - successes + 1)
    return np.where(successes > 0, limit, 0.0)


def upper_limit(successes: Counts, num: int, confidence: float) -> Float[np.ndarray, "*counts"]:
    """One-sided upper limit: one minus the lower limit of the probability of failure."""
    return np.asarray(1 - lower_limit(np.asarray(num - successes), num, confidence))


def wilson_interval(value: float, num: int, confidence: float) -> Estimate:
    """For a mean of numbers in [0, 1] whose variance is at most value (1 - value) / num (Wilson 1927)."""
    far = float(scipy.stats.norm.ppf((1 + confidence) / 2)) ** 2 / num
    centre, half = (value + far / 2) / (1 + far), np.sqrt(value * (1 - value) * far + far**2 / 4) / (1 + far)
    low, high = max(0.0, float(centre - half)), min(1.0, float(centre + half))
    return Estimate(value, min(value, low), max(value, high))  # rounding must not put the value outside
