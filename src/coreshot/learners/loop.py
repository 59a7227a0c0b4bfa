"""Runs a learner: clients in groups, chunks of updates with a check in between, and smaller steps where points
diverge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from coreshot.errors import CoreshotError
from coreshot.keys import fold_each
from coreshot.learners.protocol import Health, Learner, State
from coreshot.models import Model
from coreshot.models.parallel import map_in_threads
from coreshot.privacy.guarded_records import Records, stacked
from coreshot.types import Coreset, PRNGKey, padded_size

MAX_RETRIES = 10  # halvings of a client's step sizes before we give up: a factor of 1,000


def clients_per_group() -> int:
    """How many clients are vmapped.

    On a CPU such a loop uses one core, and it rounds differently for each number of clients. There each client is a
    group of its own: as fast, and its coreset has the same bits whoever else takes part. Elsewhere a few are one
    group, whose experts share experts.byte_budget.
    """
    return 1 if jax.default_backend() == "cpu" else 8


@dataclass(frozen=True)
class Distilled:
    coreset: Coreset
    notes: list[str] = field(default_factory=list)  # for the user: where points diverged


def distill(
    model: Model,
    learner: Learner,
    clients: Mapping[str, Records],
    keys: Mapping[str, PRNGKey],
    shared_key: PRNGKey,
    *,
    on_chunk: Callable[[int], None] = lambda clients: None,
    where: str = "round 0",
    group_size: int | None = None,
) -> dict[str, Distilled]:
    """A coreset for each client, from its own key and records only; groups of clients run in parallel, one per core."""
    names, group_size = list(clients), group_size or clients_per_group()
    groups = [names[first : first + group_size] for first in range(0, len(names), group_size)]

    def run(group: list[str]) -> dict[str, Distilled]:
        size = max(padded_size(clients[name].num_points) for name in group)
        records = stacked([clients[name] for name in group], size)
        return _distill_group(
            model, learner, group, jnp.stack([keys[name] for name in group]), records, shared_key, on_chunk, where
        )

    results = {name: distilled for group in map_in_threads(run, groups) for name, distilled in group.items()}
    return {name: results[name] for name in clients}


def _distill_group(
    model: Model,
    learner: Learner,
    names: list[str],
    keys: Key[Array, " clients"],
    records: Records,
    shared_key: PRNGKey,
    on_chunk: Callable[[int], None],
    where: str,
) -> dict[str, Distilled]:
    state = learner.init(fold_each(keys, 0), model, records, shared_key)
    state, notes = learn(model, learner, [f"client {name}, {where}" for name in names], keys, state, on_chunk)
    coresets = learner.coreset(state)
    return {name: Distilled(_of_client(coresets, index), notes[index]) for index, name in enumerate(names)}


def learn(
    model: Model,
    learner: Learner,
    places: list[str],
    keys: Key[Array, " clients"],
    state: State,
    on_chunk: Callable[[int], None],
) -> tuple[State, list[list[str]]]:
    """All chunks from a first state on, and notes for each client; `places` name the clients in notes and errors."""
    notes: list[list[str]] = [[] for _ in places]
    for chunk in range(learner.num_chunks):
        state = _step_safely(model, learner, places, fold_each(keys, chunk + 1), state, notes)
        on_chunk(len(places))
    return state, notes


def _step_safely(
    model: Model,
    learner: Learner,
    places: list[str],
    keys: Key[Array, " clients"],
    state: State,
    notes: list[list[str]],
) -> State:
    """One chunk. Where points diverge, it is repeated from the last good state with half the step size for those
    clients.

    The others repeat it with the same keys, so they reach the same points as if nobody had diverged.
    """
    for attempt in range(MAX_RETRIES + 1):
        candidate, health = learner.step(keys, model, state)
        diverged = health.first_bad_update >= 0
        if not diverged.any():
            return candidate
        for index in np.flatnonzero(diverged):
            message = _describe(health, index)
            notes[index].append(f"{message}; went back and halved its step sizes")
        if attempt < MAX_RETRIES:
            state = learner.slower(state, diverged)
    first = np.flatnonzero(diverged)[0]
    raise CoreshotError(
        f"{places[first]}, coreset: {_describe(health, first)}, still after {MAX_RETRIES} halvings of its step sizes. "
        f"{learner.advice()}."
    )


def _describe(health: Health, index: Any) -> str:
    return (
        f"pseudo-points diverged at update {health.first_bad_update[index] + 1} of {health.num_updates} "
        f"(gradient norm {health.last_gradient_norm[index]:.1g} before)"
    )


def _of_client(coresets: Coreset, index: int) -> Coreset:
    """One client's part of the group's coresets, without its padding."""
    # By NumPy: jax would compile the indexing again for each client's own number of points.
    coreset = jax.tree.map(lambda array: np.asarray(array[index]), coresets)
    real = np.flatnonzero(coreset.points.weight > 0)
    return Coreset(
        jax.tree.map(lambda array: jnp.asarray(array[real]), coreset.points), jnp.asarray(coreset.num_examples)
    )
