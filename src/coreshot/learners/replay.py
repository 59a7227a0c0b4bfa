"""Experts without a store: a few live trajectories, each held at both ends of a chain, that continue as they are drawn.

At the paper's settings a client's checkpoints are 72.9 GB; a pool of 20 trajectories is 0.19 GB. The pairs are those
that a store would hold: a trajectory's batches follow from its number and the step, so its later end can be computed
without the checkpoints in between. A drawn pair moves by one save interval, at both ends; after its last start comes
the next trajectory's first. The pool begins spread over all starts, so that every update sees early and late steps of
experts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, Key

from coreshot.errors import CoreshotError
from coreshot.learners.experts import Carry, Recipe, bytes_needed
from coreshot.types import Points, PRNGKey


@dataclass(frozen=True)
class ReplayPool:
    """Both ends [clients, pool, ...] with the optimiser's state. A pool is immutable: drawing returns a new one."""

    recipe: Recipe
    keys: Key[Array, " clients"]
    points: Points
    shared_key: PRNGKey
    early: Carry
    late: Carry
    trajectory: Int[np.ndarray, "clients pool"]
    start: Int[np.ndarray, "clients pool"]  # which start the early end is at
    next_trajectory: Int[np.ndarray, " clients"]

    def sample(self, keys: Key[Array, " clients"], num_updates: int, num_each: int) -> tuple[Array, Array, ReplayPool]:
        pool, starts, ends = self, [], []
        for update in range(num_updates):
            slots = pool._choose(keys, update, num_each)
            starts.append(pool._starts(slots))
            ends.append(pool._weights(pool.late, slots))
            pool = pool._moved_on(slots)
        return jnp.stack(starts, axis=1), jnp.stack(ends, axis=1), pool

    def sample_ends(self, keys: Key[Array, " clients"], num_updates: int, num_each: int) -> Array:
        slots = jax.vmap(lambda key: jax.random.randint(key, (num_updates * num_each,), 0, self.start.shape[1]))(keys)
        return self._weights(self.late, np.asarray(slots)).reshape(len(keys), num_updates, num_each, -1)

    def last(self) -> Float[Array, "clients trajectories weights"]:
        raise CoreshotError(
            'experts: store = "replay" keeps no last weights, which start = "informative" uses; use "memory" or "disk".'
        )

    def _choose(self, keys: Key[Array, " clients"], update: int, num: int) -> Int[np.ndarray, "clients num"]:
        """Different slots: an update never sees one trajectory twice."""
        order = jax.vmap(
            lambda key: jax.random.permutation(jax.random.fold_in(key, update), self.start.shape[1])[:num]
        )(keys)
        return np.asarray(order)

    def _starts(self, slots: np.ndarray) -> Float[Array, "clients num numbers"]:
        return jax.vmap(jax.vmap(self.recipe.flat_start))(_at(self.early, slots))

    def _weights(self, end: Carry, slots: np.ndarray) -> Float[Array, "clients num weights"]:
        params, _ = _at(end, slots)
        return jax.vmap(jax.vmap(lambda params: ravel_pytree(params)[0]))(params)

    def _moved_on(self, slots: np.ndarray) -> ReplayPool:
        client = np.arange(len(slots))[:, None]
        start, trajectory = self.start.copy(), self.trajectory.copy()
        start[client, slots] += 1
        is_over = start[client, slots] == len(self.recipe.starts)
        rank = np.cumsum(is_over, axis=1) - 1  # among those of the client that are over now
        renewed = (self.next_trajectory[:, None] + rank) % self.recipe.experts.num_trajectories
        trajectory[client, slots] = np.where(is_over, renewed, trajectory[client, slots])
        start[client, slots] = np.where(is_over, 0, start[client, slots])
        moved = (trajectory[client, slots], start[client, slots])
        early, late = _move(
            self.recipe,
            self.keys,
            self.points,
            self.shared_key,
            *moved,
            is_over,
            _at(self.early, slots),
            _at(self.late, slots),
        )
        return replace(
            self,
            early=_put(self.early, slots, early),
            late=_put(self.late, slots, late),
            trajectory=trajectory,
            start=start,
            next_trajectory=(self.next_trajectory + is_over.sum(axis=1)) % self.recipe.experts.num_trajectories,
        )


def open_pool(
    recipe: Recipe, keys: Key[Array, " clients"], points: Points, shared_key: PRNGKey, num_each: int
) -> ReplayPool:
    """The first trajectories, the p-th of P at the p-th part of the starts."""
    experts = recipe.experts
    size = min(experts.pool, experts.num_trajectories)
    if size < num_each:
        raise CoreshotError(
            f"experts: an update draws {num_each} trajectories, but replay holds {size}; raise experts.pool (now "
            f"{experts.pool}) and experts.num_trajectories (now {experts.num_trajectories}) to at least {num_each}."
        )
    need = bytes_needed(experts, recipe.chain_length, len(keys), recipe.model.num_params(), recipe.optimizer)
    if need > experts.byte_budget:
        raise CoreshotError(
            f"experts: {len(keys)} clients x a pool of {size} need {need:,} bytes, the budget is "
            f"{experts.byte_budget:,}. Raise experts.byte_budget or lower experts.pool."
        )
    shape = (len(keys), size)
    trajectory = np.broadcast_to(np.arange(size), shape).copy()
    start = np.broadcast_to(np.arange(size) * len(recipe.starts) // size, shape).copy()
    begun = jax.vmap(lambda _: jax.vmap(partial(recipe.begin, shared_key))(jnp.arange(size)))(jnp.arange(len(keys)))
    early, late = _move(
        recipe, keys, points, shared_key, trajectory, start, np.ones(shape, bool), begun, jax.tree.map(jnp.copy, begun)
    )
    return ReplayPool(
        recipe,
        keys,
        points,
        shared_key,
        early,
        late,
        trajectory,
        start,
        np.full(len(keys), size % experts.num_trajectories),
    )


def _at(end: Carry, slots: np.ndarray) -> Carry:
    return jax.tree.map(lambda array: array[jnp.arange(len(slots))[:, None], slots], end)


def _put(end: Carry, slots: np.ndarray, part: Carry) -> Carry:
    return jax.tree.map(lambda array, new: array.at[jnp.arange(len(slots))[:, None], slots].set(new), end, part)


@partial(jax.jit, static_argnums=0, donate_argnames=("early", "late"))
def _move(
    recipe: Recipe,
    keys: Key[Array, " clients"],
    points: Points,
    shared_key: PRNGKey,
    trajectory: Int[Array, "clients num"],
    start: Int[Array, "clients num"],
    is_new: Array,
    early: Carry,
    late: Carry,
) -> tuple[Carry, Carry]:
    """Moves both ends of each pair to `start`: by one save interval, or for a new trajectory from step 0."""
    interval = recipe.experts.save_interval
    first, length = recipe.experts.first_step // interval, recipe.chain_length // interval

    def one(
        key: PRNGKey, points: Points, index: Array, start: Array, is_new: Array, early: Carry, late: Carry
    ) -> tuple[Carry, Carry]:
        advance = recipe.until_next_save(key, points, index)

        def run(carry: Carry, begin: Array, end: Array) -> Carry:
            return jax.lax.fori_loop(begin, end, lambda save, carry: advance(carry, save), carry)

        def choose(new: Carry, old: Carry) -> Carry:
            return jax.tree.map(lambda new, old: jnp.where(is_new, new, old), new, old)

        target = first + start
        early = run(choose(recipe.begin(shared_key, index), early), jnp.where(is_new, 0, target - 1), target)
        return early, run(choose(early, late), target + jnp.where(is_new, 0, length - 1), target + length)

    def of_client(key: PRNGKey, points: Points, *slots: Any) -> tuple[Carry, Carry]:
        return recipe.model.each(partial(one, key, points))(*slots)

    return recipe.model.each(of_client)(keys, points, trajectory, start, is_new, early, late)
