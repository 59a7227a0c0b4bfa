"""The coreset's own chains: training on pseudo-points from the weights of experts (Algorithm 2 of d'Hondt et al.)."""

from __future__ import annotations

from typing import Literal, Protocol

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from coreshot.keys import named_key
from coreshot.learners.experts import make_unravel, make_unravel_start
from coreshot.learners.randomised_map import Sampling, langevin_noise_scale, randomised
from coreshot.models import LogDensity, Model
from coreshot.models.training import ascend, draw_batch, make_optimizer
from coreshot.types import Params, Points, PRNGKey


class Chains(Protocol):
    """The settings of a learner that its chains follow."""

    @property
    def chain_optimizer(self) -> Literal["adam", "sgd"]: ...

    @property
    def chain_step_size(self) -> float: ...

    @property
    def coreset_chain_length(self) -> int: ...

    @property
    def batch_size(self) -> int: ...

    @property
    def sampling(self) -> Sampling: ...


def chain_ends(learner: Chains, model: Model, points: Points, key: PRNGKey, starts: Array) -> Params:
    """Where the coreset's chains end, all run at once, one from each of the (flat) starts.

    A start is weights, or weights and the optimiser's state.
    """
    solver = make_optimizer(learner.chain_optimizer, learner.chain_step_size)
    unravel = make_unravel_start(model, solver, starts.shape[1] > model.num_params())

    def chain(key: PRNGKey, start: Float[Array, " numbers"]) -> Params:
        params, state = unravel(start)
        seen = randomised(named_key(key, "randomise"), model, points) if learner.sampling == "randomised" else points

        def log_density(key: PRNGKey, params: Params) -> Float[Array, ""]:
            batch = model.augment(named_key(key, "augment"), draw_batch(key, seen, learner.batch_size))
            return LogDensity(model, batch)(params) / jnp.sum(points.weight)

        langevin_scale = (
            langevin_noise_scale(learner.chain_step_size, jnp.sum(points.weight))
            if learner.sampling == "langevin"
            else None
        )
        return ascend(
            solver,
            log_density,
            params,
            state,
            jax.random.split(key, learner.coreset_chain_length),
            langevin_scale,
        )[0]

    return model.each(chain)(jax.random.split(key, len(starts)), starts)


def flat_chain_ends(
    learner: Chains, model: Model, points: Points, key: PRNGKey, starts: Float[Array, "chains numbers"]
) -> Float[Array, "chains weights"]:
    return jax.vmap(lambda params: ravel_pytree(params)[0])(chain_ends(learner, model, points, key, starts))


def perturbed(
    model: Model, ends: Float[Array, "chains weights"], key: PRNGKey, num_samples: int, scale: float
) -> Params:
    """Weights drawn around each end, as trees with a leading axis of chains times samples."""
    noise = jax.random.normal(key, (len(ends), num_samples, ends.shape[1]))
    return jax.vmap(make_unravel(model))((ends[:, None] + scale * noise).reshape(-1, ends.shape[1]))
