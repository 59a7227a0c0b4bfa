"""A 3 x 3 convolution with 4 products in place of 9: Winograd's F(2 x 2, 3 x 3), as Lavin and Gray (2016) use it.

Outputs come in tiles of 2 x 2. Each tile's 4 x 4 inputs and the kernel are transformed, multiplied entry by entry (for all channels: 16 matrix
products), and transformed back. The transforms are sums and differences, and cost less than the products they save. Rounding is that of float32
sums, about 1e-6.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

KERNEL = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]], np.float32)


def transformed_kernel(kernel: Float[Array, "3 3 channels features"]) -> Float[Array, "16 channels features"]:
    return jnp.einsum("ai,bj,ijcf->abcf", KERNEL, KERNEL, kernel).reshape(16, *kernel.shape[2:])


def winograd(
    inputs: Float[Array, "n height width channels"], kernel: Float[Array, "16 channels features"]
) -> Float[Array, "n lines columns features"]:
    """Without padding; height and width are even."""
    n, height, width, channels = inputs.shape
    # Even and odd lines apart: what a transform takes are then whole blocks, not every second line.
    by_parity = inputs.reshape(n, height // 2, 2, width // 2, 2, channels)
    tiles = jnp.stack([entry for line in _of_inputs(by_parity, 1) for entry in _of_inputs(line, 2)])
    products = jax.lax.batch_matmul(tiles.reshape(16, -1, channels), kernel)
    square = products.reshape(4, 4, n, height // 2 - 1, width // 2 - 1, -1)
    lines = [jnp.stack(_of_products(line), axis=3) for line in _of_products(square)]
    return jnp.stack(lines, axis=2).reshape(n, height - 2, width - 2, -1)


def _of_inputs(inputs: Array, axis: int) -> list[Array]:
    """Four combinations of lines 0 to 3 of each tile; the axis after `axis` is a line's parity."""
    even, odd = (jax.lax.index_in_dim(inputs, parity, axis + 1, keepdims=False) for parity in (0, 1))
    num_tiles = even.shape[axis] - 1
    (zero, two), (one, three) = (
        [jax.lax.slice_in_dim(lines, first, first + num_tiles, axis=axis) for first in (0, 1)] for lines in (even, odd)
    )
    return [zero - two, one + two, two - one, one - three]


def _of_products(products: Array) -> list[Array]:
    """Two sums over the first axis."""
    return [products[0] + products[1] + products[2], products[1] - products[2] - products[3]]
