"""95 % intervals: Wilson's for shares, the percentile bootstrap with a fixed seed for what is no share.

Wilson, "Probable inference, the law of succession, and statistical inference", JASA 1927; Efron and Tibshirani, "An
Introduction to the Bootstrap", 1993, chapter 13.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.stats
from jaxtyping import Bool, Float, Int

LEVEL = 0.95
MAX_RESAMPLES, MIN_RESAMPLES = 1000, 200
MAX_WORK = 20_000_000  # records times resamples, before the number of resamples is lowered
MAX_COUNTS = 4_000_000  # of counts at a time: 32 MB
SEED = 0  # the same records give the same intervals

Interval = tuple[float, float]
Statistics = Callable[[Float[np.ndarray, "resamples n"]], dict[str, np.ndarray]]


def wilson(num_hits: int, num_records: int) -> Interval | None:
    """Of the share num_hits / num_records; None of no records."""
    if num_records == 0:
        return None
    found = scipy.stats.binomtest(num_hits, num_records).proportion_ci(LEVEL, method="wilson")
    return float(found.low), float(found.high)


def num_resamples(num_records: int, num_curves: int = 1) -> int:
    return int(np.clip(MAX_WORK // (num_records * max(num_curves, 1)), MIN_RESAMPLES, MAX_RESAMPLES))


def resample(num_records: int, count: int, statistics: Statistics) -> dict[str, Float[np.ndarray, " resamples"]]:
    """Statistics of `count` resamples. A resample is given by how often each record is in it, one row for each."""
    generator, at_once = np.random.default_rng(SEED), max(1, MAX_COUNTS // num_records)
    chances = np.full(num_records, 1 / num_records)
    parts = [
        statistics(generator.multinomial(num_records, chances, size=min(at_once, count - first)).astype(np.float64))
        for first in range(0, count, at_once)
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def percentiles(values: Float[np.ndarray, " resamples"]) -> Interval | None:
    """None if no resample has the statistic, as the AUC of records of one class."""
    known = values[np.isfinite(values)]
    if not len(known):
        return None
    low, high = np.quantile(known, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def weighted_auc(
    scores: Float[np.ndarray, " n"], is_positive: Bool[np.ndarray, " n"]
) -> Callable[[Float[np.ndarray, "resamples n"]], Float[np.ndarray, " resamples"]]:
    """The function from many rows of weights to the area under the ROC curve of each.

    scikit-learn's roc_auc_score computes one row in the time that this takes for hundreds; a test holds them equal.
    """
    order = np.argsort(scores, kind="stable")
    first = _first_of_ties(scores[order])
    positive = is_positive[order].astype(np.float64)

    def area(weights: Float[np.ndarray, "resamples n"]) -> Float[np.ndarray, " resamples"]:
        sorted_weights = weights[:, order]
        ups = np.add.reduceat(sorted_weights * positive, first, axis=1)
        downs = np.add.reduceat(sorted_weights * (1 - positive), first, axis=1)
        below = np.cumsum(downs, axis=1) - downs / 2  # of equal scores, half count as below
        total = np.sum(ups, axis=1) * np.sum(downs, axis=1)
        return np.divide(np.sum(ups * below, axis=1), total, out=np.full(len(total), np.nan), where=total > 0)

    return area


def _first_of_ties(values: Float[np.ndarray, " n"]) -> Int[np.ndarray, " groups"]:
    return np.flatnonzero(np.concatenate([[True], np.diff(values) > 0]))
