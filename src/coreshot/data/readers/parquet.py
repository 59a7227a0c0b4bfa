"""Parquet, one line an image: as Flower publishes FEMNIST (huggingface.co/datasets/flwrlabs/femnist: image, writer_id, hsf_id, character),
or any table with an image (PNG, or 784 numbers), a label and, best, a client.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from coreshot.data.handwriting.labels import code_labels
from coreshot.data.handwriting.pixels import IMAGE_SHAPE, as_pixels
from coreshot.data.readers.protocol import Batch, SourceFile, client_name
from coreshot.errors import CoreshotError

IMAGE_COLUMNS = ("image", "images", "pixels", "x")
LABEL_COLUMNS = ("character", "label", "labels", "y")
CLIENT_COLUMNS = ("writer_id", "client_id", "user_id", "writer", "client", "user", "writers", "clients", "users")
GREY_MODES = ("1", "L", "LA", "P", "RGB", "RGBA")  # of Pillow; others have more than 8 bits
LINES_AT_ONCE = 4096


def read(file: SourceFile) -> Iterator[Batch]:
    import pyarrow as arrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(file.path) as table:
            schema = table.schema_arrow
            image = _find(file, schema.names, IMAGE_COLUMNS, "images")
            label = _find(file, schema.names, LABEL_COLUMNS, "labels")
            client = next((name for name in CLIENT_COLUMNS if name in schema.names), None)
            others = [
                one.name for one in schema if one.name not in (image, label) and not arrow.types.is_nested(one.type)
            ]
            line = 0
            for part in table.iter_batches(LINES_AT_ONCE, columns=[image, label, *others]):
                columns = {name: part.column(name).to_pylist() for name in part.schema.names}
                yield from _batches(file, line, columns, (image, label, client), _class_names(schema, label))
                line += part.num_rows
    except (arrow.ArrowException, OSError) as error:
        raise CoreshotError(
            f"{file.name}: not a readable parquet file ({error}); it may be cut short: get it again."
        ) from None


def _find(file: SourceFile, names: Sequence[str], known: Sequence[str], what: str) -> str:
    found = next((name for name in known if name in names), None)
    if found is None:
        raise CoreshotError(f"{file.name}: no column of {what}, only {', '.join(names)}; call it {known[0]!r}.")
    return found


def _class_names(schema: Any, label: str) -> list[str] | None:
    """What the numbers stand for, where the file says so as Hugging Face does; the coding is then checked by translating it."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return list(features[label]["names"])
    except (KeyError, ValueError, TypeError):
        return None


def _batches(
    file: SourceFile,
    first: int,
    columns: dict[str, list[Any]],
    roles: tuple[str, str, str | None],
    class_names: list[str] | None,
) -> Iterator[Batch]:
    """The lines of each client that came together."""
    image, label, client = roles
    images, labels = columns.pop(image), columns.pop(label)
    owners = _owners(file, first, columns[client], client) if client else [None] * len(images)
    extra = {name: np.array(values) for name, values in columns.items() if None not in values}
    for owner in dict.fromkeys(owners):
        rows = [row for row, other in enumerate(owners) if other == owner]
        where = file.name if owner is None else f"{file.name}, client {owner}"
        for row in rows:
            if labels[row] is None or images[row] is None:
                raise CoreshotError(
                    f"{where}: {label if labels[row] is None else image} of line {first + row} is null; fill or remove that line."
                )
        yield Batch(
            where,
            owner,
            file.role,
            np.concatenate([_image(images[row], f"{where}, line {first + row}") for row in rows]),
            code_labels(_named([labels[row] for row in rows], class_names, where), where),
            {name: values[rows] for name, values in extra.items()},
            is_all=False,
        )


def _owners(file: SourceFile, first: int, values: list[Any], column: str) -> list[str]:
    if None in values:
        raise CoreshotError(
            f"{file.name}: {column} of line {first + values.index(None)} is null, so its image belongs to no client; fill or remove that line."
        )
    return [client_name(column, value) for value in values]


def _named(labels: list[Any], class_names: list[str] | None, where: str) -> list[Any]:
    if class_names is None or not all(isinstance(label, int) for label in labels):
        return labels
    bad = next((label for label in labels if not 0 <= label < len(class_names)), None)
    if bad is not None:
        raise CoreshotError(
            f"{where}: label {bad} has no name among the {len(class_names)} that the file gives; relabel or remove its images."
        )
    return [class_names[label] for label in labels]


def _image(value: Any, where: str) -> np.ndarray:
    """[1, 28, 28]: from PNG bytes, from Hugging Face's struct of bytes and path, or from a list of numbers."""
    if isinstance(value, dict):
        value = value.get("bytes")
        if value is None:
            raise CoreshotError(
                f"{where}: the image is only named, not in the file; save the table with its images embedded."
            )
    return as_pixels(np.asarray(_decode(value, where) if isinstance(value, bytes) else value)[None], where)


def _decode(data: bytes, where: str) -> np.ndarray:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data)) as image:
            if image.mode not in GREY_MODES:
                raise CoreshotError(f"{where}: an image of mode {image.mode}; save it as PNG with 8 bits a pixel.")
            if image.size != IMAGE_SHAPE:
                raise CoreshotError(
                    f"{where}: the image is {image.size[1]} x {image.size[0]}, and coreshot reads images of 28 x 28; resize it."
                )
            return np.asarray(image.convert("L"))
    except (OSError, SyntaxError, ValueError) as error:
        if isinstance(error, CoreshotError):
            raise
        raise CoreshotError(f"{where}: not a readable image ({error}); mend or remove it.") from None
