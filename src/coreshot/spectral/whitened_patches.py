"""For natural images: whitened patches of public textures as filters, both signs of the answers, averages over a grid.

Coates, Ng and Lee, "An Analysis of Single-Layer Networks in Unsupervised Feature Learning", AISTATS 2011; Coates and
Ng, "The Importance of Encoding Versus Training with Sparse Coding and Vector Quantization", ICML 2011.

| papers                                  | here                                                        |
|-----------------------------------------|-------------------------------------------------------------|
| patches, contrast-normalised            | minus their mean, over the square root of variance + FLOOR  |
| ZCA whitening                           | of patches of public images (`public_images`), not of data  |
| D: random patches, whitened, unit norm  | `filters`: patches of the same public images                |
| max(0, D^T x - alpha), max(0, -D^T x - alpha) | the answers, alpha = `threshold`                      |
| sum-pooling over quadrants              | averages over the cells of a grid                           |

Different from the papers: nothing is learned from anybody's images. The whitening, the filters and the constants that
normalise the features come from images that the study's key draws.
"""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from coreshot.config import Count, NonNegative, settings
from coreshot.errors import CoreshotError
from coreshot.models.cpu_convolution import convolution
from coreshot.spectral.pooling import cell_averages
from coreshot.spectral.public_images import PublicImages, draw_public_images
from coreshot.types import PRNGKey

NUM_PUBLIC = 512
NUM_PATCHES = 40_000  # of the public images, for the whitening
FLOOR = 10 / 255**2  # added to a patch's variance: Coates and Ng's 10 for pixels up to 255
FLAT = 3 * FLOOR  # patches of less variance tell nothing about shapes, and are no filters
SMOOTHING = 0.1  # added to the eigenvalues of the patches' covariance, as theirs
Weights = dict[str, Array]


@settings
class WhitenedPatches:
    """Images of any number of channels; the dimension is 2 x num_filters x grid^2."""

    name: Literal["whitened_patches"] = "whitened_patches"
    dimension: Count
    size: Count = 6  # of a patch
    stride: Count = 1  # between patches; 2 takes a quarter of the time and is worse
    grid: Count = 2
    threshold: NonNegative = 0.5
    public_images: PublicImages = "textures"

    @property
    def num_filters(self) -> int:
        return self.dimension // (2 * self.grid**2)

    def draw(self, key: PRNGKey, input_shape: tuple[int, ...]) -> Weights:
        key_images, key_patches = jax.random.split(key)
        public = np.asarray(draw_public_images(self.public_images, key_images, NUM_PUBLIC, input_shape))
        rows = normal_patches(key_patches, public, self.size)
        whitening = zca(rows)
        filters = rows[: self.num_filters] @ whitening
        filters /= np.linalg.norm(filters, axis=1, keepdims=True)
        # Applied to a patch as it is: whitening and filter in one, without what the patch's mean adds.
        kernel = whitening @ filters.T
        kernel -= kernel.mean(axis=0)
        shape = (self.size, self.size, input_shape[2], self.num_filters)
        weights: Weights = {"kernel": jnp.asarray(kernel.reshape(shape), jnp.float32)}
        cells = np.asarray(jax.jit(self._cells)(weights, jnp.asarray(public[: NUM_PUBLIC // 2])))
        center, spread = cells.mean(axis=0), float(np.sqrt(np.mean(np.var(cells, axis=0))))
        return {**weights, "center": jnp.asarray(center), "spread": jnp.asarray(spread, jnp.float32)}

    def check(self, input_shape: tuple[int, ...]) -> None:
        if len(input_shape) != 3:
            raise CoreshotError(
                f"features: whitened_patches wants images (lines, columns, channels), the study has {input_shape}; "
                "use random_vector."
            )
        if self.dimension % (2 * self.grid**2):
            raise CoreshotError(
                f"features: whitened_patches has 2 signs x {self.grid} x {self.grid} cells for each filter, and "
                f"dimension {self.dimension} is no multiple of {2 * self.grid**2}; change it."
            )
        room = min(self._places(input_shape))
        if room < self.grid:
            raise CoreshotError(
                f"features: patches of size {self.size} leave {max(room, 0)} lines of an image of "
                f"{input_shape[0]} x {input_shape[1]}, too few for a grid of {self.grid}; lower size, stride or grid."
            )

    def _places(self, input_shape: tuple[int, ...]) -> tuple[int, int]:
        """Of patches: down and across."""
        down, across = ((extent - self.size) // self.stride + 1 for extent in input_shape[:2])
        return down, across

    def _cells(self, weights: Weights, x: Float[Array, "n lines columns channels"]) -> Float[Array, "n cells"]:
        steps = (self.stride, self.stride)
        variance = jnp.maximum(_box_mean(x**2, self.size, steps) - _box_mean(x, self.size, steps) ** 2, 0)
        products = convolution()(x, weights["kernel"], steps, "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        products = products / jnp.sqrt(variance + FLOOR)
        lines, columns = (jnp.asarray(cell_averages(extent, self.grid)) for extent in products.shape[1:3])
        parts = [
            jnp.einsum("al,nlcf,bc->nabf", lines, jax.nn.relu(sign * products - self.threshold), columns)
            for sign in (1, -1)
        ]
        return jnp.concatenate(parts, axis=3).reshape(len(x), -1)

    def apply(self, weights: Weights, x: Float[Array, "n lines columns channels"]) -> Float[Array, "n d"]:
        return (self._cells(weights, x) - weights["center"]) / weights["spread"]

    def operations(self, input_shape: tuple[int, ...]) -> float:
        """Of the filters."""
        down, across = self._places(input_shape)
        return 2 * self.num_filters * down * across * self.size**2 * input_shape[2]


def normal_patches(
    key: PRNGKey, images: Float[np.ndarray, "n lines columns channels"], size: int
) -> Float[np.ndarray, "patches numbers"]:
    """At random places, flat ones left out, of mean 0 and about deviation 1."""
    draws = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    index = draws.integers(len(images), size=NUM_PATCHES)
    down, across = (draws.integers(extent - size + 1, size=NUM_PATCHES) for extent in images.shape[1:3])
    windows = np.lib.stride_tricks.sliding_window_view(images, (size, size), axis=(1, 2))
    found = np.moveaxis(windows[index, down, across], 1, 3).reshape(NUM_PATCHES, -1).astype(np.float64)
    found -= found.mean(axis=1, keepdims=True)
    variance = found.var(axis=1, keepdims=True)
    return (found / np.sqrt(variance + FLOOR))[variance[:, 0] > FLAT]


def zca(rows: Float[np.ndarray, "n numbers"]) -> Float[np.ndarray, "numbers numbers"]:
    """The symmetric matrix that takes away the rows' covariance, up to SMOOTHING."""
    values, vectors = np.linalg.eigh(np.cov(rows.T))
    return (vectors / np.sqrt(np.maximum(values, 0) + SMOOTHING)) @ vectors.T


def _box_mean(
    x: Float[Array, "n lines columns channels"], size: int, steps: tuple[int, int]
) -> Float[Array, "n down across 1"]:
    total = jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, size, size, 1), (1, *steps, 1), "VALID")
    return jnp.mean(total, axis=3, keepdims=True) / size**2
