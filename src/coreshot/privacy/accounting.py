"""Privacy accounting: the noise that an (epsilon, delta) guarantee needs, and the epsilon of some noise.

Unit and adjacency: one record of one client, added or removed. A release with Gaussian noise is a Gaussian mechanism.
dp_sgd is num_steps of them, each on records that were drawn independently with a fixed probability (Poisson sampling).

Gaussian mechanisms without sampling compose into one: their squared ratios of sensitivity to noise add up (Dong, Roth
and Su, "Gaussian Differential Privacy", 2022), and that one has a closed form. Sampled steps are composed by
`dp-accounting`, which takes a second or two to load, so it is imported where it is used.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from coreshot.config import settings
from coreshot.errors import CoreshotError
from coreshot.privacy.gaussian import gaussian_epsilon, gaussian_multiplier
from coreshot.privacy.releases import Release

if TYPE_CHECKING:
    import dp_accounting
    from dp_accounting import pld

SEARCH_FROM = 0.7  # times the multiplier of Renyi accounting: the lower end of the search for the tight one
TOLERANCE = 1e-3  # relative error of the multiplier of sampled steps, which is never too small
MAX_PRECISION = 2500.0  # summed squares of sensitivity over noise, above which dp-accounting would compute for hours


@settings
class Privacy:
    """(epsilon, delta)-differential privacy of each client's whole share in a study, example level, add or remove."""

    epsilon: Annotated[float, Field(gt=0, le=32)]  # a larger one is no meaningful guarantee
    delta: Annotated[float, Field(gt=0, lt=0.1)]


def make_dp_event(release: Release) -> dp_accounting.DpEvent:
    import dp_accounting

    noise = dp_accounting.GaussianDpEvent(release.noise_multiplier)
    if release.sampling_rate < 1:
        noise = dp_accounting.PoissonSampledDpEvent(release.sampling_rate, noise)
    return dp_accounting.SelfComposedDpEvent(noise, release.num_steps) if release.num_steps > 1 else noise


def _accountant() -> pld.PLDAccountant:
    import dp_accounting
    from dp_accounting import pld

    return pld.PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)


def compute_epsilon(releases: Sequence[Release], delta: float) -> float:
    """The smallest epsilon that holds for all of them at this delta; infinite if one is exact, 0 if there are none."""
    precision, sampled = 0.0, Counter[tuple[float, float]]()
    for release in releases:
        if release.is_exact or not release.noise_multiplier:
            return math.inf
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
    return _composed_epsilon(tuple(parts), delta)


@lru_cache(maxsize=64)
def _composed_epsilon(parts: tuple[Release, ...], delta: float) -> float:
    accountant = _accountant()
    for part in parts:
        accountant.compose(make_dp_event(part))
    return float(accountant.get_epsilon(delta))


@lru_cache(maxsize=64)
def noise_multiplier(privacy: Privacy, num_steps: int = 1, sampling_rate: float = 1.0) -> float:
    """The smallest standard deviation over sensitivity, of one release or of num_steps sampled ones, that is enough."""
    if sampling_rate == 1:
        return math.sqrt(num_steps) * gaussian_multiplier(privacy.epsilon, privacy.delta)
    import dp_accounting
    from dp_accounting import mechanism_calibration, rdp

    def event(multiplier: float) -> dp_accounting.DpEvent:
        return make_dp_event(Release("", "", "gaussian", 1.0, multiplier, num_steps, sampling_rate))

    try:
        # Renyi accounting is fast and never too low, so the slow search for the tight answer begins close below it.
        loose = dp_accounting.calibrate_dp_mechanism(
            lambda: rdp.RdpAccountant(range(2, 256)), event, privacy.epsilon, privacy.delta
        )
        bracket = dp_accounting.ExplicitBracketInterval(SEARCH_FROM * loose, loose)
        found = dp_accounting.calibrate_dp_mechanism(
            _accountant, event, privacy.epsilon, privacy.delta, bracket, tol=TOLERANCE * loose
        )
    except (ValueError, mechanism_calibration.NoBracketIntervalFoundError):
        raise CoreshotError(
            f"privacy: no noise gives epsilon {privacy.epsilon:g} at delta {privacy.delta:g}; change them."
        ) from None
    return float(found)
