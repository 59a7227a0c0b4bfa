"""Handwriting of 62 classes from the shelf: EMNIST (any of its federated forms) and UNIPEN (by writer)."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from coreshot.config import Count, settings
from coreshot.data import store as shelf
from coreshot.data.display import Display
from coreshot.data.federated import FederatedData, Kind
from coreshot.data.handwriting.labels import CHARACTERS, NUM_CLASSES
from coreshot.data.handwriting.pixels import IMAGE_SHAPE
from coreshot.errors import CoreshotError
from coreshot.types import Points, make_points

TEST_STREAM = 2**32  # client streams are CRC-32 numbers, which are smaller


@settings
class Handwriting:
    """The first clients of a set train, each with a share of its images; test images are those that no training client holds."""

    num_clients: Count
    train_fraction: Annotated[float, Field(gt=0, le=1)]  # of each client's images; the rest is not used
    source: str  # the name of the set on the shelf
    min_images: Count = 1  # a client that would train with fewer is left out: a coreset of K wants at least K
    num_test: Count | None = None  # a random part of the test images; all of them by default
    num_test_clients: Count = 33  # for a set that names no test images: its last clients test, and never train

    kind: ClassVar[Kind] = "classification"
    input_shape: ClassVar[tuple[int, ...]] = (*IMAGE_SHAPE, 1)
    num_outputs: ClassVar[int] = NUM_CLASSES
    display: ClassVar[Display] = Display(class_names=tuple(CHARACTERS), high_is_dark=True)
    task: ClassVar[str] = "handwriting"
    where_from: ClassVar[str] = ""

    def make(self, seed: int) -> FederatedData:
        data = self._open()
        pool, testers = self._pool(data)
        clients = {holder.name: _points(data, self._training_rows(holder, seed)) for holder in pool}
        return FederatedData(self.kind, clients, _points(data, self._test_rows(testers, seed)), None)

    def summaries(self, predict: Callable[[np.ndarray], Any]) -> dict[str, float]:
        return {}

    def _open(self) -> shelf.ImageSet:
        if self.source not in shelf.names():
            raise CoreshotError(
                f"task {self.task}: data set {self.source!r} is not on this machine's shelf ({shelf.home()}); {self.where_from}, "
                f"then run `coreshot data add {self.source} --from PATH`."
            )
        return shelf.open_set(self.source)

    def _pool(self, data: shelf.ImageSet) -> tuple[list[shelf.Holder], list[shelf.Holder]]:
        clients, testers = data.of_role("train", "extra"), data.of_role("test")
        spare = len(clients) - (0 if testers else self.num_test_clients)
        if spare < self.num_clients:
            kept = (
                ""
                if testers
                else f", of which the last num_test_clients = {self.num_test_clients} are kept for testing"
            )
            raise CoreshotError(
                f"task {self.task}: num_clients = {self.num_clients}, but data set {self.source!r} has {len(clients)} clients{kept}; lower it."
            )
        trainers = [holder for holder in clients[:spare] if self._num_training(holder) >= self.min_images]
        if len(trainers) < self.num_clients:
            raise CoreshotError(
                f"task {self.task}: num_clients = {self.num_clients}, but only {len(trainers)} clients of data set {self.source!r} train with "
                f"min_images = {self.min_images} or more; lower one of them."
            )
        return trainers[: self.num_clients], testers or clients[-self.num_test_clients :]

    def _num_training(self, holder: shelf.Holder) -> int:
        return max(1, round(self.train_fraction * holder.count))

    def _training_rows(self, holder: shelf.Holder, seed: int) -> np.ndarray:
        # By the client's name: its share does not depend on who else takes part.
        order = np.random.default_rng([seed, zlib.crc32(holder.name.encode())]).permutation(holder.count)
        return holder.start + np.sort(order[: self._num_training(holder)])

    def _test_rows(self, testers: Sequence[shelf.Holder], seed: int) -> np.ndarray:
        rows = np.concatenate([np.arange(holder.start, holder.start + holder.count) for holder in testers])
        if self.num_test is None:
            return rows
        if self.num_test > len(rows):
            raise CoreshotError(
                f"task {self.task}: num_test = {self.num_test}, but there are {len(rows)} test images; lower it."
            )
        return np.sort(np.random.default_rng([seed, TEST_STREAM]).choice(rows, self.num_test, replace=False))


def _points(data: shelf.ImageSet, rows: np.ndarray) -> Points:
    images = data.images[rows].astype(np.float32)[..., None] / np.float32(255)
    return make_points(images, np.eye(NUM_CLASSES, dtype=np.float32)[data.labels[rows]])


@settings
class Emnist62(Handwriting):
    source: str = "emnist62"

    task: ClassVar[str] = "emnist62"
    where_from: ClassVar[str] = (
        "get EMNIST by class with its clients: LEAF's femnist (github.com/TalwalkarLab/leaf), TFF's fed_emnist HDF5 files, or the parquet file of "
        "huggingface.co/datasets/flwrlabs/femnist"
    )


@settings
class Unipen62(Handwriting):
    source: str = "unipen62"

    task: ClassVar[str] = "unipen62"
    where_from: ClassVar[str] = (
        "get UNIPEN train_r01_v07 (unipen.org) with its characters drawn as images of 28 x 28, in an npz file with images, labels, writers and split"
    )
