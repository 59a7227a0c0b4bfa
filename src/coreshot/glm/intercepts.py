"""Intercepts with which the mean probability of each class over all records is its share of them.

The server has sums, not scores. It takes the scores of a class as Gaussian, with the mean and the covariance that
follow from the sums. A site has its scores. For the head of its own records alone it finds the intercepts that are
exactly right, and sends by how much the Gaussian ones are off; the server adds the mean of these over sites. How much
that is depends on the base rate, and the site does not know that of all sites. So for two classes it weighs its records
to several base rates, LOG_ODDS, and the server interpolates. For more classes it takes its own base rates.
"""

from __future__ import annotations

import numpy as np
import scipy.special
from jaxtyping import Float

LOG_ODDS = np.asarray([-6.0, -4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0, 6.0])
NUM_DRAWS = 2_000  # Gaussian scores of each class
MAX_STEPS = 500  # of iterative proportional fitting
PRECISION = 1e-6  # of a class's share


def num_base_rates(num_logits: int) -> int:
    return len(LOG_ODDS) if num_logits == 1 else 1


def offset_at(
    offsets: Float[np.ndarray, "rates logits"], shares: Float[np.ndarray, " classes"]
) -> Float[np.ndarray, " logits"]:
    """Where the classes have these shares."""
    if len(offsets) == 1:
        return offsets[0]
    return np.asarray([np.interp(scipy.special.logit(shares[1]), LOG_ODDS, offsets[:, 0])])


def balance_gaussian(
    centers: Float[np.ndarray, "classes logits"],
    covariance: Float[np.ndarray, "logits logits"],
    shares: Float[np.ndarray, " classes"],
    damping: Float[np.ndarray, " logits"],
) -> Float[np.ndarray, " logits"]:
    """For classes with these mean scores and a common covariance; logits are damped scores."""
    num_logits = len(damping)
    values, vectors = np.linalg.eigh(covariance)
    if num_logits == 1:
        draws = scipy.special.ndtri((np.arange(NUM_DRAWS) + 0.5) / NUM_DRAWS)[:, None]
    else:
        draws = np.random.default_rng(0).normal(size=(NUM_DRAWS // 2, num_logits))
        draws = np.concatenate([draws, -draws])
    draws = draws @ (vectors * np.sqrt(np.maximum(values, 0))).T
    scores = (centers[:, None] + draws).reshape(-1, num_logits)
    weights = np.repeat(shares / NUM_DRAWS, NUM_DRAWS)
    return find_offset(scores, np.broadcast_to(damping, scores.shape), weights, shares)


def find_offset(
    scores: Float[np.ndarray, "n logits"],
    damping: Float[np.ndarray, "n logits"],
    weights: Float[np.ndarray, " n"],
    shares: Float[np.ndarray, " classes"],
) -> Float[np.ndarray, " logits"]:
    """What to add to scores so that the mean probabilities of records of these weights are these shares."""
    if scores.shape[1] == 1:  # two classes: the logit of the first is 0
        scores, damping = (np.concatenate([np.zeros_like(one), one], axis=1) for one in (scores, damping))
        damping = np.repeat(damping[:, 1:], 2, axis=1)
        offset = _fit_proportions(scores, damping, weights, shares)
        return offset[1:] - offset[:1]
    return _fit_proportions(scores, damping, weights, shares)


def _fit_proportions(
    scores: Float[np.ndarray, "n classes"],
    damping: Float[np.ndarray, "n classes"],
    weights: Float[np.ndarray, " n"],
    shares: Float[np.ndarray, " classes"],
) -> Float[np.ndarray, " classes"]:
    typical = weights @ damping / np.sum(weights)
    offset = np.zeros(len(shares))
    for _ in range(MAX_STEPS):
        mean = weights @ scipy.special.softmax(damping * (scores + offset), axis=1) / np.sum(weights)
        if np.max(np.abs(mean - shares)) < PRECISION:
            break
        offset = offset + np.log(shares / np.maximum(mean, 1e-12)) / typical
    return offset
