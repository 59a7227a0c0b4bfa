"""Handwriting of 62 classes from the store: EMNIST (in any of its federated formats) and UNIPEN (by writer)."""

from __future__ import annotations

from typing import ClassVar

from coreshot.config import Count, settings
from coreshot.data.display import Display
from coreshot.data.handwriting.labels import CHARACTERS, NUM_CLASSES
from coreshot.data.handwriting.pixels import IMAGE_SHAPE
from coreshot.data.store import StoredData, data_home, open_data_set, stored_names
from coreshot.data.stored_task import StoredTask
from coreshot.errors import CoreshotError
from coreshot.types import Kind


@settings
class Handwriting(StoredTask):
    """A stored data set that was added as handwriting."""

    source: str  # the name of the data set in the store
    min_images: Count = 1  # a client that would train with fewer is left out: a coreset of K wants at least K

    kind: ClassVar[Kind] = "classification"
    input_shape: ClassVar[tuple[int, ...]] = (*IMAGE_SHAPE, 1)
    num_outputs: ClassVar[int] = NUM_CLASSES
    display: ClassVar[Display] = Display(class_names=tuple(CHARACTERS), high_is_dark=True)
    task: ClassVar[str] = "handwriting"
    where_from: ClassVar[str] = ""

    def _minimum(self) -> tuple[str, int]:
        return "min_images", self.min_images

    def _open(self) -> StoredData:
        if self.source not in stored_names():
            raise CoreshotError(
                f"task {self.task}: data set {self.source!r} is not in this machine's store ({data_home()}); "
                f"{self.where_from}, then run `coreshot data add {self.source} --from PATH --as handwriting`."
            )
        data = open_data_set(self.source)
        if data.index["options"]["preparation"] != "handwriting":
            raise CoreshotError(
                f"task {self.task}: data set {self.source!r} was not added as handwriting; "
                f"remove {data_home() / self.source} and add it anew with --as handwriting."
            )
        return data


@settings
class Emnist62(Handwriting):
    source: str = "emnist62"

    task: ClassVar[str] = "emnist62"
    where_from: ClassVar[str] = (
        "get EMNIST by class with its clients: LEAF's femnist (github.com/TalwalkarLab/leaf), TFF's fed_emnist "
        "HDF5 files, or the parquet file of huggingface.co/datasets/flwrlabs/femnist"
    )


@settings
class Unipen62(Handwriting):
    source: str = "unipen62"

    task: ClassVar[str] = "unipen62"
    where_from: ClassVar[str] = (
        "get UNIPEN train_r01_v07 (unipen.org) with its characters drawn as images of 28 x 28, "
        "in an npz file with images, labels, writers and split"
    )
