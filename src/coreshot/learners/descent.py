"""The loop of every learner that moves pseudo-points along a gradient, in chunks of updates that are compiled together.

A learner on this loop defines `init` (which ends with `begin`) and `gradient`. It may also define `draw` (what a chunk
needs from the host, for example weights of experts), `next_networks` (networks that change after each update) and
`finish` (after the last update). `LossDescent` is the loop for learners whose gradient is that of a loss.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from coreshot.config import Count, NonNegative, Positive, settings
from coreshot.keys import fold_each, named_key
from coreshot.learners.protocol import COUNT, Health, LearningCost, make_health
from coreshot.learners.starts import START_CONTENT, Start, draw_start, first_labels, input_region
from coreshot.models import Model
from coreshot.models.networks import ConvNet
from coreshot.models.training import make_optimizer
from coreshot.privacy.guarded_records import Local, Records
from coreshot.privacy.releases import Release
from coreshot.types import Coreset, Points, PRNGKey, padded_size
from coreshot.wire.point_coding import PointCoding

UPDATES_PER_CHUNK = 20  # compiled together; between chunks the host checks the points
PATIENCE = 2  # chunks without a better held-out score after which the updates stop


@dataclass(frozen=True)
class LocalPart:
    """What `init` computes again from the same keys and records, and what must not be written to a file."""

    data: Points  # what updates see of the records
    experts: Any = None  # where weights of experts are drawn


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Best:
    """The best points so far by `held_out_score`, and for how many chunks there were none better."""

    points: Points
    score: Float[Array, " clients"]
    num_worse: Int[Array, " clients"]


@dataclass(frozen=True)
class DescentState:
    """Arrays have a leading client axis."""

    points: Points  # their weights are those of the coreset's own chains
    point_weights: Float[Array, "clients points"]  # relative to the equal share n_m / K: what the server is told
    optimizer_state: optax.OptState
    networks: PyTree[Array]  # () for learners without
    step_scale: Float[Array, " clients"]  # 1, halved each time a client's points diverge
    center: Float[Array, "clients ..."]
    radius: Float[Array, " clients"]  # how far from `center` a client's pseudo-inputs may go
    num_examples: Float[Array, " clients"]
    num_updates_done: int
    local: Local[LocalPart]
    best: Best | None = None  # of learners that hold something out


@settings
class Descent:
    num_points: Count
    num_updates: Count
    init_scale: Positive  # of the noise around the mean, where points start
    step_size_x: Positive
    step_size_y: NonNegative  # 0 keeps the labels fixed; otherwise they are soft, and stay on the simplex
    optimizer: Literal["adam", "sgd"]  # of the pseudo-points
    start: Start = "mean"  # see coreshot.learners.starts
    coding: PointCoding | None = None  # on the wire
    # Points stay between these two values, as pixels do; None: anywhere.
    bounds: tuple[float, float] | None = None
    proxy_network: ConvNet | None = None  # of all that the client trains, in place of the study's: a cheaper one

    @property
    def num_chunks(self) -> int:
        return -(-self.num_updates // UPDATES_PER_CHUNK)

    @property
    def can_resume(self) -> bool:
        return True

    def client_model(self, model: Model) -> Model:
        """The model that the client trains: with the proxy network, where there is one."""
        return model if self.proxy_network is None else replace(model, network=self.proxy_network)

    def gradient(
        self, key: PRNGKey, model: Model, points: Points, data: Points, networks: PyTree[Array], drawn: PyTree[Array]
    ) -> Points:
        """The direction that is descended, for one client; the model is the client's."""
        raise NotImplementedError

    def next_networks(
        self, key: PRNGKey, model: Model, points: Points, networks: PyTree[Array], update: Int[Array, ""]
    ) -> PyTree[Array]:
        """The networks after an update has moved the points; `key` is that of the update."""
        return networks

    def draw(
        self, keys: Key[Array, " clients"], model: Model, state: DescentState, num_updates: int
    ) -> tuple[Key[Array, "clients updates"], PyTree[Array], DescentState]:
        """Keys for the next updates, arrays [clients, updates, ...] that they use, and the state after drawing them."""
        return _split_each(fold_each(keys, 0), num_updates), (), state

    def updates_at_once(self, model: Model, num_clients: int) -> int:
        """How many updates may be drawn for at once."""
        return UPDATES_PER_CHUNK

    def held_out_score(self, model: Model, state: DescentState) -> Float[Array, " clients"] | None:
        """How good the points are by something that no update sees; None for learners that hold nothing out."""
        return None

    def finish(self, model: Model, state: DescentState) -> DescentState:
        """After the last update."""
        return state

    def schedule(self, step_size: float) -> float | optax.Schedule:
        return step_size

    def begin(
        self,
        coreset: Points,
        region: tuple[Float[Array, "clients ..."], Float[Array, " clients"]],
        num_examples: Float[Array, " clients"],
        local: LocalPart,
        networks: PyTree[Array] = (),
    ) -> DescentState:
        """The first state; `region` is the center and the radius that points must not leave."""
        optimizer_state = jax.vmap(self.make_optimizer().init)(coreset)
        ones, (center, radius) = jnp.ones_like(coreset.weight), region
        return DescentState(
            coreset, ones, optimizer_state, networks, ones[:, 0], center, radius, num_examples, 0, Local(local)
        )

    def step(self, keys: Key[Array, " clients"], model: Model, state: DescentState) -> tuple[DescentState, Health]:
        """One chunk of updates for every client of the group, in parts of `updates_at_once`."""
        model = self.client_model(model)
        size = min(UPDATES_PER_CHUNK, self.num_updates - state.num_updates_done)
        if state.best is not None and bool(jnp.all(state.best.num_worse >= PATIENCE)):
            state = replace(state, num_updates_done=state.num_updates_done + size)
            return self._last(model, state), _unchanged(len(keys), state.num_updates_done, self.num_updates)
        at_once = max(1, min(size, self.updates_at_once(model, len(keys))))
        good, norms = [], []
        for part, first in enumerate(range(0, size, at_once)):
            part_keys = fold_each(keys, 3 + part) if part else keys
            state, part_good, part_norms = self._update(part_keys, model, state, min(at_once, size - first))
            good.append(np.asarray(part_good))
            norms.append(np.asarray(part_norms))
        done = state.num_updates_done
        health = make_health(np.concatenate(good, axis=1), np.concatenate(norms, axis=1), done, self.num_updates)
        return self._last(model, self.judge(model, state)), health

    def judge(self, model: Model, state: DescentState) -> DescentState:
        """Compares the points with the best so far, where the learner holds something out; `init` judges the start."""
        score = self.held_out_score(model, state)
        if score is None:
            return state
        if state.best is None:
            return replace(state, best=Best(state.points, score, jnp.zeros(len(score), int)))
        is_better, best = score > state.best.score, state.best

        def better(new: Array, old: Array) -> Array:
            return jnp.where(is_better.reshape(-1, *[1] * (new.ndim - 1)), new, old)

        points = jax.tree.map(better, state.points, best.points)
        num_worse = jnp.where(is_better, 0, best.num_worse + 1)
        return replace(state, best=Best(points, jnp.maximum(score, best.score), num_worse))

    def _last(self, model: Model, state: DescentState) -> DescentState:
        """After the last chunk: the best points, and what the learner does with them."""
        if state.num_updates_done < self.num_updates:
            return state
        return self.finish(model, state if state.best is None else replace(state, points=state.best.points))

    def _update(
        self, keys: Key[Array, " clients"], model: Model, state: DescentState, num: int
    ) -> tuple[DescentState, Bool[Array, "clients updates"], Float[Array, "clients updates"]]:
        update_keys, drawn, state = self.draw(keys, model, state, num)
        updates = jnp.broadcast_to(state.num_updates_done + jnp.arange(num), (len(keys), num))
        carry = state.points, state.optimizer_state, state.networks
        limits = state.step_scale, state.center, state.radius
        (points, optimizer_state, networks), good, norms = run_updates(
            self, model, (update_keys, updates, drawn), state.local.value.data, limits, carry
        )
        done = state.num_updates_done + num
        state = replace(state, points=points, optimizer_state=optimizer_state, networks=networks, num_updates_done=done)
        return state, good, norms

    def slower(self, state: DescentState, clients: Bool[np.ndarray, " clients"]) -> DescentState:
        return replace(state, step_scale=jnp.where(clients, state.step_scale / 2, state.step_scale))

    def coreset(self, state: DescentState) -> Coreset:
        return Coreset(state.points.reweighted(state.point_weights), state.num_examples)

    def advice(self) -> str:
        return f"Lower step_size_x (now {self.step_size_x:g}) or step_size_y (now {self.step_size_y:g})"

    def make_optimizer(self) -> optax.GradientTransformation:
        def make(step_size: float) -> optax.GradientTransformation:
            return make_optimizer(self.optimizer, self.schedule(step_size)) if step_size else optax.set_to_zero()

        parts = {"x": make(self.step_size_x), "y": make(self.step_size_y), "fixed": optax.set_to_zero()}
        return optax.partition(parts, Points("x", "y", "fixed"))  # type: ignore[arg-type]


def _unchanged(num_clients: int, num_done: int, num_updates: int) -> Health:
    return make_health(np.ones((num_clients, 1), bool), np.zeros((num_clients, 1)), num_done, num_updates)


def _split_each(keys: Key[Array, " clients"], num: int) -> Key[Array, "clients {num}"]:
    return jax.vmap(lambda key: jax.random.split(key, num))(keys)


@partial(jax.jit, static_argnums=(0, 1))
def run_updates(
    learner: Descent,
    model: Model,
    drawn: tuple[Key[Array, "clients updates"], Int[Array, "clients updates"], PyTree[Array]],
    data: Points,
    limits: tuple[Array, Array, Array],
    carry: tuple[Points, optax.OptState, PyTree[Array]],
) -> tuple[
    tuple[Points, optax.OptState, PyTree[Array]], Bool[Array, "clients updates"], Float[Array, "clients updates"]
]:
    """A sequence of updates for each client: the new points, whether they are usable, and the gradients' norms."""

    def one_client(drawn: Any, data: Points, limits: tuple[Array, Array, Array], carry: Any) -> Any:
        step_scale, center, radius = limits

        def update(carry: Any, now: tuple[PRNGKey, Array, PyTree[Array]]) -> tuple[Any, tuple[Array, Array]]:
            (points, optimizer_state, networks), (key, index, drawn) = carry, now
            gradient = learner.gradient(key, model, points, data, networks, drawn)
            steps, optimizer_state = learner.make_optimizer().update(gradient, optimizer_state, points)
            points = optax.apply_updates(points, jax.tree.map(lambda step: step_scale * step, steps))
            if learner.bounds is not None:
                points = Points(jnp.clip(points.x, *learner.bounds), points.y, points.weight)
            if model.kind == "classification" and learner.step_size_y > 0:
                points = Points(points.x, jax.vmap(optax.projections.projection_simplex)(points.y), points.weight)
            networks = learner.next_networks(key, model, points, networks, index)
            is_good = jnp.all(jnp.abs(points.x - center) < radius) & jnp.all(jnp.isfinite(points.y))
            return (points, optimizer_state, networks), (is_good, optax.tree.norm((gradient.x, gradient.y)))

        carry, (good, norms) = jax.lax.scan(update, carry, drawn)
        return carry, good, norms

    return model.each(one_client)(drawn, data, limits, carry)


@settings
class LossDescent(Descent):
    """Learners that give `networks` (what they start with), `loss` and `train_networks` (after each update)."""

    init_scale: Positive = 0.1
    step_size_y: NonNegative = 0.0
    optimizer: Literal["adam", "sgd"] = "adam"

    def networks(self, key: PRNGKey, model: Model) -> PyTree[Array]:
        raise NotImplementedError

    def loss(
        self, key: PRNGKey, model: Model, points: Points, data: Points, networks: PyTree[Array]
    ) -> Float[Array, ""]:
        raise NotImplementedError

    def train_networks(
        self, key: PRNGKey, model: Model, points: Points, networks: PyTree[Array], update: Int[Array, ""]
    ) -> PyTree[Array]:
        raise NotImplementedError

    def update_passes(self, model: Model, num_records: int) -> float:
        """Points that an update sends through a network; num_records counts the padding."""
        raise NotImplementedError

    def releases(self, model: Model) -> tuple[Release, ...]:
        return (
            Release("start", START_CONTENT[self.start] + "; and the farthest input from the mean"),
            Release("labels", "the classes in the order of their counts, or the mean target"),
            Release("matching", "the objective that points follow, computed on the records at every update"),
            COUNT,
        )

    def init(self, keys: Key[Array, " clients"], model: Model, records: Records, shared_key: PRNGKey) -> DescentState:
        model = self.client_model(model)

        def start(key: PRNGKey, data: Points, labelled: Points) -> tuple[Points, PyTree[Array], tuple[Array, Array]]:
            key_inputs, key_networks = jax.random.split(key)
            networks = self.networks(key_networks, model)
            labels = first_labels(model, labelled, self.num_points)
            x = draw_start(self.start, key_inputs, model, data, labels, self.init_scale)
            coreset = Points(x, labels, jnp.ones(self.num_points, jnp.float32))
            return coreset, networks, input_region(data, self.init_scale)

        coreset, networks, region = jax.vmap(start)(keys, records.exact("start"), records.exact("labels"))
        num_examples = jnp.sum(records.exact(COUNT.name).weight, axis=1)
        return self.begin(coreset, region, num_examples, LocalPart(records.exact("matching")), networks)

    def gradient(
        self, key: PRNGKey, model: Model, points: Points, data: Points, networks: PyTree[Array], drawn: PyTree[Array]
    ) -> Points:
        key_loss, _ = jax.random.split(key)
        seen = model.augment(named_key(key, "augment data"), data)

        def loss(points: Points) -> Float[Array, ""]:
            points = model.augment(named_key(key, "augment points"), points)
            return self.loss(key_loss, model, points, seen, networks)

        return jax.grad(loss)(points)

    def next_networks(
        self, key: PRNGKey, model: Model, points: Points, networks: PyTree[Array], update: Int[Array, ""]
    ) -> PyTree[Array]:
        _, key_networks = jax.random.split(key)
        return self.train_networks(key_networks, model, points, networks, update)

    def cost(self, model: Model, num_examples: int) -> LearningCost:
        each, model = self.update_passes(model, padded_size(num_examples)), self.client_model(model)
        networks = jax.eval_shape(lambda: self.networks(jax.random.key(0), model))
        num_bytes = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(networks))
        return LearningCost(
            self.num_updates * each,
            f"{self.num_updates:,} updates of {each:,.0f} passes",
            num_bytes,
            model=model,
            has_soft_labels=self.step_size_y > 0,
        )


def select_class(points: Points, label: Int[Array, ""]) -> Points:
    """The points of one class: all of them, with weight 0 for the other classes."""
    return points.reweighted(points.weight * points.y[:, label])
