"""The most probable weights, by SGD or Adam: a posterior with one sample. Several of them, from different starts, are an ensemble."""

from __future__ import annotations

from functools import partial
from typing import Literal

import jax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from coreshot.ascent import OPTIMIZERS, ascend
from coreshot.config import Count, Positive, settings
from coreshot.inference.protocol import Info
from coreshot.models import LogDensity
from coreshot.types import Params, Posterior, PRNGKey


def climb(log_density: LogDensity, params: Params, optimizer: str, step_size: float, num_steps: int) -> Params:
    """num_steps of the optimiser on the log density per observation, so that a step size means the same for any amount of data."""
    solver = OPTIMIZERS[optimizer](step_size)
    scale = 1.0 / log_density.num_observations
    keys = jax.random.split(jax.random.key(0), num_steps)  # ascend counts its steps by keys; a full-batch step uses none
    return ascend(solver, lambda _, params: scale * log_density(params), params, solver.init(params), keys)[0]


@settings
class MapEstimate:
    optimizer: Literal["sgd", "adam"]
    step_size: Positive
    num_steps: Count
    num_chains: Count = 1  # more than one: an ensemble of MAPs from as many starts

    @property
    def num_gradients(self) -> int:
        return self.num_steps

    def __call__(self, key: PRNGKey, log_density: LogDensity, init: Params) -> tuple[Posterior, Info]:
        return _climb_all(self, log_density, init)


@partial(jax.jit, static_argnums=0)
def _climb_all(inference: MapEstimate, log_density: LogDensity, init: Params) -> tuple[Posterior, Info]:
    def one(params: Params) -> tuple[Params, Array]:
        params = climb(log_density, params, inference.optimizer, inference.step_size, inference.num_steps)
        gradient = jax.grad(lambda params: log_density(params) / log_density.num_observations)(params)
        return params, jax.numpy.linalg.norm(ravel_pytree(gradient)[0])

    params, gradient_norm = jax.vmap(one)(init)
    return Posterior(params), {"gradient_norm": gradient_norm}
