"""What every reader gives, whatever the form of its file: images of one client after another."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

Role = Literal["train", "extra", "test"]
ROLES: tuple[Role, ...] = ("train", "extra", "test")  # extra clients train only where the first kind is too few
NOBODY = "nobody"  # holds the test images that no client has


@dataclass(frozen=True)
class SourceFile:
    path: Path
    name: str  # as it is shown and recorded: relative to what the person pointed at
    role: Role = "train"


@dataclass(frozen=True)
class Batch:
    """Images that came together."""

    where: str  # file and client, for messages
    client: str | None  # None: the source says nothing of clients
    role: Role
    images: np.ndarray  # [n, 28, 28] uint8, with the background that the source has
    labels: np.ndarray  # [n] uint8, 0 to 61
    columns: dict[str, np.ndarray] = field(default_factory=dict)  # whatever else the source says of each image
    is_all: bool = True  # of this client in this role; False where more may follow


@dataclass(frozen=True)
class Form:
    suffixes: tuple[str, ...]
    read: Callable[[SourceFile], Iterator[Batch]]


def client_name(column: str, value: object) -> str:
    """A text is its own name; a number gets the name of its column: client-17, writer-17."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, str):
        return value
    return f"{re.sub('(_?ids?|s)$', '', column) or 'client'}-{value}"
