"""A model is a network, a prior and a likelihood. Its log densities are maximised."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from coreshot.models.augmentation import shift_points
from coreshot.models.networks import Network
from coreshot.types import Params, Points, PRNGKey, pad_points

POINTS_AT_ONCE = 250  # that a log density computes together under a wide network


@dataclass(frozen=True)
class Model:
    """Params are a plain dict pytree, which optax, blackjax and vmap take as they are."""

    network: Network
    kind: Literal["classification", "regression"]
    input_shape: tuple[int, ...]
    num_outputs: int
    prior_precision: float  # of an isotropic Gaussian over all weights
    noise_scale: float  # of the Gaussian likelihood; unused in classification
    max_shift: int = 0  # of the random shifts of images in training, in pixels

    def init(self, key: PRNGKey) -> Params:
        params: Params = self.network.build(self.num_outputs).init(key, jnp.zeros((1, *self.input_shape)))["params"]
        return params

    def apply(self, params: Params, x: Float[Array | np.ndarray, "n ..."]) -> Float[Array, "n outputs"]:
        """Logits, or the mean of the regression function."""
        return jnp.asarray(self.network.build(self.num_outputs).apply({"params": params}, x))

    def embed(self, params: Params, x: Float[Array | np.ndarray, "n ..."]) -> Float[Array, "n features"]:
        """The inputs of the last layer."""
        module = self.network.build(self.num_outputs)
        return jnp.asarray(module.apply({"params": params}, x, embed=True))

    def log_prior(self, params: Params) -> Float[Array, ""]:
        # Without its constant: with d = 17,000 weights it would cost three of float32's seven digits.
        return -0.5 * self.prior_precision * jnp.sum(jnp.stack([jnp.sum(leaf**2) for leaf in jax.tree.leaves(params)]))

    def log_prob_each(self, outputs: Float[Array, "n outputs"], y: Float[Array, "n outputs"]) -> Float[Array, " n"]:
        """log p(y | outputs) of each point, summed over the output dimensions; soft labels give the cross-entropy."""
        if self.kind == "classification":
            return jnp.sum(y * jax.nn.log_softmax(outputs), axis=-1)
        return jnp.sum(jax.scipy.stats.norm.logpdf(y, outputs, self.noise_scale), axis=-1)

    def log_prob(self, params: Params, points: Points) -> Float[Array, ""]:
        """The weighted log-likelihood of points; weight 0 contributes nothing, whatever the point."""
        each = self.log_prob_each(self.apply(params, points.x), points.y)
        return jnp.sum(jnp.where(points.weight > 0, points.weight * each, 0.0))

    def augment(self, key: PRNGKey, points: Points) -> Points:
        """Points as one step of training sees them: images moved by random shifts, where the study says so."""
        return shift_points(key, points, self.max_shift)

    @property
    def is_wide(self) -> bool:
        """Whether `each` is a loop: on a CPU, with a network whose batches fill the cache."""
        return jax.default_backend() == "cpu" and self.network.fills_cache(self.input_shape)

    def each(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """function over a leading axis of all its arguments, one of which is weights: vmapped, or where that is slower
        in a loop, whose backward pass keeps the arguments only and computes the rest again.
        """
        if not self.is_wide:
            return jax.vmap(function)
        return lambda *arguments: jax.lax.map(jax.checkpoint(lambda one: function(*one)), arguments)

    def shapes(self) -> Params:
        """Shapes and types of the weights, as a tree like them."""
        return _shapes(self)

    def num_params(self) -> int:
        return sum(leaf.size for leaf in jax.tree.leaves(self.shapes()))


@lru_cache(maxsize=32)  # tracing a ConvNet's init takes 25 ms, and every message is checked against it
def _shapes(model: Model) -> Params:
    return jax.eval_shape(model.init, jax.random.key(0))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LogDensity:
    """The unnormalised log posterior of weighted points; a pytree, so that one compiled inference serves all points of
    one shape."""

    model: Model = field(metadata={"static": True})
    points: Points

    def __call__(self, params: Params) -> Float[Array, ""]:
        if not self.model.is_wide or self.points.num_points <= POINTS_AT_ONCE:
            return self.model.log_prior(params) + self.model.log_prob(params, self.points)
        # In parts, computed again for the gradient: activations of 6,200 images under the paper's ConvNet are 2 GB.
        num_parts = -(-self.points.num_points // POINTS_AT_ONCE)
        padded = pad_points(self.points, num_parts * POINTS_AT_ONCE)
        parts = jax.tree.map(lambda array: array.reshape(num_parts, POINTS_AT_ONCE, *array.shape[1:]), padded)
        return self.model.log_prior(params) + jnp.sum(
            jax.lax.map(jax.checkpoint(lambda part: self.model.log_prob(params, part)), parts)
        )

    @property
    def num_observations(self) -> Float[Array, ""]:
        """How many observations the points stand for. Optimisers divide by it, so that a step size means the same for
        any amount of data.
        """
        return jnp.sum(self.points.weight)
