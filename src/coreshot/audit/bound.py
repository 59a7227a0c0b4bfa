"""A lower bound on epsilon from an attack: with a smaller epsilon, no attack could succeed this often.

With a share f of false and t of true positives, (epsilon, delta)-differential privacy demands
t <= exp(epsilon) f + delta, and the same for the shares 1 - t and 1 - f of negatives. Exact confidence limits of the
shares give the bound (Jagielski et al., "Auditing Differentially Private Machine Learning", 2020). Where epsilon is
small, this needs very many trials.

Where all releases are Gaussian, the claim is stronger: the two data sets are at least as hard to tell apart as N(0, 1)
and N(mu, 1). Then mu >= Phi^-1(t) - Phi^-1(f) at every threshold (Dong et al., "Gaussian Differential Privacy", 2022),
and a threshold in the middle needs few trials (Nasr et al., "Tight Auditing of Differentially Private Machine
Learning", 2023). Epsilon at a given delta follows from mu. Such a bound tests a claim of Gaussian noise and says
nothing about other mechanisms.

| papers            | here                                             |
|-------------------|--------------------------------------------------|
| TPR, FPR          | `true`, `false`                                  |
| mu                | `gaussian_mean`                                  |
| epsilon(mu; delta)| `gaussian_epsilon`                               |

The threshold is chosen on shadow trials, and the bound is computed from held-out trials.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.stats
from jaxtyping import Float

from coreshot.audit.attack import Attack, Scores
from coreshot.audit.confidence import CONFIDENCE, lower_limit, upper_limit
from coreshot.privacy.gaussian import gaussian_epsilon
from coreshot.privacy.releases import Release

NUM_THRESHOLDS = 400
DELTA = 1e-5  # where no delta is claimed
LARGEST_EPSILON = 100.0  # the search ends here

ClaimShape = Literal["any", "gaussian"]
Shares = Float[np.ndarray, " thresholds"]
BoundAt = Callable[[Shares, Shares], Shares]  # (false, true) -> the bound at each threshold


@dataclass(frozen=True)
class Bound:
    epsilon: float  # with the confidence, the true epsilon is at least this
    delta: float
    confidence: float
    shape: ClaimShape  # the kind of claim that the bound tests


def lower_bound(attack: Attack, releases: Sequence[Release], confidence: float = CONFIDENCE) -> Bound:
    deltas = [release.delta for release in releases if release.delta is not None]
    delta = max(deltas, default=DELTA)
    if releases and all(release.mechanism == "gaussian" and release.sampling_rate == 1 for release in releases):
        epsilon = gaussian_epsilon(gaussian_mean(attack, confidence), delta)
        return Bound(min(epsilon, LARGEST_EPSILON), delta, confidence, "gaussian")
    return Bound(any_epsilon(attack, delta, confidence), delta, confidence, "any")


def gaussian_mean(attack: Attack, confidence: float) -> float:
    """A lower bound on mu; 0 where the trials show no difference."""

    def bound(false: Shares, true: Shares) -> Shares:
        return scipy.stats.norm.ppf(true) - scipy.stats.norm.ppf(false)

    return max(0.0, _bound_at_best_threshold(attack, bound, confidence))


def any_epsilon(attack: Attack, delta: float, confidence: float) -> float:
    """From positives or from negatives, whichever gives the better bound on shadow trials."""

    def from_positives(false: Shares, true: Shares) -> Shares:
        return np.log(np.maximum(true - delta, 1e-300) / false)

    def from_negatives(false: Shares, true: Shares) -> Shares:
        return np.log(np.maximum(1 - false - delta, 1e-300) / np.maximum(1 - true, 1e-300))

    limits = _limits(attack.shadow, _thresholds(attack.shadow), confidence)
    better = max((from_positives, from_negatives), key=lambda bound: np.max(bound(*limits)))
    return max(0.0, _bound_at_best_threshold(attack, better, confidence))


def _bound_at_best_threshold(attack: Attack, bound: BoundAt, confidence: float) -> float:
    thresholds = _thresholds(attack.shadow)
    chosen = thresholds[np.argmax(bound(*_limits(attack.shadow, thresholds, confidence)))]
    return float(bound(*_limits(attack.held_out, np.array([chosen]), confidence))[0])


def _thresholds(scores: Scores) -> Float[np.ndarray, " thresholds"]:
    """Midpoints between neighbouring scores, because scores may take only a few values."""
    seen = np.unique(np.concatenate([scores.inside, scores.outside]))
    between = (seen[1:] + seen[:-1]) / 2 if len(seen) > 1 else seen
    return between[np.unique(np.linspace(0, len(between) - 1, NUM_THRESHOLDS).astype(int))]


def _limits(scores: Scores, thresholds: Float[np.ndarray, " thresholds"], confidence: float) -> tuple[Shares, Shares]:
    """An upper limit of false positives and a lower limit of true positives, which hold together."""
    false, true = (np.sum(part[:, None] > thresholds, axis=0) for part in (scores.outside, scores.inside))
    each = (1 + confidence) / 2
    return upper_limit(false, len(scores.outside), each), lower_limit(true, len(scores.inside), each)
