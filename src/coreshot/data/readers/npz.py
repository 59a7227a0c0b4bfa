"""npz: an array of inputs, one of labels and, if there are any, of clients and of what is for testing.

Files that keep training and test records in arrays of their own (x_train, y_train, x_test, y_test, as Keras has them,
or train_images, train_labels, ...) are read as well, and so are image files that lie in one array, one after the
other, with an array `offsets` that says where each begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from coreshot.data.image_files import decode_image
from coreshot.data.readers.npz_archive import NpzArchive
from coreshot.data.readers.protocol import (
    NOBODY,
    Batch,
    SourceFile,
    make_client_name,
    name_labels,
    read_roles,
    stack_inputs,
    stack_records,
)
from coreshot.data.readers.reading import (
    CLASS_NAMES,
    CLIENT_NAMES,
    INPUT_NAMES,
    LABEL_NAMES,
    Reading,
    find_name,
    need_name,
)
from coreshot.data.store import Role
from coreshot.errors import CoreshotError

INPUT_KEYS, LABEL_KEYS = ("images", "x"), ("labels", "y")  # of a site's own file in a study
OFFSETS = "offsets"
BYTES_AT_ONCE = 1 << 26  # of inputs in a batch
ENCODED_AT_ONCE = 4096  # image files in a batch

ReadRows = Callable[[np.ndarray, str], np.ndarray]


@dataclass(frozen=True)
class _Part:
    """Arrays that belong together."""

    inputs: str
    labels: str
    role: Role | None = None  # None: the file's


def read_npz(file: SourceFile) -> Iterator[Batch]:
    archive = NpzArchive(file.path, file.name)
    for part in _find_parts(file, archive):
        yield from _read_part(file if part.role is None else replace(file, role=part.role), archive, part)


def _find_parts(file: SourceFile, archive: NpzArchive) -> list[_Part]:
    reading, there = file.reading, archive.shapes
    if reading.inputs is None and reading.labels is None and not any(name in there for name in INPUT_NAMES):
        pairs = [(x, y) for x in INPUT_NAMES for y in LABEL_NAMES]
        for form in ("{}_{}", "{1}_{0}"):
            for x, y in pairs:
                names = {role: (form.format(x, role), form.format(y, role)) for role in ("train", "test")}
                if set(names["train"]) <= set(there):
                    parts = [_Part(*names["train"], "train")]
                    return parts + ([_Part(*names["test"], "test")] if set(names["test"]) <= set(there) else [])
    return [
        _Part(
            need_name(reading.inputs, INPUT_NAMES, there, "inputs", file.name),
            need_name(reading.labels, LABEL_NAMES, there, "labels", file.name),
        )
    ]


def _read_part(file: SourceFile, archive: NpzArchive, part: _Part) -> Iterator[Batch]:
    size, read_rows, at_once = _open_inputs(file, archive, part)
    labels, class_names = archive.load(part.labels), _read_class_names(file, archive, size)
    _check_length(file, part.labels, labels, size)
    used = (part.inputs, part.labels, OFFSETS)
    # An array of another length, or of another number of axes, says nothing about single records.
    columns = {name: archive.load(name) for name, shape in archive.shapes.items() if shape == (size,)}
    columns = {name: array for name, array in columns.items() if name not in used}
    roles = _read_roles(file, archive, columns, size)
    for client, rows in _split_by_client(file, archive, columns, size):
        where = file.name if client is None else f"{file.name}, {client}"
        for role in np.unique(roles[rows]).tolist():
            some = rows[roles[rows] == role]
            owner = NOBODY if client is None and role == "test" else client
            for first in range(0, len(some), at_once):
                piece = some[first : first + at_once]
                found = labels[piece]
                yield Batch(
                    where,
                    owner,
                    "test" if client == NOBODY else role,
                    read_rows(piece, where),
                    name_labels(found.tolist(), class_names, where) if class_names else found,
                    class_names,
                    {name: array[piece] for name, array in columns.items()},
                    is_complete=first + at_once >= len(some),
                )


def _open_inputs(file: SourceFile, archive: NpzArchive, part: _Part) -> tuple[int, ReadRows, int]:
    """The number of records, what reads some of them, and how many at once."""
    inputs = archive.map(part.inputs)
    if inputs.ndim == 0 or len(inputs) == 0:
        raise CoreshotError(f"{file.name}: there are no {part.inputs} in it; check how it was saved.")
    if inputs.ndim == 1 and inputs.dtype == np.uint8 and OFFSETS in archive.shapes:
        offsets = _check_offsets(file, archive.load(OFFSETS), len(inputs))

        def decode(rows: np.ndarray, where: str) -> np.ndarray:
            files = (inputs[offsets[row] : offsets[row + 1]].tobytes() for row in rows)
            return _decode(file.reading, files, rows, where)

        return len(offsets) - 1, decode, ENCODED_AT_ONCE
    at_once = max(1, BYTES_AT_ONCE // max(1, inputs[:1].nbytes))
    return len(inputs), lambda rows, where: stack_inputs(inputs[rows], where), at_once


def _check_offsets(file: SourceFile, offsets: np.ndarray, end: int) -> np.ndarray:
    is_whole = offsets.ndim == 1 and offsets.dtype.kind in "iu" and len(offsets) > 1
    if not is_whole or np.any(np.diff(offsets.astype(np.int64)) <= 0) or offsets[0] < 0 or offsets[-1] > end:
        raise CoreshotError(
            f"{file.name}: {OFFSETS} are not rising whole numbers up to {end}; image i lies from offsets[i] to "
            "offsets[i + 1]: save them so."
        )
    return offsets.astype(np.int64)


def _decode(reading: Reading, files: Iterator[bytes], rows: np.ndarray, where: str) -> np.ndarray:
    images = [
        decode_image(content, f"{where}, image {row}", reading.channels, reading.size)
        for content, row in zip(files, rows, strict=True)
    ]
    return stack_records(images, [f"{where}, image {row}" for row in rows])


def _check_length(file: SourceFile, name: str, array: np.ndarray, size: int) -> None:
    if array.ndim == 0 or len(array) != size:
        found = len(array) if array.ndim else "a single value in"
        raise CoreshotError(f"{file.name}: {size} records but {found} {name}; give one for each record.")


def _read_class_names(file: SourceFile, archive: NpzArchive, size: int) -> tuple[str, ...] | None:
    reading = file.reading
    if reading.listed_class_names is not None:
        return reading.listed_class_names
    name = find_name(reading.class_names, CLASS_NAMES, archive.shapes, "class-names", file.name)
    if name is None or (reading.class_names is None and archive.shapes[name] == (size,)):  # one for each record
        return None
    return tuple(
        one.decode("utf-8", "replace") if isinstance(one, bytes) else str(one) for one in archive.load(name).tolist()
    )


def _read_roles(file: SourceFile, archive: NpzArchive, columns: dict[str, np.ndarray], size: int) -> np.ndarray:
    name = find_name(file.reading.test, ("split",), archive.shapes, "test", file.name)
    if name is None:
        return np.full(size, file.role)
    if name not in columns:
        _check_length(file, name, archive.load(name), size)
        raise CoreshotError(
            f"{file.name}: {name} has shape {archive.shapes[name]}; give one number or word for each record."
        )
    return read_roles(columns[name].tolist(), file.name, name=name)


def _split_by_client(
    file: SourceFile, archive: NpzArchive, columns: dict[str, np.ndarray], size: int
) -> Iterator[tuple[str | None, np.ndarray]]:
    """The rows of each client, clients in the order of their ids."""
    key = find_name(file.reading.clients, CLIENT_NAMES, archive.shapes, "clients", file.name)
    if key is not None and key not in columns:
        _check_length(file, key, archive.load(key), size)
        raise CoreshotError(f"{file.name}: {key} has shape {archive.shapes[key]}; give one client for each record.")
    if key is None:
        yield None, np.arange(size)
        return
    values, number = np.unique(_check_clients(file, key, columns[key]), return_inverse=True)
    order = np.argsort(number, kind="stable")
    for value, rows in zip(values.tolist(), np.split(order, np.cumsum(np.bincount(number))[:-1]), strict=True):
        yield NOBODY if value == _id_of_nobody(columns[key].dtype) else make_client_name(key, value), rows


def _check_clients(file: SourceFile, key: str, ids: np.ndarray) -> np.ndarray:
    """Ids of a floating type are whole numbers that a table program has turned."""
    if ids.dtype.kind != "f":
        return ids
    bad = np.flatnonzero(~np.isfinite(ids) | (ids != np.floor(ids)))
    if len(bad):
        raise CoreshotError(
            f"{file.name}: {key} of record {bad[0]} is {ids[bad[0]]:g}, which names no client; "
            "clients are whole numbers or text."
        )
    return ids.astype(np.int64)


def _id_of_nobody(dtype: np.dtype[Any]) -> int | None:
    """The id that marks a test record which no client holds: the highest of an unsigned type, such as 65535."""
    return int(np.iinfo(dtype).max) if dtype.kind == "u" else None
