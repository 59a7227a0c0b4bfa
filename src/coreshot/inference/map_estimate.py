"""MAP estimates by SGD or Adam: a posterior with one sample, or an ensemble with one sample per start."""

from __future__ import annotations

from functools import partial
from typing import Literal, TypeAlias

import jax
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Key

from coreshot.config import Count, NonNegativeInt, Positive, settings
from coreshot.inference.posterior import SamplePosterior
from coreshot.inference.protocol import Info
from coreshot.keys import named_key
from coreshot.models import LogDensity
from coreshot.models.augmentation import shift_points
from coreshot.models.training import OptimizerName, ascend, draw_batch, make_optimizer
from coreshot.types import Params, PRNGKey

Decay: TypeAlias = Literal["none", "cosine"]


def climb(
    log_density: LogDensity,
    params: Params,
    optimizer: OptimizerName,
    step_size: float,
    num_steps: int,
    key: PRNGKey,
    batch_size: int | None = None,
    max_shift: int | None = None,
    decay: Decay = "none",
) -> Params:
    """num_steps of the optimiser on the log density per observation, so that step_size does not depend on the amount of
    data."""
    solver = make_optimizer(
        optimizer, optax.cosine_decay_schedule(step_size, num_steps) if decay == "cosine" else step_size
    )
    scale = 1.0 / log_density.num_observations
    max_shift = log_density.model.max_shift if max_shift is None else max_shift

    def seen(key: PRNGKey, params: Params) -> Float[Array, ""]:
        batch = log_density.points if batch_size is None else draw_batch(key, log_density.points, batch_size)
        return scale * LogDensity(log_density.model, shift_points(named_key(key, "shift"), batch, max_shift))(params)

    return ascend(solver, seen, params, solver.init(params), jax.random.split(key, num_steps))[0]


@settings
class MapEstimate:
    """The weights with the highest posterior density, by SGD or Adam; several of them are an ensemble.

    Settings:

    - `optimizer`: {"sgd", "adam"}
    - `step_size`: float
    - `num_steps`: int
    - `batch_size`: Points drawn for each step. None: all of them.
    - `num_chains`: More than one is an ensemble, each from its own start.
    - `max_shift`: Of random shifts of images, in pixels. None: as the study says.
    - `decay`: {"none", "cosine"}; cosine takes the step size to 0 over num_steps.

    Examples
    --------
    >>> MapEstimate(optimizer="adam", step_size=0.01, num_steps=500).num_chains
    1
    """

    optimizer: Literal["sgd", "adam"]
    step_size: Positive
    num_steps: Count
    batch_size: Count | None = None  # drawn for each step; None: all points
    num_chains: Count = 1  # more than one: an ensemble of MAP estimates, each from its own start
    max_shift: NonNegativeInt | None = None  # of random shifts of images in pixels; None: as the study says
    decay: Decay = "none"  # of the step size, to 0 over num_steps

    @property
    def num_samples(self) -> int:
        return 1

    def num_passes(self, num_points: int) -> int:
        return self.num_steps * min(self.batch_size or num_points, num_points)

    def __call__(self, key: PRNGKey, log_density: LogDensity, init: Params) -> tuple[SamplePosterior, Info]:
        return _climb_all(self, jax.random.split(key, self.num_chains), log_density, init)


@partial(jax.jit, static_argnums=0)
def _climb_all(
    inference: MapEstimate, keys: Key[Array, " chains"], log_density: LogDensity, init: Params
) -> tuple[SamplePosterior, Info]:
    def one(key: PRNGKey, params: Params) -> tuple[Params, Array]:
        params = climb(
            log_density,
            params,
            inference.optimizer,
            inference.step_size,
            inference.num_steps,
            key,
            inference.batch_size,
            inference.max_shift,
            inference.decay,
        )
        gradient = jax.grad(lambda params: log_density(params) / log_density.num_observations)(params)
        return params, jax.numpy.linalg.norm(ravel_pytree(gradient)[0])

    params, gradient_norm = log_density.model.each(one)(keys, init)
    return SamplePosterior(log_density.model, params), {"gradient_norm": gradient_norm}
