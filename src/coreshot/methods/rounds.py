"""What the multi-round methods share: their settings, the server's state, cohorts, weighted means, and local steps.

Clients of equal shape run together, vmapped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from coreshot.config import Count, settings
from coreshot.errors import CoreshotError
from coreshot.inference.posterior import SamplePosterior
from coreshot.inference.protocol import Info
from coreshot.keys import client_key, named_key
from coreshot.methods.protocol import Answers, Claim, Exchange, MethodCost, OnChunk, PointInference
from coreshot.models import Model
from coreshot.models.parallel import map_in_threads
from coreshot.privacy.guarded_records import Records, exact_points
from coreshot.types import Params, Points, PRNGKey, pad_points, padded_size
from coreshot.wire.messages import Message, flatten_tree, unflatten_tree

# Clients that are vmapped together. Fixed, because another number would round differently. For a wide network it is 1:
# one such client keeps a core busy.
CLIENTS_AT_ONCE = 5
STEPS = "local steps"  # the release of every multi-round method

# From points and batch plans, both with a leading client axis, to the trees that each client answers with, by name.
LocalWork = Callable[[Points, Array], dict[str, Params]]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RoundState:
    params: Params
    optimizer_state: optax.OptState
    round: int
    end: int  # the first round that is no longer run


@settings
class RoundMethod(ABC):
    """Base of the methods that improve weights round by round: a cohort gets them, and answers with updates."""

    num_rounds: Count
    local_steps: Count
    batch_size: Count
    cohort_size: Count | None = None  # clients asked in a round; None: all

    @abstractmethod
    def begin(self, params: Params, first_round: int = 0) -> RoundState:
        """The state before the first round, from any weights."""

    @abstractmethod
    def local_work(self, model: Model, inbox: Sequence[Message]) -> LocalWork:
        """What clients compute when they have received these messages."""

    @abstractmethod
    def passes(self, num_examples: int) -> float:
        """Of one client in one round."""

    @abstractmethod
    def example_exchanges(self, params: Params) -> list[Exchange]:
        """With one client in one round."""

    def cost(self, model: Model, clients: Sequence[int]) -> MethodCost:
        asked = min(self.cohort_size or len(clients), len(clients))
        exchanges = self.example_exchanges(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), model.shapes()))
        num_answers = self.num_rounds * asked / len(clients)
        return MethodCost(
            f"{self.local_steps:,} local steps x {asked} clients",
            [exchanges] * len(clients),
            num_answers,
            num_answers * sum(self.passes(num_examples) for num_examples in clients),
            num_networks=1 if model.is_wide else CLIENTS_AT_ONCE,
            batch_size=self.batch_size,
        )

    def init(self, key: PRNGKey, model: Model, shared_key: PRNGKey) -> RoundState:
        return self.begin(model.init(named_key(key, "weights")))

    def reply(
        self,
        key: PRNGKey,
        model: Model,
        clients: Mapping[str, Records],
        inbox: Sequence[Message],
        shared_key: PRNGKey,
        on_chunk: OnChunk,
    ) -> Answers:
        run, points = self.local_work(model, inbox), exact_points(clients, STEPS)
        return answer_in_groups(model, run, key, inbox[-1].round, points, self.batch_size, self.local_steps)

    def claim(self, content: Update) -> Claim:
        return Claim(float(content.num_examples))

    def read(self, model: Model, client: str, message: Message) -> Update:
        return read_update(model, client, message)

    def posterior(
        self, key: PRNGKey, model: Model, state: RoundState, inference: PointInference | None = None
    ) -> tuple[SamplePosterior, Info]:
        return SamplePosterior.single(model, state.params), {}

    def load_posterior(self, model: Model, shared_key: PRNGKey, arrays: Mapping[str, np.ndarray]) -> SamplePosterior:
        return SamplePosterior.from_arrays(model, arrays)


def choose_cohort(key: PRNGKey, round: int, clients: Sequence[str], size: int | None) -> tuple[str, ...]:
    """`size` of the clients, or all, in the order of their names. A cohort depends only on the key and the round."""
    if size is None:
        return tuple(sorted(clients))
    if size > len(clients):
        raise CoreshotError(
            f"round {round}: cohort_size is {size}, but there are only {len(clients)} clients; lower it or add clients."
        )
    order = jax.random.permutation(jax.random.fold_in(key, round), len(clients))
    return tuple(sorted(np.asarray(sorted(clients))[np.asarray(order[:size])].tolist()))


def update_message(round: int, num_examples: Array, **trees: Params) -> Message:
    """A client's answer: a delta or a gradient or both, and n_m, by which the server weights them."""
    arrays = {name: leaf for kind, tree in trees.items() for name, leaf in flatten_tree(kind, tree).items()}
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
    trees = {name: unflatten_tree(message.arrays, name, shapes, where) for name in message.kind.split(" and ")}
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
    return unflatten_tree(message.arrays, "params", model.shapes(), f"server, round {message.round}, {message.kind}")


def plan_batches(key: PRNGKey, num_examples: int, batch_size: int, num_steps: int) -> Int[np.ndarray, "steps batch"]:
    """Which examples each local step sees: shuffled passes over the data, one after the other, cut into batches.

    A client with fewer examples than a batch uses all of them in each step.
    """
    size = min(batch_size, num_examples)
    draws = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    num_passes = -(-num_steps * size // num_examples)
    order = np.concatenate([draws.permutation(num_examples) for _ in range(num_passes)])
    return order[: num_steps * size].reshape(num_steps, size).astype(np.int32)


def answer_in_groups(
    model: Model,
    run: LocalWork,
    key: PRNGKey,
    round: int,
    clients: Mapping[str, Points],
    batch_size: int,
    num_steps: int,
) -> Answers:
    """Run groups of clients of equal shape, and make a message of each client's trees."""
    plans = {
        name: plan_batches(client_key(key, round, name), points.num_points, batch_size, num_steps)
        for name, points in clients.items()
    }
    # A record is shifted once a round, since a round of the usual length sees it about once.
    seen = {
        name: model.augment(named_key(client_key(key, round, name), "augment"), points)
        for name, points in clients.items()
    }
    at_once = 1 if model.is_wide else CLIENTS_AT_ONCE

    def run_group(names: list[str]) -> dict[str, dict[str, Params]]:
        size = max(padded_size(clients[name].num_points) for name in names)
        # A group that is not full is filled with its last client, so that a client alone at its own site rounds as
        # it does among others.
        full = [*names, *[names[-1]] * (at_once - len(names))]
        points = jax.tree.map(lambda *arrays: jnp.stack(arrays), *[pad_points(seen[name], size) for name in full])
        stacked = jax.block_until_ready(run(points, jnp.stack([plans[name] for name in full])))
        return {
            name: jax.tree.map(lambda array, index=index: array[index], stacked) for index, name in enumerate(names)
        }

    # Threads beside vmap: XLA leaves a core idle in what it cannot run in parallel.
    groups = map_in_threads(run_group, _equal_shapes(clients, plans, at_once))
    results = {name: trees for group in groups for name, trees in group.items()}
    return {
        name: (update_message(round, jnp.sum(points.weight), **results[name]), []) for name, points in clients.items()
    }


def _equal_shapes(clients: Mapping[str, Points], plans: Mapping[str, np.ndarray], at_once: int) -> list[list[str]]:
    groups: dict[tuple[int, ...], list[str]] = {}
    for name, points in clients.items():
        groups.setdefault((padded_size(points.num_points), *plans[name].shape), []).append(name)
    return [names[first : first + at_once] for names in groups.values() for first in range(0, len(names), at_once)]


def select_points(points: Points, index: Int[Array, " batch"]) -> Points:
    return jax.tree.map(lambda array: array[index], points)


def loss_gradient(model: Model, params: Params, batch: Points) -> Params:
    """Of minus the mean log-likelihood, since optimisers descend. The papers of these methods have no prior."""
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
        updates, state = optimizer.update(loss_gradient(model, params, select_points(points, index)), state, params)
        return (optax.apply_updates(params, updates), state), None

    return jax.lax.scan(step, (params, state), plan)[0]


def full_gradient(model: Model, params: Params, points: Points, batch_size: int) -> Params:
    """`loss_gradient` on all of a client's points, batch_size of them at a time."""
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
