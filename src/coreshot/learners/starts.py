"""Where pseudo-points start, and with which labels.

| start       | inputs                                                                                             |
|-------------|----------------------------------------------------------------------------------------------------|
| mean        | noise of init_scale around the client's mean (d'Hondt et al.); `paper` is another name for it      |
| class_mean  | classification: means of records of the point's class, with noise of init_scale; see class_means   |
| class_draw  | classification: draws from a Gaussian with the mean and covariance of the class; see class_draws   |
| neighbour_mix | classification: mixtures of five neighbouring records of the point's class; see neighbour_mixes   |
| between     | classification: half-way between two neighbouring records of the point's class                     |
| records     | classification: raw records of the point's class, for clients who allow that                       |
| informative | regression, learners with experts: the inputs that determine most of what the client's data say    |
"""

from __future__ import annotations

from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key
from pydantic import BeforeValidator

from coreshot.errors import CoreshotError
from coreshot.keys import named_key
from coreshot.models import Model
from coreshot.types import Points, PRNGKey

Start = Annotated[
    Literal["mean", "class_mean", "class_draw", "neighbour_mix", "between", "records", "informative"],
    BeforeValidator(lambda start: "mean" if start == "paper" else start),  # another name for the same
]
START_CONTENT: dict[str, str] = {
    "mean": "the mean of the inputs, around which points start",
    "class_mean": "means of at least five records of a class, around which points start; and the mean of the inputs",
    "class_draw": "the mean and the covariance of the inputs of each class of at least five records, from which starts "
    "are drawn; and the mean of the inputs",
    "neighbour_mix": "mixtures of five neighbouring records of a class, none with more than half, at which points "
    "start; and the mean of the inputs",
    "between": "midpoints of records of a class, at which points start",
    "records": "raw records, at which points start",
    "informative": "the mean of the inputs, around which lie the candidates for the start",
}
MIN_GROUP = 5  # records whose mean may be the start of a point
# Shares of MIN_GROUP records in a mixture. They sum to 1 and their squares to 0.92, so that mixtures differ nearly as
# records do, and no record has more than half, as in a midpoint of two.
SHARES = (0.5, 0.5, 0.5, -0.1, -0.4)
FAR = 100.0  # points further from the client's mean than this many times its farthest input have diverged


def check_start(start: Start, model: Model, has_experts: bool = False) -> None:
    if start not in ("mean", "informative") and model.kind == "regression":
        raise CoreshotError(
            f'learner: start = "{start}" takes records of a class, and regression has none; '
            'use "mean" or "informative".'
        )
    if start == "informative" and not has_experts:
        raise CoreshotError(
            'learner: start = "informative" asks experts, and this learner has none; '
            'use "mean", "class_mean", "between" or "records".'
        )
    if start == "informative" and model.kind == "classification":
        raise CoreshotError(
            'learner: start = "informative" is for regression, and this study has classes; use "mean" or "class_mean".'
        )


def draw_start(
    start: Start, key: PRNGKey, model: Model, data: Points, labels: Float[Array, "points outputs"], scale: float
) -> Float[Array, "points ..."]:
    """Inputs for points with these labels, for every start that needs the records alone."""
    check_start(start, model)
    if start == "between":
        return between_neighbours(key, data, labels, scale)
    if start == "records":
        return random_records(key, data, labels)
    if start == "class_mean":
        return class_means(key, data, labels, scale)
    if start == "class_draw":
        return class_draws(key, data, labels, scale)
    if start == "neighbour_mix":
        return neighbour_mixes(key, data, labels, scale)
    return noise_around_mean(key, data, len(labels), scale)


def input_region(data: Points, scale: float) -> tuple[Float[Array, ...], Float[Array, ""]]:
    """The mean of the inputs, and how far from it pseudo-inputs may go before they count as diverged."""
    center = weighted_mean(data.x, data.weight)
    distance = jnp.max(jnp.abs(data.x - center).reshape(data.num_points, -1), axis=1)
    return center, FAR * (jnp.max(jnp.where(data.weight > 0, distance, 0)) + scale)


def public_region(
    num_clients: int, model: Model, value: float, scale: float
) -> tuple[Float[Array, "clients ..."], Float[Array, " clients"]]:
    """As `input_region`, for private learners: around a value that the study names."""
    return jnp.full((num_clients, *model.input_shape), value), jnp.full(num_clients, FAR * (1 + scale))


def weighted_mean(values: Float[Array, "n ..."], weight: Float[Array, " n"]) -> Float[Array, ...]:
    return jnp.tensordot(weight, values, axes=1) / jnp.sum(weight)


def noise_around_mean(key: PRNGKey, points: Points, num_points: int, scale: float) -> Float[Array, "points ..."]:
    """z ~ N(mean of the client's inputs, scale^2), the paper's initialisation, drawn as a Latin hypercube.

    Each point has that distribution, but in each coordinate every K-th part of it gets one point: with six points,
    independent draws leave holes that the learner does not fill, because its points hardly repel each other.
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
    """For each (one-hot) label an input half-way between a random record of that class and its nearest neighbour there.

    Close to records of a class its label can be trusted. No record is drawn twice before all of its class were drawn.
    A class's only record has no neighbour, and the midpoint of two equal records is the record itself: there we add
    noise of the given scale, so that no record is ever a start.
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
    """For each (one-hot) label a random record of that class, none twice before all of them were drawn: raw data."""
    lot = jax.vmap(lambda index: jax.random.uniform(jax.random.fold_in(key, index)))(jnp.arange(points.num_points))
    return points.x[_chosen(lot, points, labels)]


def class_means(
    key: PRNGKey, points: Points, labels: Float[Array, "points classes"], scale: float
) -> Float[Array, "points ..."]:
    """For each (one-hot) label the mean of a random group of records of that class, with noise of the given scale.

    A group has the class's records over its points, and at least MIN_GROUP; groups are drawn one by one, and overlap.
    A class of fewer than MIN_GROUP records has no mean that would hide them: its points start around the mean of all
    inputs.
    """
    counts = points.weight @ points.y
    num_each = jnp.sum(labels, axis=0)  # points of each class
    size = jnp.maximum(counts / jnp.maximum(num_each, 1.0), MIN_GROUP)
    everyone = weighted_mean(points.x, points.weight)
    # Each record draws by its position, for each point anew: padding changes nothing, and groups of a class overlap.
    indices = jnp.arange(points.num_points)

    def one(key: PRNGKey, label: Array) -> Array:
        lot = jax.vmap(lambda index: jax.random.uniform(jax.random.fold_in(key, index)))(indices)
        of_class = points.weight * (points.y @ label) > 0.5
        rank = jnp.argsort(jnp.argsort(jnp.where(of_class, lot, jnp.inf)))
        member = (of_class & (rank < jnp.ceil(size @ label))).astype(points.x.dtype)
        mean = jnp.tensordot(member, points.x, axes=1) / jnp.maximum(jnp.sum(member), 1.0)
        return jnp.where(counts @ label >= MIN_GROUP, mean, everyone)

    key_groups, key_noise = jax.random.split(key)
    means = jax.vmap(one)(jax.random.split(key_groups, len(labels)), labels)
    return means + scale * jax.random.normal(key_noise, means.shape)


def class_draws(
    key: PRNGKey, points: Points, labels: Float[Array, "points classes"], scale: float
) -> Float[Array, "points ..."]:
    """For each (one-hot) label a draw from the Gaussian with the mean and covariance of the records of that class.

    A mean of five records has a fifth of their variance, and a network that learns from such means knows nothing of
    what differs within a class; a draw has all of it. Every record of the class enters every draw. A class of fewer
    than MIN_GROUP records starts around the mean of all inputs, with noise of the given scale.
    """
    counts = points.weight @ points.y
    everyone = weighted_mean(points.x, points.weight)
    means = jnp.tensordot(points.y.T * points.weight, points.x, axes=1) / jnp.maximum(counts, 1.0).reshape(
        -1, *[1] * (points.x.ndim - 1)
    )

    def one(key: PRNGKey, label: Array) -> Array:
        # Each record has a number by its position: padding changes nothing.
        numbers = jax.vmap(lambda index: jax.random.normal(jax.random.fold_in(key, index)))(jnp.arange(len(points.x)))
        member = points.weight * (points.y @ label)
        mean = jnp.tensordot(label, means, axes=1)
        share = member * numbers / jnp.sqrt(jnp.maximum(counts @ label - 1, 1.0))
        draw = mean + jnp.tensordot(share, points.x - mean, axes=1)
        noise = scale * jax.random.normal(named_key(key, "small"), everyone.shape)
        return jnp.where(counts @ label >= MIN_GROUP, draw, everyone + noise)

    return jax.vmap(one)(jax.random.split(key, len(labels)), labels)


def neighbour_mixes(
    key: PRNGKey, points: Points, labels: Float[Array, "points classes"], scale: float
) -> Float[Array, "points ..."]:
    """For each (one-hot) label a mixture of MIN_GROUP neighbouring records of the class, with SHARES in random order.

    They are a random record of the class and those of the class that are nearest to it, so that only what is alike is
    mixed; no record is the first of a group twice before all of its class were. A draw from the Gaussian of the five
    would have shares of any size: by measurement a third of such draws are nearer to a record than a midpoint is. A
    class of fewer than MIN_GROUP records starts around the mean of all inputs, with noise of the given scale.
    """
    counts = points.weight @ points.y
    everyone = weighted_mean(points.x, points.weight)
    flat = points.x.reshape(points.num_points, -1)
    lot = jax.vmap(lambda index: jax.random.uniform(jax.random.fold_in(key, index)))(jnp.arange(points.num_points))

    def one(key: PRNGKey, label: Array, first: Array) -> Array:
        of_class = points.weight * (points.y @ label) > 0.5
        distance = jnp.where(of_class, jnp.sum((flat - flat[first]) ** 2, axis=1), jnp.inf)
        rank = jnp.argsort(jnp.argsort(distance))
        shares = jax.random.permutation(key, jnp.asarray(SHARES))[jnp.minimum(rank, MIN_GROUP - 1)]
        mixture = jnp.tensordot(jnp.where(rank < MIN_GROUP, shares, 0.0), points.x, axes=1)
        noise = scale * jax.random.normal(named_key(key, "small"), everyone.shape)
        return jnp.where(counts @ label >= MIN_GROUP, mixture, everyone + noise)

    keys = jax.random.split(named_key(key, "mixtures"), len(labels))
    return jax.vmap(one)(keys, labels, _chosen(lot, points, labels))


def _chosen(lot: Float[Array, " n"], points: Points, labels: Float[Array, "points classes"]) -> Int[Array, " points"]:
    """For each label the index of a record of its class: in ascending order of `lot`, then from the first again."""

    def choose(times: Array, label: Array) -> tuple[Array, Array]:
        is_eligible = (points.y @ label > 0.5) & (points.weight > 0)
        index = jnp.argmin(jnp.where(is_eligible, times + lot, jnp.inf))
        return times.at[index].add(1.0), index

    return jax.lax.scan(choose, jnp.zeros(points.num_points), labels)[1]


def public_start(
    keys: Key[Array, " clients"], model: Model, num_points: int, value: float, scale: float
) -> tuple[Float[Array, "clients points ..."], Float[Array, "clients points classes"]]:
    """The start of private learners, which uses no record: noise around a value that the study names, and labels that
    cycle through all classes."""
    noise = jax.vmap(lambda key: jax.random.normal(key, (num_points, *model.input_shape)))(keys)
    labels = jax.nn.one_hot(jnp.arange(num_points) % model.num_outputs, model.num_outputs)
    return value + scale * noise, jnp.broadcast_to(labels, (len(keys), *labels.shape))


def first_labels(model: Model, points: Points, num_points: int) -> Float[Array, "points outputs"]:
    """The client's classes in descending order of count, repeated; in regression, its mean target."""
    if model.kind == "regression":
        return jnp.broadcast_to(weighted_mean(points.y, points.weight), (num_points, model.num_outputs))
    return jax.nn.one_hot(label_cycle(points, num_points), model.num_outputs)


def proportional_labels(
    model: Model, points: Points, num_points: int
) -> tuple[Float[Array, "points classes"], Float[Array, " points"]]:
    """Classification: each class has points in proportion to its records, and at least one; and what each point weighs,
    relative to n / K, so that the points of a class stand for its records.

    Points are dealt out one by one, by the method of Sainte-Lague; with more classes than points, to the largest.
    """
    counts = points.weight @ points.y

    def deal(dealt: Array, _: None) -> tuple[Array, Array]:
        claim = jnp.where(dealt == 0, jnp.sum(counts) + counts, counts / (2 * dealt + 1))
        label = jnp.argmax(jnp.where(counts > 0, claim, -1.0))
        return dealt.at[label].add(1.0), label

    dealt, labels = jax.lax.scan(deal, jnp.zeros_like(counts), length=num_points)
    weight = (counts / jnp.maximum(dealt, 1.0) * num_points / jnp.sum(counts))[labels]
    return jax.nn.one_hot(labels, model.num_outputs), weight


def label_cycle(points: Points, num_points: int) -> Int[Array, " points"]:
    """Class numbers in descending order of count, repeated until there are num_points."""
    counts = points.weight @ points.y
    by_count = jnp.argsort(-counts, stable=True)
    return by_count[jnp.arange(num_points) % jnp.sum(counts > 0)]
