"""Baselines for learned coresets: a random subset of the same size, class means, noise, and all records."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from coreshot.config import Count, Positive, settings
from coreshot.learners.protocol import COUNT, Immediate
from coreshot.learners.starts import first_labels, label_cycle, noise_around_mean, weighted_mean
from coreshot.models import Model
from coreshot.privacy.guarded_records import Records
from coreshot.privacy.releases import Release
from coreshot.types import Coreset, Points, PRNGKey
from coreshot.wire.point_coding import PointCoding


@settings
class Everything(Immediate):
    """All of the client's raw records: the pooled reference. Without any privacy."""

    num_points: None = None
    coding: PointCoding | None = None

    def releases(self, model: Model) -> tuple[Release, ...]:
        return Release("records", "every record, unchanged"), COUNT

    def init(self, keys: Key[Array, " clients"], model: Model, records: Records, shared_key: PRNGKey) -> Coreset:
        points = records.exact("records")
        return Coreset(Points(points.x, points.y, points.weight), _counts(records))


@settings
class RandomSubset(Immediate):
    """Some of the client's raw records, drawn without replacement: an upper reference with no privacy."""

    num_points: Count
    coding: PointCoding | None = None

    def releases(self, model: Model) -> tuple[Release, ...]:
        return Release("records", "a random choice of records, unchanged"), COUNT

    def init(self, keys: Key[Array, " clients"], model: Model, records: Records, shared_key: PRNGKey) -> Coreset:
        points = records.exact("records")

        def one(key: PRNGKey, points: Points, num_examples: Array) -> Coreset:
            # Each record's score depends on its position alone, so padding changes nothing.
            score = jax.vmap(lambda index: jax.random.uniform(jax.random.fold_in(key, index)))(
                jnp.arange(points.num_points)
            )
            chosen = jnp.argsort(jnp.where(points.weight > 0, score, 2.0))[: self.num_points]
            return _unit_coreset(points.x[chosen], points.y[chosen], num_examples)

        return jax.vmap(one)(keys, points, _counts(records))


@settings
class RawImages(Immediate):
    """As many raw images as fit max_bytes, with fewer bits or pixels: the baseline for learners that send as much."""

    max_bytes: Count
    coding: PointCoding
    num_points: None = None

    def releases(self, model: Model) -> tuple[Release, ...]:
        return Release("records", "images of a random choice of records, with fewer bits or pixels"), COUNT

    def init(self, keys: Key[Array, " clients"], model: Model, records: Records, shared_key: PRNGKey) -> Coreset:
        points = records.exact("records")
        # Without the arithmetic code, which makes them smaller by an amount that depends on the images.
        bytes_each = math.prod(model.input_shape) / self.coding.factor**2 * self.coding.bits / 8
        at_most = max(1, int(self.max_bytes // bytes_each))

        def one(key: PRNGKey, points: Points, num_examples: Array) -> Coreset:
            score = jax.vmap(lambda index: jax.random.uniform(jax.random.fold_in(key, index)))(
                jnp.arange(points.num_points)
            )
            rank = jnp.argsort(jnp.argsort(jnp.where(points.weight > 0, score, 2.0)))
            weight = jnp.where(rank < at_most, points.weight, 0.0)
            return Coreset(Points(points.x, points.y, weight), num_examples)

        return jax.vmap(one)(keys, points, _counts(records))


@settings
class ClassMean(Immediate):
    """Means of records of one class. A class with several points is split at random into as many groups.

    Regression counts as one class.
    """

    num_points: Count
    coding: PointCoding | None = None

    def releases(self, model: Model) -> tuple[Release, ...]:
        return Release(
            "class means", "means of groups of records of one class; of a group of one record, that record"
        ), COUNT

    def init(self, keys: Key[Array, " clients"], model: Model, records: Records, shared_key: PRNGKey) -> Coreset:
        points = records.exact("class means")

        def one(key: PRNGKey, points: Points, num_examples: Array) -> Coreset:
            classes = (
                points
                if model.kind == "classification"
                else Points(points.x, jnp.ones((points.num_points, 1)), points.weight)
            )
            label = label_cycle(classes, self.num_points)
            groups = jnp.sum(label[:, None] == label[None], axis=1)  # how many groups each point's class has
            turn = jnp.sum(jnp.tril(label[:, None] == label[None], -1), axis=1)  # which of them this point is
            score = jax.vmap(lambda index: jax.random.uniform(jax.random.fold_in(key, index)))(
                jnp.arange(points.num_points)
            )

            def mean(label: Array, groups: Array, turn: Array) -> tuple[Array, Array]:
                member = points.weight * classes.y[:, label]
                rank = jnp.sum(
                    (score[None] < score[:, None]) * (member[None] > 0), axis=1
                )  # among the class, in random order
                group = member * (rank % groups == turn)
                # A class with fewer records than groups: the empty groups take the mean of the class.
                group = jnp.where(jnp.sum(group) > 0, group, member)
                return weighted_mean(points.x, group), weighted_mean(points.y, group)

            x, y = jax.vmap(mean)(label, groups, turn)
            return _unit_coreset(x, y, num_examples)

        return jax.vmap(one)(keys, points, _counts(records))


@settings
class Noise(Immediate):
    """The start of BPC-fKL without learning: Gaussian points around the client's mean."""

    num_points: Count
    init_scale: Positive
    coding: PointCoding | None = None

    def releases(self, model: Model) -> tuple[Release, ...]:
        return Release("start", "the mean of the inputs, and the classes in the order of their counts"), COUNT

    def init(self, keys: Key[Array, " clients"], model: Model, records: Records, shared_key: PRNGKey) -> Coreset:
        points = records.exact("start")

        def one(key: PRNGKey, points: Points, num_examples: Array) -> Coreset:
            x = noise_around_mean(key, points, self.num_points, self.init_scale)
            return _unit_coreset(x, first_labels(model, points, self.num_points), num_examples)

        return jax.vmap(one)(keys, points, _counts(records))


def _counts(records: Records) -> Float[Array, " clients"]:
    return jnp.sum(records.exact(COUNT.name).weight, axis=1)


def _unit_coreset(x: Array, y: Array, num_examples: Array) -> Coreset:
    return Coreset(Points(x, y, jnp.ones(x.shape[0])), num_examples)
