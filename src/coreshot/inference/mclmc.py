"""Microcanonical Langevin Monte Carlo: chains of constant speed with random changes of direction, and no accept step.

Robnik et al., "Microcanonical Hamiltonian Monte Carlo", JMLR 2023; transition and tuning are blackjax's.

| paper                  | here                                                                     |
|------------------------|--------------------------------------------------------------------------|
| epsilon, L             | tuned in the warm-up: step size, distance between changes of direction   |
| Var[E] / d             | energy_variance, the tuning's target: the error of the missing accept step |
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import jax
from jaxtyping import Array
from pydantic import Field

from coreshot.config import Count, Positive, settings
from coreshot.inference.chains import sample_each
from coreshot.inference.map_estimate import climb
from coreshot.inference.posterior import SamplePosterior
from coreshot.inference.protocol import Info
from coreshot.keys import named_key
from coreshot.models import LogDensity
from coreshot.types import Params, PRNGKey


@settings
class Mclmc:
    num_warmup: Count  # steps in which step size and length are tuned
    num_samples: Count  # kept per chain
    thinning: Count = 10  # steps from one draw to the next
    energy_variance: Positive = 5e-4  # per weight, the target of the step size's tuning
    num_chains: Count = 4
    map_steps: Annotated[int, Field(ge=0)] = 0  # of Adam before the warm-up; 0 starts at the initial weights
    map_step_size: Positive = 1e-2

    def num_passes(self, num_points: int) -> int:
        # The integrator takes two gradients per step.
        return (self.map_steps + 2 * (self.num_warmup + self.thinning * self.num_samples)) * num_points

    def __call__(self, key: PRNGKey, log_density: LogDensity, init: Params) -> tuple[SamplePosterior, Info]:
        return sample_microcanonical(self, key, log_density, init)


@partial(jax.jit, static_argnums=0)
def sample_microcanonical(
    inference: Mclmc, key: PRNGKey, log_density: LogDensity, init: Params
) -> tuple[SamplePosterior, Info]:
    return sample_each(partial(_one_chain, inference), inference.num_chains, key, log_density, init)


def _one_chain(inference: Mclmc, log_density: LogDensity, key: PRNGKey, params: Params) -> tuple[Params, Info]:
    import blackjax  # here and not above, as elsewhere in this package: its import takes half a second

    if inference.map_steps:
        params = climb(log_density, params, "adam", inference.map_step_size, inference.map_steps, named_key(key, "map"))
    key_start, key_tune, key_draw = jax.random.split(key, 3)
    kernel = blackjax.mclmc.build_kernel(desired_energy_var=inference.energy_variance)
    # Each of its three phases takes a third of the warm-up.
    state, tuned, _ = blackjax.mclmc_find_L_and_step_size(
        mclmc_kernel=kernel,
        num_steps=inference.num_warmup,
        state=blackjax.mclmc.init(params, log_density, key_start),
        rng_key=key_tune,
        logdensity_fn=log_density,
        frac_tune1=1 / 3,
        frac_tune2=1 / 3,
        frac_tune3=1 / 3,
        desired_energy_var=inference.energy_variance,
    )

    def step(state: Any, key: PRNGKey) -> tuple[Any, Array]:
        state, info = kernel(key, state, log_density, tuned.inverse_mass_matrix, tuned.L, tuned.step_size)
        return state, info.energy_change

    def draw(state: Any, key: PRNGKey) -> tuple[Any, tuple[Params, Array]]:
        state, energy = jax.lax.scan(step, state, jax.random.split(key, inference.thinning))
        return state, (state.position, energy)

    _, (draws, energy) = jax.lax.scan(draw, state, jax.random.split(key_draw, inference.num_samples))
    num_weights = sum(leaf.size for leaf in jax.tree.leaves(params))
    return draws, {"step_size": tuned.step_size, "energy_variance": energy.var() / num_weights}
