"""Tasks whose data lie in the store: the first clients train; test records are those that no training client holds."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from coreshot.config import Count, settings
from coreshot.data.display import Display
from coreshot.data.federated import FederatedData
from coreshot.data.store import Holder, StoredData, open_data_set
from coreshot.errors import CoreshotError
from coreshot.types import Kind

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
        trainers, testers = self._choose_holders(data)
        clients = {holder.name: data.points(self._training_rows(holder, seed)) for holder in trainers}
        test = data.points(self._test_rows(testers, seed))
        return FederatedData(data.description.kind, clients, test, None)

    def summaries(self, predict: Callable[[np.ndarray], Any]) -> dict[str, float]:
        return {}

    def _open(self) -> StoredData:
        raise NotImplementedError

    def _minimum(self) -> tuple[str, int]:
        """A client that would train with fewer records is left out: the setting's name and its value."""
        raise NotImplementedError

    def _choose_holders(self, data: StoredData) -> tuple[list[Holder], list[Holder]]:
        clients, testers = data.of_role("train", "extra"), data.of_role("test")
        num_kept = 0 if testers else self.num_test_clients
        where = f"task {self.task}: num_clients = {self.num_clients}, but"
        if len(clients) - num_kept < self.num_clients:
            kept = f", of which the last num_test_clients = {num_kept} are kept for testing" if num_kept else ""
            raise CoreshotError(f"{where} data set {data.name!r} has {len(clients)} clients{kept}; lower it.")
        setting, minimum = self._minimum()
        trainers = [one for one in clients[: len(clients) - num_kept] if self._num_training(one) >= minimum]
        if len(trainers) < self.num_clients:
            raise CoreshotError(
                f"{where} only {len(trainers)} clients of data set {data.name!r} train with {setting} = {minimum} "
                "or more; lower one of them."
            )
        return trainers[: self.num_clients], testers or clients[-self.num_test_clients :]

    def _num_training(self, holder: Holder) -> int:
        return max(1, round(self.train_fraction * holder.count))

    def _training_rows(self, holder: Holder, seed: int) -> np.ndarray:
        # By the client's name: its share does not depend on who else takes part.
        order = np.random.default_rng([seed, zlib.crc32(holder.name.encode())]).permutation(holder.count)
        return holder.start + np.sort(order[: self._num_training(holder)])

    def _test_rows(self, testers: Sequence[Holder], seed: int) -> np.ndarray:
        rows = np.concatenate([np.arange(holder.start, holder.start + holder.count) for holder in testers])
        if self.num_test is None:
            return rows
        if self.num_test > len(rows):
            raise CoreshotError(
                f"task {self.task}: num_test = {self.num_test}, but there are {len(rows)} test records; lower it."
            )
        return np.sort(np.random.default_rng([seed, TEST_STREAM]).choice(rows, self.num_test, replace=False))


@settings
class Federated(StoredTask):
    """Any data set of the store. Its shape and its classes are those of the data set's own description."""

    data: str  # the name under which `coreshot data add` stored it
    train_fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    min_records: Count = 1  # a client that would train with fewer is left out

    task: ClassVar[str] = "federated"

    @property
    def kind(self) -> Kind:
        return self._open().description.kind

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self._open().description.input_shape

    @property
    def num_outputs(self) -> int:
        return len(self._open().description.class_names)

    @property
    def display(self) -> Display:
        return Display(class_names=self._open().description.class_names)

    def _minimum(self) -> tuple[str, int]:
        return "min_records", self.min_records

    def _open(self) -> StoredData:
        return open_data_set(self.data)
