"""Where pseudo-points begin: around the mean of a client's inputs, with labels that cycle through its classes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from coreshot.models import Model
from coreshot.types import Points, PRNGKey


def weighted_mean(values: Float[Array, "n ..."], weight: Float[Array, " n"]) -> Float[Array, ...]:
    return jnp.tensordot(weight, values, axes=1) / jnp.sum(weight)


def noise_around_mean(key: PRNGKey, points: Points, num_points: int, scale: float) -> Float[Array, "points ..."]:
    """z ~ N(mean of the client's inputs, scale^2), the paper's initialisation."""
    center = weighted_mean(points.x, points.weight)
    return center + scale * jax.random.normal(key, (num_points, *center.shape))


def first_labels(model: Model, points: Points, num_points: int) -> Float[Array, "points outputs"]:
    """The client's classes in descending order of count, over and over; in regression, its mean target."""
    if model.kind == "regression":
        return jnp.broadcast_to(weighted_mean(points.y, points.weight), (num_points, model.num_outputs))
    return jax.nn.one_hot(label_cycle(points, num_points), model.num_outputs)


def label_cycle(points: Points, num_points: int) -> Array:
    counts = points.weight @ points.y
    by_count = jnp.argsort(-counts, stable=True)
    return by_count[jnp.arange(num_points) % jnp.sum(counts > 0)]
