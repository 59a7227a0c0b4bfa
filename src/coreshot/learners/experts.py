"""Experts: MAP trajectories on a client's data, from initial weights that all clients share.

A learner draws pairs of weights of one trajectory, `chain_length` steps apart. Where the pairs come from is
`experts.store`: memory and disk keep every checkpoint that can be drawn (`expert_store`); replay keeps a few live
trajectories and continues them as they are drawn (`replay`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol, TypeAlias, runtime_checkable

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, Key
from pydantic import Field

from coreshot.config import Count, NonNegativeInt, Positive, settings
from coreshot.keys import named_key
from coreshot.learners.randomised_map import Sampling, langevin_noise_scale, randomised
from coreshot.models import Model
from coreshot.models.training import OptimizerName, ascend, draw_batch, make_optimizer
from coreshot.types import Params, Points, PRNGKey

Carry: TypeAlias = tuple[Params, optax.OptState]


@settings
class Experts:
    """How the trajectories are made and where they are kept."""

    num_trajectories: Count  # the paper's pretrain trajectories, each from an initialisation seed of its own
    num_steps: Count  # T
    save_interval: Count  # checkpoints every so many steps
    step_size: Positive
    # Ours: no chain starts before this step, so that weights that have not yet learned are not drawn.
    first_step: Annotated[int, Field(ge=0)] = 0
    # Ours, of memory and disk: no chain starts after this step, while the experts go on to learn, for soft labels; None
    # is the paper's. Early weights are less those of one client, and points that agree with them serve better together
    # with other clients' points: docs/bpc.md.
    last_step: NonNegativeInt | None = None
    store: Literal["memory", "disk", "replay"] = "memory"  # disk: memory-mapped, in a file that is removed with the run
    # Of memory and disk; float16 keeps the difference from the initial weights, at half the bytes.
    coding: Literal["float32", "float16"] = "float32"
    pool: Count = 20  # live trajectories of replay, each held at both ends of a chain
    # Of all clients that are learned together; a larger need is an error before any work.
    byte_budget: Count = 4_000_000_000


def start_steps(experts: Experts, chain_length: int) -> range:
    """The saved steps r, from first_step to last_step, with r + chain_length <= num_steps."""
    last = experts.num_steps - chain_length
    if experts.last_step is not None:
        last = min(last, experts.last_step)
    return range(experts.first_step, last + 1, experts.save_interval)


def drawable_steps(experts: Experts, chain_length: int) -> list[int]:
    """Where a chain can start or end: no other checkpoint is ever drawn, so no other is kept, but for the last of all
    where chains have a last_step before it."""
    starts = start_steps(experts, chain_length)
    ends = {start + chain_length for start in starts}
    if experts.last_step is not None:
        ends.add(experts.num_steps // experts.save_interval * experts.save_interval)
    return sorted({*starts, *ends})


def expert_steps(experts: Experts, chain_length: int, num_draws: int) -> int:
    """Training steps of one client's experts, if an update draws num_draws pairs in all.

    A store trains every trajectory up to the last step that it keeps. Of replay this is the mean: its pool begins
    spread over all starts, a draw moves both ends by one interval, and a trajectory whose starts are used up is
    replaced.
    """
    starts = start_steps(experts, chain_length)
    if experts.store != "replay":
        return experts.num_trajectories * drawable_steps(experts, chain_length)[-1]
    pool = min(experts.pool, experts.num_trajectories)
    begun = pool * (experts.first_step + len(starts) * experts.save_interval // 2 + chain_length)
    renewed = num_draws // len(starts) * (experts.first_step + chain_length)
    return begun + renewed + 2 * num_draws * experts.save_interval


def bytes_needed(
    experts: Experts,
    chain_length: int,
    num_clients: int,
    num_params: int,
    optimizer: str = "sgd",
    keeps_state: bool = False,
) -> int:
    """Of all checkpoints, or of replay's pool: both ends of its chains, with the optimiser's state."""
    if experts.store == "replay":
        return 4 * num_clients * experts.pool * 2 * _num_copies(optimizer) * num_params
    size = 4 if experts.coding == "float32" else 2
    each = num_params * (_num_copies(optimizer) if keeps_state else 1)
    return size * num_clients * experts.num_trajectories * len(drawable_steps(experts, chain_length)) * each


def _num_copies(optimizer: str) -> int:
    """Of the weights' size: themselves and the optimiser's state, without its count of steps."""
    return 3 if optimizer == "adam" else 1


def make_unravel_start(
    model: Model, optimizer: optax.GradientTransformation, has_state: bool
) -> Callable[[Float[Array, " numbers"]], Carry]:
    """A function from what `ExpertSource.sample` gives for a start to weights and the optimiser's state there."""
    unravel, num_params = make_unravel(model), model.num_params()

    def start(flat: Float[Array, " numbers"]) -> Carry:
        params = unravel(flat[:num_params])
        state = optimizer.init(params)
        return params, ravel_pytree(state)[1](flat[num_params:]) if has_state else state

    return start


def make_unravel(model: Model) -> Callable[[Float[Array, " weights"]], Params]:
    """A function from flat weights to the model's tree of weights."""
    shapes = model.shapes()
    return ravel_pytree(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), shapes))[1]


@runtime_checkable
class ExpertSource(Protocol):
    """Where drawn weights come from; clients along the leading axis. Weights are flat."""

    def sample(
        self, keys: Key[Array, " clients"], num_updates: int, num_each: int
    ) -> tuple[Array, Array, ExpertSource]:
        """Pairs of weights (at a random step r, and at r + chain_length), both [clients, updates, each, weights]; and
        the source to draw from next. With a recipe that keeps the optimiser's state, it follows the weights at r.
        """

    def sample_ends(self, keys: Key[Array, " clients"], num_updates: int, num_each: int) -> Array:
        """As `sample`, without the starts."""

    def last(self) -> Float[Array, "clients trajectories weights"]:
        """The last weights of every trajectory."""


@dataclass(frozen=True)
class Recipe:
    """How a trajectory continues from any saved step: hashable, so that compiled functions can depend on it."""

    model: Model
    experts: Experts
    optimizer: OptimizerName
    batch_size: int
    chain_length: int
    sampling: Sampling
    keeps_state: bool = False  # of the optimiser, at the starts of chains

    @property
    def starts(self) -> range:
        return start_steps(self.experts, self.chain_length)

    @property
    def num_saves(self) -> int:
        """Saved steps after the initial one, up to the last that is kept."""
        return drawable_steps(self.experts, self.chain_length)[-1] // self.experts.save_interval

    def begin(self, shared_key: PRNGKey, index: Int[Array, ""]) -> Carry:
        params = self.model.init(jax.random.fold_in(shared_key, index))
        return params, self._solver().init(params)

    def until_next_save(self, key: PRNGKey, points: Points, index: Int[Array, ""]) -> Any:
        """A function of (carry, which save) that takes the steps of one save interval of trajectory `index`."""
        key = jax.random.fold_in(key, index)
        num_examples = jnp.sum(points.weight)
        seen = randomised(named_key(key, "randomise"), self.model, points) if self.sampling == "randomised" else points
        langevin_scale = (
            langevin_noise_scale(self.experts.step_size, num_examples) if self.sampling == "langevin" else None
        )
        step_keys = jax.random.split(key, (self.num_saves, self.experts.save_interval))

        def log_density(key: PRNGKey, params: Params) -> Array:
            batch = self.model.augment(named_key(key, "augment"), draw_batch(key, seen, self.batch_size))
            # Divided by the number of examples, so that the paper's step sizes mean the same for every client.
            return (self.model.log_prior(params) + self.model.log_prob(params, batch)) / num_examples

        def advance(carry: Carry, save: Int[Array, ""]) -> Carry:
            return ascend(self._solver(), log_density, *carry, step_keys[save], langevin_scale)

        return advance

    def num_numbers(self) -> int:
        """Of a checkpoint."""
        return jax.eval_shape(lambda: self.flat_start(self.begin(jax.random.key(0), jnp.zeros((), int)))).size

    def flat_start(self, carry: Carry) -> Float[Array, " numbers"]:
        """The weights, and the optimiser's state where it is kept."""
        return ravel_pytree(carry if self.keeps_state else carry[0])[0]

    def _solver(self) -> optax.GradientTransformation:
        return make_optimizer(self.optimizer, self.experts.step_size)
