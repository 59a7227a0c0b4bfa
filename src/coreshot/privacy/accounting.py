"""How much noise a promise costs, and what promise some noise keeps: `dp-accounting` does the sums.

Unit and adjacency: one record of one client, added or removed. A release with Gaussian noise is a Gaussian mechanism; dp_sgd is so many of them,
each on records that were drawn independently with a fixed probability (Poisson sampling). Releases of one message compose.

It takes a second or two to load, which every command and every worker would pay: so it is loaded where it is used.
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

BELOW = 0.7  # times the multiplier of Renyi accounting, below which the tight one is not looked for
TOLERANCE = 1e-3  # of the multiplier, which is taken from above


@settings
class Privacy:
    """(epsilon, delta)-differential privacy of each client's whole share in a study, example level, add or remove."""

    epsilon: Annotated[float, Field(gt=0, le=32)]  # above, nothing is promised that is worth the name
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
    """The smallest epsilon that these releases together keep; infinite where one of them is exact."""
    accountant = _accountant()
    for release in releases:
        if release.is_exact:
            return float("inf")
        accountant.compose(make_dp_event(release))
    return float(accountant.get_epsilon(delta))


@lru_cache(maxsize=64)
def noise_multiplier(privacy: Privacy, num_steps: int = 1, sampling_rate: float = 1.0) -> float:
    """Of the noise of one release (or of num_steps sampled ones), over its sensitivity, that just keeps the promise."""
    import dp_accounting
    from dp_accounting import rdp

    def event(multiplier: float) -> dp_accounting.DpEvent:
        return make_dp_event(Release("", "", "gaussian", 1.0, multiplier, num_steps, sampling_rate))

    try:
        # Renyi accounting is quick and never below the truth, so the search for the tight answer, whose steps are slow, begins beside it.
        loose = dp_accounting.calibrate_dp_mechanism(
            lambda: rdp.RdpAccountant(range(2, 256)), event, privacy.epsilon, privacy.delta
        )
        bracket = dp_accounting.ExplicitBracketInterval(BELOW * loose, loose)
        found = dp_accounting.calibrate_dp_mechanism(
            _accountant, event, privacy.epsilon, privacy.delta, bracket, tol=TOLERANCE * loose
        )
    except ValueError as error:
        raise CoreshotError(
            f"privacy: no noise keeps epsilon {privacy.epsilon:g} at delta {privacy.delta:g} ({error}); change them."
        ) from None
    return float(found)
