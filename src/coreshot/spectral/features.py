"""Feature maps phi: x -> R^d that all sides compute from the study alone: random or frozen, without clients' data.

A random map is drawn from the study's shared key. Its normalising constants are moments of images that are drawn from
the same key (`spectral.public_images`), never of a client's images.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from pydantic import Field

from coreshot.config import Count, NonNegative, Positive, settings
from coreshot.errors import CoreshotError
from coreshot.models.cpu_convolution import convolution
from coreshot.privacy.fixed_batches import in_fixed_batches
from coreshot.spectral.brought_network import Onnx, Precomputed
from coreshot.spectral.frozen_network import Frozen
from coreshot.spectral.pooling import cell_averages
from coreshot.spectral.public_images import PublicImages, draw_public_images
from coreshot.spectral.random_layer import Weights
from coreshot.spectral.random_layer import activate as _activate
from coreshot.spectral.random_layer import dense as _dense
from coreshot.spectral.whitened_patches import WhitenedPatches
from coreshot.types import PRNGKey

INPUTS_AT_ONCE = 256  # through a map, so that the activations of 256 filters stay below half a GB
IMAGES_AT_ONCE = 2  # inside of a compiled program of random_conv on a CPU
INPUTS_STEP = 64  # fewer inputs are padded to a multiple of this: few shapes, few compilations
NUM_PUBLIC = 256  # drawn images that give a map its constants
BIAS = 0.3  # the constant feature of a row of norm one
CONTRAST_FLOOR = 0.01  # added to a patch's variance: a patch of less contrast counts as empty

_DRAWING = threading.Lock()  # clients of a process share a map, which is drawn once


@runtime_checkable
class Features(Protocol):
    """The settings of a feature map."""

    @property
    def dimension(self) -> int: ...

    def check(self, input_shape: tuple[int, ...]) -> None:
        """A CoreshotError where the map does not fit these inputs."""

    def draw(self, key: PRNGKey, input_shape: tuple[int, ...]) -> Weights:
        """The map's weights: the same for everyone who has the key."""

    def apply(self, weights: Weights, x: Float[Array, "n ..."]) -> Float[Array, "n d"]: ...

    def operations(self, input_shape: tuple[int, ...]) -> float:
        """Of one input, about."""


@runtime_checkable
class Embeds(Protocol):
    """Features that another program computes first, outside of JAX; `apply` then takes what it gives."""

    def embed(self, weights: Weights, x: Float[np.ndarray, "n ..."]) -> Float[np.ndarray, "n frozen"]: ...


@dataclass(frozen=True)
class FeatureMap:
    """A map with its weights. The last column is the constant one, whose weight is the head's bias.

    The weights are drawn when they are first needed: a server adds rows, and needs none until it predicts.
    """

    features: Features
    draw: Callable[[], Weights]

    @property
    def weights(self) -> Weights:
        with _DRAWING:
            return self._weights

    @cached_property
    def _weights(self) -> Weights:
        return self.draw()

    @property
    def dimension(self) -> int:
        return self.features.dimension + 1

    def __call__(self, x: Any) -> Float[np.ndarray, "n d"]:
        x = np.asarray(x, np.float32)
        parts = [self._part(x[first : first + INPUTS_AT_ONCE]) for first in range(0, len(x), INPUTS_AT_ONCE)]
        return np.concatenate([np.zeros((0, self.dimension), np.float32), *parts])

    def _part(self, x: Float[np.ndarray, "n ..."]) -> Float[np.ndarray, "n d"]:
        if isinstance(self.features, Embeds):
            x = self.features.embed(self.weights, x)
        size = -(-len(x) // INPUTS_STEP) * INPUTS_STEP
        filled = np.concatenate([x, np.zeros((size - len(x), *x.shape[1:]), np.float32)])
        found = np.asarray(_apply(self.features, self.weights, filled))[: len(x)]
        return np.concatenate([found, np.ones((len(x), 1), np.float32)], axis=1)


def feature_map(features: Any, key: PRNGKey, input_shape: tuple[int, ...]) -> FeatureMap:
    """The map that this key draws. The last few are cached, because every client of a process needs the same one."""
    return _drawn(features, tuple(np.asarray(jax.random.key_data(key)).tolist()), input_shape)


@lru_cache(maxsize=4)
def _drawn(features: Any, key_data: tuple[int, ...], input_shape: tuple[int, ...]) -> FeatureMap:
    key = jax.random.wrap_key_data(jnp.asarray(key_data, jnp.uint32))
    features.check(input_shape)
    return FeatureMap(features, lambda: features.draw(key, input_shape))


@dataclass(frozen=True)
class UnitMap:
    """A map whose rows have norm one, for private statistics: minus a public constant, then scaled; last column BIAS.

    It runs in batches of one shape (`coreshot.privacy.fixed_batches`).
    """

    inner: FeatureMap
    center: Float[np.ndarray, " d"]

    @property
    def dimension(self) -> int:
        return self.inner.dimension

    def __call__(self, x: Any) -> Float[np.ndarray, "n d"]:
        found = in_fixed_batches(self.inner, np.asarray(x, np.float32))[:, :-1].astype(np.float64) - self.center
        norms = np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)
        rows = math.sqrt(1 - BIAS**2) * found / norms
        return np.concatenate([rows, np.full((len(rows), 1), BIAS)], axis=1)


def unit_map(features: Any, key: PRNGKey, input_shape: tuple[int, ...]) -> UnitMap:
    """Centred by the mean features of drawn images if the map is for images. Cached as the maps are."""
    return _centred(features, tuple(np.asarray(jax.random.key_data(key)).tolist()), input_shape)


@lru_cache(maxsize=4)
def _centred(features: Any, key_data: tuple[int, ...], input_shape: tuple[int, ...]) -> UnitMap:
    inner = _drawn(features, key_data, input_shape)
    if not isinstance(features, RandomConv):
        return UnitMap(inner, np.zeros(features.dimension))
    key = jax.random.fold_in(jax.random.wrap_key_data(jnp.asarray(key_data, jnp.uint32)), 1)
    public = np.asarray(draw_public_images(features.public_images, key, NUM_PUBLIC, input_shape))
    return UnitMap(inner, np.asarray(np.mean(inner(public)[:, :-1], axis=0, dtype=np.float64)))


@partial(jax.jit, static_argnums=0)
def _apply(features: Any, weights: Weights, x: Float[Array, "n ..."]) -> Float[Array, "n d"]:
    return features.apply(weights, x)


@settings
class RandomVector:
    """For vectors: one random layer of ReLU, or of cosines (random Fourier features, Rahimi and Recht 2007).

    Inputs are divided by input_scale, a public guess of their size.
    """

    name: Literal["random_vector"] = "random_vector"
    dimension: Count
    nonlinearity: Literal["relu", "cos"] = "cos"
    frequency: Positive = 1.0  # of the cosines; the Gaussian kernel's width is 1 / frequency
    input_scale: Positive = 1.0
    with_inputs: bool = False  # the inputs replace as many random features, so that linear functions are exact

    def check(self, input_shape: tuple[int, ...]) -> None:
        num_inputs = math.prod(input_shape)
        if self.dimension - num_inputs * self.with_inputs < 1:
            raise CoreshotError(
                f"features: dimension {self.dimension} has no room for {num_inputs} inputs and random features beside; "
                "raise it."
            )

    def draw(self, key: PRNGKey, input_shape: tuple[int, ...]) -> Weights:
        num_inputs = math.prod(input_shape)
        num_random = self.dimension - num_inputs * self.with_inputs
        return _dense(key, num_inputs + (self.nonlinearity == "relu"), num_random)

    def apply(self, weights: Weights, x: Float[Array, "n ..."]) -> Float[Array, "n d"]:
        x = x.reshape(len(x), -1) / self.input_scale
        # Without a constant, all kinks of the ReLUs would be at the origin.
        seen = jnp.concatenate([x, jnp.ones((len(x), 1))], axis=1) if self.nonlinearity == "relu" else x
        found = _activate(self.nonlinearity, self.frequency, weights, seen)
        return jnp.concatenate([x, found], axis=1) if self.with_inputs else found

    def operations(self, input_shape: tuple[int, ...]) -> float:
        return 2 * math.prod(input_shape) * self.dimension


@settings
class RandomConv:
    """For images: random filters on normalised patches, ReLU, averages over the cells of a grid, a random dense layer.

    A patch is normalised to mean 0 and deviation 1, so that filters respond to shape and not to contrast.
    """

    name: Literal["random_conv"] = "random_conv"
    dimension: Count
    num_filters: Count = 256
    size: Count = 7  # of a patch
    grid: Count = 4
    threshold: NonNegative = 1.0  # subtracted before the ReLU, for sparse responses
    nonlinearity: Literal["relu", "cos"] = "relu"  # of the dense layer
    frequency: Positive = 0.5  # of its cosines

    public_images: PublicImages = "strokes"  # synthetic ones, which the normalising constants come from

    def draw(self, key: PRNGKey, input_shape: tuple[int, ...]) -> Weights:
        key_filters, key_dense, key_public = jax.random.split(key, 3)
        filters = jax.random.normal(key_filters, (self.size, self.size, input_shape[2], self.num_filters))
        filters = filters - jnp.mean(filters, axis=(0, 1, 2))
        weights = {"filters": filters / jnp.linalg.norm(filters.reshape(-1, self.num_filters), axis=0)}
        public = draw_public_images(self.public_images, key_public, NUM_PUBLIC, input_shape)
        cells = self._cells(weights, public)
        center = jnp.mean(cells, axis=0)
        spread = jnp.sqrt(jnp.mean(jnp.sum((cells - center) ** 2, axis=1)))
        return {**weights, "center": center, "spread": spread, **_dense(key_dense, cells.shape[1], self.dimension)}

    def check(self, input_shape: tuple[int, ...]) -> None:
        if len(input_shape) != 3:
            raise CoreshotError(
                f"features: random_conv wants images (lines, columns, channels), the study has {input_shape}; "
                "use random_vector."
            )
        room = min(input_shape[:2]) - self.size + 1
        if room < self.grid:
            raise CoreshotError(
                f"features: patches of size {self.size} leave {max(room, 0)} lines of an image of "
                f"{input_shape[0]} x {input_shape[1]}, too few for a grid of {self.grid}; lower size or grid."
            )

    def _cells(self, weights: Weights, x: Float[Array, "n lines columns channels"]) -> Float[Array, "n cells"]:
        if jax.default_backend() == "cpu":
            return self._cells_in_parts(weights, x)
        variance = jnp.maximum(_patch_mean(x**2, self.size) - _patch_mean(x, self.size) ** 2, 0)
        products = convolution()(x, weights["filters"], (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        answers = jax.nn.relu(products / jnp.sqrt(variance + CONTRAST_FLOOR) - self.threshold)
        lines, columns = (jnp.asarray(cell_averages(extent, self.grid)) for extent in answers.shape[1:3])
        return jnp.einsum("al,nlcf,bc->nabf", lines, answers, columns).reshape(len(x), -1)

    def _cells_in_parts(self, weights: Weights, x: Float[Array, "n lines columns channels"]) -> Float[Array, "n cells"]:
        """A few images at a time, so that patches and answers stay in a core's cache: three times as fast there."""
        places = [extent - self.size + 1 for extent in x.shape[1:3]]
        lines, columns = (cell_averages(extent, self.grid) for extent in places)
        averages = jnp.asarray(np.einsum("al,bc->ablc", lines, columns).reshape(self.grid**2, -1))
        filters = weights["filters"].reshape(-1, self.num_filters)

        def cells(part: Float[Array, "_ lines columns channels"]) -> Float[Array, "_ cells"]:
            # Windows of columns, then of lines: two times seven parts compile faster than seven times seven.
            across = [part[:, :, column : column + places[1]] for column in range(self.size)]
            wide = jnp.concatenate(across, axis=-1)
            patches = jnp.concatenate([wide[:, line : line + places[0]] for line in range(self.size)], axis=-1)
            mean = jnp.mean(patches, axis=-1, keepdims=True)
            variance = jnp.maximum(jnp.mean(patches**2, axis=-1, keepdims=True) - mean**2, 0)
            normalised = (patches / jnp.sqrt(variance + CONTRAST_FLOOR)).reshape(-1, len(filters))
            answers = jax.nn.relu(normalised @ filters - self.threshold).reshape(len(part), -1, self.num_filters)
            return jnp.einsum("ap,npf->naf", averages, answers).reshape(len(part), -1)

        at_once = IMAGES_AT_ONCE if len(x) % IMAGES_AT_ONCE == 0 else 1
        return jax.lax.map(cells, x.reshape(-1, at_once, *x.shape[1:])).reshape(len(x), -1)

    def apply(self, weights: Weights, x: Float[Array, "n lines columns channels"]) -> Float[Array, "n d"]:
        cells = (self._cells(weights, x) - weights["center"]) / weights["spread"]
        return _activate(self.nonlinearity, self.frequency, weights, cells)

    def operations(self, input_shape: tuple[int, ...]) -> float:
        """Of the filters and the dense layer."""
        lines, columns, channels = input_shape
        places = (lines - self.size + 1) * (columns - self.size + 1)
        return 2 * self.num_filters * (places * self.size**2 * channels + self.grid**2 * self.dimension)


def _patch_mean(x: Float[Array, "n lines columns channels"], size: int) -> Float[Array, "n down across 1"]:
    """The mean over each patch and its channels."""
    total = jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, size, size, 1), (1, 1, 1, 1), "VALID")
    return jnp.mean(total, axis=3, keepdims=True) / size**2


@settings
class Identity:
    """The inputs as they are, if the sites computed features of their records before, with a network that all have."""

    name: Literal["identity"] = "identity"
    dimension: Count
    source: str = ""  # name and hash of that network; part of the study, so that all sides use the same one

    def check(self, input_shape: tuple[int, ...]) -> None:
        if math.prod(input_shape) != self.dimension:
            raise CoreshotError(
                f"features: identity of dimension {self.dimension}, but the study's inputs are {input_shape}; "
                "make them agree."
            )

    def draw(self, key: PRNGKey, input_shape: tuple[int, ...]) -> Weights:
        return {}

    def apply(self, weights: Weights, x: Float[Array, "n ..."]) -> Float[Array, "n d"]:
        return x.reshape(len(x), -1)

    def operations(self, input_shape: tuple[int, ...]) -> float:
        return 0.0


AnyFeatures = Annotated[
    RandomConv | RandomVector | WhitenedPatches | Frozen | Identity | Onnx | Precomputed, Field(discriminator="name")
]
