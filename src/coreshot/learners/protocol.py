"""What every learner is: pure methods over a group of clients, whose arrays have a leading client axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from jaxtyping import Array, Key

from coreshot.models import Model
from coreshot.privacy.guarded_records import Records
from coreshot.privacy.releases import Release
from coreshot.types import Coreset, PRNGKey
from coreshot.wire.point_coding import PointCoding

State = Any  # what the next step needs
COUNT = Release("count", "the number of records")


@dataclass(frozen=True)
class Health:
    """How a chunk of updates went, per client; diagnostics that do not persist."""

    first_bad_update: np.ndarray  # index of the first update whose result is unusable, -1 where there is none
    last_gradient_norm: np.ndarray  # at the update before that, or at the last one
    num_updates_done: int  # with this chunk
    num_updates: int  # of the whole run


def health_of(good: np.ndarray, norms: np.ndarray, num_done: int, num_updates: int) -> Health:
    """From what a chunk noted of each client and update: whether its points were usable, and the gradient's norm."""
    size = good.shape[1]
    bad = np.where(good.all(axis=1), -1, good.argmin(axis=1))
    before = np.where(bad >= 0, np.maximum(bad - 1, 0), size - 1)
    return Health(
        np.where(bad >= 0, num_done - size + bad, -1), norms[np.arange(len(norms)), before], num_done, num_updates
    )


class Learner(Protocol):
    @property
    def num_points(self) -> int | None:
        """K, the size of a client's coreset; None where every point is sent."""

    @property
    def num_chunks(self) -> int:
        """How often step is called; 0 where init does all the work."""

    @property
    def coding(self) -> PointCoding | None:
        """How its points travel; None: as float32."""

    def releases(self, model: Model) -> tuple[Release, ...]:
        """Everything that it lets out of the records; what is not declared here it cannot get from them."""

    def init(self, keys: Key[Array, " clients"], model: Model, records: Records, shared_key: PRNGKey) -> State: ...

    def step(self, keys: Key[Array, " clients"], model: Model, state: State) -> tuple[State, Health]: ...

    def slower(self, state: State, clients: np.ndarray) -> State:
        """The same state with smaller steps for these clients (a mask), after their points diverged."""

    def coreset(self, state: State) -> Coreset: ...

    def advice(self) -> str:
        """What to change when points diverge again and again, with the present values."""


class Immediate:
    """Learners that are done after init."""

    num_chunks: ClassVar[int] = 0

    def step(self, keys: Key[Array, " clients"], model: Model, state: State) -> tuple[State, Health]:
        raise NotImplementedError("this learner is done after init")

    def slower(self, state: State, clients: np.ndarray) -> State:
        raise NotImplementedError("this learner takes no steps")

    def coreset(self, state: Coreset) -> Coreset:
        return state

    def advice(self) -> str:
        raise NotImplementedError("this learner takes no steps")
