"""How often each class is there at a place, from records without labels, and a model's logits moved accordingly.

If only the classes' shares differ between two places, not what records of a class look like, then the probabilities
there are the model's times r_c = share there / share in the federation (Saerens, Latinne and Decaestecker, "Adjusting
the Outputs of a Classifier to New a Priori Probabilities: A Simple Procedure", 2002). Their expectation maximisation
finds the shares under which the new records are most likely.

Where records differ in other ways too, it goes badly wrong: a ward of old patients is not one of more illness than age
explains. The sites tell how far to trust it. Their intercepts (`between_sites`) differ by a variance v where shares, or
anything else that the columns do not say, differ. So the logarithms of the odds r_c have the prior N(0, v), and the
records count as at most MAX_RECORDS, because the model's errors are common to all of them. With v = 0 nothing moves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.special
from jaxtyping import Float

Shares = Float[np.ndarray, " classes"]
Probabilities = Float[np.ndarray, "n classes"]

MAX_RECORDS = 40.0
LEAST_INFORMATION = 0.5  # about a logit of the shares; with less, its deviation would be over 1.4
MAX_STEPS = 200
SMALLEST_SHARE = 1e-4
LOG_RATIOS = 12.0  # the largest change of a logit


@dataclass(frozen=True)
class BaseRates:
    shares: Shares  # there
    log_ratios: Shares  # what is added to the logits
    information: float  # what the records, as many as count, say about a logit of the shares


def estimate_shares(probabilities: Probabilities, shares: Shares, variance: float) -> BaseRates:
    """`shares` are the federation's. The mode is found by Newton's method."""
    shares = _proper(shares)
    weight = min(1.0, MAX_RECORDS / len(probabilities))
    moved = np.zeros(len(shares))
    # Two classes have one logit, the difference of two entries.
    precision = np.eye(len(shares)) * (2 if len(shares) == 2 else 1) / max(variance, 1e-9)
    for _ in range(MAX_STEPS):
        gradient, information = _slope(probabilities, shares, moved, weight)
        step = np.linalg.solve(information + precision, gradient - precision @ moved)
        moved = moved + np.clip(step, -0.5, 0.5)
        if np.max(np.abs(step)) < 1e-8:
            break
    there = scipy.special.softmax(np.log(shares) + moved)
    information = _slope(probabilities, shares, moved, weight)[1]
    return BaseRates(there, np.log(there / shares), float(np.trace(information)) * len(shares) / 4 / (len(shares) - 1))


def _slope(
    probabilities: Probabilities, shares: Shares, moved: Shares, weight: float
) -> tuple[Shares, Float[np.ndarray, "classes classes"]]:
    """Of the log likelihood sum log sum_c p_c r_c: responsibilities minus shares; their squares are the information."""
    there = scipy.special.softmax(np.log(shares) + moved)
    logs = np.log(np.maximum(probabilities, 1e-12)) + np.log(there / shares)
    score = scipy.special.softmax(logs, axis=1) - there
    return weight * score.sum(axis=0), weight * score.T @ score


def balance_to_shares(logits: Float[np.ndarray, "n classes"], shares: Shares) -> Shares:
    """What to add to the logits of these records so that their mean probabilities are these shares."""
    shares, moved = _proper(shares), np.zeros(logits.shape[1])
    for _ in range(MAX_STEPS):
        probabilities = scipy.special.softmax(logits + moved, axis=1)
        excess = shares - probabilities.mean(axis=0)
        if np.max(np.abs(excess)) < 1e-9:
            break
        curvature = np.diag(probabilities.mean(axis=0)) - probabilities.T @ probabilities / len(probabilities)
        step = np.linalg.lstsq(curvature + 1e-9 * np.eye(len(shares)), excess, rcond=None)[0]
        moved = np.clip(moved + np.clip(step, -1.0, 1.0), -LOG_RATIOS, LOG_RATIOS)
    return moved


def _proper(shares: Shares) -> Shares:
    """None is 0."""
    positive = np.maximum(shares, SMALLEST_SHARE)
    return positive / np.sum(positive)
