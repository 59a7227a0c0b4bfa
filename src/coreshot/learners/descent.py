"""The loop of learners that follow the gradient of a loss in the pseudo-points, with networks that come and go beside them.

A learner gives `networks` (what it starts with), `loss` (of points, given a batch's key and the networks) and `next_networks` (after an update).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Key

from coreshot.config import Count, NonNegative, Positive, settings
from coreshot.keys import fold_each
from coreshot.learners.protocol import COUNT, Health, make_health
from coreshot.learners.starts import between_neighbours, first_labels, noise_around_mean, random_records, weighted_mean
from coreshot.models import Model
from coreshot.models.training import OPTIMIZERS
from coreshot.privacy.guarded_records import Records
from coreshot.privacy.releases import Release
from coreshot.types import Coreset, Points, PRNGKey
from coreshot.wire.point_coding import PointCoding

UPDATES_PER_CHUNK = 20  # compiled together; the host looks at the points in between
FAR = 100.0  # points further from the client's mean than this many times its farthest input have diverged
Start = Literal["mean", "between", "records"]


@dataclass(frozen=True)
class DescentState:
    """Arrays have a leading client axis."""

    points: Points
    optimizer_state: optax.OptState
    networks: Any
    step_scale: Array  # 1, halved each time a client's points diverge
    center: Array
    radius: Array  # how far from `center` a client's pseudo-inputs may go
    data: Points  # the client's own; never sent
    num_examples: Array
    num_updates_done: int


@settings
class Descent:
    num_points: Count
    num_updates: Count
    step_size_x: Positive
    step_size_y: NonNegative = 0.0  # 0 keeps the labels fixed; otherwise they are soft, and stay on the simplex
    optimizer: Literal["adam", "sgd"] = "adam"
    # mean: noise of init_scale around the client's mean. between: half-way between two records of a class. records: raw records, asked for by name.
    start: Start = "mean"
    init_scale: Positive = 0.1
    coding: PointCoding | None = None  # on the wire

    @property
    def num_chunks(self) -> int:
        return -(-self.num_updates // UPDATES_PER_CHUNK)

    def networks(self, key: PRNGKey, model: Model) -> Any:
        raise NotImplementedError

    def loss(self, key: PRNGKey, model: Model, points: Points, data: Points, networks: Any) -> Float[Array, ""]:
        raise NotImplementedError

    def next_networks(
        self, key: PRNGKey, model: Model, points: Points, data: Points, networks: Any, update: Array
    ) -> Any:
        raise NotImplementedError

    def releases(self, model: Model) -> tuple[Release, ...]:
        starts = {
            "mean": "the mean of the inputs, around which points start",
            "between": "midpoints of two records of a class, at which points start",
            "records": "raw records, at which points start",
        }
        return (
            Release(
                "start",
                starts["mean" if model.kind == "regression" else self.start] + "; and the farthest input from the mean",
            ),
            Release("labels", "the classes in the order of their counts, or the mean target"),
            Release("matching", "the objective that points follow, computed on the records at every update"),
            COUNT,
        )

    def init(self, keys: Key[Array, " clients"], model: Model, records: Records, shared_key: PRNGKey) -> DescentState:
        def start(key: PRNGKey, data: Points, labelled: Points) -> tuple[Points, Any, Array, Array]:
            key_place, key_networks = jax.random.split(key)
            labels = first_labels(model, labelled, self.num_points)
            x = self._places(key_place, model, data, labels)
            center = weighted_mean(data.x, data.weight)
            spread = jnp.max(
                jnp.where(data.weight > 0, jnp.max(jnp.abs(data.x - center).reshape(data.num_points, -1), axis=1), 0)
            )
            coreset = Points(x, labels, jnp.ones(self.num_points, jnp.float32))
            return coreset, self.networks(key_networks, model), center, FAR * (spread + self.init_scale)

        coreset, networks, center, radius = jax.vmap(start)(keys, records.exact("start"), records.exact("labels"))
        num_examples = jnp.sum(records.exact(COUNT.name).weight, axis=1)
        optimizer_state = jax.vmap(self._optimizer().init)(coreset)
        return DescentState(
            coreset,
            optimizer_state,
            networks,
            jnp.ones_like(radius),
            center,
            radius,
            records.exact("matching"),
            num_examples,
            0,
        )

    def _places(
        self, key: PRNGKey, model: Model, data: Points, labels: Float[Array, "points outputs"]
    ) -> Float[Array, "points ..."]:
        if self.start == "mean" or model.kind == "regression":
            return noise_around_mean(key, data, self.num_points, self.init_scale)
        if self.start == "between":
            return between_neighbours(key, data, labels, self.init_scale)
        return random_records(key, data, labels)

    def step(self, keys: Key[Array, " clients"], model: Model, state: DescentState) -> tuple[DescentState, Health]:
        size = min(UPDATES_PER_CHUNK, self.num_updates - state.num_updates_done)
        updates = state.num_updates_done + jnp.arange(size)
        each = jax.vmap(lambda key: jax.random.split(key, size))(fold_each(keys, 0))
        points, optimizer_state, networks, good, norms = _run(self, model, each, updates, state.data, _carried(state))
        done = state.num_updates_done + size
        state = replace(state, points=points, optimizer_state=optimizer_state, networks=networks, num_updates_done=done)
        return state, make_health(np.asarray(good), np.asarray(norms), done, self.num_updates)

    def slower(self, state: DescentState, clients: np.ndarray) -> DescentState:
        return replace(state, step_scale=jnp.where(clients, state.step_scale / 2, state.step_scale))

    def coreset(self, state: DescentState) -> Coreset:
        return Coreset(state.points, state.num_examples)

    def advice(self) -> str:
        return f"Lower step_size_x (now {self.step_size_x:g}) or step_size_y (now {self.step_size_y:g})"

    def _optimizer(self) -> optax.GradientTransformation:
        parts = {
            "x": OPTIMIZERS[self.optimizer](self.step_size_x),
            "y": OPTIMIZERS[self.optimizer](self.step_size_y) if self.step_size_y else optax.set_to_zero(),
            "fixed": optax.set_to_zero(),
        }
        return optax.partition(parts, Points("x", "y", "fixed"))  # type: ignore[arg-type]


def _carried(state: DescentState) -> tuple[Any, ...]:
    return state.points, state.optimizer_state, state.networks, state.step_scale, state.center, state.radius


@partial(jax.jit, static_argnums=(0, 1))
def _run(
    learner: Descent,
    model: Model,
    keys: Key[Array, "clients updates"],
    updates: Array,
    data: Points,
    carry: tuple[Any, ...],
) -> tuple[Any, ...]:
    """A chunk of updates, vmapped over clients."""

    def one_client(keys: Array, data: Points, carry: tuple[Any, ...]) -> tuple[Any, ...]:
        points, optimizer_state, networks, step_scale, center, radius = carry

        def update(state: tuple[Any, ...], now: tuple[PRNGKey, Array]) -> tuple[tuple[Any, ...], tuple[Array, Array]]:
            (points, optimizer_state, networks), (key, index) = state, now
            key_loss, key_networks = jax.random.split(key)
            gradient = jax.grad(lambda points: learner.loss(key_loss, model, points, data, networks))(points)
            steps, optimizer_state = learner._optimizer().update(gradient, optimizer_state, points)
            points = optax.apply_updates(points, jax.tree.map(lambda step: step_scale * step, steps))
            if model.kind == "classification" and learner.step_size_y > 0:
                points = Points(points.x, jax.vmap(optax.projections.projection_simplex)(points.y), points.weight)
            networks = learner.next_networks(key_networks, model, points, data, networks, index)
            is_good = jnp.all(jnp.abs(points.x - center) < radius) & jnp.all(jnp.isfinite(points.y))
            return (points, optimizer_state, networks), (is_good, optax.tree.norm((gradient.x, gradient.y)))

        (points, optimizer_state, networks), seen = jax.lax.scan(
            update, (points, optimizer_state, networks), (keys, updates)
        )
        return points, optimizer_state, networks, *seen

    return jax.vmap(one_client)(keys, data, carry)


def select_class(points: Points, label: Array) -> Points:
    """The points of one class: all of them, with the others' weight at 0."""
    return points.reweighted(points.weight * points.y[:, label])
