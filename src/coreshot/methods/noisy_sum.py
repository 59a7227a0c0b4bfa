"""Base of the methods whose clients send sums over their records with Gaussian noise, which the server only adds up.

The statistics are whole numbers (`coreshot.privacy.gaussian_moments`). Each client rounds them to steps below its noise
and codes them. With num_sharers, the clients add the noise together: each adds a share, and a secure sum
(`coreshot.methods.secure_sum`) shows the server only the sum over all clients.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from coreshot.config import Count, settings
from coreshot.errors import CoreshotError
from coreshot.methods.one_round import OneRoundMethod, check_arrived
from coreshot.methods.protocol import Answers, Claim, Exchange, Invitation, OnChunk
from coreshot.methods.secure_sum import invite_sharers, mask_levels, read_masked, read_sharers, sum_masked
from coreshot.models import Model
from coreshot.privacy.accounting import Privacy, noise_multiplier
from coreshot.privacy.guarded_records import Records
from coreshot.privacy.releases import noise_share
from coreshot.types import PRNGKey
from coreshot.wire.coding import MAX_LEVEL, decode_rows, encode_rows
from coreshot.wire.messages import Message

STEPS_PER_DEVIATION = 8  # of a client's own noise, on the wire
STEPS_PER_SHARE = 64  # of a client's share of a common noise: finer, because the rounding errors of all shares add up


@dataclass(frozen=True)
class Part:
    """One array of a client's statistics, as it is sent."""

    name: str
    shape: tuple[int, int]
    unit: int  # the whole number that stands for 1 in units of the records
    deviation: float  # of the noise in one client's message, in units of the records

    @property
    def size(self) -> int:
        return self.shape[0] * self.shape[1]


@dataclass(frozen=True)
class NoisySumState:
    """Sums over clients of noisy statistics, in units of the records."""

    public: Any  # what the study's shared key gives everyone
    totals: tuple[Float[np.ndarray, "_ _"], ...]  # one for each Part
    clients: frozenset[str] = frozenset()  # whose statistics are in the sums
    is_done: bool = False


S = TypeVar("S", bound=NoisySumState)
Statistics = list[np.ndarray]  # of one client: an array for each Part; or the masked words of all of them


@settings
class NoisySumMethod(OneRoundMethod, ABC):
    privacy: Privacy
    num_sharers: Count | None = None  # clients of the secure sum, all of whom must answer; None: each adds all noise
    kind: ClassVar[str]  # of the messages; the method's registered name

    @abstractmethod
    def parts(self, model: Model) -> tuple[Part, ...]: ...

    @abstractmethod
    def draw_public(self, model: Model, shared_key: PRNGKey) -> Any:
        """What all sides compute statistics with, drawn from the study's shared key."""

    @abstractmethod
    def noisy_statistics(self, model: Model, public: Any, records: Records) -> Sequence[Int[np.ndarray, "_ _"]]:
        """The one release: an array of whole numbers for each part."""

    def example_exchange(self, model: Model, num_clients: int) -> list[Exchange]:
        """With noise alone, whose code is about as long as that of a client's statistics."""
        clients, parts = [f"client {index}" for index in range(num_clients)], self.parts(model)
        if self.num_sharers:
            words = jnp.zeros(sum(part.size for part in parts), jnp.int32)
            invitation = invite_sharers(clients[: self.num_sharers], self.num_sharers, self.kind).message
            return [(invitation, Message(self.kind, 0, {"masked": words}))]
        draws, arrays = np.random.default_rng(0), dict[str, Array]()
        for part in parts:
            noise = np.rint(part.deviation * part.unit * draws.normal(size=part.shape)).astype(np.int64)
            arrays |= encode_part(part.name, noise, self._step(part))
        return [(Message("invitation", 0, {}), Message(self.kind, 0, arrays))]

    def send(self, key: PRNGKey, model: Model, state: NoisySumState, clients: Sequence[str]) -> Invitation | None:
        if self.num_sharers and not state.is_done:
            return invite_sharers(clients, self.num_sharers, self.kind)
        return super().send(key, model, state, clients)

    def reply(
        self,
        key: PRNGKey,
        model: Model,
        clients: Mapping[str, Records],
        inbox: Sequence[Message],
        shared_key: PRNGKey,
        on_chunk: OnChunk,
    ) -> Answers:
        public, parts, answers = self.draw_public(model, shared_key), self.parts(model), Answers()
        for client, records in clients.items():
            sharers = read_sharers(inbox[-1], client, self.num_sharers, self.kind) if self.num_sharers else None
            statistics = list(zip(parts, self.noisy_statistics(model, public, records), strict=True))
            if sharers is None:
                coded = [encode_part(part.name, numbers, self._step(part)) for part, numbers in statistics]
                arrays = {name: array for one in coded for name, array in one.items()}
            else:
                levels = [np.rint(numbers / self._step(part)).astype(np.int64).ravel() for part, numbers in statistics]
                arrays = mask_levels(key, client, sharers, np.concatenate(levels))
            answers[client] = Message(self.kind, inbox[-1].round, arrays), []
            on_chunk(1)
        return answers

    def _step(self, part: Part) -> float:
        """Between two levels on the wire, in whole numbers."""
        steps = STEPS_PER_SHARE if self.num_sharers else STEPS_PER_DEVIATION
        return float(np.float32(part.deviation * part.unit / steps))

    def read(self, model: Model, client: str, message: Message) -> Statistics:
        """Masked words as they are, or decoded statistics in units of the records."""
        where, arrays, parts = (
            f"client {client}, round {message.round}, {message.kind}",
            message.arrays,
            self.parts(model),
        )
        plain = {name for part in parts for name in (part.name, f"{part.name}_step")}
        wanted = {"masked"} if self.num_sharers else plain
        if message.kind != self.kind or set(arrays) != wanted:
            found = ", ".join(sorted(arrays)) or "none"
            raise CoreshotError(
                f"{where}: found {found}, the study wants {', '.join(sorted(wanted))}; distill it again."
            )
        if self.num_sharers:
            return [read_masked(arrays, sum(part.size for part in parts), where)]
        return [decode_part(arrays, part.name, part.shape, where) / part.unit for part in parts]

    def claim(self, content: Statistics) -> Claim:
        """A record has norm at most one, so no entry of a sum is larger than their number and the noise."""
        largest = 0.0 if self.num_sharers else max(float(np.max(np.abs(part), initial=0.0)) for part in content)
        return Claim(largest, is_exact=False)

    def receive(self, key: PRNGKey, model: Model, state: S, replies: Mapping[str, Statistics]) -> S:
        """Replies that arrive late are added to the sums."""
        names = check_arrived(replies, state.clients)
        if self.num_sharers:
            totals = self._unmask(model, [replies[name][0] for name in names], self.num_sharers)
            return replace(_add(state, totals, 1), clients=state.clients | set(names), is_done=True)
        for name in names:
            state = _add(state, replies[name], 1)
        return replace(state, clients=state.clients | set(names), is_done=True)

    def _unmask(self, model: Model, words: Sequence[np.ndarray], num_sharers: int) -> Statistics:
        parts, total = self.parts(model), sum_masked(words, num_sharers)
        ends = np.cumsum([part.size for part in parts])[:-1]
        return [
            numbers.reshape(part.shape) * self._step(part) / part.unit
            for part, numbers in zip(parts, np.split(total, ends), strict=True)
        ]

    def forget(self, model: Model, state: S, client: str, content: Statistics) -> S:
        """The state as if this client had never taken part. In a secure sum, nobody knows a single client's part."""
        if self.num_sharers:
            raise CoreshotError(
                f"forget: client {client} is in a secure sum, from which nobody can take it; ask the others again."
            )
        return replace(_add(state, content, -1), clients=state.clients - {client})

    def begin_sums(self, model: Model) -> tuple[Float[np.ndarray, "_ _"], ...]:
        return tuple(np.zeros(part.shape) for part in self.parts(model))

    @property
    def noise_multiplier(self) -> float:
        return noise_multiplier(self.privacy)

    @property
    def noise_share(self) -> float:
        """The share of the whole noise's variance that one client adds."""
        return noise_share(self.num_sharers or 1)


def _add(state: S, statistics: Statistics, sign: int) -> S:
    totals = tuple(total + sign * part for total, part in zip(state.totals, statistics, strict=True))
    return replace(state, totals=totals)


def encode_part(name: str, numbers: Int[np.ndarray, "rows columns"], finest: float) -> dict[str, Array]:
    """Rounded to `finest`, which is below the noise; to larger steps where the code has no levels for the numbers."""
    step = float(np.float32(max(finest, np.max(np.abs(numbers)) / (MAX_LEVEL - 1))))
    code = encode_rows(numbers.astype(np.float64), step, keep_zeros=True)
    return {name: jnp.asarray(np.frombuffer(code, np.uint8)), f"{name}_step": jnp.asarray([step], jnp.float32)}


def decode_part(
    arrays: Mapping[str, Array], name: str, shape: tuple[int, int], where: str
) -> Float[np.ndarray, "rows columns"]:
    step = np.asarray(arrays[f"{name}_step"])
    if step.shape != (1,) or step.dtype != np.float32 or not step[0] > 0 or arrays[name].dtype != np.uint8:
        raise CoreshotError(f"{where}: {name} is not a code with one step above 0; distill it again.")
    rows = decode_rows(np.asarray(arrays[name]).tobytes(), float(step[0]), shape[1], shape[0], where)
    if len(rows) != shape[0]:
        raise CoreshotError(f"{where}: {name} has {len(rows)} rows, not {shape[0]}; distill it again.")
    return rows.astype(np.float64)
