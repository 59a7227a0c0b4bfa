"""Predictions of counts from a log rate that is known up to a Gaussian deviation.

The rate is about a gamma distributed number with this mean and variance, so the count is negative binomial: wider than
Poisson by what the posterior leaves open, and by how sites differ where the site is a new one.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from coreshot.glm.counts import LARGEST_LOG_RATE, to_counts
from coreshot.types import Predictive

SMALLEST_VARIANCE = 1e-9  # of the log rate; with less, the count is Poisson
LARGEST_VARIANCE = 20.0

Scores = Float[np.ndarray, "n 1"]


def predict_counts(mean: Scores, variance: Scores, of_site: float, largest_count: float) -> Predictive:
    """On the study's scale, where 0 is -1 and the largest count is 1. Sites that differ have a larger mean rate."""
    rate, spread = _rate(mean, of_site), _relative_variance(variance)
    unit = 2 / largest_count
    return Predictive(unit * rate - 1, unit * rate * np.sqrt(spread), unit * np.sqrt(rate))


def log_prob_of_counts(
    y: Scores, mean: Scores, variance: Scores, of_site: float, largest_count: float
) -> Float[np.ndarray, " n"]:
    """As a density on the study's scale, so that in units of the file it is the probability of the count."""
    import scipy.stats  # takes a quarter of a second, and only counts need it

    rate, spread = _rate(mean, of_site), _relative_variance(variance)
    successes = 1 / np.maximum(spread, SMALLEST_VARIANCE)
    counts = np.maximum(to_counts(y, largest_count), 0.0)
    found = scipy.stats.nbinom.logpmf(counts, successes, successes / (successes + rate))
    found = np.where(spread > 1e-6, found, scipy.stats.poisson.logpmf(counts, rate))
    return np.sum(found, axis=1) + np.log(largest_count / 2)


def count_interval(
    mean: Float[np.ndarray, " n"], deviation: Float[np.ndarray, " n"], level: float
) -> tuple[np.ndarray, np.ndarray]:
    """The central interval of counts with these means and deviations, in counts."""
    import scipy.stats

    rate = np.maximum(mean, 1e-9)
    successes = rate**2 / np.maximum(deviation**2 - rate, 1e-6 * rate)
    share = successes / (successes + rate)
    tail = (1 - level) / 2
    return scipy.stats.nbinom.ppf(tail, successes, share), scipy.stats.nbinom.ppf(1 - tail, successes, share)


def _rate(mean: Scores, of_site: float) -> Scores:
    return np.exp(np.minimum(mean + of_site / 2, LARGEST_LOG_RATE))


def _relative_variance(variance: Scores) -> Scores:
    return np.expm1(np.minimum(variance, LARGEST_VARIANCE))
