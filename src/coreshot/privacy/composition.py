"""The epsilon of all releases of one data set together, over several studies.

Gaussian mechanisms without sampling compose into one: their squared ratios of sensitivity to noise add up (Dong, Roth
and Su, "Gaussian Differential Privacy", 2022), and its epsilon has a closed form (Balle and Wang, "Improving the
Gaussian Mechanism for Differential Privacy", ICML 2018). With sampled steps among them, `dp-accounting` composes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from scipy.special import log_ndtr

from coreshot.privacy.accounting import compute_epsilon
from coreshot.privacy.releases import Release

MAX_PRECISION = 2500.0  # summed squares of sensitivity over noise, above which dp-accounting would compute for hours


def composed_epsilon(releases: Sequence[Release], delta: float) -> float:
    """The smallest epsilon that holds for all of them at this delta; infinite if one is exact, 0 if there are none."""
    if any(release.is_exact or not release.noise_multiplier for release in releases):
        return math.inf
    precision, sampled = 0.0, Counter[tuple[float, float]]()
    for release in releases:
        assert release.noise_multiplier is not None
        if release.sampling_rate == 1:
            precision += release.num_steps / release.noise_multiplier**2
        else:
            sampled[release.noise_multiplier, release.sampling_rate] += release.num_steps
    if not sampled:
        return gaussian_epsilon(math.sqrt(precision), delta)
    effective = precision + sum(steps * (rate / noise) ** 2 for (noise, rate), steps in sampled.items())
    if effective > MAX_PRECISION:
        return math.inf
    parts = [Release("", "", "dp_sgd", 1.0, noise, steps, rate) for (noise, rate), steps in sorted(sampled.items())]
    parts += [Release("", "", "gaussian", 1.0, precision**-0.5)] if precision else []
    return compute_epsilon(tuple(parts), delta)


def gaussian_epsilon(ratio: float, delta: float) -> float:
    """Of one Gaussian mechanism with sensitivity / standard deviation = ratio; rounded up."""

    def excess(epsilon: float) -> float:
        first = float(log_ndtr(ratio / 2 - epsilon / ratio))
        second = epsilon + float(log_ndtr(-ratio / 2 - epsilon / ratio))
        return math.exp(first) - math.exp(min(second, first))

    if ratio == 0 or excess(0.0) <= delta:
        return 0.0
    low, high = 0.0, ratio**2 / 2 + 40 * ratio  # forty deviations out nothing is left, whatever the delta
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > delta else (low, middle)
    return high
