"""The flax modules of the networks. flax comes with `coreshot[research]`: glm and spectral studies build no network."""

from __future__ import annotations

from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array

from coreshot.models.cpu_convolution import convolution, max_pool
from coreshot.models.networks import Precision

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"relu": nn.relu, "swish": nn.swish, "tanh": nn.tanh}


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


class ConvNetModule(nn.Module):
    channels: tuple[int, ...]
    dense: tuple[int, ...]
    num_outputs: int
    precision: Precision
    kernel: int
    strides: tuple[int, ...]
    pooled: tuple[int, ...]

    @nn.compact
    def __call__(self, x: Array, embed: bool = False) -> Array:
        for index, (width, stride) in enumerate(zip(self.channels, self.strides, strict=True)):
            x = nn.Conv(
                width,
                (self.kernel, self.kernel),
                strides=stride,
                padding="VALID",
                dtype=self.precision,
                conv_general_dilated=convolution(),
            )(x)
            # Pooling and relu commute, and in this order relu has a quarter of the numbers.
            x = nn.relu(max_pool(x)) if index + 1 in self.pooled else nn.relu(x)
        x = x.reshape(x.shape[0], -1)
        for width in self.dense:
            x = nn.relu(nn.Dense(width, dtype=self.precision)(x))
        return x if embed else nn.Dense(self.num_outputs, dtype=self.precision)(x).astype(jnp.float32)
