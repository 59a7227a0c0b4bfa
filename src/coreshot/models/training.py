"""Climbing a log density with an optax optimiser, as one compiled loop: experts, coreset chains and the server's MAP use it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Key

from coreshot.types import Params, Points, PRNGKey

OPTIMIZERS: dict[str, Callable[[Any], optax.GradientTransformation]] = {
    "adam": lambda step_size: optax.adam(step_size, b1=0.9, b2=0.999, eps=1e-8),
    "sgd": optax.sgd,
}


def ascend(
    optimizer: optax.GradientTransformation,
    log_density: Callable[[PRNGKey, Params], Float[Array, ""]],
    params: Params,
    optimizer_state: optax.OptState,
    keys: Key[Array, " steps"],
    langevin_scale: Float[Array, ""] | None = None,
) -> tuple[Params, optax.OptState]:
    """One optimiser step per key; log_density may use its key to draw a batch. With a Langevin scale, each step adds noise of that deviation."""

    def step(carry: tuple[Params, optax.OptState], key: PRNGKey) -> tuple[tuple[Params, optax.OptState], None]:
        params, state = carry
        # The one minus sign of the project: optax descends, we ascend.
        gradient = jax.grad(lambda params: -log_density(key, params))(params)
        updates, state = optimizer.update(gradient, state, params)
        params = optax.apply_updates(params, updates)
        return (
            params if langevin_scale is None else _jittered(jax.random.fold_in(key, 1), params, langevin_scale),
            state,
        ), None

    carry, _ = jax.lax.scan(step, (params, optimizer_state), keys)
    return carry


def _jittered(key: PRNGKey, params: Params, scale: Float[Array, ""]) -> Params:
    flat, unravel = ravel_pytree(params)
    return unravel(flat + scale * jax.random.normal(key, flat.shape))


def draw_batch(key: PRNGKey, points: Points, batch_size: int) -> Points:
    """batch_size points drawn with replacement and reweighted to stand for all; all of them if there are no more than that.

    Padding must sit at the end; it is never drawn, so a padded client draws the same batches as the same client unpadded.
    """
    if points.num_points <= batch_size:  # known while compiling: the usual case for a coreset, and no draw in its loop
        return points
    num_real = jnp.sum(points.weight > 0)
    drawn = jax.random.randint(key, (batch_size,), 0, num_real)
    take_all = num_real <= batch_size
    index = jnp.where(take_all, jnp.arange(batch_size), drawn)
    batch = jax.tree.map(lambda array: array[index], points)
    return batch.reweighted(jnp.where(take_all, batch.weight, batch.weight * num_real / batch_size))


def shifted(key: PRNGKey, points: Points, max_shift: int) -> Points:
    """Images moved by up to so many pixels either way, each by its own random shift; what leaves on one side comes back on the other."""
    if not max_shift:
        return points
    shifts = jax.random.randint(key, (points.num_points, 2), -max_shift, max_shift + 1)
    return Points(
        jax.vmap(lambda image, shift: jnp.roll(image, shift, axis=(0, 1)))(points.x, shifts), points.y, points.weight
    )
