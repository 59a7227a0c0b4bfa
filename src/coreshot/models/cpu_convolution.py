"""Convolutions for flax's Conv: XLA's own, or on a CPU patches and one matrix product; and max-pooling.

On a CPU, XLA's convolution inside a compiled loop, and more so vmapped over weights, runs at a few GFLOP/s. A matrix
product of patches is faster, if the patches stay in the cache. Those of a whole batch of 28 x 28 images (17 MB) do
not, so large ones are made for a few images at a time, and made again for the backward pass. Of these, 3 x 3 kernels
in float32 use Winograd's transform, which makes no patches and multiplies less (a fifth faster, measured in the
chain). `make bench` measures all of them (conv_chain_over_sgemm, patches_over_lax_conv).

Winograd's F(2 x 2, 3 x 3), as in Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016, needs
4 products in place of 9. Outputs are computed in tiles of 2 x 2. Each tile's 4 x 4 inputs and the kernel are
transformed, multiplied entry by entry (for all channels: 16 matrix products), and transformed back. The transforms are
sums and differences, and cost less than the products they save. The rounding error is that of float32 sums, about
1e-6.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

WHOLE_BATCH = 16  # where so many images fit the cache, a batch is one part: a loop would cost more than it saves
CACHE_FLOATS = 1 << 18  # 1 MB, a core's second-level cache: so many floats of patches are made at a time
WINOGRAD_KERNEL = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]], np.float32)


def convolution() -> Callable[..., Array]:
    """The faster convolution on the backend in use."""
    return patch_convolution if jax.default_backend() == "cpu" else jax.lax.conv_general_dilated


def patch_convolution(
    inputs: Float[Array, "n height width channels"],
    kernel: Float[Array, "kernel_height kernel_width channels features"],
    window_strides: Sequence[int],
    padding: Any,
    **rest: Any,
) -> Float[Array, "n lines columns features"]:
    """Takes the arguments of jax.lax.conv_general_dilated; dilation and groups other than one are refused."""
    others = (
        *(rest.get("lhs_dilation") or ()),
        *(rest.get("rhs_dilation") or ()),
        rest.get("feature_group_count", 1),
    )
    if set(others) != {1}:
        raise ValueError(f"patch_convolution: dilations and groups are {others}; only 1 is built.")
    down, right = window_strides
    rows, columns, channels, features = kernel.shape
    if padding != "VALID":
        inputs = jnp.pad(inputs, ((0, 0), *_pairs(padding, (rows, columns)), (0, 0)))
    height, width = (inputs.shape[1] - rows) // down + 1, (inputs.shape[2] - columns) // right + 1

    def convolve(inputs: Float[Array, "n height width channels"]) -> Float[Array, "n lines columns features"]:
        windows = [
            inputs[:, i : i + (height - 1) * down + 1 : down, j : j + (width - 1) * right + 1 : right]
            for i in range(rows)
            for j in range(columns)
        ]
        patches = jnp.concatenate(windows, axis=-1).reshape(-1, rows * columns * channels)
        return (patches @ kernel.reshape(-1, features)).reshape(-1, height, width, features)

    at_once = images_at_once(height * width * rows * columns * channels)
    if at_once >= WHOLE_BATCH:
        return convolve(inputs)
    if (rows, columns, down, right) == (3, 3, 1, 1) and inputs.dtype == kernel.dtype == jnp.float32:
        return _by_winograd(inputs, kernel, at_once)
    return _in_parts(convolve, inputs, at_once)


def _by_winograd(
    inputs: Float[Array, "n height width channels"], kernel: Float[Array, "3 3 channels features"], at_once: int
) -> Float[Array, "n lines columns features"]:
    """Tiles are 2 x 2: with an odd number of lines or columns, one more is computed and left out."""
    height, width = inputs.shape[1:3]
    even = jnp.pad(inputs, ((0, 0), (0, height % 2), (0, width % 2), (0, 0)))
    transformed = transform_kernel(kernel)
    return _in_parts(lambda part: winograd(part, transformed), even, at_once)[:, : height - 2, : width - 2]


def transform_kernel(kernel: Float[Array, "3 3 channels features"]) -> Float[Array, "16 channels features"]:
    return jnp.einsum("ai,bj,ijcf->abcf", WINOGRAD_KERNEL, WINOGRAD_KERNEL, kernel).reshape(16, *kernel.shape[2:])


def winograd(
    inputs: Float[Array, "n height width channels"], kernel: Float[Array, "16 channels features"]
) -> Float[Array, "n lines columns features"]:
    """A 3 x 3 convolution without padding, with a transformed kernel; height and width are even."""
    n, height, width, channels = inputs.shape
    # Even and odd lines are separated, so that a transform takes whole blocks and not every second line.
    by_parity = inputs.reshape(n, height // 2, 2, width // 2, 2, channels)
    tiles = jnp.stack([entry for line in _transform_inputs(by_parity, 1) for entry in _transform_inputs(line, 2)])
    products = jax.lax.batch_matmul(tiles.reshape(16, -1, channels), kernel)
    square = products.reshape(4, 4, n, height // 2 - 1, width // 2 - 1, -1)
    lines = [jnp.stack(_transform_products(line), axis=3) for line in _transform_products(square)]
    return jnp.stack(lines, axis=2).reshape(n, height - 2, width - 2, -1)


def _transform_inputs(inputs: Array, axis: int) -> list[Array]:
    """Four combinations of lines 0 to 3 of each tile; the axis after `axis` is a line's parity."""
    even, odd = (jax.lax.index_in_dim(inputs, parity, axis + 1, keepdims=False) for parity in (0, 1))
    num_tiles = even.shape[axis] - 1
    (zero, two), (one, three) = (
        [jax.lax.slice_in_dim(lines, first, first + num_tiles, axis=axis) for first in (0, 1)] for lines in (even, odd)
    )
    return [zero - two, one + two, two - one, one - three]


def _transform_products(products: Array) -> list[Array]:
    """Two combinations of products, over the first axis."""
    return [products[0] + products[1] + products[2], products[1] - products[2] - products[3]]


def images_at_once(patch_floats: int) -> int:
    """How many images' patches fit the cache."""
    return max(1, CACHE_FLOATS // patch_floats)


def _in_parts(convolve: Callable[[Array], Array], inputs: Float[Array, "n ..."], at_once: int) -> Float[Array, "n ..."]:
    """A few images at a time. Checkpointed, so that the backward pass keeps the images and not their patches."""
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
    """Maxima of 2 x 2 blocks; a last odd line or column is left out.

    Maxima of pairs, because XLA's windowed maximum has a slow backward pass on a CPU. The gradient of jnp.max goes to
    the entries that equal the maximum, over their number; where XLA computes the entries twice with other roundings,
    none is equal, and the gradient is 0 / 0 (seen in tests/truth/test_mended_chains.py).
    """
    n, height, width, channels = inputs.shape
    blocks = inputs[:, : height // 2 * 2, : width // 2 * 2].reshape(n, height // 2, 2, width // 2, 2, channels)
    lines = jnp.maximum(blocks[:, :, 0], blocks[:, :, 1])
    return jnp.maximum(lines[:, :, :, 0], lines[:, :, :, 1])
