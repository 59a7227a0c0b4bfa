"""Synthetic images that a study's shared key draws: feature maps take their normalising constants from them.

Everyone who has the key draws the same images, so that no constant depends on a client's data. Which images suit
depends on the data set: strokes are for handwriting, textures for photographs, the mixture for what nobody knows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from coreshot.config import choose
from coreshot.types import PRNGKey

ImageArray = Float[Array, "n height width channels"]
PublicImages = Literal["strokes", "textures", "gradients", "noise", "mixture"]
NUM_LEAVES = 80  # of an image of textures
RADII = (1.5, 24.0)  # of leaves, in pixels
# Deviations of brightness and of two opponent colours, about those of photographs (Ruderman, Cronin and Chiao 1998).
COLOUR_DEVIATIONS = (0.42, 0.10, 0.05)
OPPONENTS = np.asarray([[1, 1, 1], [1, 0, -1], [1, -2, 1]]) / np.sqrt([[3], [2], [6]])
NOISE_SHARE = 0.25  # of the noise that lies over textures


def draw_strokes(key: PRNGKey, num_images: int, input_shape: tuple[int, ...]) -> ImageArray:
    """Curved strokes, similar to handwriting: ink where a smooth random field is near zero, none at the borders."""
    height, width, channels = input_shape
    coarse = jax.random.normal(key, (num_images, 5, 5, channels))
    field = jax.image.resize(coarse, (num_images, *input_shape), "cubic")
    line, column = jnp.linspace(-1, 1, height)[:, None], jnp.linspace(-1, 1, width)[None, :]
    inside = jnp.maximum(jnp.abs(line), jnp.abs(column)) < 0.75
    return jnp.exp(-((field / 0.25) ** 2)) * inside[None, :, :, None]


def draw_noise(key: PRNGKey, num_images: int, input_shape: tuple[int, ...], power: float = 1.2) -> ImageArray:
    """Noise whose amplitude falls with frequency as in photographs: cut out of a larger image, since it is periodic."""
    height, width, channels = input_shape
    down, across = np.fft.fftfreq(2 * height)[:, None], np.fft.fftfreq(2 * width)[None]
    frequency = np.hypot(down, across)
    amplitude = jnp.asarray(np.where(frequency > 0, 1 / np.maximum(frequency, 1 / (2 * height)) ** power, 0.0))
    white = jax.random.normal(key, (num_images, channels, 2 * height, 2 * width))
    field = jnp.real(jnp.fft.ifft2(jnp.fft.fft2(white) * amplitude))[:, :, :height, :width]
    field = jnp.moveaxis(field / jnp.std(field, axis=(2, 3), keepdims=True), 1, 3)
    return 0.5 + 0.6 * _coloured(field)


def draw_gradients(key: PRNGKey, num_images: int, input_shape: tuple[int, ...]) -> ImageArray:
    """Two colours and what lies between them, along a random direction."""
    height, width, channels = input_shape
    key_ends, key_angle = jax.random.split(key)
    ends = _coloured(jax.random.normal(key_ends, (2, num_images, 1, 1, channels)))
    angle = jax.random.uniform(key_angle, (num_images, 1, 1, 1)) * 2 * jnp.pi
    line, column = jnp.linspace(-1, 1, height)[:, None, None], jnp.linspace(-1, 1, width)[None, :, None]
    share = 0.5 + 0.35 * (jnp.cos(angle) * line + jnp.sin(angle) * column)
    return jnp.clip(0.5 + share * ends[0] + (1 - share) * ends[1], 0, 1)


def draw_textures(key: PRNGKey, num_images: int, input_shape: tuple[int, ...]) -> ImageArray:
    """Shaded discs and boxes that cover one another, of all sizes (dead leaves: Lee, Mumford and Huang 2001), with
    noise over them: edges, corners and colours have about the statistics of photographs.
    """
    key_leaves, key_noise = jax.random.split(key)
    leaves = jax.lax.map(lambda one: _draw_leaves(one, input_shape), jax.random.split(key_leaves, num_images))
    return jnp.clip(leaves + NOISE_SHARE * (draw_noise(key_noise, num_images, input_shape) - 0.5), 0, 1)


def _draw_leaves(key: PRNGKey, input_shape: tuple[int, ...]) -> Float[Array, "height width channels"]:
    height, width, channels = input_shape
    keys = jax.random.split(key, 8)
    small, large = RADII
    share = jax.random.uniform(keys[0], (NUM_LEAVES,))
    radius = 1 / jnp.sqrt(1 / small**2 - share * (1 / small**2 - 1 / large**2))  # density as radius^-3: any scale
    # Centres may lie outside.
    places = jax.random.uniform(keys[1], (NUM_LEAVES, 2)) * jnp.asarray([height + 20, width + 20]) - 10
    colours = 0.5 + _coloured(jax.random.normal(keys[2], (NUM_LEAVES, channels)))
    angles = jax.random.uniform(keys[3], (NUM_LEAVES,)) * jnp.pi
    stretch = jnp.exp(0.4 * jax.random.normal(keys[4], (NUM_LEAVES,)))
    slopes = 0.15 * jax.random.normal(keys[5], (NUM_LEAVES, 2))
    line, column = jnp.meshgrid(jnp.arange(height, dtype=float), jnp.arange(width, dtype=float), indexing="ij")

    def cover(image: Array, leaf: Array) -> tuple[Array, None]:
        down, across = line - places[leaf, 0], column - places[leaf, 1]
        along = (jnp.cos(angles[leaf]) * down + jnp.sin(angles[leaf]) * across) * stretch[leaf]
        beside = (jnp.cos(angles[leaf]) * across - jnp.sin(angles[leaf]) * down) / stretch[leaf]
        disc, box = jnp.hypot(along, beside), jnp.maximum(jnp.abs(along), jnp.abs(beside))
        mask = jax.nn.sigmoid(2 * (radius[leaf] - jnp.where(leaf % 2 == 0, disc, box)))[:, :, None]
        shade = (slopes[leaf, 0] * down + slopes[leaf, 1] * across) / jnp.maximum(radius[leaf], 4.0)
        return image * (1 - mask) + mask * (colours[leaf] + shade[:, :, None]), None

    ground = 0.5 + _coloured(jax.random.normal(keys[6], (channels,)))
    return jax.lax.scan(cover, jnp.broadcast_to(ground, input_shape), jnp.arange(NUM_LEAVES))[0]


def draw_mixture(key: PRNGKey, num_images: int, input_shape: tuple[int, ...]) -> ImageArray:
    """A quarter of each kind, for images of which nothing is known."""
    kinds = (draw_strokes, draw_textures, draw_gradients, draw_noise)
    sizes = [len(part) for part in np.array_split(np.arange(num_images), len(kinds))]
    keys = jax.random.split(key, len(kinds))
    return jnp.concatenate([draw(one, size, input_shape) for draw, one, size in zip(kinds, keys, sizes, strict=True)])


def _coloured(normal: Float[Array, "... channels"]) -> Float[Array, "... channels"]:
    """Three channels vary as the colours of photographs do; other numbers of channels vary alike and independently."""
    if normal.shape[-1] != 3:
        return COLOUR_DEVIATIONS[0] / 3**0.5 * normal
    return (normal * jnp.asarray(COLOUR_DEVIATIONS)) @ jnp.asarray(OPPONENTS, jnp.float32)


PUBLIC_IMAGES: dict[str, Callable[[PRNGKey, int, tuple[int, ...]], ImageArray]] = {
    "strokes": draw_strokes,
    "textures": draw_textures,
    "gradients": draw_gradients,
    "noise": draw_noise,
    "mixture": draw_mixture,
}


def draw_public_images(name: str, key: PRNGKey, num_images: int, input_shape: tuple[int, ...]) -> ImageArray:
    return choose("public images", name, PUBLIC_IMAGES, "features")(key, num_images, input_shape)
