"""npz: arrays `images` or `x`, `labels` or `y`, `clients` or `writers`; optionally `split` and `class_names`."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from coreshot.data.readers.protocol import (
    NOBODY,
    Batch,
    SourceFile,
    make_client_name,
    name_labels,
    read_roles,
    stack_inputs,
)
from coreshot.errors import CoreshotError

INPUT_KEYS, LABEL_KEYS = ("images", "x"), ("labels", "y")
CLIENT_KEYS = ("clients", "writers")


def read_npz(file: SourceFile) -> Iterator[Batch]:
    arrays = load_arrays(file.path, file.name)
    inputs = stack_inputs(_pop(file, arrays, INPUT_KEYS), file.name)
    labels = _pop(file, arrays, LABEL_KEYS)
    class_names = tuple(map(str, arrays.pop("class_names").tolist())) if "class_names" in arrays else None
    # An array of another number of axes says nothing about single records.
    arrays = {name: array for name, array in arrays.items() if array.ndim == 1}
    for name, array in {"labels": labels, **arrays}.items():
        if len(array) != len(inputs):
            raise CoreshotError(
                f"{file.name}: {len(inputs)} records but {len(array)} {name}; give one for each record."
            )
    roles = read_roles(arrays["split"].tolist(), file.name) if "split" in arrays else np.full(len(inputs), file.role)
    for client, rows in _split_by_client(arrays, len(inputs)):
        where = file.name if client is None else f"{file.name}, {client}"
        for role in np.unique(roles[rows]).tolist():
            some = rows[roles[rows] == role]
            yield Batch(
                where,
                NOBODY if client is None and role == "test" else client,
                "test" if client == NOBODY else role,
                inputs[some],
                name_labels(labels[some].tolist(), class_names, where) if class_names else labels[some],
                class_names,
                {name: array[some] for name, array in arrays.items()},
            )


def load_arrays(path: Path, where: str) -> dict[str, np.ndarray]:
    """All arrays of an npz file; nothing in it is unpickled."""
    try:
        with path.open("rb") as opened:
            archive = np.load(opened, allow_pickle=False)
            if isinstance(archive, np.ndarray):
                raise ValueError("it is a single array, as in an npy file")
            return {key: archive[key] for key in archive.files}
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise CoreshotError(
            f"{where}: not a readable npz file ({reason}); it may be cut short: get it again, "
            "or save it again with numpy.savez."
        ) from None


def _pop(file: SourceFile, arrays: dict[str, np.ndarray], keys: Sequence[str]) -> np.ndarray:
    key = next((key for key in keys if key in arrays), None)
    if key is None:
        raise CoreshotError(
            f"{file.name}: there is no array {keys[0]!r} or {keys[1]!r}, only "
            f"{', '.join(sorted(arrays)) or 'nothing'}; save images or x, and labels or y."
        )
    if arrays[key].ndim == 0 or len(arrays[key]) == 0:
        raise CoreshotError(f"{file.name}: there are no {key} in it; check how it was saved.")
    return arrays.pop(key)


def _split_by_client(arrays: dict[str, np.ndarray], size: int) -> Iterator[tuple[str | None, np.ndarray]]:
    """The rows of each client, clients in the order of their ids."""
    key = next((key for key in CLIENT_KEYS if key in arrays), None)
    if key is None:
        yield None, np.arange(size)
        return
    values, number = np.unique(arrays[key], return_inverse=True)
    order = np.argsort(number, kind="stable")
    for value, rows in zip(values.tolist(), np.split(order, np.cumsum(np.bincount(number))[:-1]), strict=True):
        yield NOBODY if value == _id_of_nobody(arrays[key].dtype) else make_client_name(key, value), rows


def _id_of_nobody(dtype: np.dtype) -> int | None:
    """The id that marks a test record which no client holds: the highest of an unsigned type, such as 65535."""
    return int(np.iinfo(dtype).max) if dtype.kind == "u" else None
