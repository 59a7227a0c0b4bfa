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

Batches and noise come from the operating system's random bits. What a step releases is a sum of whole numbers: each
clipped gradient is rounded before it is added (`coreshot.privacy.per_example_gradients`), and the noise is a Gaussian
rounded to whole numbers (`coreshot.privacy.noise`). Weights are computed from these noisy sums and from nothing else,
so that no floating-point rounding of theirs depends on a record.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial

import jax
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int

from coreshot.models import Model
from coreshot.models.training import Optimizer
from coreshot.privacy.guarded_records import Records
from coreshot.privacy.noise import rounded_gaussian
from coreshot.privacy.per_example_gradients import MAX_RECORDS, UNIT, clip_in_whole_numbers, clipped_sum
from coreshot.privacy.releases import Release
from coreshot.types import Params, Points


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
    present = np.flatnonzero(np.asarray(points.weight) > 0)
    real: Points = jax.tree.map(lambda array: np.asarray(array)[present], points)
    return np.stack(
        [_descend(real, release, model, optimizer, start, num_steps, save_interval, batch_size) for start in starts]
    )


def _descend(
    points: Points,
    release: Release,
    model: Model,
    optimizer: Optimizer,
    start: Params,
    num_steps: int,
    save_interval: int,
    batch_size: float,
) -> Float[np.ndarray, "saves weights"]:
    assert release.noise_multiplier is not None
    assert release.sensitivity is not None
    flat = ravel_pytree(start)[0]
    state = optimizer.build().init(flat)
    one = release.sensitivity / clip_in_whole_numbers(len(flat))  # what a whole number stands for
    saved = []
    for step, is_drawn in enumerate(poisson_batches(len(points.weight), release.sampling_rate, num_steps), start=1):
        total = _exact_sum(model, start, flat, points, np.flatnonzero(is_drawn), release.sensitivity)
        noisy = total + rounded_gaussian(release.noise_multiplier * UNIT, total.shape)
        flat, state = _step(optimizer, flat, state, (noisy * (one / batch_size)).astype(np.float32))
        if step % save_interval == 0:
            saved.append(np.asarray(flat))
    return np.stack(saved)


def _exact_sum(
    model: Model, like: Params, flat: Array, points: Points, drawn: Int[np.ndarray, " batch"], clip: float
) -> Int[np.ndarray, " weights"]:
    """Of the drawn records' clipped gradients, in whole numbers. Parts have one shape, so that no record's gradient is
    computed by another program because there are more or fewer of the others."""
    total = np.zeros(len(flat), np.int64)
    for first in range(0, len(drawn), MAX_RECORDS):
        part = drawn[first : first + MAX_RECORDS]
        filled = np.concatenate([part, np.repeat(part[:1], MAX_RECORDS - len(part))])
        batch = Points(points.x[filled], points.y[filled], points.weight[filled])
        is_there = np.arange(MAX_RECORDS) < len(part)
        total += np.asarray(_part_sum(model, like, flat, batch, is_there, np.float32(clip)))
    return total


@partial(jax.jit, static_argnums=0)
def _part_sum(
    model: Model, like: Params, flat: Array, batch: Points, is_there: Bool[Array, " batch"], clip: Float[Array, ""]
) -> Int[Array, " weights"]:
    """`like` says how flat weights become a tree; its values are not used."""
    params = ravel_pytree(like)[1](flat)
    return ravel_pytree(clipped_sum(model, params, batch, is_there, clip))[0]


@partial(jax.jit, static_argnums=0)
def _step(
    optimizer: Optimizer, flat: Array, state: optax.OptState, gradient: Float[Array, " weights"]
) -> tuple[Array, optax.OptState]:
    updates, state = optimizer.build().update(gradient, state, flat)
    return optax.apply_updates(flat, updates), state
