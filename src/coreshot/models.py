"""A model is a network, a prior and a likelihood. Every sign lives here: log densities, to be maximised."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, Literal, Protocol

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from pydantic import Field

from coreshot.config import Count, settings
from coreshot.patches import WHOLE_BATCH, convolution, images_at_once, max_pool
from coreshot.types import Params, Points, PRNGKey, pad_points

POINTS_AT_ONCE = 250  # of a log density under a wide network
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"relu": nn.relu, "swish": nn.swish, "tanh": nn.tanh}


class Network(Protocol):
    """The settings of an architecture; `build` gives the flax module that has them, whose call takes `embed`: the outputs without the last layer."""

    def build(self, num_outputs: int) -> nn.Module: ...

    def fills_cache(self, input_shape: tuple[int, ...]) -> bool:
        """Whether a batch under one set of weights already fills a core's cache: several sets then run one after the other."""


Precision = Literal["float32", "bfloat16"]  # of products and activations; weights, and what is computed from the outputs, stay float32


class MlpModule(nn.Module):
    hidden: tuple[int, ...]
    activation: str
    norm_groups: int
    num_outputs: int
    precision: Precision

    @nn.compact
    def __call__(self, x: Array, embed: bool = False) -> Array:
        x = x.reshape(x.shape[0], -1)
        for width in self.hidden:
            x = nn.Dense(width, dtype=self.precision)(x)
            if self.norm_groups:
                x = nn.GroupNorm(num_groups=self.norm_groups, dtype=self.precision)(x)
            x = ACTIVATIONS[self.activation](x)
        return x if embed else nn.Dense(self.num_outputs, dtype=self.precision)(x).astype(jnp.float32)


@settings
class Mlp:
    """Dense layers with one activation, and group normalisation before it where norm_groups > 0."""

    hidden: tuple[Count, ...]
    activation: Literal["relu", "swish", "tanh"]
    norm_groups: Annotated[int, Field(ge=0)] = 0
    precision: Precision = "float32"

    def build(self, num_outputs: int) -> nn.Module:
        return MlpModule(self.hidden, self.activation, self.norm_groups, num_outputs, self.precision)

    def fills_cache(self, input_shape: tuple[int, ...]) -> bool:
        return False


class ConvNetModule(nn.Module):
    channels: tuple[int, ...]
    dense: tuple[int, ...]
    num_outputs: int
    precision: Precision

    @nn.compact
    def __call__(self, x: Array, embed: bool = False) -> Array:
        for index, width in enumerate(self.channels):
            x = nn.Conv(width, (3, 3), padding="VALID", dtype=self.precision, conv_general_dilated=convolution())(x)
            x = nn.relu(x) if index + 1 < len(self.channels) else nn.relu(max_pool(x))  # the two commute, and this way round relu has a quarter
        x = x.reshape(x.shape[0], -1)
        for width in self.dense:
            x = nn.relu(nn.Dense(width, dtype=self.precision)(x))
        return x if embed else nn.Dense(self.num_outputs, dtype=self.precision)(x).astype(jnp.float32)


@settings
class ConvNet:
    """Convolutions of 3 x 3 without padding, one max-pooling of 2 x 2, dense layers; the paper's has channels 32, 64 and one dense layer of 128."""

    channels: tuple[Count, ...]
    dense: tuple[Count, ...]
    precision: Precision = "float32"

    def build(self, num_outputs: int) -> nn.Module:
        return ConvNetModule(self.channels, self.dense, num_outputs, self.precision)

    def fills_cache(self, input_shape: tuple[int, ...]) -> bool:
        height, width, depth = input_shape
        layers = zip((depth, *self.channels), range(2, 2 * len(self.channels) + 1, 2), strict=False)  # 3 x 3 windows take 2 lines off each time
        return any(images_at_once((height - less) * (width - less) * 9 * channels) < WHOLE_BATCH for channels, less in layers)


NETWORKS: dict[str, type[Any]] = {"convnet": ConvNet, "mlp": Mlp}


@dataclass(frozen=True)
class Model:
    """Params are a plain dict pytree, so optax, blackjax and vmap need no filtering."""

    network: Network
    kind: Literal["classification", "regression"]
    input_shape: tuple[int, ...]
    num_outputs: int
    prior_precision: float  # of an isotropic Gaussian over all weights
    noise_scale: float  # of the Gaussian likelihood; unused in classification

    def init(self, key: PRNGKey) -> Params:
        params: Params = self.network.build(self.num_outputs).init(key, jnp.zeros((1, *self.input_shape)))["params"]
        return params

    def apply(self, params: Params, x: Float[Array, "n ..."]) -> Float[Array, "n outputs"]:
        """Logits, or the mean of the regression function."""
        return self.network.build(self.num_outputs).apply({"params": params}, x)  # type: ignore[return-value]

    def embed(self, params: Params, x: Float[Array, "n ..."]) -> Float[Array, "n features"]:
        """What the last layer sees."""
        return self.network.build(self.num_outputs).apply({"params": params}, x, embed=True)  # type: ignore[return-value]

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

    @property
    def is_wide(self) -> bool:
        """Whether `each` goes one by one: on a CPU, with a network whose batches fill the cache."""
        return jax.default_backend() == "cpu" and self.network.fills_cache(self.input_shape)

    def each(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """function over a leading axis of all its arguments, one of which is weights: vmapped, or where that is slower one after the other.

        One after the other, a backward pass keeps the arguments only, and computes the rest again.
        """
        if not self.is_wide:
            return jax.vmap(function)
        return lambda *arguments: jax.lax.map(jax.checkpoint(lambda one: function(*one)), arguments)

    def shapes(self) -> Params:
        """Shapes and types of the weights, as a tree like them."""
        return _shapes(self)

    def num_params(self) -> int:
        return sum(leaf.size for leaf in jax.tree.leaves(self.shapes()))


@lru_cache(maxsize=32)  # tracing a ConvNet's init takes 25 ms, and every message is held against it
def _shapes(model: Model) -> Params:
    return jax.eval_shape(model.init, jax.random.key(0))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LogDensity:
    """The unnormalised log posterior of weighted points; a pytree, so that one compiled inference serves any points of a shape."""

    model: Model = field(metadata={"static": True})
    points: Points

    def __call__(self, params: Params) -> Float[Array, ""]:
        if not self.model.is_wide or self.points.num_points <= POINTS_AT_ONCE:
            return self.model.log_prior(params) + self.model.log_prob(params, self.points)
        # A part at a time, and again for the gradient: the activations of 6,200 images under the paper's ConvNet are 2 GB.
        num_parts = -(-self.points.num_points // POINTS_AT_ONCE)
        padded = pad_points(self.points, num_parts * POINTS_AT_ONCE)
        parts = jax.tree.map(lambda array: array.reshape(num_parts, POINTS_AT_ONCE, *array.shape[1:]), padded)
        return self.model.log_prior(params) + jnp.sum(jax.lax.map(jax.checkpoint(lambda part: self.model.log_prob(params, part)), parts))

    @property
    def num_observations(self) -> Float[Array, ""]:
        """What the points stand for; optimisers divide by it, so that a step size means the same for any amount of data."""
        return jnp.sum(self.points.weight)
