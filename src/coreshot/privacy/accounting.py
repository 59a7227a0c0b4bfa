"""Privacy accounting by `dp-accounting`: the noise that an (epsilon, delta) guarantee needs, and the epsilon of some
noise.

Unit and adjacency: one record of one client, added or removed. A release with Gaussian noise is a Gaussian mechanism.
dp_sgd is num_steps of them, each on records that were drawn independently with a fixed probability (Poisson sampling).
Releases of one message compose.

`dp-accounting` takes a second or two to load, so it is imported where it is used and not by every command and worker.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from coreshot.config import settings
from coreshot.errors import CoreshotError
from coreshot.privacy.releases import Release

if TYPE_CHECKING:
    import dp_accounting
    from dp_accounting import pld

SEARCH_FROM = 0.7  # times the multiplier of Renyi accounting: the lower end of the search for the tight one
TOLERANCE = 1e-3  # relative error of the multiplier, which is never too small


@settings
class Privacy:
    """(epsilon, delta)-differential privacy of each client's whole share in a study, example level, add or remove."""

    epsilon: Annotated[float, Field(gt=0, le=32)]  # a larger one is no meaningful guarantee
    delta: Annotated[float, Field(gt=0, lt=0.1)]


def make_dp_event(release: Release) -> dp_accounting.DpEvent:
    import dp_accounting

    if release.is_exact or release.noise_multiplier is None:
        return dp_accounting.NonPrivateDpEvent()
    noise = dp_accounting.GaussianDpEvent(release.noise_multiplier)
    if release.sampling_rate < 1:
        noise = dp_accounting.PoissonSampledDpEvent(release.sampling_rate, noise)
    return dp_accounting.SelfComposedDpEvent(noise, release.num_steps) if release.num_steps > 1 else noise


def _accountant() -> pld.PLDAccountant:
    import dp_accounting
    from dp_accounting import pld

    return pld.PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)


@lru_cache(maxsize=64)
def compute_epsilon(releases: tuple[Release, ...], delta: float) -> float:
    """The smallest epsilon that holds for these releases together; infinite if one of them is exact."""
    accountant = _accountant()
    for release in releases:
        if release.is_exact:
            return float("inf")
        accountant.compose(make_dp_event(release))
    return float(accountant.get_epsilon(delta))


@lru_cache(maxsize=64)
def noise_multiplier(privacy: Privacy, num_steps: int = 1, sampling_rate: float = 1.0) -> float:
    """The smallest standard deviation over sensitivity, of one release or of num_steps sampled ones, that is enough."""
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
