"""VBPC: pseudo-points whose exact last-layer posterior makes the client's records likely. No trajectories, no inner
chain.

Lee et al., "Variational Bayesian Pseudo-Coreset", ICLR 2025.

| paper            | here                                                              |
|------------------|-------------------------------------------------------------------|
| phi              | Model.embed of a network of the pool                              |
| rho              | prior_precision                                                   |
| gamma / beta_S   | label_precision, a below: only this quotient enters               |
| beta_D           | kl_weight, of the outer loss's KL                                 |
| pool, T          | num_networks, network_updates                                     |

M = a Phi^T (rho I + a Phi Phi^T)^-1 U is the mean of the last layer given the coreset (all K x K: K is small). At a
record with features p the output has mean p M and variance (|p|^2 - a k^T (rho I + a Phi Phi^T)^-1 k) / rho with k =
Phi p. The loss is the negative log of the softmax of mean / sqrt(1 + pi/8 variance) on a batch of records, weighted to
stand for all records, plus kl_weight KL(q || prior).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from coreshot.config import Count, NonNegative, Positive, settings
from coreshot.errors import CoreshotError
from coreshot.learners.descent import LossDescent
from coreshot.models import Model
from coreshot.models.training import ascend, draw_batch
from coreshot.types import Params, Points, PRNGKey


@settings
class Vbpc(LossDescent):
    batch_size: Count = 64
    prior_precision: Positive = 1.0
    label_precision: Positive = 100.0  # lower it where predictions are too sure: a point then fixes its label less
    kl_weight: NonNegative = 1e-8  # raise it for few records, whose last layer would else leave the prior too far
    num_networks: Count = 4
    network_updates: Count = 100  # after so many updates, a network is drawn again
    network_step_size: Positive = 0.01

    def networks(self, key: PRNGKey, model: Model) -> Any:
        if model.kind != "classification":
            raise CoreshotError(
                "learner: vbpc's outer loss is the softmax's, and regression has none; use spectral or bpc_fkl."
            )
        keys = jax.random.split(key, self.num_networks)
        # Their ages differ from the start, so that they are not all drawn again at once.
        return jax.vmap(model.init)(keys), jnp.arange(self.num_networks) * self.network_updates // self.num_networks

    def loss(self, key: PRNGKey, model: Model, points: Points, data: Points, networks: Any) -> Float[Array, ""]:
        key_network, key_batch = jax.random.split(key)
        index = jax.random.randint(key_network, (), 0, self.num_networks)
        params = jax.tree.map(lambda leaf: leaf[index], networks[0])
        batch = draw_batch(key_batch, data, self.batch_size)
        ours, theirs = _with_bias(model.embed(params, points.x)), _with_bias(model.embed(params, batch.x))
        mean, variance, divergence = last_layer(ours, points.y, theirs, self.prior_precision, self.label_precision)
        logits = mean / jnp.sqrt(1 + jnp.pi / 8 * variance)[:, None]
        log_prob = jnp.sum(batch.y * jax.nn.log_softmax(logits), axis=1)
        return (
            -jnp.sum(jnp.where(batch.weight > 0, batch.weight * log_prob, 0.0)) / jnp.sum(data.weight)
            + self.kl_weight * divergence
        )

    def train_networks(self, key: PRNGKey, model: Model, points: Points, networks: Any, update: Int[Array, ""]) -> Any:
        solver = optax.sgd(self.network_step_size)

        def one(key: PRNGKey, params: Params, age: Array) -> tuple[Params, Array]:
            def seen(_: PRNGKey, params: Params) -> Float[Array, ""]:
                return model.log_prob(params, points) / points.num_points

            trained, _ = ascend(solver, seen, params, solver.init(params), key[None])
            is_over = age + 1 >= self.network_updates
            fresh = jax.tree.map(lambda new, old: jnp.where(is_over, new, old), model.init(key), trained)
            return fresh, jnp.where(is_over, 0, age + 1)

        return model.each(one)(jax.random.split(key, self.num_networks), *networks)

    def update_passes(self, model: Model, num_records: int) -> float:
        return self.num_points + min(self.batch_size, num_records) + self.num_networks * self.num_points


def _with_bias(features: Float[Array, "n features"]) -> Float[Array, "n features+1"]:
    return jnp.concatenate([features, jnp.ones((len(features), 1))], axis=1)


def last_layer(
    features: Float[Array, "points h"],
    labels: Float[Array, "points outputs"],
    at: Float[Array, "n h"],
    prior_precision: float,
    precision: float,
) -> tuple[Float[Array, "n outputs"], Float[Array, " n"], Float[Array, ""]]:
    """Mean and variance of the outputs at some features, and KL(q || prior), of the last layer's Gaussian posterior."""
    size, width = features.shape
    kernel = prior_precision * jnp.eye(size) + precision * features @ features.T
    factor = jax.scipy.linalg.cho_factor(kernel, lower=True)
    weights = precision * features.T @ jax.scipy.linalg.cho_solve(factor, labels)
    cross = features @ at.T
    variance = (
        jnp.sum(at**2, axis=1) - precision * jnp.sum(cross * jax.scipy.linalg.cho_solve(factor, cross), axis=0)
    ) / prior_precision
    # V^-1 = rho I + a Phi^T Phi, from the small matrix: log det by Sylvester's identity, and
    # tr V = (h - K) / rho + tr (rho I_K + a Phi Phi^T)^-1.
    log_det = (width - size) * jnp.log(prior_precision) + 2 * jnp.sum(jnp.log(jnp.diag(factor[0])))
    trace = (width - size) / prior_precision + jnp.trace(jax.scipy.linalg.cho_solve(factor, jnp.eye(size)))
    outputs = labels.shape[1]
    shape = outputs * (prior_precision * trace - width + log_det - width * jnp.log(prior_precision))
    return at @ weights, jnp.maximum(variance, 0.0), 0.5 * (shape + prior_precision * jnp.sum(weights**2))
