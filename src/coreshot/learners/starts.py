"""Where pseudo-points begin: around the mean of a client's inputs, with labels that cycle through its classes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from coreshot.keys import named_key
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
    order = jax.random.permutation(
        key_order, jnp.broadcast_to(jnp.arange(num_points)[:, None], flat), axis=0, independent=True
    )
    place = (order + jax.random.uniform(key_place, flat, minval=0.01, maxval=0.99)) / num_points
    return center + scale * jax.scipy.stats.norm.ppf(place).reshape(num_points, *center.shape)


def between_neighbours(
    key: PRNGKey, points: Points, labels: Float[Array, "points classes"], scale: float
) -> Float[Array, "points ..."]:
    """For each (one-hot) label a place half-way between a random example of that class and the nearest other one of it.

    Close to examples of a class its label can be trusted. No example is drawn twice before all of its class were.
    An only example of a class has no neighbour, and the midpoint of two equal ones is the record itself: noise of the given scale is added to
    those, so that no record is ever a start.
    """
    flat, is_real = points.x.reshape(points.num_points, -1), points.weight > 0
    is_same = (points.y @ points.y.T > 0.5) & is_real & ~jnp.eye(points.num_points, dtype=bool)
    distance = jnp.where(is_same, jnp.sum((flat[:, None] - flat[None]) ** 2, axis=-1), jnp.inf)
    is_alone = ~(jnp.isfinite(jnp.min(distance, axis=1)) & (jnp.min(distance, axis=1) > 0))
    neighbour = jnp.where(is_alone, jnp.arange(points.num_points), jnp.argmin(distance, axis=1))
    # Each example draws by its position: padding changes nothing.
    lot = jax.vmap(lambda index: jax.random.uniform(jax.random.fold_in(key, index)))(jnp.arange(points.num_points))
    chosen = _chosen(lot, points, labels)
    noise = scale * jax.random.normal(named_key(key, "alone"), (len(labels), flat.shape[1]))
    places = (flat[chosen] + flat[neighbour[chosen]]) / 2 + jnp.where(is_alone[chosen][:, None], noise, 0.0)
    return places.reshape(len(labels), *points.x.shape[1:])


def random_records(key: PRNGKey, points: Points, labels: Float[Array, "points classes"]) -> Float[Array, "points ..."]:
    """For each (one-hot) label a random record of that class, none twice before all of its class were: raw data, for those who ask for them."""
    lot = jax.vmap(lambda index: jax.random.uniform(jax.random.fold_in(key, index)))(jnp.arange(points.num_points))
    return points.x[_chosen(lot, points, labels)]


def _chosen(lot: Float[Array, " n"], points: Points, labels: Float[Array, "points classes"]) -> Array:
    """For each label one of its class's records, in the order of their lots, over and over."""

    def choose(times: Array, label: Array) -> tuple[Array, Array]:
        is_eligible = (points.y @ label > 0.5) & (points.weight > 0)
        index = jnp.argmin(jnp.where(is_eligible, times + lot, jnp.inf))
        return times.at[index].add(1.0), index

    return jax.lax.scan(choose, jnp.zeros(points.num_points), labels)[1]


def public_start(
    keys: Key[Array, " clients"], model: Model, num_points: int, value: float, scale: float
) -> tuple[Float[Array, "clients points ..."], Float[Array, "clients points classes"]]:
    """Of private learners, without a look at any record: noise around a value that the study names, and labels that cycle through all classes."""
    noise = jax.vmap(lambda key: jax.random.normal(key, (num_points, *model.input_shape)))(keys)
    labels = jax.nn.one_hot(jnp.arange(num_points) % model.num_outputs, model.num_outputs)
    return value + scale * noise, jnp.broadcast_to(labels, (len(keys), *labels.shape))


def first_labels(model: Model, points: Points, num_points: int) -> Float[Array, "points outputs"]:
    """The client's classes in descending order of count, over and over; in regression, its mean target."""
    if model.kind == "regression":
        return jnp.broadcast_to(weighted_mean(points.y, points.weight), (num_points, model.num_outputs))
    return jax.nn.one_hot(label_cycle(points, num_points), model.num_outputs)


def label_cycle(points: Points, num_points: int) -> Array:
    counts = points.weight @ points.y
    by_count = jnp.argsort(-counts, stable=True)
    return by_count[jnp.arange(num_points) % jnp.sum(counts > 0)]
