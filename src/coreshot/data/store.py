"""The store of federated data sets: each is converted once into memory-mapped arrays, one client after another.

A data set is a folder:

    inputs.npy    [n, height, width, channels] or [n, length], of uint8 or float32
    targets.npy   [n], the class of each record: its position in the description's class_names; in a regression
                  [n, outputs] of float32
    index.json    the description, the rows of each client, the source files with their SHA-256, options, version

A data set is complete or absent, and it never changes. Layout version 1, which held handwriting only, is still read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from coreshot.config import Count, Positive, decode, settings
from coreshot.errors import CoreshotError
from coreshot.storage import read_json
from coreshot.types import Kind, Points, make_points

VERSION = 2
HOME_VARIABLE = "CORESHOT_DATA"

Role = Literal["train", "extra", "test"]
ROLES: tuple[Role, ...] = ("train", "extra", "test")  # extra clients train only where training clients are too few


@settings
class Description:
    """What a data set says about its own records."""

    kind: Kind = "classification"
    input_shape: Annotated[tuple[Count, ...], Field(min_length=1)]  # (height, width, channels) or (length,)
    input_scale: Positive  # stored inputs are divided by it: 255 for pixels of uint8
    class_names: tuple[str, ...] = ()  # of a classification: at least two
    target_names: tuple[str, ...] = ()  # of a regression: at least one
    notes: dict[str, str] = Field(
        default_factory=dict
    )  # what a preparation found, such as the background of the source

    def __post_init__(self) -> None:
        is_regression = self.kind == "regression"
        if bool(self.target_names) != is_regression or is_regression == (len(self.class_names) > 1):
            raise CoreshotError(
                f"a {self.kind} with {len(self.class_names)} class names and {len(self.target_names)} target names; "
                "remove the folder and add the data anew."
            )

    @property
    def num_outputs(self) -> int:
        return len(self.target_names or self.class_names)

    @property
    def holds_images(self) -> bool:
        return len(self.input_shape) == 3


@dataclass(frozen=True)
class Holder:
    """Who holds rows start to start + count. A client with training and test records is two holders of one name."""

    name: str
    role: Role
    start: int
    count: int

    @property
    def rows(self) -> slice:
        return slice(self.start, self.start + self.count)


@dataclass(frozen=True)
class StoredData:
    """A data set of the store. Its arrays are memory-mapped, so that only rows that are used are read."""

    name: str
    description: Description
    holders: tuple[Holder, ...]
    inputs: np.ndarray
    targets: np.ndarray
    index: Mapping[str, Any]

    def of_role(self, *roles: Role) -> list[Holder]:
        return [holder for role in roles for holder in self.holders if holder.role == role]

    def points(self, rows: np.ndarray) -> Points:
        """Inputs divided by the description's scale, and one-hot targets; quantities as they are."""
        inputs = self.inputs[rows].astype(np.float32) / np.float32(self.description.input_scale)
        if self.description.kind == "regression":
            return make_points(inputs, self.targets[rows])
        classes = np.eye(len(self.description.class_names), dtype=np.float32)
        return make_points(inputs, classes[self.targets[rows]])


def data_home() -> Path:
    return Path(os.environ.get(HOME_VARIABLE) or Path.home() / ".coreshot" / "data")


def stored_names() -> list[str]:
    folders = (path.parent.name for path in data_home().glob("*/index.json"))
    return sorted(name for name in folders if not name.startswith("."))


def open_data_set(name: str) -> StoredData:
    folder = data_home() / check_data_name(name)
    if not (folder / "index.json").exists():
        there = f"there are {', '.join(stored_names())}" if stored_names() else "it is empty"
        raise CoreshotError(
            f"data set {name!r} is not in the store ({data_home()}: {there}); "
            f"add it with `coreshot data add {name} --from PATH`."
        )
    index = read_json(folder / "index.json")
    if index.get("version") not in (1, VERSION):
        raise CoreshotError(
            f"{folder}: layout version {index.get('version')}, this coreshot reads {VERSION}; "
            "remove the folder and add the data anew."
        )
    return _open_version_1(name, folder, index) if index["version"] == 1 else _open(name, folder, index)


def _open(name: str, folder: Path, index: dict[str, Any]) -> StoredData:
    description = decode(Description, index["description"], f"{folder}, description")
    inputs, targets = _map_array(folder / "inputs.npy"), _map_array(folder / "targets.npy")
    return _check(folder, StoredData(name, description, _holders(index), inputs, targets, index))


def _open_version_1(name: str, folder: Path, index: dict[str, Any]) -> StoredData:
    from coreshot.data.handwriting.preparation import describe_handwriting

    images, labels = _map_array(folder / "images.npy"), _map_array(folder / "labels.npy")
    index["options"] = {"preparation": "handwriting", **index["options"]}
    description = describe_handwriting(index["background_of_source"])
    return _check(folder, StoredData(name, description, _holders(index), images[..., None], labels, index))


def _holders(index: Mapping[str, Any]) -> tuple[Holder, ...]:
    return tuple(Holder(**holder) for holder in index["clients"])


def _check(folder: Path, data: StoredData) -> StoredData:
    total = sum(holder.count for holder in data.holders)
    wanted = (total, data.description.num_outputs) if data.description.kind == "regression" else (total,)
    if data.inputs.shape != (total, *data.description.input_shape) or data.targets.shape != wanted:
        raise CoreshotError(
            f"{folder}: the index says {total} records of shape {data.description.input_shape}, "
            f"the files hold {len(data.inputs)} of shape {data.inputs.shape[1:]}; "
            "remove the folder and add the data anew."
        )
    return data


def _map_array(path: Path) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise CoreshotError(f"{path}: cannot be read ({error}); remove its folder and add the data anew.") from None


def check_data_name(name: str) -> str:
    if re.fullmatch("[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        return name
    raise CoreshotError(
        f"data set name {name!r}: a name has at most 64 letters, digits, '-', '_' and '.', "
        "and starts with a letter or digit; change it."
    )
