"""One random layer of ReLU or of cosines, drawn from the study's key."""

from __future__ import annotations

import math
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from coreshot.config import Count, Positive, settings
from coreshot.types import PRNGKey

Weights = dict[str, Array]


def dense(key: PRNGKey, num_inputs: int, dimension: int) -> Weights:
    """Random directions for inputs of mean square norm one, and the cosines' phases."""
    key_kernel, key_phase = jax.random.split(key)
    return {
        "kernel": jax.random.normal(key_kernel, (num_inputs, dimension)),
        "phase": jax.random.uniform(key_phase, (dimension,)) * 2 * jnp.pi,
    }


def activate(nonlinearity: str, scale: float, weights: Weights, x: Float[Array, "n inputs"]) -> Float[Array, "n d"]:
    """Entries of mean square about one. The kernels are arc-cosine (Cho and Saul 2009) for relu, and Gaussian of width
    1 / scale for cos."""
    products = x @ weights["kernel"]
    if nonlinearity == "relu":
        return math.sqrt(2) * jax.nn.relu(products)
    return math.sqrt(2) * jnp.cos(scale * products + weights["phase"])


@settings
class RandomOnTop:
    """Random features of frozen ones, which stay beside them: linear functions of the frozen ones are exact."""

    dimension: Count  # of the random ones
    nonlinearity: Literal["relu", "cos"] = "relu"
    frequency: Positive = 1.0  # of the cosines; the Gaussian kernel's width is 1 / frequency

    def draw(self, key: PRNGKey, num_inputs: int) -> Weights:
        return dense(key, num_inputs + (self.nonlinearity == "relu"), self.dimension)

    def apply(self, weights: Weights, x: Float[Array, "n inputs"]) -> Float[Array, "n d"]:
        """x has entries of mean square about one."""
        scaled = x / math.sqrt(x.shape[1])
        if self.nonlinearity == "relu":  # without a constant, all kinks would be at the origin
            scaled = jnp.concatenate([scaled, jnp.ones((len(x), 1))], axis=1)
        return jnp.concatenate([x, activate(self.nonlinearity, self.frequency, weights, scaled)], axis=1)
