"""A convolution as patches and one matrix product, for flax's Conv to use in place of XLA's own; and pooling that is a plain maximum.

On a CPU, XLA's convolution inside a compiled loop, and more so vmapped over weights, runs at a few GFLOP/s; the matrix product keeps its speed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float


def patch_convolution(
    inputs: Float[Array, "n height width channels"],
    kernel: Float[Array, "rows columns channels features"],
    window_strides: Sequence[int],
    padding: Any,
    **rest: Any,
) -> Float[Array, "n lines columns features"]:
    """Takes the arguments of jax.lax.conv_general_dilated; strides, dilation and groups other than one are refused."""
    strides = (*window_strides, *(rest.get("lhs_dilation") or ()), *(rest.get("rhs_dilation") or ()), rest.get("feature_group_count", 1))
    if set(strides) != {1}:
        raise ValueError(f"patch_convolution: strides, dilations and groups are {strides}; only 1 is built.")
    rows, columns, channels, features = kernel.shape
    if padding != "VALID":
        inputs = jnp.pad(inputs, ((0, 0), *_pairs(padding, (rows, columns)), (0, 0)))
    height, width = inputs.shape[1] - rows + 1, inputs.shape[2] - columns + 1
    shifted = [inputs[:, i : i + height, j : j + width] for i in range(rows) for j in range(columns)]
    patches = jnp.concatenate(shifted, axis=-1).reshape(-1, rows * columns * channels)
    return (patches @ kernel.reshape(-1, features)).reshape(-1, height, width, features)


def _pairs(padding: Any, size: tuple[int, int]) -> list[tuple[int, int]]:
    if padding == "SAME":
        return [((extent - 1) // 2, extent // 2) for extent in size]
    return [(int(low), int(high)) for low, high in padding]


def max_pool(inputs: Float[Array, "n height width channels"]) -> Float[Array, "n lines columns channels"]:
    """2 x 2, without overlap; a last odd line or column is left out. XLA's windowed maximum has a slow backward pass on a CPU."""
    n, height, width, channels = inputs.shape
    blocks = inputs[:, : height // 2 * 2, : width // 2 * 2].reshape(n, height // 2, 2, width // 2, 2, channels)
    return jnp.max(blocks, axis=(2, 4))
