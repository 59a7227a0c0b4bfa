"""The Gaussian mechanism in closed form (Balle and Wang, "Improving the Gaussian Mechanism for Differential Privacy",
ICML 2018, Theorem 8): its epsilon at a delta, and the least noise for an epsilon."""

from __future__ import annotations

import math

from scipy.special import log_ndtr

PRECISION = 1e-9  # relative; results are rounded to the safe side by it


def gaussian_epsilon(ratio: float, delta: float) -> float:
    """Of one Gaussian mechanism with sensitivity / standard deviation = ratio; rounded up."""
    if ratio <= 0 or _excess(0.0, ratio) <= delta:
        return 0.0
    low, high = 0.0, ratio**2 / 2 + 40 * ratio  # forty deviations out nothing is left, whatever the delta
    while high - low > PRECISION * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _excess(middle, ratio) > delta else (low, middle)
    return high


def gaussian_multiplier(epsilon: float, delta: float) -> float:
    """The least standard deviation over sensitivity for which `gaussian_epsilon` is at most epsilon; rounded up."""
    low, high = 0.0, 1.0
    while gaussian_epsilon(1 / high, delta) > epsilon:
        low, high = high, 2 * high
    while high - low > PRECISION * high:
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_epsilon(1 / middle, delta) > epsilon else (low, middle)
    return high


def _excess(epsilon: float, ratio: float) -> float:
    """The delta at this epsilon."""
    first = float(log_ndtr(ratio / 2 - epsilon / ratio))
    second = epsilon + float(log_ndtr(-ratio / 2 - epsilon / ratio))
    return math.exp(first) - math.exp(min(second, first))
