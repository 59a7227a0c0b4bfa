"""Hamiltonian Monte Carlo with a fixed number of integration steps, several chains at once.

Neal, "MCMC using Hamiltonian dynamics", 2011; the transition is blackjax's.

| BPC-FL's table of settings  | here                                                     |
|-----------------------------|----------------------------------------------------------|
| step size                   | step_size                                                |
| inverse mass matrix diag(v) | inverse_mass = v                                         |
| num integration steps       | num_integration_steps                                    |
| number of steps             | num_warmup: transitions before the first draw is kept    |
| number of samples           | num_samples: draws kept of each chain                    |

(The table has 50 samples in 40 steps for 2d classification, which allows no other reading of the last two.)
Different from the paper: several chains, which R-hat needs; a start at a MAP estimate; and step-size adaptation in the
warm-up if target_acceptance is set, because the paper's steps are rejected when points stand for all N observations.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from pydantic import Field

from coreshot.config import Count, Positive, settings
from coreshot.inference.chains import sample_each
from coreshot.inference.map_estimate import climb
from coreshot.inference.posterior import SamplePosterior
from coreshot.inference.protocol import Info
from coreshot.keys import named_key
from coreshot.models import LogDensity
from coreshot.types import Params, PRNGKey


@runtime_checkable
class Trajectories(Protocol):
    """The settings that a chain's transitions need."""

    @property
    def step_size(self) -> float: ...
    @property
    def num_integration_steps(self) -> int: ...
    @property
    def num_warmup(self) -> int: ...
    @property
    def num_samples(self) -> int: ...
    @property
    def target_acceptance(self) -> float | None: ...


@settings
class Hmc:
    """Hamiltonian Monte Carlo: several chains, each after a warm-up.

    Settings:

    - `step_size`: Of the leapfrog integrator; the initial one if it is adapted.
    - `inverse_mass`: The diagonal of the inverse mass matrix, the same for all weights.
    - `num_integration_steps`, `num_warmup`, `num_samples`, `num_chains`: Leapfrog steps of a transition;
      transitions before and after the warm-up, for each chain.
    - `target_acceptance`: Adapts the step size in the warm-up. None: it is fixed.
    - `map_steps`, `map_step_size`, `map_batch_size`: Of Adam before the first transition; no steps start at the
      initial weights.

    Examples
    --------
    >>> Hmc(step_size=0.01, inverse_mass=1.0, num_integration_steps=20, num_warmup=100, num_samples=50).num_chains
    4
    """

    step_size: Positive  # of the leapfrog integrator; the initial one if it is adapted
    inverse_mass: Positive  # the diagonal of the inverse mass matrix, the same for all weights
    num_integration_steps: Count
    num_warmup: Count
    num_samples: Count  # kept per chain
    num_chains: Count = 4
    # Adapts the step size in the warm-up; None keeps it fixed.
    target_acceptance: Annotated[float, Field(gt=0, lt=1)] | None = None
    map_steps: Annotated[int, Field(ge=0)] = 0  # of Adam before the first transition; 0 starts at the initial weights
    map_step_size: Positive = 1e-2
    map_batch_size: Count | None = None  # of these steps of Adam; the transitions use all points

    def num_passes(self, num_points: int) -> int:
        transitions = (self.num_warmup + self.num_samples) * self.num_integration_steps
        return self.map_steps * min(self.map_batch_size or num_points, num_points) + transitions * num_points

    def __call__(self, key: PRNGKey, log_density: LogDensity, init: Params) -> tuple[SamplePosterior, Info]:
        return sample_chains(self, key, log_density, init)


@partial(jax.jit, static_argnums=0)
def sample_chains(inference: Hmc, key: PRNGKey, log_density: LogDensity, init: Params) -> tuple[SamplePosterior, Info]:
    return sample_each(partial(_one_chain, inference), inference.num_chains, key, log_density, init)


def _one_chain(inference: Hmc, log_density: LogDensity, key: PRNGKey, params: Params) -> tuple[Params, Info]:
    if inference.map_steps:
        steps = (inference.map_step_size, inference.map_steps, named_key(key, "map"), inference.map_batch_size)
        params = climb(log_density, params, "adam", *steps)
    num_weights = sum(leaf.size for leaf in jax.tree.leaves(params))
    return transitions(inference, log_density, key, params, jnp.full(num_weights, inference.inverse_mass))


def transitions(
    inference: Trajectories,
    log_density: Callable[[Any], Float[Array, ""]],
    key: PRNGKey,
    position: Any,
    inverse_mass: Float[Array, " weights"],
) -> tuple[Any, Info]:
    """The warm-up from a position, then draws of the position along a leading axis."""
    import blackjax  # here and not above, as elsewhere in this package: its import takes half a second
    from blackjax.adaptation.step_size import dual_averaging_adaptation

    kernel = blackjax.hmc.build_kernel()
    # Without a target, the adaptation below is never read, and XLA removes it.
    start, update, final = dual_averaging_adaptation(inference.target_acceptance or 0.5)

    def transition(key: PRNGKey, state: Any, step_size: Array) -> tuple[Any, Any]:
        return kernel(key, state, log_density, step_size, inverse_mass, inference.num_integration_steps)

    def warm_up(carry: tuple[Any, Any], key: PRNGKey) -> tuple[tuple[Any, Any], None]:
        state, adaptation = carry
        step_size = (
            jnp.exp(adaptation.log_step_size) if inference.target_acceptance else jnp.asarray(inference.step_size)
        )
        state, info = transition(key, state, step_size)
        return (state, update(adaptation, jnp.nan_to_num(info.acceptance_rate))), None

    key_warm, key_draw = jax.random.split(key)
    carry = (blackjax.hmc.init(position, log_density), start(inference.step_size))
    (state, adaptation), _ = jax.lax.scan(warm_up, carry, jax.random.split(key_warm, inference.num_warmup))
    step_size = final(adaptation) if inference.target_acceptance else jnp.asarray(inference.step_size)

    def draw(state: Any, key: PRNGKey) -> tuple[Any, tuple[Params, Array, Array]]:
        state, info = transition(key, state, step_size)
        return state, (state.position, jnp.nan_to_num(info.acceptance_rate), info.is_divergent)

    _, (draws, acceptance, divergent) = jax.lax.scan(draw, state, jax.random.split(key_draw, inference.num_samples))
    return draws, {"acceptance": acceptance, "divergent": divergent, "step_size": step_size}
