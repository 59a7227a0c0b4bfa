"""Parquet, one line a record: Flower's FEMNIST (huggingface.co/datasets/flwrlabs/femnist: image, writer_id, character),
or any table with an input (an image file, or lists of numbers), a label and, if there are any, a client and a split.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coreshot.data.image_files import decode_image
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

INPUT_COLUMNS = ("image", "images", "pixels", "x")
LABEL_COLUMNS = ("character", "label", "labels", "y")
CLIENT_COLUMNS = ("writer_id", "client_id", "user_id", "writer", "client", "user", "writers", "clients", "users")
SPLIT_COLUMN = "split"
LINES_AT_ONCE = 4096


@dataclass(frozen=True)
class _Layout:
    """Which column has what."""

    input: str
    label: str
    client: str | None
    class_names: tuple[str, ...] | None


def read_parquet(file: SourceFile) -> Iterator[Batch]:
    import pyarrow as arrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(file.path) as table:
            schema = table.schema_arrow
            layout = _find_layout(file, schema)
            needed = (layout.input, layout.label)
            others = [one.name for one in schema if one.name not in needed and not arrow.types.is_nested(one.type)]
            line = 0
            for part in table.iter_batches(LINES_AT_ONCE, columns=[*needed, *others]):
                columns = {name: part.column(name).to_pylist() for name in part.schema.names}
                yield from _read_lines(file, line, columns, layout)
                line += part.num_rows
    except (arrow.ArrowException, OSError) as error:
        raise CoreshotError(
            f"{file.name}: not a readable parquet file ({error}); it may be cut short: get it again."
        ) from None


def _find_layout(file: SourceFile, schema: Any) -> _Layout:
    label = _find_column(file, schema.names, LABEL_COLUMNS, "labels")
    return _Layout(
        _find_column(file, schema.names, INPUT_COLUMNS, "images"),
        label,
        next((name for name in CLIENT_COLUMNS if name in schema.names), None),
        _read_class_names(schema, label),
    )


def _find_column(file: SourceFile, names: Sequence[str], known: Sequence[str], what: str) -> str:
    found = next((name for name in known if name in names), None)
    if found is None:
        raise CoreshotError(
            f"{file.name}: no column of {what}, only {', '.join(names)}; call it {known[0]!r} or {known[-1]!r}."
        )
    return found


def _read_class_names(schema: Any, label: str) -> tuple[str, ...] | None:
    """The names of the numbered classes, where the file's metadata has them as Hugging Face writes them."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return tuple(features[label]["names"])
    except (KeyError, ValueError, TypeError):
        return None


def _read_lines(file: SourceFile, first: int, columns: dict[str, list[Any]], layout: _Layout) -> Iterator[Batch]:
    """A batch for the lines of each client and role."""
    inputs, labels = columns.pop(layout.input), columns.pop(layout.label)
    roles = [file.role] * len(labels)
    if SPLIT_COLUMN in columns:
        roles = read_roles(columns[SPLIT_COLUMN], file.name, first).tolist()
    owners = _read_owners(file, first, columns, layout.client, roles)
    extra = {name: np.array(values) for name, values in columns.items() if None not in values}
    for owner, role in dict.fromkeys(zip(owners, roles, strict=True)):
        rows = [row for row, other in enumerate(zip(owners, roles, strict=True)) if other == (owner, role)]
        where = file.name if owner in (None, NOBODY) else f"{file.name}, client {owner}"
        for row in rows:
            if labels[row] is None or inputs[row] is None:
                column = layout.label if labels[row] is None else layout.input
                raise CoreshotError(f"{where}: {column} of line {first + row} is null; fill or remove that line.")
        yield Batch(
            where,
            owner,
            role,
            _read_inputs([inputs[row] for row in rows], [first + row for row in rows], where),
            name_labels([labels[row] for row in rows], layout.class_names, where),
            layout.class_names,
            {name: values[rows] for name, values in extra.items()},
            is_complete=False,
        )


def _read_owners(
    file: SourceFile, first: int, columns: dict[str, list[Any]], column: str | None, roles: Sequence[str]
) -> list[str | None]:
    if column is None:
        has_split = SPLIT_COLUMN in columns
        return [NOBODY if has_split and role == "test" else None for role in roles]
    values = columns[column]
    if None in values:
        raise CoreshotError(
            f"{file.name}: {column} of line {first + values.index(None)} is null, so its record belongs to no client; "
            "fill or remove that line."
        )
    return [make_client_name(column, value) for value in values]


def _read_inputs(values: list[Any], lines: list[int], where: str) -> np.ndarray:
    """[n, ...], from image files, from Hugging Face's structs of bytes and path, or from (nested) lists of numbers."""
    records = [_read_input(value, f"{where}, line {line}") for value, line in zip(values, lines, strict=True)]
    shapes = [record.shape for record in records]
    usual = max(set(shapes), key=shapes.count)
    for record, line in zip(records, lines, strict=True):
        if record.shape != usual:
            found, wanted = (" x ".join(map(str, shape)) for shape in (record.shape, usual))
            raise CoreshotError(f"{where}, line {line}: the record is {found}, the others are {wanted}; resize it.")
    return np.stack(records)


def _read_input(value: Any, where: str) -> np.ndarray:
    if isinstance(value, dict):
        value = value.get("bytes")
        if value is None:
            raise CoreshotError(
                f"{where}: the image is only named, not in the file; save the table with its images embedded."
            )
    return decode_image(value, where) if isinstance(value, bytes) else stack_inputs(value, where)
