"""The ledger: one entry for each message between a client and the server, with its numbers and its bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
import safetensors
import safetensors.numpy

from coreshot.wire.messages import Message

Direction = Literal["up", "down"]


@dataclass(frozen=True)
class Entry:
    """One message. floats counts the numbers in its arrays; four bytes of coded arrays (uint8) count as one number.

    payload_bytes are the bytes of the arrays, envelope_bytes all others.
    """

    round: int
    client: str
    direction: Direction
    kind: str
    floats: int
    payload_bytes: int
    envelope_bytes: int


def _count_floats(arrays: Iterable[Any]) -> int:
    return sum(-(-array.size // 4) if array.dtype == np.uint8 else array.size for array in arrays)


@dataclass
class Ledger:
    """All messages, in order."""

    entries: list[Entry] = field(default_factory=list)

    def book(self, direction: Direction, client: str, message: Message, data: bytes) -> None:
        payload = sum(array.nbytes for array in message.arrays.values())
        floats = _count_floats(message.arrays.values())
        self.entries.append(Entry(message.round, client, direction, message.kind, floats, payload, len(data) - payload))

    def book_refused(self, round: int, client: str, data: bytes) -> None:
        """A refused message was sent too. Bytes that cannot be read as arrays count as envelope."""
        try:
            arrays = list(safetensors.numpy.load(data).values())
        except (safetensors.SafetensorError, ValueError, KeyError, TypeError):
            arrays = []
        payload = sum(array.nbytes for array in arrays)
        self.entries.append(Entry(round, client, "up", "refused", _count_floats(arrays), payload, len(data) - payload))

    def floats(self, direction: Direction) -> int:
        return sum(entry.floats for entry in self._entries(direction))

    def bytes(self, direction: Direction) -> int:
        return sum(entry.payload_bytes + entry.envelope_bytes for entry in self._entries(direction))

    def _entries(self, direction: Direction) -> Iterable[Entry]:
        return (entry for entry in self.entries if entry.direction == direction)

    @classmethod
    def from_json_lines(cls, text: str) -> Ledger:
        return cls([Entry(**json.loads(line)) for line in text.splitlines()])

    def to_json_lines(self) -> str:
        return "".join(json.dumps(asdict(entry)) + "\n" for entry in self.entries)
