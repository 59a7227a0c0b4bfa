"""Augmentation: random shifts of images, the same setting for experts, coreset chains, the server and all baselines."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from coreshot.types import Points, PRNGKey


def draw_shifts(key: PRNGKey, num_points: int, max_shift: int) -> Int[Array, "{num_points} 2"]:
    """By how many pixels each image moves down and to the right."""
    return jax.random.randint(key, (num_points, 2), -max_shift, max_shift + 1)


def shift_images(
    x: Float[Array, "n height width channels"], shifts: Int[Array, "n 2"]
) -> Float[Array, "n height width channels"]:
    """Each image by its own shift, around the borders."""
    return jax.vmap(lambda image, shift: jnp.roll(image, shift, axis=(0, 1)))(x, shifts)


def shift_points(key: PRNGKey, points: Points, max_shift: int) -> Points:
    """Points whose images are each moved by a random shift of at most max_shift pixels in each direction."""
    if not max_shift:
        return points
    return Points(shift_images(points.x, draw_shifts(key, points.num_points, max_shift)), points.y, points.weight)
