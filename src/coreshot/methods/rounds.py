"""What the multi-round methods share: the server's state, the cohort, the weighted mean, and local steps on clients of equal shape."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from coreshot.errors import CoreshotError
from coreshot.keys import client_key, named_key
from coreshot.methods.protocol import Answers
from coreshot.models import Model
from coreshot.types import Params, Points, PRNGKey, pad_points, padded_size
from coreshot.wire.messages import Message, named_leaves, tree_of

CLIENTS_AT_ONCE = (
    5  # vmapped together; fixed, because another number would round differently. Of a wide network one: it fills a core
)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RoundState:
    params: Params
    optimizer_state: optax.OptState
    round: int
    end: int  # the first round that is no longer run


def choose_cohort(key: PRNGKey, round: int, clients: Sequence[str], size: int | None) -> tuple[str, ...]:
    """So many of the clients, or all, in the order of their names; a round's cohort depends on the key and the round alone."""
    if size is None:
        return tuple(sorted(clients))
    if size > len(clients):
        raise CoreshotError(
            f"round {round}: cohort_size is {size}, but there are only {len(clients)} clients; lower it or add clients."
        )
    order = jax.random.permutation(jax.random.fold_in(key, round), len(clients))
    return tuple(sorted(np.asarray(sorted(clients))[np.asarray(order[:size])].tolist()))


def update_message(round: int, num_examples: Array, **trees: Params) -> Message:
    """What a client answers: a delta or a gradient or both, and n_m, by which the server weighs them."""
    arrays = {name: leaf for kind, tree in trees.items() for name, leaf in named_leaves(kind, tree).items()}
    kind = " and ".join(sorted(trees))
    return Message(kind, round, {**arrays, "num_examples": jnp.asarray(num_examples, jnp.float32).reshape(1)})


@dataclass(frozen=True)
class Update:
    """A client's answer, decoded: trees of the weights' shapes by name (delta, gradient), and n_m."""

    trees: dict[str, Params]
    num_examples: Float[Array, ""]


def read_update(model: Model, client: str, message: Message) -> Update:
    """A delta or a gradient of the weights' shapes, and how many examples stand behind it."""
    where, shapes = f"client {client}, round {message.round}, {message.kind}", model.shapes()
    trees = {name: tree_of(message.arrays, name, shapes, where) for name in message.kind.split(" and ")}
    count = message.arrays.get("num_examples", jnp.zeros(0))
    if count.shape != (1,) or not float(count[0]) > 0:
        raise CoreshotError(
            f"{where}: num_examples is {np.asarray(count).tolist()}, not one positive number; send it again."
        )
    return Update(trees, count[0])


def mean_update(replies: Mapping[str, Update], name: str, round: int) -> Params:
    """The n_m-weighted mean of the trees `name` in the replies, summed in the order of the clients' names."""
    if not replies:
        raise CoreshotError(
            f"round {round}: no client's reply can be used; lower the clients' step size, or ask more of them."
        )
    absent = next((client for client in sorted(replies) if name not in replies[client].trees), None)
    if absent is not None:
        raise CoreshotError(f"client {absent}, round {round}: sent no {name}; both sides must use the same study.")
    ordered = [replies[client] for client in sorted(replies)]
    trees, examples = [update.trees[name] for update in ordered], [update.num_examples for update in ordered]
    share = jnp.stack(examples) / jnp.sum(jnp.stack(examples))
    return jax.tree.map(lambda *leaves: jnp.tensordot(share, jnp.stack(leaves), axes=1), *trees)


def read_params(model: Model, message: Message) -> Params:
    return tree_of(message.arrays, "params", model.shapes(), f"server, round {message.round}, {message.kind}")


def plan_batches(key: PRNGKey, num_examples: int, batch_size: int, num_steps: int) -> Int[np.ndarray, "steps batch"]:
    """Which examples each local step sees: shuffled passes over the data, one after the other, cut into batches.

    A client with fewer examples than a batch uses all of them in each step.
    """
    size = min(batch_size, num_examples)
    draws = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    num_passes = -(-num_steps * size // num_examples)
    order = np.concatenate([draws.permutation(num_examples) for _ in range(num_passes)])
    return order[: num_steps * size].reshape(num_steps, size).astype(np.int32)


def answer(
    model: Model,
    run: Callable[[Points, Array], dict[str, Params]],
    key: PRNGKey,
    round: int,
    clients: Mapping[str, Points],
    batch_size: int,
    num_steps: int,
) -> Answers:
    """run(points, plans), which has a leading client axis, for groups of clients of equal shape; each client's trees as its message."""
    plans = {
        name: plan_batches(client_key(key, round, name), points.num_points, batch_size, num_steps)
        for name, points in clients.items()
    }

    at_once = 1 if model.is_wide else CLIENTS_AT_ONCE

    def run_group(names: list[str]) -> dict[str, dict[str, Params]]:
        size = max(padded_size(clients[name].num_points) for name in names)
        # A group that is not full is filled with its last client: one that is alone, at its own site, then rounds as one among others.
        full = [*names, *[names[-1]] * (at_once - len(names))]
        points = jax.tree.map(lambda *arrays: jnp.stack(arrays), *[pad_points(clients[name], size) for name in full])
        stacked = jax.block_until_ready(run(points, jnp.stack([plans[name] for name in full])))
        return {
            name: jax.tree.map(lambda array, index=index: array[index], stacked) for index, name in enumerate(names)
        }

    with ThreadPoolExecutor(
        os.cpu_count() or 1
    ) as pool:  # what a group cannot run in parallel runs beside the other group's
        results = {
            name: trees
            for group in pool.map(run_group, _equal_shapes(clients, plans, at_once))
            for name, trees in group.items()
        }
    return {
        name: (update_message(round, jnp.sum(points.weight), **results[name]), []) for name, points in clients.items()
    }


def _equal_shapes(clients: Mapping[str, Points], plans: Mapping[str, np.ndarray], at_once: int) -> list[list[str]]:
    groups: dict[tuple[int, ...], list[str]] = {}
    for name, points in clients.items():
        groups.setdefault((padded_size(points.num_points), *plans[name].shape), []).append(name)
    return [names[first : first + at_once] for names in groups.values() for first in range(0, len(names), at_once)]


def take(points: Points, index: Int[Array, " batch"]) -> Points:
    return jax.tree.map(lambda array: array[index], points)


def loss_gradient(model: Model, params: Params, batch: Points) -> Params:
    """Of minus the mean log-likelihood: optimisers descend. The prior is left out, as these methods' papers know none."""
    return jax.grad(lambda params: -model.log_prob(params, batch) / jnp.sum(batch.weight))(params)


def descend(
    model: Model,
    optimizer: optax.GradientTransformation,
    params: Params,
    state: optax.OptState,
    points: Points,
    plan: Int[Array, "steps batch"],
) -> tuple[Params, optax.OptState]:
    """Local steps of one client."""

    def step(carry: tuple[Params, optax.OptState], index: Array) -> tuple[tuple[Params, optax.OptState], None]:
        params, state = carry
        updates, state = optimizer.update(loss_gradient(model, params, take(points, index)), state, params)
        return (optax.apply_updates(params, updates), state), None

    return jax.lax.scan(step, (params, state), plan)[0]


def full_gradient(model: Model, params: Params, points: Points, batch_size: int) -> Params:
    """`loss_gradient` on all of a client's points, so many at a time."""
    batch_size = min(batch_size, points.num_points)
    num_parts = -(-points.num_points // batch_size)
    parts = jax.tree.map(
        lambda array: array.reshape(num_parts, -1, *array.shape[1:]), pad_points(points, num_parts * batch_size)
    )

    def add(total: Params, part: Points) -> tuple[Params, None]:
        gradient = jax.grad(lambda params: -model.log_prob(params, part) / jnp.sum(points.weight))(params)
        return jax.tree.map(jnp.add, total, gradient), None

    return jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params), parts)[0]


def difference(left: Params, right: Params) -> Params:
    return jax.tree.map(jnp.subtract, left, right)


def fresh_start(key: PRNGKey, model: Model) -> Params:
    return model.init(named_key(key, "weights"))
