"""The No-U-Turn sampler with Stan's window adaptation of step size and diagonal mass matrix, several chains at once.

Hoffman and Gelman, "The No-U-Turn Sampler", JMLR 2014; adaptation and transition are blackjax's.

| paper                  | here                                             |
|------------------------|--------------------------------------------------|
| delta                  | target_acceptance                                |
| largest tree depth     | max_doublings                                    |
| M_adapt, M - M_adapt   | num_warmup, num_samples                          |
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
class Nuts:
    """The No-U-Turn Sampler, which chooses the length of trajectories itself.

    Settings:

    - `num_warmup`, `num_samples`, `num_chains`: Transitions before and after the warm-up, for each chain.
    - `target_acceptance`: To which the warm-up adapts the step size.
    - `max_doublings`: At most 2^max_doublings gradients for a transition.
    - `map_steps`, `map_step_size`: Of Adam before the warm-up; no steps start at the initial weights.

    Examples
    --------
    >>> Nuts(num_warmup=100, num_samples=50).target_acceptance
    0.8
    """

    num_warmup: Count
    num_samples: Count  # kept per chain
    num_chains: Count = 4
    target_acceptance: Annotated[float, Field(gt=0, lt=1)] = 0.8
    max_doublings: Annotated[int, Field(gt=0, le=12)] = 8  # at most 2^max_doublings gradients per draw
    map_steps: Annotated[int, Field(ge=0)] = 0  # of Adam before the warm-up; 0 starts at the initial weights
    map_step_size: Positive = 1e-2

    def num_passes(self, num_points: int) -> int:
        return (self.map_steps + (self.num_warmup + self.num_samples) * 2**self.max_doublings) * num_points

    def __call__(self, key: PRNGKey, log_density: LogDensity, init: Params) -> tuple[SamplePosterior, Info]:
        return _sample_chains(self, key, log_density, init)


@partial(jax.jit, static_argnums=0)
def _sample_chains(
    inference: Nuts, key: PRNGKey, log_density: LogDensity, init: Params
) -> tuple[SamplePosterior, Info]:
    return sample_each(partial(_one_chain, inference), inference.num_chains, key, log_density, init)


def _one_chain(inference: Nuts, log_density: LogDensity, key: PRNGKey, params: Params) -> tuple[Params, Info]:
    import blackjax  # here and not above, as elsewhere in this package: its import takes half a second

    if inference.map_steps:
        params = climb(log_density, params, "adam", inference.map_step_size, inference.map_steps, named_key(key, "map"))
    key_warm, key_draw = jax.random.split(key)
    adaptation = blackjax.window_adaptation(
        blackjax.nuts,
        log_density,
        target_acceptance_rate=inference.target_acceptance,
        max_num_doublings=inference.max_doublings,
    )
    (state, parameters), _ = adaptation.run(key_warm, params, num_steps=inference.num_warmup)
    sampler = blackjax.nuts(log_density, **parameters)

    def draw(state: Any, key: PRNGKey) -> tuple[Any, tuple[Params, Array, Array]]:
        state, info = sampler.step(key, state)
        return state, (state.position, info.acceptance_rate, info.is_divergent)

    _, (draws, acceptance, divergent) = jax.lax.scan(draw, state, jax.random.split(key_draw, inference.num_samples))
    return draws, {"acceptance": acceptance, "divergent": divergent, "step_size": parameters["step_size"]}
