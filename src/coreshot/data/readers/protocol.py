"""What every reader yields, whatever the format of its file: the raw records of one client after another."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from coreshot.data.readers.reading import Reading
from coreshot.data.store import ROLES, Role
from coreshot.errors import CoreshotError

NOBODY = "nobody"  # holds the test records that no client has
SPLITS: dict[Any, Role] = {0: "train", 1: "test", 2: "extra", **{role: role for role in ROLES}}


@dataclass(frozen=True)
class SourceFile:
    path: Path
    name: str  # as it is shown and recorded: relative to the path that the user gave
    role: Role = "train"
    reading: Reading = field(default_factory=Reading)  # what the user said about it


@dataclass(frozen=True)
class Batch:
    """Records that were read together, as the source has them."""

    where: str  # file and client, for messages
    client: str | None  # None: the source names no clients
    role: Role
    inputs: np.ndarray  # [n, ...] numbers
    labels: Any  # [n] numbers or text
    class_names: tuple[str, ...] | None = None  # all of them, in order, where the source names them
    columns: dict[str, np.ndarray] = field(default_factory=dict)  # whatever else the source says of each record
    is_complete: bool = True  # False where more records of this client in this role may follow


@dataclass(frozen=True)
class FileFormat:
    suffixes: tuple[str, ...]
    read: Callable[[SourceFile], Iterator[Batch]]
    preparation: str = "general"  # by default, for files of this format
    find: Callable[[Path], list[SourceFile]] | None = None  # for sources that are folders and not files


def make_client_name(column: str, value: object) -> str:
    """Text is the name itself; a number gets the name of its column: client-17, writer-17."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, str):
        return value
    return f"{re.sub('(_?ids?|s)$', '', column) or 'client'}-{value}"


def name_labels(labels: Sequence[Any], class_names: Sequence[str] | None, where: str) -> Sequence[Any]:
    """The names of numbered classes, where the source has a list of names."""
    if class_names is None or not all(isinstance(label, int) for label in labels):
        return labels
    bad = next((label for label in labels if not 0 <= label < len(class_names)), None)
    if bad is not None:
        raise CoreshotError(
            f"{where}: label {bad} has no name among the {len(class_names)} that the file gives; "
            "relabel or remove its records."
        )
    return [class_names[label] for label in labels]


def read_roles(split: Sequence[Any], where: str, first: int = 0, name: str = "split") -> np.ndarray:
    """The role of each record, from numbers, from words, or from yes and no: a record that is for testing."""
    roles = [SPLITS.get(value.strip().lower() if isinstance(value, str) else value) for value in split]
    if None in roles:
        bad = roles.index(None)
        raise CoreshotError(
            f"{where}: {name} of record {first + bad} is {split[bad]}; "
            "0 is a training client, 1 a test client, 2 an extra one."
        )
    return np.array(roles)


def stack_inputs(values: Any, where: str, dtype: type[np.float32] | None = None) -> np.ndarray:
    """[n, ...] of numbers, from an array or from lists."""
    if isinstance(values, np.ndarray) and values.ndim == 0:
        raise CoreshotError(f"{where}: a single value in place of records; give all numbers of each record.")
    try:
        return np.asarray(values, dtype)
    except (TypeError, ValueError):  # records of different sizes, or no numbers
        raise CoreshotError(f"{where}: {_find_odd_record(values)}; mend or remove it.") from None


def _find_odd_record(values: Iterable[Any]) -> str:
    sizes = [np.asarray(record, dtype=object).size for record in values]
    usual = max(set(sizes), key=sizes.count)
    odd = next((index for index, size in enumerate(sizes) if size != usual), None)
    return "inputs are not numbers" if odd is None else f"record {odd} has {sizes[odd]} numbers, not {usual}"


def stack_records(records: Sequence[np.ndarray], names: Sequence[str]) -> np.ndarray:
    """In one array: all of one shape, or an error that names the first that differs from most."""
    shapes = [record.shape for record in records]
    usual = max(set(shapes), key=shapes.count)
    for name, shape in zip(names, shapes, strict=True):
        if shape != usual:
            found, wanted = (" x ".join(map(str, one)) or "a single number" for one in (shape, usual))
            forms = ", or bring all to one form with --size HEIGHTxWIDTH and --channels 1 or 3"
            raise CoreshotError(
                f"{name}: the record is {found}, the others are {wanted}; resize it{forms if len(shape) == 3 else ''}."
            )
    return np.stack(records)
