"""Tasks whose data lie in the store: the first clients train; test records are those that no training client holds."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from coreshot.config import Count, settings
from coreshot.data.federated import FederatedData
from coreshot.data.store import Holder, StoredData
from coreshot.errors import CoreshotError
from coreshot.types import Points

TEST_STREAM = 2**32  # client streams are CRC-32 numbers, which are smaller


@settings
class StoredTask:
    """What all tasks of stored data share; a subclass says which data set it reads."""

    num_clients: Count
    train_fraction: Annotated[float, Field(gt=0, le=1)]  # of each client's records; the rest is not used
    num_test: Count | None = None  # a random part of the test records; all of them by default
    num_test_clients: Count = 33  # for a set without test records: its last clients test, and never train

    task: ClassVar[str]

    def make(self, seed: int) -> FederatedData:
        data = self._open()
        share = self._held_share(data)
        trainers, testers = self._choose_holders(data, share)
        clients = {holder.name: self._read_rows(data, self._training_rows(holder, seed, share)) for holder in trainers}
        test = self._read_rows(data, self._test_rows(testers, seed, share))
        return FederatedData(data.description.kind, clients, test, None)

    def _read_rows(self, data: StoredData, rows: np.ndarray) -> Points:
        return data.points(rows)

    def summaries(self, predict: Callable[[np.ndarray], Any]) -> dict[str, float]:
        return {}

    def _open(self) -> StoredData:
        raise NotImplementedError

    def _held_share(self, data: StoredData) -> float:
        """Of every client's records, for testing; 0 where there are test records, or clients that only test."""
        return 0.0

    def _minimum(self) -> tuple[str, int]:
        """A client that would train with fewer records is left out: the setting's name and its value."""
        raise NotImplementedError

    def _choose_holders(self, data: StoredData, share: float) -> tuple[list[Holder], list[Holder]]:
        clients, testers = data.of_role("train", "extra"), data.of_role("test")
        num_kept = 0 if testers or share else self.num_test_clients
        wanted = self.num_clients or len(clients) - num_kept
        where = f"task {self.task}: num_clients = {wanted}, but"
        if wanted < 1 or len(clients) - num_kept < wanted:
            kept = f", of which the last num_test_clients = {num_kept} are kept for testing" if num_kept else ""
            raise CoreshotError(f"{where} data set {data.name!r} has {len(clients)} clients{kept}; lower it.")
        setting, minimum = self._minimum()
        trainers = [one for one in clients[: len(clients) - num_kept] if self._num_training(one, share) >= minimum]
        if len(trainers) < (self.num_clients or 1):
            raise CoreshotError(
                f"{where} only {len(trainers)} clients of data set {data.name!r} train with {setting} = {minimum} "
                "or more; lower one of them."
            )
        testing = testers or clients[len(clients) - num_kept :] or clients
        return trainers[: self.num_clients or len(trainers)], testing

    def _num_training(self, holder: Holder, share: float) -> int:
        return max(1, round(self.train_fraction * (holder.count - _num_held(holder, share))))

    def _shuffled(self, holder: Holder, seed: int) -> np.ndarray:
        # By the client's name: its share does not depend on who else takes part.
        return np.random.default_rng([seed, zlib.crc32(holder.name.encode())]).permutation(holder.count)

    def _training_rows(self, holder: Holder, seed: int, share: float) -> np.ndarray:
        return holder.start + np.sort(self._shuffled(holder, seed)[: self._num_training(holder, share)])

    def _test_rows(self, testers: Sequence[Holder], seed: int, share: float) -> np.ndarray:
        held = [
            holder.start + np.sort(self._shuffled(holder, seed)[holder.count - _num_held(holder, share) :])
            if share
            else np.arange(holder.start, holder.start + holder.count)
            for holder in testers
        ]
        rows = np.concatenate(held)
        if not len(rows):
            raise CoreshotError(
                f"task {self.task}: no client has two records, so none can be held back for testing; "
                "set num_test_clients."
            )
        if self.num_test is None:
            return rows
        if self.num_test > len(rows):
            raise CoreshotError(
                f"task {self.task}: num_test = {self.num_test}, but there are {len(rows)} test records; lower it."
            )
        return np.sort(np.random.default_rng([seed, TEST_STREAM]).choice(rows, self.num_test, replace=False))


def _num_held(holder: Holder, share: float) -> int:
    """At least one record, where another is left to train with."""
    return min(max(1, round(share * holder.count)), holder.count - 1) if share else 0
