"""Synthetic images that a study's shared key draws: feature maps take their normalising constants from them.

Everyone who has the key draws the same images, so that no constant depends on a client's data. Which images suit
depends on the data set: strokes are for handwriting.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from coreshot.config import choose
from coreshot.types import PRNGKey

ImageArray = Float[Array, "n height width channels"]


def draw_strokes(key: PRNGKey, num_images: int, input_shape: tuple[int, ...]) -> ImageArray:
    """Curved strokes, similar to handwriting: ink where a smooth random field is near zero, none at the borders."""
    height, width, channels = input_shape
    coarse = jax.random.normal(key, (num_images, 5, 5, channels))
    field = jax.image.resize(coarse, (num_images, *input_shape), "cubic")
    line, column = jnp.linspace(-1, 1, height)[:, None], jnp.linspace(-1, 1, width)[None, :]
    inside = jnp.maximum(jnp.abs(line), jnp.abs(column)) < 0.75
    return jnp.exp(-((field / 0.25) ** 2)) * inside[None, :, :, None]


PUBLIC_IMAGES: dict[str, Callable[[PRNGKey, int, tuple[int, ...]], ImageArray]] = {"strokes": draw_strokes}


def draw_public_images(name: str, key: PRNGKey, num_images: int, input_shape: tuple[int, ...]) -> ImageArray:
    return choose("public images", name, PUBLIC_IMAGES, "features")(key, num_images, input_shape)
