"""Networks as settings, and the flax modules that they build."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, Protocol

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array
from pydantic import Field

from coreshot.config import Count, settings
from coreshot.models.cpu_convolution import WHOLE_BATCH, convolution, images_at_once, max_pool

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"relu": nn.relu, "swish": nn.swish, "tanh": nn.tanh}


class Network(Protocol):
    """The settings of an architecture; `build` makes its flax module, whose call with embed=True leaves out the last
    layer.
    """

    def build(self, num_outputs: int) -> nn.Module: ...

    def fills_cache(self, input_shape: tuple[int, ...]) -> bool:
        """Whether a batch under one set of weights fills a core's cache; several sets then run one after the other."""


# Of products and activations; weights, and what is computed from the outputs, stay float32.
Precision = Literal["float32", "bfloat16"]


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
            # Pooling and relu commute, and in this order relu has a quarter of the numbers.
            x = nn.relu(x) if index + 1 < len(self.channels) else nn.relu(max_pool(x))
        x = x.reshape(x.shape[0], -1)
        for width in self.dense:
            x = nn.relu(nn.Dense(width, dtype=self.precision)(x))
        return x if embed else nn.Dense(self.num_outputs, dtype=self.precision)(x).astype(jnp.float32)


@settings
class ConvNet:
    """Convolutions of 3 x 3 without padding, one max-pooling of 2 x 2, dense layers.

    The paper's has channels 32 and 64, and one dense layer of 128.
    """

    channels: tuple[Count, ...]
    dense: tuple[Count, ...]
    precision: Precision = "float32"

    def build(self, num_outputs: int) -> nn.Module:
        return ConvNetModule(self.channels, self.dense, num_outputs, self.precision)

    def fills_cache(self, input_shape: tuple[int, ...]) -> bool:
        height, width, depth = input_shape
        # Each 3 x 3 window removes 2 lines.
        layers = zip((depth, *self.channels), range(2, 2 * len(self.channels) + 1, 2), strict=False)
        return any(
            images_at_once((height - less) * (width - less) * 9 * channels) < WHOLE_BATCH for channels, less in layers
        )


NETWORKS: dict[str, type[Any]] = {"convnet": ConvNet, "mlp": Mlp}
