"""Experts: MAP trajectories on a client's data, from initial weights that all clients share, kept only where they can be drawn."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Key
from pydantic import Field

from coreshot.ascent import OPTIMIZERS, ascend, draw_batch
from coreshot.config import Count, Positive, settings
from coreshot.errors import CoreshotError
from coreshot.keys import named_key
from coreshot.learners._sampling import Sampling, noise_scale, randomised
from coreshot.models import Model
from coreshot.types import Params, Points, PRNGKey


@settings
class Experts:
    """How the trajectories are made and where they are kept."""

    num_trajectories: Count  # the paper's pretrain trajectories, each from an initialisation seed of its own
    num_steps: Count  # T
    save_interval: Count  # checkpoints every so many steps
    step_size: Positive
    first_step: Annotated[int, Field(ge=0)] = 0  # ours: no chain starts before it, so that experts that have not yet learned are not asked
    store: Literal["memory", "disk"] = "memory"  # disk: memory-mapped, in a file that goes away with the run
    byte_budget: Count = 4_000_000_000  # of all clients that are learned together; a larger need is an error before any work


def start_steps(experts: Experts, chain_length: int) -> range:
    """The saved steps r, from first_step on, with r + chain_length <= num_steps."""
    return range(experts.first_step, experts.num_steps - chain_length + 1, experts.save_interval)


def drawable_steps(experts: Experts, chain_length: int) -> list[int]:
    """Where a chain can start or end: no other checkpoint is ever drawn, so no other is kept."""
    starts = start_steps(experts, chain_length)
    return sorted({*starts, *(start + chain_length for start in starts)})


def bytes_needed(experts: Experts, chain_length: int, num_clients: int, num_params: int) -> int:
    steps = drawable_steps(experts, chain_length)
    return 4 * num_clients * experts.num_trajectories * len(steps) * num_params


@dataclass(frozen=True)
class ExpertStore:
    """Checkpoints [clients, trajectories, drawable steps, weights] as flat float32, in memory or memory-mapped."""

    checkpoints: np.ndarray
    ends: np.ndarray  # ends[i] is the index of the checkpoint chain_length steps after the i-th start

    def sample(self, keys: Key[Array, " clients"], num: int) -> tuple[Array, Array]:
        """For each client: num pairs of weights (at a random step r, and at r + chain_length), [clients, num, weights] each."""
        trajectory, start = self._draw(keys, num)
        client = np.arange(len(self.checkpoints))[:, None]
        # Fancy indexing copies, so what is drawn never aliases the store.
        return jnp.asarray(self.checkpoints[client, trajectory, start]), jnp.asarray(self.checkpoints[client, trajectory, self.ends[start]])

    def sample_ends(self, keys: Key[Array, " clients"], num: int) -> Array:
        """As `sample`, without the starts."""
        trajectory, start = self._draw(keys, num)
        return jnp.asarray(self.checkpoints[np.arange(len(self.checkpoints))[:, None], trajectory, self.ends[start]])

    def _draw(self, keys: Key[Array, " clients"], num: int) -> tuple[np.ndarray, np.ndarray]:
        trajectory = jax.vmap(lambda key: jax.random.randint(key, (num,), 0, self.checkpoints.shape[1]))(keys)
        start = jax.vmap(lambda key: jax.random.randint(jax.random.fold_in(key, 1), (num,), 0, len(self.ends)))(keys)
        return np.asarray(trajectory), np.asarray(start)


def train_experts(
    model: Model,
    experts: Experts,
    points: Points,
    keys: Key[Array, " clients"],
    shared_key: PRNGKey,
    *,
    optimizer: str,
    batch_size: int,
    chain_length: int,
    sampling: Sampling,
) -> ExpertStore:
    """All trajectories of a group of clients (points have a leading client axis), a few trajectories at a time."""
    steps, starts = drawable_steps(experts, chain_length), start_steps(experts, chain_length)
    checkpoints = _allocate(experts, (len(keys), experts.num_trajectories, len(steps), model.num_params()), chain_length)
    run = partial(_trajectories, model, experts, tuple(steps), optimizer, batch_size, sampling)
    for first in range(0, experts.num_trajectories, TRAJECTORIES_AT_ONCE):
        index = jnp.arange(first, min(first + TRAJECTORIES_AT_ONCE, experts.num_trajectories))
        checkpoints[:, first : first + len(index)] = np.asarray(run(keys, points, shared_key, index))
    return ExpertStore(checkpoints, np.asarray([steps.index(start + chain_length) for start in starts]))


TRAJECTORIES_AT_ONCE = 20  # per client; bounds the memory of one compiled call


@partial(jax.jit, static_argnums=(0, 1, 2, 3, 4, 5))
def _trajectories(
    model: Model,
    experts: Experts,
    steps: tuple[int, ...],
    optimizer: str,
    batch_size: int,
    sampling: Sampling,
    keys: Key[Array, " clients"],
    points: Points,
    shared_key: PRNGKey,
    index: Array,
) -> Float[Array, "clients trajectories steps weights"]:
    solver = OPTIMIZERS[optimizer](experts.step_size)

    def one(key: PRNGKey, points: Points, index: Array) -> Array:
        num_examples = jnp.sum(points.weight)
        key = jax.random.fold_in(key, index)
        if sampling == "randomised":
            points = randomised(named_key(key, "randomise"), model, points)

        def log_density(key: PRNGKey, params: Params) -> Array:
            batch = draw_batch(key, points, batch_size)
            # Divided by the number of examples, so that the paper's step sizes mean the same for every client.
            return (model.log_prior(params) + model.log_prob(params, batch)) / num_examples

        langevin_scale = noise_scale(experts.step_size, num_examples) if sampling == "langevin" else None
        params = model.init(jax.random.fold_in(shared_key, index))
        num_saves = steps[-1] // experts.save_interval
        step_keys = jax.random.split(key, (num_saves, experts.save_interval))

        def until_next_save(carry: tuple[Params, optax.OptState], keys: Key[Array, " steps"]) -> tuple[tuple[Params, optax.OptState], Array]:
            carry = ascend(solver, log_density, *carry, keys, langevin_scale)
            return carry, ravel_pytree(carry[0])[0]

        _, saved = jax.lax.scan(until_next_save, (params, solver.init(params)), step_keys)
        every = jnp.concatenate([ravel_pytree(params)[0][None], saved])
        return every[jnp.asarray(steps) // experts.save_interval]

    return jax.vmap(lambda key, points: model.each(lambda index: one(key, points, index))(index))(keys, points)


def _allocate(experts: Experts, shape: tuple[int, ...], chain_length: int) -> np.ndarray:
    need = 4 * int(np.prod(shape))
    if need > experts.byte_budget:
        raise CoreshotError(
            f"experts: {shape[0]} clients x {shape[1]} trajectories need {need:,} bytes of checkpoints, the budget is {experts.byte_budget:,}. "
            f"Raise experts.byte_budget, save less often (save_interval {experts.save_interval}) or keep fewer trajectories."
        )
    if experts.store == "memory":
        return np.empty(shape, np.float32)
    with tempfile.TemporaryFile(prefix="coreshot-experts-") as file:  # the map outlives the file handle, and takes the file with it
        return np.memmap(file, np.float32, "w+", shape=shape)
