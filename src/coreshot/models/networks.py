"""Networks as settings; the flax modules that they build are in their own file, since most sites have no flax."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, runtime_checkable

from pydantic import Field

from coreshot.config import Count, settings
from coreshot.errors import CoreshotError
from coreshot.models.cpu_convolution import WHOLE_BATCH, images_at_once

if TYPE_CHECKING:
    import flax.linen as nn


@runtime_checkable
class Network(Protocol):
    """The settings of an architecture; `build` makes its flax module, whose call with embed=True leaves out the last
    layer.
    """

    def build(self, num_outputs: int) -> nn.Module: ...

    def fills_cache(self, input_shape: tuple[int, ...]) -> bool:
        """Whether a batch under one set of weights fills a core's cache; several sets then run one after the other."""


# Of products and activations; weights, and what is computed from the outputs, stay float32.
Precision = Literal["float32", "bfloat16"]


@settings
class Mlp:
    """Dense layers with one activation, and group normalisation before it where norm_groups > 0."""

    hidden: tuple[Count, ...]
    activation: Literal["relu", "swish", "tanh"]
    norm_groups: Annotated[int, Field(ge=0)] = 0
    precision: Precision = "float32"

    def build(self, num_outputs: int) -> nn.Module:
        from coreshot.models.flax_modules import MlpModule

        return MlpModule(self.hidden, self.activation, self.norm_groups, num_outputs, self.precision)

    def fills_cache(self, input_shape: tuple[int, ...]) -> bool:
        return False


@settings
class ConvNet:
    """Convolutions without padding, max-pooling of 2 x 2, dense layers.

    The paper's has channels 32 and 64, kernels of 3 x 3, one pooling after the last of them, and one dense layer of
    128.
    """

    channels: tuple[Count, ...]
    dense: tuple[Count, ...]
    precision: Precision = "float32"
    kernel: Count = 3
    strides: tuple[Count, ...] | None = None  # one for each convolution; None: all are 1
    pool_after: tuple[Count, ...] | None = None  # which convolutions, the first is 1; None: the last

    def __post_init__(self) -> None:
        if len(self._strides) != len(self.channels):
            raise CoreshotError(
                f"network: strides has {len(self._strides)} numbers, and there are {len(self.channels)} convolutions; "
                "give one for each."
            )
        if not set(self._pooled) <= set(range(1, len(self.channels) + 1)):
            raise CoreshotError(
                f"network: pool_after = {list(self._pooled)} names convolutions, the first is 1 and the last "
                f"{len(self.channels)}; change it."
            )

    @property
    def _strides(self) -> tuple[int, ...]:
        return (1,) * len(self.channels) if self.strides is None else self.strides

    @property
    def _pooled(self) -> tuple[int, ...]:
        return (len(self.channels),) if self.pool_after is None else self.pool_after

    def build(self, num_outputs: int) -> nn.Module:
        from coreshot.models.flax_modules import ConvNetModule

        return ConvNetModule(
            self.channels, self.dense, num_outputs, self.precision, self.kernel, self._strides, self._pooled
        )

    def fills_cache(self, input_shape: tuple[int, ...]) -> bool:
        height, width, depth = input_shape
        largest = 0  # numbers in the patches of one image, over the convolutions
        for index, (channels, stride) in enumerate(zip(self.channels, self._strides, strict=True)):
            height, width = (height - self.kernel) // stride + 1, (width - self.kernel) // stride + 1
            largest = max(largest, height * width * self.kernel**2 * depth)
            depth = channels
            if index + 1 in self._pooled:
                height, width = height // 2, width // 2
        if min(height, width) < 1:
            raise CoreshotError(
                f"network: its convolutions and poolings leave nothing of images of {input_shape[0]} x "
                f"{input_shape[1]}; use fewer of them, or smaller kernels and strides."
            )
        return images_at_once(largest) < WHOLE_BATCH


NETWORKS: dict[str, type[Any]] = {"convnet": ConvNet, "mlp": Mlp}
