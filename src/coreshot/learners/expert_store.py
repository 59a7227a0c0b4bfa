"""Every checkpoint of the experts that can be drawn, in memory or in a file that is mapped into it."""

from __future__ import annotations

import errno
import os
import tempfile
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Key

from coreshot.errors import CoreshotError
from coreshot.learners.experts import Carry, Recipe, bytes_needed, drawable_steps
from coreshot.models import Model
from coreshot.types import Points, PRNGKey

TRAJECTORIES_AT_ONCE = 20  # in one compiled call, whose checkpoints are at most
CALL_BYTES = 1 << 30


@dataclass(frozen=True)
class ExpertStore:
    """Checkpoints [clients, trajectories, drawable steps, weights], flat; the optimiser's state may follow the weights.

    As float16 they are differences from the initial weights, which all clients share and anyone can compute. The
    differences are small, and half precision errs by at most 2^-11 of them, not of the weights.
    """

    model: Model
    shared_key: PRNGKey
    checkpoints: np.ndarray
    ends: np.ndarray  # ends[i] is the index of the checkpoint chain_length steps after the i-th start
    num_held_out: int = 0  # of the trajectories, the last: `sample` draws none of them

    def sample(self, keys: Key[Array, " clients"], num_updates: int, num_each: int) -> tuple[Array, Array, ExpertStore]:
        trajectory, start = self._draw(keys, num_updates * num_each)
        shape = (len(keys), num_updates, num_each, -1)
        return (
            self._read(trajectory, start).reshape(shape),
            self._weights(trajectory, self.ends[start]).reshape(shape),
            self,
        )

    def sample_ends(self, keys: Key[Array, " clients"], num_updates: int, num_each: int) -> Array:
        trajectory, start = self._draw(keys, num_updates * num_each)
        return self._weights(trajectory, self.ends[start]).reshape(len(keys), num_updates, num_each, -1)

    def last(self) -> Float[Array, "clients trajectories weights"]:
        trajectory = np.broadcast_to(np.arange(self.checkpoints.shape[1]), self.checkpoints.shape[:2])
        return self._weights(trajectory, np.full(trajectory.shape, self.checkpoints.shape[2] - 1))

    def held_out_starts(self) -> Float[Array, "clients trajectories numbers"]:
        """Of the trajectories that are held out, in the middle of the starts."""
        first, last = self.checkpoints.shape[1] - self.num_held_out, self.checkpoints.shape[1]
        trajectory = np.broadcast_to(np.arange(first, last), (len(self.checkpoints), self.num_held_out))
        return self._read(trajectory, np.full(trajectory.shape, len(self.ends) // 2))

    def _draw(self, keys: Key[Array, " clients"], num: int) -> tuple[np.ndarray, np.ndarray]:
        num_drawn = self.checkpoints.shape[1] - self.num_held_out
        trajectory = jax.vmap(lambda key: jax.random.randint(key, (num,), 0, num_drawn))(keys)
        start = jax.vmap(lambda key: jax.random.randint(jax.random.fold_in(key, 1), (num,), 0, len(self.ends)))(keys)
        return np.asarray(trajectory), np.asarray(start)

    def _weights(self, trajectory: np.ndarray, position: np.ndarray) -> Float[Array, "clients num weights"]:
        """Without the optimiser's state that may follow them."""
        return self._read(trajectory, position)[..., : self.model.num_params()]

    def _read(self, trajectory: np.ndarray, position: np.ndarray) -> Float[Array, "clients num numbers"]:
        # Fancy indexing copies, so what is drawn never aliases the store.
        drawn = jnp.asarray(self.checkpoints[np.arange(len(trajectory))[:, None], trajectory, position])
        if drawn.dtype == jnp.float32:
            return drawn
        return drawn.astype(jnp.float32) + _initial_weights(self.model, self.shared_key, jnp.asarray(trajectory))


@partial(jax.jit, static_argnums=0)
def _initial_weights(model: Model, shared_key: PRNGKey, trajectory: Array) -> Array:
    one = lambda index: ravel_pytree(model.init(jax.random.fold_in(shared_key, index)))[0]  # noqa: E731
    return jax.lax.map(one, trajectory.reshape(-1)).reshape(*trajectory.shape, -1)


def train_experts(
    recipe: Recipe, keys: Key[Array, " clients"], points: Points, shared_key: PRNGKey, num_held_out: int = 0
) -> ExpertStore:
    """All trajectories of a group of clients (points have a leading client axis), a few at a time."""
    experts, chain_length = recipe.experts, recipe.chain_length
    steps = drawable_steps(experts, chain_length)
    checkpoints = _allocate(recipe, (len(keys), experts.num_trajectories, len(steps), recipe.num_numbers()))
    at_once = max(1, min(TRAJECTORIES_AT_ONCE, CALL_BYTES // (checkpoints[:, 0].size * 4)))
    for first in range(0, experts.num_trajectories, at_once):
        index = jnp.arange(first, min(first + at_once, experts.num_trajectories))
        checkpoints[:, first : first + len(index)] = np.asarray(
            _trajectories(recipe, tuple(steps), keys, points, shared_key, index)
        )
    ends = np.asarray([steps.index(start + chain_length) for start in recipe.starts])
    return ExpertStore(recipe.model, shared_key, checkpoints, ends, num_held_out)


@partial(jax.jit, static_argnums=(0, 1))
def _trajectories(
    recipe: Recipe,
    steps: tuple[int, ...],
    keys: Key[Array, " clients"],
    points: Points,
    shared_key: PRNGKey,
    index: Array,
) -> Float[Array, "clients trajectories steps weights"]:
    def one(key: PRNGKey, points: Points, index: Array) -> Array:
        start = recipe.begin(shared_key, index)
        advance = recipe.until_next_save(key, points, index)

        def save(carry: Carry, which: Array) -> tuple[Carry, Array]:
            carry = advance(carry, which)
            return carry, recipe.flat_start(carry)

        _, saved = jax.lax.scan(save, start, jnp.arange(recipe.num_saves))
        first = recipe.flat_start(start)
        every = jnp.concatenate([first[None], saved])[jnp.asarray(steps) // recipe.experts.save_interval]
        return every if recipe.experts.coding == "float32" else (every - first).astype(jnp.float16)

    return recipe.model.each(lambda key, points: recipe.model.each(lambda index: one(key, points, index))(index))(
        keys, points
    )


def _allocate(recipe: Recipe, shape: tuple[int, ...]) -> np.ndarray:
    experts = recipe.experts
    need = bytes_needed(experts, recipe.chain_length, shape[0], shape[3])  # of all numbers of a checkpoint
    if need > experts.byte_budget:
        raise CoreshotError(
            f"experts: {shape[0]} clients x {shape[1]} trajectories need {need:,} bytes of checkpoints, the budget is "
            f"{experts.byte_budget:,}. Raise experts.byte_budget, save less often (save_interval "
            f"{experts.save_interval}), "
            'keep fewer trajectories, or set experts.store = "replay", which keeps none.'
        )
    if experts.store == "memory":
        return np.empty(shape, experts.coding)
    # The memory map outlives the file handle, and the file is removed with it.
    with tempfile.TemporaryFile(prefix="coreshot-experts-") as file:
        _reserve(file.fileno(), need)
        return np.memmap(file, np.dtype(experts.coding), "r+", shape=shape)


def _reserve(file: int, need: int) -> None:
    """Reserves the whole file at once, so that a disk that is too small is found now and not by a later write."""
    try:
        os.posix_fallocate(file, 0, need)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
            raise
        raise CoreshotError(
            f"experts: {need:,} bytes of checkpoints do not fit on the disk of {tempfile.gettempdir()}; free some, "
            'point TMPDIR elsewhere, or set experts.store = "replay", which keeps none. Clients that are done are '
            "kept: the same command continues with the others."
        ) from None
