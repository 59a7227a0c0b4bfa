"""DP-SGD on a client's records, with Poisson sampling.

Abadi et al., "Deep Learning with Differential Privacy", CCS 2016.

| paper      | here                                                    |
|------------|---------------------------------------------------------|
| C          | sensitivity of the release                              |
| sigma      | noise_multiplier of the release                         |
| q = L / N  | sampling_rate of the release                            |
| L          | batch_size: a constant of the study                     |

Each record is in a step's batch with the same probability, independently of all others. Each record's gradient is
clipped, the clipped gradients are added, Gaussian noise is added, and the sum is divided by a constant that the study
knows, never by the number of records. A step without any record is a step like the others: its noise moves the
weights.

Batches are drawn from the operating system's random bits, and so is the key of the noise. The noise is float32 inside
a compiled loop, from a generator with a key of 64 bits (threefry). Unlike `coreshot.privacy.noise` this does not
exclude attacks on single bits of floating-point sums, and the result of many steps is not a rounding of an exact sum.
One float32 draw ends at 5.4 standard deviations, which can show among a million weights: see `_normal`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int

from coreshot.models import Model
from coreshot.models.training import Optimizer
from coreshot.privacy.guarded_records import Records
from coreshot.privacy.per_example_gradients import clipped_sum
from coreshot.types import Params, Points, PRNGKey

BATCH_STEP = 8  # batches are filled up to a multiple of this: few shapes, few compilations


def secret_key() -> PRNGKey:
    return jax.random.wrap_key_data(jnp.asarray(np.frombuffer(os.urandom(8), np.uint32)))


def poisson_batches(num_records: int, rate: float, num_steps: int) -> Bool[np.ndarray, "steps records"]:
    """Which records are in which step's batch: 64 random bits each, from the operating system."""
    words = np.frombuffer(os.urandom(8 * num_steps * num_records), np.uint64).reshape(num_steps, num_records)
    return words < np.uint64(min(rate, 1.0) * 2**64) if rate < 1 else np.ones((num_steps, num_records), bool)


def private_descent(
    records: Records,
    name: str,
    model: Model,
    optimizer: Optimizer,
    starts: Sequence[Params],
    num_steps: int,
    save_interval: int,
    batch_size: float,
) -> Float[np.ndarray, "starts saves weights"]:
    """From each start num_steps steps on one client's records; the flat weights after every save_interval of them.

    The declared release says how records are drawn, where gradients are clipped (its sensitivity), and how much noise
    is added. If it does not cover len(starts) * num_steps steps, no step is taken.
    """
    points, release = records.for_mechanism(name, "dp_sgd", len(starts) * num_steps)
    assert release.noise_multiplier is not None
    assert release.sensitivity is not None
    present = np.flatnonzero(np.asarray(points.weight) > 0)
    real = jax.tree.map(lambda array: np.asarray(array)[present], points)
    found = []
    for start in starts:
        drawn = poisson_batches(len(present), release.sampling_rate, num_steps)
        batches, is_there = _as_indices(drawn, release.sampling_rate)
        shaped = (
            jnp.asarray(batches).reshape(-1, save_interval, batches.shape[1]),
            jnp.asarray(is_there).reshape(-1, save_interval, batches.shape[1]),
        )
        scales = release.sensitivity, release.noise_multiplier * release.sensitivity, batch_size
        found.append(
            np.asarray(
                _descend(model, optimizer, secret_key(), start, _padded(real), *shaped, *map(jnp.float32, scales))
            )
        )
    return np.stack(found)


def _padded(points: Points) -> Points:
    """Padded to a power of two, so that clients share compilations; with an empty record, which fills up batches."""
    size = 1 << len(points.weight).bit_length()
    return jax.tree.map(
        lambda array: jnp.asarray(np.pad(array, [(0, size - len(array))] + [(0, 0)] * (array.ndim - 1))), points
    )


def _as_indices(
    drawn: Bool[np.ndarray, "steps records"], rate: float
) -> tuple[Int[np.ndarray, "steps batch"], Bool[np.ndarray, "steps batch"]]:
    """Batches of one size, large enough for the largest and for most draws of a client of this padded size, with a
    mask.
    """
    expected = rate * (1 << drawn.shape[1].bit_length())
    usual = min(expected + np.sqrt(expected), drawn.shape[1])
    size = max(1, -(-int(max(drawn.sum(axis=1).max(initial=0), usual)) // BATCH_STEP)) * BATCH_STEP
    order = np.argsort(~drawn, axis=1, kind="stable")[:, :size]
    indices = np.full((len(drawn), size), drawn.shape[1], np.int32)
    indices[:, : order.shape[1]] = order
    is_there = np.zeros((len(drawn), size), bool)
    is_there[:, : order.shape[1]] = np.take_along_axis(drawn, order, axis=1)
    return indices, is_there


@partial(jax.jit, static_argnums=(0, 1))
def _descend(
    model: Model,
    optimizer: Optimizer,
    key: PRNGKey,
    params: Params,
    points: Points,
    batches: Int[Array, "saves steps batch"],
    is_there: Bool[Array, "saves steps batch"],
    clip: Float[Array, ""],
    deviation: Float[Array, ""],
    batch_size: Float[Array, ""],
) -> Float[Array, "saves weights"]:
    (flat, unravel), solver = ravel_pytree(params), optimizer.build()

    def step(
        carry: tuple[Array, optax.OptState, PRNGKey], batch: tuple[Array, Array]
    ) -> tuple[tuple[Array, optax.OptState, PRNGKey], None]:
        flat, state, key = carry
        key, key_noise = jax.random.split(key)
        total = clipped_sum(model, unravel(flat), jax.tree.map(lambda array: array[batch[0]], points), batch[1], clip)
        gradient = (ravel_pytree(total)[0] + deviation * _normal(key_noise, len(flat))) / batch_size
        updates, state = solver.update(gradient, state, flat)
        return (optax.apply_updates(flat, updates), state, key), None

    def save(
        carry: tuple[Array, optax.OptState, PRNGKey], part: tuple[Array, Array]
    ) -> tuple[tuple[Array, optax.OptState, PRNGKey], Array]:
        carry, _ = jax.lax.scan(step, carry, part)
        return carry, carry[0]

    return jax.lax.scan(save, (flat, solver.init(flat), key), (batches, is_there))[1]


def _normal(key: PRNGKey, size: int) -> Float[Array, " size"]:
    """Each the sum of two draws: it ends at 7.7 standard deviations, where one record shows in a million weights with a
    probability below 1e-9 per step."""
    return jnp.sum(jax.random.normal(key, (2, size)), axis=0) / jnp.sqrt(2.0)
