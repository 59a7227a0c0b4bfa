"""Last-layer Laplace: a MAP estimate, and a Gaussian posterior of the last layer around it.

Kristiadi et al., "Being Bayesian, Even Just a Bit, Fixes Overconfidence in ReLU Networks", ICML 2020; Kronecker factors
as in Ritter et al., "A Scalable Laplace Approximation for Neural Networks", ICLR 2018.

| paper             | here                                                                            |
|-------------------|---------------------------------------------------------------------------------|
| phi               | model.embed, with a constant one for the bias                                   |
| A                 | sum over points of weight * phi phi^T                                           |
| B                 | the mean of diag p - p p^T; in regression 1 / noise^2, where this is exact      |
| tau               | model.prior_precision, added to each product of eigenvalues of A and B          |

The exact curvature, a sum of Kronecker products, is approximated by the Kronecker product A (x) B.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from coreshot.config import Count, Positive, settings
from coreshot.inference.map_estimate import climb
from coreshot.inference.posterior import SamplePosterior
from coreshot.inference.protocol import Info
from coreshot.models import LogDensity, Model
from coreshot.types import Params, Points, PRNGKey


@settings
class LastLayerLaplace:
    optimizer: Literal["sgd", "adam"]
    step_size: Positive
    num_steps: Count
    num_samples: Count  # of the last layer, around each MAP
    batch_size: Count | None = None
    num_chains: Count = 1  # MAP estimates, each from its own start

    def num_passes(self, num_points: int) -> int:
        return self.num_steps * min(self.batch_size or num_points, num_points) + num_points

    def __call__(self, key: PRNGKey, log_density: LogDensity, init: Params) -> tuple[SamplePosterior, Info]:
        return sample_last_layers(self, key, log_density, init)


@partial(jax.jit, static_argnums=0)
def sample_last_layers(
    inference: LastLayerLaplace, key: PRNGKey, log_density: LogDensity, init: Params
) -> tuple[SamplePosterior, Info]:
    def one(key: PRNGKey, params: Params) -> tuple[Params, Array]:
        key_climb, key_sample = jax.random.split(key)
        params = climb(
            log_density,
            params,
            inference.optimizer,
            inference.step_size,
            inference.num_steps,
            key_climb,
            inference.batch_size,
        )
        deviations = last_layer_deviations(
            log_density.model, params, log_density.points, key_sample, inference.num_samples
        )
        name = last_layer(params)
        repeated = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (inference.num_samples, *leaf.shape)), params)
        layer = {
            "kernel": repeated[name]["kernel"] + deviations[:, :-1],
            "bias": repeated[name]["bias"] + deviations[:, -1],
        }
        return {**repeated, name: layer}, jnp.std(deviations)

    draws, deviation = log_density.model.each(one)(jax.random.split(key, inference.num_chains), init)
    return SamplePosterior(log_density.model, jax.tree.map(lambda draws: draws.reshape(-1, *draws.shape[2:]), draws)), {
        "deviation": deviation
    }


def last_layer(params: Params) -> str:
    """Dense_n with the largest n: flax numbers layers in the order of their calls."""
    return max(
        (name for name in params if name.startswith("Dense_")), key=lambda name: int(name.removeprefix("Dense_"))
    )


def last_layer_deviations(
    model: Model, params: Params, points: Points, key: PRNGKey, num_samples: int
) -> Float[Array, "samples inputs outputs"]:
    """Draws of N(0, (A (x) B + prior)^-1). In the eigenvectors of A and B, entries are independent, with precisions
    a_i b_j + prior."""
    features = jnp.concatenate([model.embed(params, points.x), jnp.ones((points.num_points, 1))], axis=1)
    inputs = (points.weight[:, None] * features).T @ features
    values_in, vectors_in = jnp.linalg.eigh(inputs)
    values_out, vectors_out = jnp.linalg.eigh(_mean_curvature(model, model.apply(params, points.x), points.weight))
    precision = jnp.maximum(values_in, 0)[:, None] * jnp.maximum(values_out, 0)[None] + model.prior_precision
    noise = jax.random.normal(key, (num_samples, *precision.shape)) / jnp.sqrt(precision)
    return jnp.einsum("ai,sij,bj->sab", vectors_in, noise, vectors_out)


def _mean_curvature(
    model: Model, outputs: Float[Array, "n outputs"], weight: Float[Array, " n"]
) -> Float[Array, "outputs outputs"]:
    """The mean Hessian of minus the log-likelihood in the outputs."""
    if model.kind == "regression":
        return jnp.eye(model.num_outputs) / model.noise_scale**2
    probabilities = jax.nn.softmax(outputs)
    share = weight / jnp.sum(weight)
    return jnp.diag(share @ probabilities) - (share[:, None] * probabilities).T @ probabilities
