"""How often each class is there at a place, from records without labels, and a model's logits moved accordingly.

If only the classes' shares differ between two places, not what records of a class look like, then the probabilities
there are the model's times r_c = share there / share in the federation (Saerens, Latinne and Decaestecker, "Adjusting
the Outputs of a Classifier to New a Priori Probabilities: A Simple Procedure", Neural Computation 2002). Their
expectation maximisation finds the shares under which the new records are most likely. We find the same maximum by
Newton's method, with a weak prior on the logits of the shares, so that no share becomes 0.

Where records differ in other ways too, it goes badly wrong: a ward of old patients is not one of more illness than age
explains. `base_rate_trial` looks whether it would have gone wrong at the sites that took part.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.special
from jaxtyping import Float

Shares = Float[np.ndarray, " classes"]
Probabilities = Float[np.ndarray, "n classes"]

PRIOR_VARIANCE = 25.0  # of the logit of a share: weak
LEAST_INFORMATION = 4.0  # about a logit of the shares; with less, its deviation would be over 0.5
MAX_STEPS = 200
SMALLEST_SHARE = 1e-4
LARGEST_SHIFT = 12.0  # the largest change of a logit


@dataclass(frozen=True)
class BaseRates:
    shares: Shares  # there
    log_ratios: Shares  # what is added to the logits
    information: float  # what the records say about a logit of the shares

    def scaled(self, trust: float) -> Shares:
        """A part of the correction, and the shares that it stands for."""
        return trust * self.log_ratios


def estimate_shares(probabilities: Probabilities, shares: Shares, variance: float = PRIOR_VARIANCE) -> BaseRates:
    """`shares` are the federation's."""
    shares = _proper(shares)
    moved = np.zeros(len(shares))
    # Two classes have one logit, the difference of two entries.
    precision = np.eye(len(shares)) * (2 if len(shares) == 2 else 1) / max(variance, 1e-9)
    for _ in range(MAX_STEPS):
        gradient, information = _slope(probabilities, shares, moved)
        step = np.linalg.solve(information + precision, gradient - precision @ moved)
        moved = moved + np.clip(step, -0.5, 0.5)
        if np.max(np.abs(step)) < 1e-8:
            break
    there = scipy.special.softmax(np.log(shares) + moved)
    # At the federation's shares: at shares near 0 or 1 a model that tells nothing would look certain.
    information = _slope(probabilities, shares, np.zeros(len(shares)))[1]
    return BaseRates(there, np.log(there / shares), float(np.trace(information)) * len(shares) / 4 / (len(shares) - 1))


def _slope(
    probabilities: Probabilities, shares: Shares, moved: Shares
) -> tuple[Shares, Float[np.ndarray, "classes classes"]]:
    """Of the log likelihood sum log sum_c p_c r_c: responsibilities minus shares; their squares are the information."""
    there = scipy.special.softmax(np.log(shares) + moved)
    logs = np.log(np.maximum(probabilities, 1e-12)) + np.log(there / shares)
    score = scipy.special.softmax(logs, axis=1) - there
    return score.sum(axis=0), score.T @ score


def known_shares(shares: Shares, there: Shares) -> Shares:
    """What to add to the logits if the shares there are known."""
    return np.log(_proper(there) / _proper(shares))


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
        moved = np.clip(moved + np.clip(step, -1.0, 1.0), -LARGEST_SHIFT, LARGEST_SHIFT)
    return moved


def _proper(shares: Shares) -> Shares:
    """None is 0."""
    positive = np.maximum(shares, SMALLEST_SHARE)
    return positive / np.sum(positive)
