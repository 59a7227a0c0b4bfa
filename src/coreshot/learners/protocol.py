"""The protocol of learners: pure methods over a group of clients, whose arrays have a leading client axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Array, Bool, Key

from coreshot.models import Model
from coreshot.privacy.guarded_records import Records
from coreshot.privacy.releases import Release
from coreshot.types import Coreset, PRNGKey
from coreshot.wire.point_coding import PointCoding

State = Any  # what the next step needs; records and what was trained on them are in a `Local`
COUNT = Release("count", "the number of records")


@dataclass(frozen=True)
class LearningCost:
    """What one client's coreset costs, before any work.

    A pass is one point through one set of weights, forward and backward; a pass without the backward part counts the
    same.
    """

    passes: float
    work: str  # the same in words
    num_bytes: int = 0  # the largest part of memory or disk
    kept_in: str = "networks"  # what these bytes are
    num_networks: int = 1  # that take a step together
    batch_size: int = 25  # of such a step
    model: Model | None = None  # whose passes are counted, where it is not the study's
    has_soft_labels: bool = False
    has_point_weights: bool = False


@dataclass(frozen=True)
class Health:
    """Diagnostics of a chunk of updates, per client; they are not kept."""

    first_bad_update: np.ndarray  # index of the first update whose result is unusable, -1 where there is none
    last_gradient_norm: np.ndarray  # at the update before that, or at the last one
    num_updates_done: int  # with this chunk
    num_updates: int  # of the whole run


def make_health(good: np.ndarray, norms: np.ndarray, num_done: int, num_updates: int) -> Health:
    """From two arrays [clients, updates] of a chunk: whether points were usable, and the gradient's norm."""
    size = good.shape[1]
    bad = np.where(good.all(axis=1), -1, good.argmin(axis=1))
    before = np.where(bad >= 0, np.maximum(bad - 1, 0), size - 1)
    return Health(
        np.where(bad >= 0, num_done - size + bad, -1), norms[np.arange(len(norms)), before], num_done, num_updates
    )


@runtime_checkable
class Learner(Protocol):
    """Each learner is a frozen dataclass: its settings, its entry in LEARNERS and its algorithm."""

    @property
    def num_points(self) -> int | None:
        """K, the size of a client's coreset; None where it depends on the client's records."""

    @property
    def coding(self) -> PointCoding | None:
        """How points are written into a message; None: as float32."""

    @property
    def num_chunks(self) -> int:
        """How often `step` is called; 0 where `init` does all the work."""

    @property
    def can_resume(self) -> bool:
        """Whether `init` makes the local part of the state again as it was, so that a saved state can be continued."""

    def releases(self, model: Model) -> tuple[Release, ...]:
        """Everything that is computed from the records; `Records` refuses what is not declared here."""

    def init(self, keys: Key[Array, " clients"], model: Model, records: Records, shared_key: PRNGKey) -> State: ...

    def step(self, keys: Key[Array, " clients"], model: Model, state: State) -> tuple[State, Health]: ...

    def slower(self, state: State, clients: Bool[np.ndarray, " clients"]) -> State:
        """The same state with smaller steps for these clients (a mask), after their points diverged."""

    def coreset(self, state: State) -> Coreset: ...

    def advice(self) -> str:
        """What to change when points diverge again and again, with the present values."""

    def cost(self, model: Model, num_examples: int) -> LearningCost:
        """Of one client with so many records."""


@runtime_checkable
class CountsAlike(Protocol):
    """A learner for which every client counts as the same number of records, because the true one is private."""

    @property
    def records_each(self) -> float: ...


class Immediate:
    """Learners that are done after `init`."""

    num_chunks: ClassVar[int] = 0
    can_resume: ClassVar[bool] = False

    def step(self, keys: Key[Array, " clients"], model: Model, state: State) -> tuple[State, Health]:
        raise NotImplementedError("this learner is done after init")

    def slower(self, state: State, clients: Bool[np.ndarray, " clients"]) -> State:
        raise NotImplementedError("this learner takes no steps")

    def coreset(self, state: Coreset) -> Coreset:
        return state

    def advice(self) -> str:
        raise NotImplementedError("this learner takes no steps")

    def cost(self, model: Model, num_examples: int) -> LearningCost:
        return LearningCost(0, "no training")
