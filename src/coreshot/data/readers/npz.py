"""npz: arrays `images` and `labels`, who wrote them in `clients` or `writers`, and which images are for testing in `split`."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator

import numpy as np

from coreshot.data.handwriting.labels import code_labels
from coreshot.data.handwriting.pixels import as_pixels
from coreshot.data.readers.protocol import NOBODY, Batch, Role, SourceFile, client_name
from coreshot.errors import CoreshotError

CLIENT_KEYS = ("clients", "writers")
SPLITS: dict[int, Role] = {0: "train", 1: "test", 2: "extra"}


def read(file: SourceFile) -> Iterator[Batch]:
    arrays = _arrays(file)
    images, labels = as_pixels(arrays.pop("images"), file.name), arrays.pop("labels")
    key = next((key for key in CLIENT_KEYS if key in arrays), None)
    arrays = {
        name: array for name, array in arrays.items() if array.ndim == 1
    }  # one value an image; others say nothing of single images
    for name, array in {"labels": labels, **arrays}.items():
        if len(array) != len(images):
            raise CoreshotError(f"{file.name}: {len(images)} images but {len(array)} {name}; give one for each image.")
    roles = _roles(file, arrays, len(images))
    for client, rows in [(None, np.arange(len(images)))] if key is None else _rows_of_clients(arrays[key], key):
        where = file.name if client is None else f"{file.name}, {client}"
        for role in np.unique(roles[rows]).tolist():
            some = rows[roles[rows] == role]
            columns = {name: array[some] for name, array in arrays.items()}
            holder = NOBODY if client is None and role == "test" else client
            yield Batch(
                where,
                holder,
                "test" if client == NOBODY else role,
                images[some],
                code_labels(labels[some], where),
                columns,
            )


def _arrays(file: SourceFile) -> dict[str, np.ndarray]:
    try:
        with file.path.open("rb") as opened, np.load(opened, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
    except (
        AttributeError,
        TypeError,
        ValueError,
        OSError,
        EOFError,
        KeyError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise CoreshotError(
            f"{file.name}: not a readable npz file ({error}); it may be cut short: get it again."
        ) from None
    for key in ("images", "labels"):
        if key not in arrays:
            raise CoreshotError(
                f"{file.name}: there is no array {key!r}, only {', '.join(sorted(arrays)) or 'nothing'}; save images and labels."
            )
        if arrays[key].ndim == 0 or len(arrays[key]) == 0:
            raise CoreshotError(f"{file.name}: there are no {key} in it; check how it was saved.")
    return arrays


def _roles(file: SourceFile, arrays: dict[str, np.ndarray], size: int) -> np.ndarray:
    split = arrays.get("split")
    if split is None:
        return np.full(size, file.role)
    bad = np.flatnonzero(~np.isin(split, list(SPLITS)))
    if len(bad):
        raise CoreshotError(
            f"{file.name}: split of image {bad[0]} is {split[bad[0]]}; 0 is a training client, 1 a test client, 2 an extra one."
        )
    return np.array([SPLITS[number] for number in range(len(SPLITS))])[split.astype(int)]


def _rows_of_clients(clients: np.ndarray, key: str) -> Iterator[tuple[str, np.ndarray]]:
    """Each client's rows, clients in the order of their ids."""
    values, number = np.unique(clients, return_inverse=True)
    order = np.argsort(number, kind="stable")
    for value, rows in zip(values.tolist(), np.split(order, np.cumsum(np.bincount(number))[:-1]), strict=True):
        yield NOBODY if value == _nobody(clients.dtype) else client_name(key, value), rows


def _nobody(dtype: np.dtype) -> int | None:
    """The id that marks a test image which no client holds: the highest of an unsigned type, such as 65535."""
    return int(np.iinfo(dtype).max) if dtype.kind == "u" else None
