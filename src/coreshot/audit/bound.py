"""A lower bound on epsilon from an attack: no mechanism with a smaller one lets anybody tell two data sets apart so well.

With a share f of false and t of true positives, (epsilon, delta)-differential privacy wants t <= exp(epsilon) f + delta, and the same of the shares
of wrong and right denials. The shares' exact limits give the bound (Jagielski et al. 2020). That needs a great many trials where epsilon is small.

Where all releases are Gaussian, the claim is more than that: the two data sets are no easier to tell apart than N(0, 1) and N(mu, 1), so
mu >= Phi^-1(t) - Phi^-1(f) at every threshold (Dong et al. 2022), which a threshold in the middle shows with few trials (Nasr et al. 2023). Epsilon
at a delta follows from mu. This refutes a claim of Gaussian noise; of another mechanism it would say nothing.

The threshold is chosen on trials that the bound is not computed from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.optimize
import scipy.stats
from jaxtyping import Float

from coreshot.audit.attack import Attack, Scores
from coreshot.audit.confidence import CONFIDENCE, at_least, at_most
from coreshot.privacy.releases import Release

NUM_THRESHOLDS = 400
DELTA = 1e-5  # where nothing is claimed
LARGEST = 100.0  # epsilon that is looked for

Shape = Literal["any", "gaussian"]
Shares = tuple[Float[np.ndarray, " thresholds"], Float[np.ndarray, " thresholds"]]


@dataclass(frozen=True)
class Bound:
    epsilon: float  # is at least this, with the confidence
    delta: float
    confidence: float
    shape: Shape  # of the claim that it is held against


def lower_bound(attack: Attack, releases: Sequence[Release], confidence: float = CONFIDENCE) -> Bound:
    deltas = [release.delta for release in releases if release.delta is not None]
    delta = max(deltas, default=DELTA)
    if releases and all(release.mechanism == "gaussian" and release.sampling_rate == 1 for release in releases):
        return Bound(gaussian_epsilon(gaussian_mean(attack, confidence), delta), delta, confidence, "gaussian")
    return Bound(any_epsilon(attack, delta, confidence), delta, confidence, "any")


def gaussian_mean(attack: Attack, confidence: float) -> float:
    """mu is at least this; 0 where the trials do not show any."""

    def value(false: Float[np.ndarray, ...], true: Float[np.ndarray, ...]) -> Float[np.ndarray, ...]:
        return scipy.stats.norm.ppf(true) - scipy.stats.norm.ppf(false)

    return max(0.0, _best(attack, value, confidence))


def any_epsilon(attack: Attack, delta: float, confidence: float) -> float:
    """By accusations or by denials, whichever the trials that teach find better."""

    def accuse(false: Float[np.ndarray, ...], true: Float[np.ndarray, ...]) -> Float[np.ndarray, ...]:
        return np.log(np.maximum(true - delta, 1e-300) / false)

    def deny(false: Float[np.ndarray, ...], true: Float[np.ndarray, ...]) -> Float[np.ndarray, ...]:
        return np.log(np.maximum(1 - false - delta, 1e-300) / np.maximum(1 - true, 1e-300))

    better = max(
        (accuse, deny), key=lambda value: np.max(value(*_limits(attack.taught, _thresholds(attack.taught), confidence)))
    )
    return max(0.0, _best(attack, better, confidence))


def _best(attack: Attack, value: Callable[..., Float[np.ndarray, ...]], confidence: float) -> float:
    thresholds = _thresholds(attack.taught)
    chosen = thresholds[np.argmax(value(*_limits(attack.taught, thresholds, confidence)))]
    return float(value(*_limits(attack.scored, np.array([chosen]), confidence))[0])


def _thresholds(scores: Scores) -> Float[np.ndarray, " thresholds"]:
    """Half-way between neighbours, since a score may be one of a few values."""
    seen = np.unique(np.concatenate([scores.inside, scores.outside]))
    between = (seen[1:] + seen[:-1]) / 2 if len(seen) > 1 else seen
    return between[np.unique(np.linspace(0, len(between) - 1, NUM_THRESHOLDS).astype(int))]


def _limits(scores: Scores, thresholds: Float[np.ndarray, " thresholds"], confidence: float) -> Shares:
    """At most so many false positives and at least so many true ones, both with the confidence together."""
    false, true = (np.sum(part[:, None] > thresholds, axis=0) for part in (scores.outside, scores.inside))
    each = (1 + confidence) / 2
    return at_most(false, len(scores.outside), each), at_least(true, len(scores.inside), each)


def gaussian_epsilon(mean: float, delta: float) -> float:
    """The epsilon that N(0, 1) and N(mean, 1) keep at delta (Balle and Wang 2018, Theorem 8)."""

    def excess(epsilon: float) -> float:
        near, far = scipy.stats.norm.cdf(mean / 2 - epsilon / mean), scipy.stats.norm.logcdf(-mean / 2 - epsilon / mean)
        return float(near - math.exp(epsilon + far) - delta)

    if mean <= 0 or excess(0.0) <= 0:
        return 0.0
    return LARGEST if excess(LARGEST) > 0 else float(scipy.optimize.brentq(excess, 0.0, LARGEST))
