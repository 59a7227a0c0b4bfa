"""Test records for a source that names none: a share of every client's records, or whole clients that never train."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from coreshot.data.readers.protocol import NOBODY
from coreshot.data.store import Role
from coreshot.errors import CoreshotError

Owner = tuple[Role, str]


@dataclass(frozen=True)
class HoldingOut:
    """One of the two. Both are drawn at random."""

    num_clients: int | None = None
    fraction: float | None = None
    seed: int = 42

    def __post_init__(self) -> None:
        if self.num_clients is not None and self.fraction is not None:
            raise CoreshotError("--test-clients and --test-fraction: give one of them.")
        if self.fraction is not None and not 0 < self.fraction < 1:
            raise CoreshotError(f"--test-fraction {self.fraction:g}: it is a share above 0 and below 1; change it.")

    def options(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    def of_all(self, owners: Sequence[Owner], owner: np.ndarray) -> tuple[list[Owner], np.ndarray]:
        """A share of all records for nobody, before clients are made."""
        self._refuse_test_records(owners)
        assert self.fraction is not None
        size = _share(self.fraction, len(owner))
        chosen = np.random.default_rng(self.seed).permutation(len(owner))[:size]
        held = owner.copy()
        held[chosen] = len(owners)
        return [*owners, ("test", NOBODY)], held

    def of_each(self, owners: Sequence[Owner], owner: np.ndarray) -> tuple[list[Owner], np.ndarray]:
        """A share of each client's records, which stay that client's. A client of one record keeps it for training."""
        self._refuse_test_records(owners)
        assert self.fraction is not None
        draws, held, testers = np.random.default_rng(self.seed), owner.copy(), list(owners)
        for index, (_, name) in enumerate(owners):
            rows = np.flatnonzero(owner == index)
            size = _share(self.fraction, len(rows))
            if size:
                held[draws.permutation(rows)[:size]] = len(testers)
                testers.append(("test", name))
        if len(testers) == len(owners):
            raise CoreshotError(
                f"--test-fraction {self.fraction:g}: no client has enough records to hold one back; raise it, or use "
                "--test-clients."
            )
        return testers, held

    def of_clients(self, owners: Sequence[Owner]) -> list[Owner]:
        """All records of some clients."""
        self._refuse_test_records(owners)
        assert self.num_clients is not None
        if self.num_clients >= len(owners):
            raise CoreshotError(
                f"--test-clients {self.num_clients}: there are {len(owners)} clients, and some must train; lower it."
            )
        chosen = set(np.random.default_rng(self.seed).permutation(len(owners))[: self.num_clients].tolist())
        return [("test", name) if index in chosen else (role, name) for index, (role, name) in enumerate(owners)]

    def _refuse_test_records(self, owners: Sequence[Owner]) -> None:
        if any(role == "test" for role, _ in owners):
            option = "--test-fraction" if self.num_clients is None else "--test-clients"
            raise CoreshotError(f"{option}: the source says itself which records are for testing; leave it out.")


def _share(fraction: float, size: int) -> int:
    """At least one, where one remains for training."""
    return min(max(1, round(fraction * size)), size - 1)


def in_order(owners: Sequence[Owner], owner: np.ndarray, roles: Sequence[Role]) -> tuple[list[Owner], np.ndarray]:
    """Holders sorted by their roles."""
    order = sorted(range(len(owners)), key=lambda index: roles.index(owners[index][0]))
    place = np.empty(len(owners), int)
    place[order] = np.arange(len(owners))
    return [owners[index] for index in order], place[owner]
