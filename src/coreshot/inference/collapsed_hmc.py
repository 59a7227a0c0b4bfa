"""Hamiltonian Monte Carlo over the hidden layers of a regression, with the last layer integrated out exactly.

Given the hidden layers a regression is linear in the weights of its last layer, whose prior and likelihood are
Gaussian: their integral, and their posterior, have closed forms (Bishop, "Pattern Recognition and Machine Learning",
2006, sections 3.3 and 3.5). To sample the rest from that integral is to collapse the sampler (Liu, "The Collapsed Gibbs
Sampler in Bayesian Computations with Applications to a Gene Regulation Problem", JASA 1994); the transition is HMC
(Neal, "MCMC using Hamiltonian dynamics", 2011), blackjax's.

| papers           | here                                                                      |
|------------------|---------------------------------------------------------------------------|
| Phi              | the inputs of the last layer, and a constant one for its bias             |
| alpha, beta      | the precision of the prior; a point's weight / noise_scale^2              |
| evidence         | log_evidence                                                              |
| m_N, S_N         | mean and covariance of draw_last_layer                                    |
| mass matrix      | the precision of the prior, so that a step of 1 is one deviation of it    |

The posterior is that of all weights, as with `hmc`. The last layer makes their density stiff, so that the steps of
`hmc` are as small as the noise, and it never gets across a wide prior; without the last layer the density is mostly
the prior.
Different from the papers: chains start at independent draws of the prior, so that R-hat compares chains that have
nothing in common. Linear algebra is of 64 bits, since the outputs that the prior expects are many times the noise.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float
from pydantic import Field

from coreshot.config import Count, Positive, settings
from coreshot.errors import CoreshotError
from coreshot.inference.chains import sample_each
from coreshot.inference.hmc import transitions
from coreshot.inference.laplace import last_layer
from coreshot.inference.posterior import SamplePosterior
from coreshot.inference.protocol import Info
from coreshot.models import LogDensity, Model
from coreshot.types import Params, Points, PRNGKey


@settings
class CollapsedHmc:
    """HMC over all layers but the last, which is drawn exactly. Settings as attributes."""

    num_integration_steps: Count
    num_warmup: Count
    num_samples: Count  # kept per chain
    num_chains: Count = 4
    step_size: Positive = 0.02  # the first one of the warm-up, in deviations of the prior
    target_acceptance: Annotated[float, Field(gt=0, lt=1)] = 0.8
    prior_precision: Positive | None = None  # of the prior that the server uses; None: as the study says

    def num_passes(self, num_points: int) -> int:
        return ((self.num_warmup + self.num_samples) * self.num_integration_steps + self.num_samples) * num_points

    def __call__(self, key: PRNGKey, log_density: LogDensity, init: Params) -> tuple[SamplePosterior, Info]:
        own = self.prior_precision
        model = log_density.model if own is None else replace(log_density.model, prior_precision=own)
        if model.kind != "regression" or not model.prior_precision:
            raise CoreshotError(
                "inference collapsed_hmc: the last layer has a closed form in regression with prior_precision above 0, "
                f"and this is {model.kind} with {model.prior_precision:g}; use hmc or nuts."
            )
        with jax.enable_x64(True):
            posterior, info = sample_collapsed(self, key, LogDensity(model, log_density.points), init)
        return SamplePosterior(log_density.model, posterior.params), info


@partial(jax.jit, static_argnums=0)
def sample_collapsed(
    inference: CollapsedHmc, key: PRNGKey, log_density: LogDensity, init: Params
) -> tuple[SamplePosterior, Info]:
    posterior, info = sample_each(partial(_one_chain, inference), inference.num_chains, key, log_density, init)
    return jax.tree.map(lambda array: array.astype(jnp.float32), posterior), {
        name: value if value.dtype == bool else value.astype(jnp.float32) for name, value in info.items()
    }


def _one_chain(inference: CollapsedHmc, log_density: LogDensity, key: PRNGKey, params: Params) -> tuple[Params, Info]:
    model, name = log_density.model, last_layer(params)
    hidden, unravel = ravel_pytree(
        {layer: jax.tree.map(jnp.float64, value) for layer, value in params.items() if layer != name}
    )
    precision = model.prior_precision

    def system(flat: Float[Array, " hidden"]) -> tuple[Float[Array, "n features"], Float[Array, "n outputs"]]:
        return linear_system(model, {**unravel(flat), name: params[name]}, log_density.points)

    def log_marginal(flat: Float[Array, " hidden"]) -> Float[Array, ""]:
        return log_evidence(*system(flat), precision) - 0.5 * precision * jnp.sum(flat**2)

    def complete(key: PRNGKey, flat: Float[Array, " hidden"]) -> Params:
        layer = draw_last_layer(key, *system(flat), precision)
        return {**unravel(flat), name: {"kernel": layer[:-1], "bias": layer[-1]}}

    key_start, key_walk, key_layer = jax.random.split(key, 3)
    start = jax.random.normal(key_start, hidden.shape, jnp.float64) / jnp.sqrt(precision)
    inverse_mass = jnp.full(hidden.size, 1 / precision)
    draws, info = transitions(inference, log_marginal, key_walk, start, inverse_mass)
    keys = jax.random.split(key_layer, inference.num_samples)
    return jax.lax.map(lambda one: complete(*one), (keys, draws)), info


def linear_system(
    model: Model, params: Params, points: Points
) -> tuple[Float[Array, "n features"], Float[Array, "n outputs"]]:
    """Inputs of the last layer and targets, both divided by each point's noise: of a point of weight 0 nothing is
    left."""
    is_real = points.weight > 0
    x = jnp.where(is_real.reshape(-1, *[1] * (points.x.ndim - 1)), points.x, 0.0).astype(jnp.float64)
    module = model.network.build(model.num_outputs).clone(precision="float64")
    hidden = jnp.asarray(module.apply({"params": params}, x, embed=True))
    features = jnp.concatenate([hidden, jnp.ones((points.num_points, 1))], axis=1)
    root = jnp.sqrt(points.weight.astype(jnp.float64))[:, None] / model.noise_scale
    return root * features, root * jnp.where(is_real[:, None], points.y, 0.0).astype(jnp.float64)


def log_evidence(
    features: Float[Array, "n features"], targets: Float[Array, "n outputs"], precision: float
) -> Float[Array, ""]:
    """log of the integral of N(targets; features @ layer, 1) N(layer; 0, 1 / precision), without its constant.

    Of two forms that are equal, the one with the smaller matrix.
    """
    (num_points, num_features), num_outputs = features.shape, targets.shape[1]
    if num_points <= num_features:
        root = jnp.linalg.cholesky(jnp.eye(num_points) + features @ features.T / precision)
        whitened = jax.scipy.linalg.solve_triangular(root, targets, lower=True)
        return -num_outputs * jnp.sum(jnp.log(jnp.diag(root))) - 0.5 * jnp.sum(whitened**2)
    root = jnp.linalg.cholesky(precision * jnp.eye(num_features) + features.T @ features)
    whitened = jax.scipy.linalg.solve_triangular(root, features.T @ targets, lower=True)
    log_root = jnp.sum(jnp.log(jnp.diag(root))) - 0.5 * num_features * jnp.log(precision)
    return -num_outputs * log_root - 0.5 * (jnp.sum(targets**2) - jnp.sum(whitened**2))


def draw_last_layer(
    key: PRNGKey, features: Float[Array, "n features"], targets: Float[Array, "n outputs"], precision: float
) -> Float[Array, "features outputs"]:
    """From the layer's posterior: the ridge solution for targets and a prior mean that are perturbed by their noise."""
    key_prior, key_noise = jax.random.split(key)
    prior = jax.random.normal(key_prior, (features.shape[1], targets.shape[1]), jnp.float64) / jnp.sqrt(precision)
    noise = jax.random.normal(key_noise, targets.shape, jnp.float64)
    residual = targets + noise - features @ prior
    if features.shape[0] <= features.shape[1]:
        gram = jnp.eye(features.shape[0]) + features @ features.T / precision
        return prior + features.T @ jax.scipy.linalg.solve(gram, residual, assume_a="pos") / precision
    gram = precision * jnp.eye(features.shape[1]) + features.T @ features
    return prior + jax.scipy.linalg.solve(gram, features.T @ residual, assume_a="pos")
