"""Convergence diagnostics of chains, on function values: weights are not identifiable, so their R-hat has no meaning.

Vehtari et al., "Rank-normalization, folding, and localization: an improved R-hat", Bayesian Analysis 2021; R-hat and
effective sample size are blackjax's.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Array, Float

from coreshot.inference.protocol import Info
from coreshot.models import Model
from coreshot.types import Posterior

MAX_R_HAT = 1.1
MIN_EFFECTIVE_SAMPLES_PER_CHAIN = 5.0
MIN_DRAWS = 4  # of a chain: both measures split it in halves, and need two draws in each
ACCEPTANCE_RANGE = (0.4, 0.995)


@dataclass(frozen=True)
class Diagnostics:
    """Worst split R-hat and effective sample size over the model's outputs at probe inputs; None if undefined."""

    acceptance: float | None
    num_divergences: int | None
    r_hat: float | None
    effective_samples: float | None
    warnings: list[str]

    @classmethod
    def empty(cls) -> Diagnostics:
        """For a posterior without chains."""
        return cls(None, None, None, None, [])


def diagnose(model: Model, posterior: Posterior, info: Info, probes: Float[Array, "n ..."]) -> Diagnostics:
    """For a sampler's posterior. A point estimate or a closed form has no chains, and gets an empty report."""
    outputs = posterior.sample_outputs(probes) if "acceptance" in info else None
    if outputs is None:
        return Diagnostics.empty()
    from blackjax.diagnostics import ess_bulk, rhat  # not above: its import takes half a second

    num_chains = info["acceptance"].shape[0]
    if model.kind == "classification":
        outputs = jax.nn.softmax(outputs)[..., :-1]  # probabilities sum to one, so the last is redundant
    values = outputs.reshape(num_chains, -1, outputs[0].size)
    has_halves = values.shape[1] >= MIN_DRAWS
    effective = float(np.min(ess_bulk(values))) if has_halves else None
    r_hat = float(np.max(rhat(values))) if has_halves and num_chains > 1 else None
    acceptance, divergences = float(np.mean(info["acceptance"])), int(np.sum(info["divergent"]))
    return Diagnostics(
        acceptance, divergences, r_hat, effective, _warnings(acceptance, divergences, r_hat, effective, num_chains)
    )


def _warnings(
    acceptance: float, divergences: int, r_hat: float | None, effective: float | None, num_chains: int
) -> list[str]:
    found = []
    low, high = ACCEPTANCE_RANGE
    if acceptance < low:
        found.append(
            f"only {acceptance:.0%} of proposals were accepted, so the chains hardly move; "
            "lower step_size or set target_acceptance."
        )
    if acceptance > high:
        found.append(
            f"{acceptance:.1%} of proposals were accepted, so the steps are needlessly small; "
            "raise step_size or set target_acceptance."
        )
    if divergences:
        found.append(f"{divergences} transitions diverged: parts of the posterior were not reached; lower step_size.")
    if effective is None:
        found.append(
            f"fewer than {MIN_DRAWS} samples a chain: neither R-hat nor their effective number can be computed; "
            "raise num_samples."
        )
        return found
    if r_hat is None:
        found.append("one chain only: R-hat cannot be computed; set num_chains to 4.")
    elif not r_hat <= MAX_R_HAT:
        found.append(
            f"split R-hat of the function values is {r_hat:.2f} (above {MAX_R_HAT}): the chains disagree; "
            "sample for longer."
        )
    if not effective >= MIN_EFFECTIVE_SAMPLES_PER_CHAIN * num_chains:
        found.append(f"the samples are worth about {effective:.0f} independent ones; sample for longer.")
    return found
