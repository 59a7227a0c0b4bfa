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
    """z ~ N(mean of the client's inputs, scale^2), the paper's initialisation, drawn as a Latin hypercube.

    Each point has that distribution, but in each coordinate every K-th part of it gets one point: with six points, independent draws leave
    holes that the learner, whose points hardly repel each other, does not fill.
    """
    center = weighted_mean(points.x, points.weight)
    key_order, key_place = jax.random.split(key)
    flat = (num_points, center.size)
    order = jax.random.permutation(key_order, jnp.broadcast_to(jnp.arange(num_points)[:, None], flat), axis=0, independent=True)
    place = (order + jax.random.uniform(key_place, flat, minval=0.01, maxval=0.99)) / num_points
    return center + scale * jax.scipy.stats.norm.ppf(place).reshape(num_points, *center.shape)


def first_labels(model: Model, points: Points, num_points: int) -> Float[Array, "points outputs"]:
    """The client's classes in descending order of count, over and over; in regression, its mean target."""
    if model.kind == "regression":
        return jnp.broadcast_to(weighted_mean(points.y, points.weight), (num_points, model.num_outputs))
    return jax.nn.one_hot(label_cycle(points, num_points), model.num_outputs)


def label_cycle(points: Points, num_points: int) -> Array:
    counts = points.weight @ points.y
    by_count = jnp.argsort(-counts, stable=True)
    return by_count[jnp.arange(num_points) % jnp.sum(counts > 0)]
