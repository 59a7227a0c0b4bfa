"""Training: the one registry of optimisers, and ascent of a log density as one compiled loop.

Experts, coreset chains and the server's MAP estimate use it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal, TypeAlias

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Key
from pydantic import Field

from coreshot.config import NonNegative, Positive, settings
from coreshot.errors import CoreshotError
from coreshot.types import Params, Points, PRNGKey

Fraction = Annotated[float, Field(ge=0, lt=1)]
StepSize: TypeAlias = float | optax.Schedule
OptimizerName: TypeAlias = Literal["adagrad", "adam", "adamw", "rmsprop", "sgd", "yogi"]


@settings
class Optimizer:
    """An optimiser of optax, by name; a line in OPTIMIZERS adds another."""

    name: OptimizerName
    step_size: Positive
    momentum: Fraction = 0.0  # of sgd and rmsprop
    b1: Fraction = 0.9  # of adam, adamw and yogi
    b2: Fraction = 0.999
    eps: NonNegative = 1e-8

    def __post_init__(self) -> None:
        if self.momentum and self.name not in ("rmsprop", "sgd"):
            raise CoreshotError(
                f"optimizer {self.name}: has no momentum setting (sgd and rmsprop have one); "
                f"remove momentum = {self.momentum}."
            )

    def build(self) -> optax.GradientTransformation:
        return OPTIMIZERS[self.name](self, self.step_size)


OPTIMIZERS: dict[str, Callable[[Optimizer, StepSize], optax.GradientTransformation]] = {
    "adagrad": lambda own, step_size: optax.adagrad(step_size),
    "adam": lambda own, step_size: optax.adam(step_size, own.b1, own.b2, own.eps),
    "adamw": lambda own, step_size: optax.adamw(step_size, own.b1, own.b2, own.eps),
    "rmsprop": lambda own, step_size: optax.rmsprop(step_size, eps=own.eps, momentum=own.momentum or None),
    "sgd": lambda own, step_size: optax.sgd(step_size, own.momentum or None),
    "yogi": lambda own, step_size: optax.yogi(step_size, own.b1, own.b2, own.eps),
}


def make_optimizer(name: OptimizerName, step_size: StepSize) -> optax.GradientTransformation:
    """The optimiser of this name with its usual settings; the step size may be a schedule."""
    return OPTIMIZERS[name](Optimizer(name=name, step_size=1.0), step_size)


def ascend(
    optimizer: optax.GradientTransformation,
    log_density: Callable[[PRNGKey, Params], Float[Array, ""]],
    params: Params,
    optimizer_state: optax.OptState,
    keys: Key[Array, " steps"],
    langevin_scale: Float[Array, ""] | None = None,
) -> tuple[Params, optax.OptState]:
    """One optimiser step per key; log_density may use its key to draw a batch.

    With a Langevin scale, each step adds Gaussian noise of that standard deviation.
    """

    def step(carry: tuple[Params, optax.OptState], key: PRNGKey) -> tuple[tuple[Params, optax.OptState], None]:
        params, state = carry
        # The only minus sign of the project: optax descends, we ascend.
        gradient = jax.grad(lambda params: -log_density(key, params))(params)
        updates, state = optimizer.update(gradient, state, params)
        params = optax.apply_updates(params, updates)
        if langevin_scale is not None:
            params = _add_noise(jax.random.fold_in(key, 1), params, langevin_scale)
        return (params, state), None

    carry, _ = jax.lax.scan(step, (params, optimizer_state), keys)
    return carry


def _add_noise(key: PRNGKey, params: Params, scale: Float[Array, ""]) -> Params:
    flat, unravel = ravel_pytree(params)
    return unravel(flat + scale * jax.random.normal(key, flat.shape))


def draw_batch(key: PRNGKey, points: Points, batch_size: int) -> Points:
    """batch_size points drawn with replacement and reweighted to stand for all; all of them if there are no more.

    Padding must be at the end; it is never drawn, so a padded client draws the same batches as without padding.
    """
    if points.num_points <= batch_size:  # known while compiling: the usual case for a coreset, and no draw in its loop
        return points
    num_real = jnp.sum(points.weight > 0)
    drawn = jax.random.randint(key, (batch_size,), 0, num_real)
    take_all = num_real <= batch_size
    index = jnp.where(take_all, jnp.arange(batch_size), drawn)
    batch = jax.tree.map(lambda array: array[index], points)
    return batch.reweighted(jnp.where(take_all, batch.weight, batch.weight * num_real / batch_size))
