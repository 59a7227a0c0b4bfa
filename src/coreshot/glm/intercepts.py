"""Intercepts with which the mean probability of each class over all records is its share of them.

The server has sums, not scores. It takes the scores of a class as Gaussian, with the mean and the covariance that
follow from the sums. A site has its scores. It finds the intercepts that are exactly right for them, and sends by how
much the Gaussian ones are off; the server adds the mean of these over sites. How much that is depends on the base rate
and on the spread of the scores, and the site does not know those of the common head. So it scales the scores of its own
head to several spreads, SPREADS, and, for two classes, weighs its records to several base rates, LOG_ODDS; the server
interpolates. With more than two classes, a site takes its own base rates.
"""

from __future__ import annotations

import numpy as np
import scipy.special
from jaxtyping import Float, Int

LOG_ODDS = np.asarray([-6.0, -4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0, 6.0])  # of the second of two classes
SPREADS = np.asarray([0.5, 1.0, 2.0, 4.0, 8.0])  # deviations of a logit within a class
NUM_DRAWS = 400  # Gaussian scores of each class
MAX_STEPS = 300  # of iterative proportional fitting
PRECISION = 1e-5  # of a class's share


def offsets_shape(num_logits: int) -> tuple[int, int, int]:
    """Spreads, base rates, logits."""
    return len(SPREADS), len(LOG_ODDS) if num_logits == 1 else 1, num_logits


def spread_of(covariance: Float[np.ndarray, "logits logits"]) -> float:
    """The deviation of a logit within a class."""
    return float(np.sqrt(max(np.trace(covariance) / len(covariance), 1e-12)))


def offset_at(
    offsets: Float[np.ndarray, "spreads rates logits"], spread: float, shares: Float[np.ndarray, " classes"]
) -> Float[np.ndarray, " logits"]:
    """Where scores have this spread and the classes these shares."""
    if offsets.shape[1] > 1:
        log_odds = float(scipy.special.logit(shares[1]))
        offsets = np.asarray([[[np.interp(log_odds, LOG_ODDS, one[:, 0])]] for one in offsets])
    return np.asarray([np.interp(np.log(spread), np.log(SPREADS), one) for one in offsets[:, 0].T])


def measure_offsets(
    scores: Float[np.ndarray, "n logits"],
    labels: Int[np.ndarray, " n"],
    centers: Float[np.ndarray, "classes logits"],
    covariance: Float[np.ndarray, "logits logits"],
) -> Float[np.ndarray, "spreads rates logits"]:
    """Exact minus Gaussian intercepts of these records; centers and covariance are those of their classes."""
    counts = np.maximum(np.bincount(labels, minlength=len(centers)), 0.5)
    own = counts / np.sum(counts)
    rates = [own]
    if scores.shape[1] == 1:
        rates = [np.asarray([1 - rate, rate]) for rate in scipy.special.expit(LOG_ODDS)]
    found = np.zeros(offsets_shape(scores.shape[1]))
    for row, spread in enumerate(SPREADS):
        scale = spread / spread_of(covariance)
        for column, shares in enumerate(rates):
            exact = find_offset(scale * scores, (shares / own)[labels], shares)
            found[row, column] = exact - balance_gaussian(scale * centers, scale**2 * covariance, shares)
    return found


def balance_gaussian(
    centers: Float[np.ndarray, "classes logits"],
    covariance: Float[np.ndarray, "logits logits"],
    shares: Float[np.ndarray, " classes"],
) -> Float[np.ndarray, " logits"]:
    """For classes with these mean scores and a common covariance."""
    num_logits = len(covariance)
    values, vectors = np.linalg.eigh(covariance)
    if num_logits == 1:
        draws = scipy.special.ndtri((np.arange(NUM_DRAWS) + 0.5) / NUM_DRAWS)[:, None]
    else:
        draws = np.random.default_rng(0).normal(size=(NUM_DRAWS // 2, num_logits))
        draws = np.concatenate([draws, -draws])
    draws = draws @ (vectors * np.sqrt(np.maximum(values, 0))).T
    scores = (centers[:, None] + draws).reshape(-1, num_logits)
    weights = np.repeat(shares / NUM_DRAWS, NUM_DRAWS)
    return find_offset(scores, weights, shares)


def find_offset(
    scores: Float[np.ndarray, "n logits"],
    weights: Float[np.ndarray, " n"],
    shares: Float[np.ndarray, " classes"],
) -> Float[np.ndarray, " logits"]:
    """What to add to scores so that the mean probabilities of records of these weights are these shares."""
    if scores.shape[1] == 1:  # two classes: the logit of the first is 0
        offset = _fit_proportions(np.concatenate([np.zeros_like(scores), scores], axis=1), weights, shares)
        return offset[1:] - offset[:1]
    return _fit_proportions(scores, weights, shares)


def _fit_proportions(
    scores: Float[np.ndarray, "n classes"], weights: Float[np.ndarray, " n"], shares: Float[np.ndarray, " classes"]
) -> Float[np.ndarray, " classes"]:
    """By iterative proportional fitting."""
    offset = np.zeros(len(shares))
    for _ in range(MAX_STEPS):
        mean = weights @ scipy.special.softmax(scores + offset, axis=1) / np.sum(weights)
        if np.max(np.abs(mean - shares)) < PRECISION:
            break
        offset = offset + np.log(shares / np.maximum(mean, 1e-12))
    return offset
