"""Convolutions for flax's Conv, chosen per backend: XLA's own, or on a CPU patches and one matrix product; and pooling that is a plain maximum.

On a CPU, XLA's convolution inside a compiled loop, and more so vmapped over weights, runs at a few GFLOP/s; the matrix product keeps its speed,
if its patches stay in the cache: those of a whole batch of 28 x 28 images (17 MB) do not, so large ones are made a few images at a time, and
made again for the backward pass. Of these, 3 x 3 kernels in float32 go by Winograd's transform, which makes no patches and multiplies less
(a fifth faster, measured in the chain). `make bench` measures all (conv_chain_over_sgemm, patches_over_lax_conv).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from coreshot.models.winograd import transformed_kernel, winograd

WHOLE_BATCH = 16  # where so many images fit the cache, a batch is one part: a loop would cost more than it saves
CACHE_FLOATS = 1 << 18  # 1 MB, a core's second-level cache: patches of so many floats are made at a time


def convolution() -> Callable[..., Array]:
    """The faster one on the backend that is in use."""
    return patch_convolution if jax.default_backend() == "cpu" else jax.lax.conv_general_dilated


def patch_convolution(
    inputs: Float[Array, "n height width channels"],
    kernel: Float[Array, "rows columns channels features"],
    window_strides: Sequence[int],
    padding: Any,
    **rest: Any,
) -> Float[Array, "n lines columns features"]:
    """Takes the arguments of jax.lax.conv_general_dilated; strides, dilation and groups other than one are refused."""
    strides = (
        *window_strides,
        *(rest.get("lhs_dilation") or ()),
        *(rest.get("rhs_dilation") or ()),
        rest.get("feature_group_count", 1),
    )
    if set(strides) != {1}:
        raise ValueError(f"patch_convolution: strides, dilations and groups are {strides}; only 1 is built.")
    rows, columns, channels, features = kernel.shape
    if padding != "VALID":
        inputs = jnp.pad(inputs, ((0, 0), *_pairs(padding, (rows, columns)), (0, 0)))
    height, width = inputs.shape[1] - rows + 1, inputs.shape[2] - columns + 1

    def convolve(inputs: Float[Array, "n height width channels"]) -> Float[Array, "n lines columns features"]:
        shifted = [inputs[:, i : i + height, j : j + width] for i in range(rows) for j in range(columns)]
        patches = jnp.concatenate(shifted, axis=-1).reshape(-1, rows * columns * channels)
        return (patches @ kernel.reshape(-1, features)).reshape(-1, height, width, features)

    at_once = images_at_once(height * width * rows * columns * channels)
    if at_once >= WHOLE_BATCH:
        return convolve(inputs)
    if (rows, columns) == (3, 3) and inputs.dtype == kernel.dtype == jnp.float32:
        return _by_winograd(inputs, kernel, at_once)
    return _in_parts(convolve, inputs, at_once)


def _by_winograd(
    inputs: Float[Array, "n height width channels"], kernel: Float[Array, "3 3 channels features"], at_once: int
) -> Float[Array, "n lines columns features"]:
    """Its tiles are 2 x 2: of an odd number of lines or columns, one more is computed and left out."""
    height, width = inputs.shape[1:3]
    even = jnp.pad(inputs, ((0, 0), (0, height % 2), (0, width % 2), (0, 0)))
    of_inputs = transformed_kernel(kernel)
    return _in_parts(lambda part: winograd(part, of_inputs), even, at_once)[:, : height - 2, : width - 2]


def images_at_once(patch_floats: int) -> int:
    """How many images' patches fit the cache."""
    return max(1, CACHE_FLOATS // patch_floats)


def _in_parts(convolve: Callable[[Array], Array], inputs: Float[Array, "n ..."], at_once: int) -> Float[Array, "n ..."]:
    """Some images at a time, one part after the other. Checkpointed: the backward pass keeps the images, not their patches."""
    num_images = len(inputs)
    num_parts = -(-num_images // at_once)
    padded = jnp.pad(inputs, [(0, num_parts * at_once - num_images)] + [(0, 0)] * (inputs.ndim - 1))
    outputs = jax.lax.map(jax.checkpoint(convolve), padded.reshape(num_parts, at_once, *inputs.shape[1:]))
    return outputs.reshape(-1, *outputs.shape[2:])[:num_images]


def _pairs(padding: Any, size: tuple[int, int]) -> list[tuple[int, int]]:
    if padding == "SAME":
        return [((extent - 1) // 2, extent // 2) for extent in size]
    return [(int(low), int(high)) for low, high in padding]


def max_pool(inputs: Float[Array, "n height width channels"]) -> Float[Array, "n lines columns channels"]:
    """2 x 2, without overlap; a last odd line or column is left out. XLA's windowed maximum has a slow backward pass on a CPU."""
    n, height, width, channels = inputs.shape
    blocks = inputs[:, : height // 2 * 2, : width // 2 * 2].reshape(n, height // 2, 2, width // 2, 2, channels)
    return jnp.max(blocks, axis=(2, 4))
