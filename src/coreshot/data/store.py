"""The shelf: data sets converted once into a memory-mapped layout, one client after another.

A set is a folder: images.npy (uint8, n x 28 x 28, 0 = paper, 255 = ink), labels.npy (uint8, 0 to 61) and index.json, which says which
rows belong to which client and where they came from. A set is whole or not there, and never changes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coreshot.data.handwriting.pixels import IMAGE_SHAPE
from coreshot.data.readers.protocol import Role
from coreshot.errors import CoreshotError
from coreshot.storage import read_json

VERSION = 1
HOME_VARIABLE = "CORESHOT_DATA"


@dataclass(frozen=True)
class Holder:
    """Who holds rows start to start + count; test images of a training client are a second holder of its name."""

    name: str
    role: Role
    start: int
    count: int

    @property
    def rows(self) -> slice:
        return slice(self.start, self.start + self.count)


@dataclass(frozen=True)
class ImageSet:
    """A set on the shelf; its arrays are mapped, so only rows that are used are read."""

    name: str
    holders: tuple[Holder, ...]
    images: np.ndarray
    labels: np.ndarray
    index: Mapping[str, Any]

    def of_role(self, *roles: Role) -> list[Holder]:
        return [holder for role in roles for holder in self.holders if holder.role == role]


def home() -> Path:
    return Path(os.environ.get(HOME_VARIABLE) or Path.home() / ".coreshot" / "data")


def names() -> list[str]:
    return sorted(path.parent.name for path in home().glob("*/index.json") if not path.parent.name.startswith("."))


def open_set(name: str) -> ImageSet:
    folder = home() / check_name(name)
    if not (folder / "index.json").exists():
        there = f"there are {', '.join(names())}" if names() else "it is empty"
        raise CoreshotError(
            f"data set {name!r} is not on the shelf ({home()}: {there}); add it with `coreshot data add {name} --from PATH`."
        )
    index = read_json(folder / "index.json")
    if index.get("version") != VERSION:
        raise CoreshotError(
            f"{folder}: layout version {index.get('version')}, this coreshot reads {VERSION}; remove the folder and add the data anew."
        )
    images, labels = _mapped(folder / "images.npy"), _mapped(folder / "labels.npy")
    holders = tuple(Holder(**holder) for holder in index["clients"])
    total = sum(holder.count for holder in holders)
    if images.shape != (total, *IMAGE_SHAPE) or labels.shape != (total,):
        raise CoreshotError(
            f"{folder}: the index says {total} images, the files hold {len(images)}; remove the folder and add the data anew."
        )
    return ImageSet(name, holders, images, labels, index)


def _mapped(path: Path) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise CoreshotError(f"{path}: cannot be read ({error}); remove its folder and add the data anew.") from None


def check_name(name: str) -> str:
    if re.fullmatch("[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        return name
    raise CoreshotError(
        f"data set name {name!r}: a name has at most 64 letters, digits, '-', '_' and '.', and starts with a letter or digit; change it."
    )
