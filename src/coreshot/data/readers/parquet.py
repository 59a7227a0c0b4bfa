"""Parquet, one line a record: Flower's FEMNIST (huggingface.co/datasets/flwrlabs/femnist: image, writer_id, character),
or any table with an input (an image file, or lists of numbers), a label and, if there are any, a client and a split.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
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
    stack_records,
)
from coreshot.data.readers.reading import (
    ALL_OTHERS,
    CLIENT_NAMES,
    INPUT_NAMES,
    LABEL_NAMES,
    Reading,
    find_name,
    list_names,
    need_name,
)
from coreshot.data.store import Role
from coreshot.errors import CoreshotError

LINES_AT_ONCE = 4096


@dataclass(frozen=True)
class _Layout:
    """Which column has what."""

    inputs: tuple[str, ...]  # one column of images or vectors, or several of numbers
    label: str
    client: str | None
    split: str | None
    class_names: tuple[str, ...] | None

    @property
    def is_wide(self) -> bool:
        """Whether a record's numbers lie in columns of their own."""
        return len(self.inputs) > 1


def read_parquet(file: SourceFile) -> Iterator[Batch]:
    import pyarrow as arrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(file.path) as table:
            yield from read_table(
                file, table.schema_arrow, lambda some: table.iter_batches(LINES_AT_ONCE, columns=some)
            )
    except (arrow.ArrowException, OSError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise CoreshotError(
            f"{file.name}: not a readable parquet file ({reason}); it may be cut short: get it again."
        ) from None


def read_table(file: SourceFile, schema: Any, read_columns: Callable[[list[str]], Iterable[Any]]) -> Iterator[Batch]:
    """The records of an Arrow table, some lines at a time."""
    import pyarrow as arrow

    layout = _find_layout(file, schema)
    needed = (*layout.inputs, layout.label)
    others = [one.name for one in schema if one.name not in needed and not arrow.types.is_nested(one.type)]
    line = 0
    for part in read_columns([*needed, *others]):
        columns = {name: part.column(name).to_pylist() for name in part.schema.names}
        yield from _read_lines(file, line, columns, layout)
        line += part.num_rows


def _find_layout(file: SourceFile, schema: Any) -> _Layout:
    reading, names = file.reading, list(schema.names)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise CoreshotError(f"{file.name}: two columns are called {twice!r}; rename one of them.")
    label = need_name(reading.labels, LABEL_NAMES, names, "labels", file.name)
    client = find_name(reading.clients, CLIENT_NAMES, names, "clients", file.name)
    split = find_name(reading.test, ("split",), names, "test", file.name)
    inputs = _find_inputs(file, schema, {label, client, split})
    return _Layout(inputs, label, client, split, reading.listed_class_names or _read_class_names(schema, label))


def _find_inputs(file: SourceFile, schema: Any, taken: set[str | None]) -> tuple[str, ...]:
    import pyarrow as arrow

    asked = file.reading.inputs
    numbers = [
        one.name
        for one in schema
        if one.name not in taken
        and (arrow.types.is_integer(one.type) or arrow.types.is_floating(one.type) or arrow.types.is_boolean(one.type))
    ]
    if asked == ALL_OTHERS and asked not in schema.names:
        if len(numbers) < 2:
            raise CoreshotError(f"{file.name}: --inputs all: there are {len(numbers)} other columns of numbers.")
        return tuple(numbers)
    if asked is not None and "," in asked and asked not in schema.names:
        several = tuple(part.strip() for part in asked.split(","))
        for name in several:
            find_name(name, (), schema.names, "inputs", file.name)
            if name not in numbers:
                raise CoreshotError(
                    f"{file.name}: --inputs {asked}: column {name!r} has no numbers, or is the label, the client or "
                    "the split; leave it out."
                )
        return several
    found = find_name(asked, INPUT_NAMES, schema.names, "inputs", file.name)
    if found is None:
        raise CoreshotError(
            f"{file.name}: no column is called {', '.join(INPUT_NAMES[:3])} or the like; {list_names(schema.names)}; "
            "say which has the inputs with --inputs NAME, or --inputs a,b,c for several, or --inputs all for all "
            "other numbers."
        )
    return (found,)


def _read_class_names(schema: Any, label: str) -> tuple[str, ...] | None:
    """The names of the numbered classes, where the file's metadata has them as Hugging Face writes them."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return tuple(features[label]["names"])
    except (KeyError, ValueError, TypeError):
        return None


def _read_lines(file: SourceFile, first: int, columns: dict[str, list[Any]], layout: _Layout) -> Iterator[Batch]:
    """A batch for the lines of each client and role."""
    inputs, labels = [columns.pop(name) for name in layout.inputs], columns.pop(layout.label)
    roles = [file.role] * len(labels)
    if layout.split is not None:
        roles = read_roles(columns[layout.split], file.name, first, layout.split).tolist()
    owners = _read_owners(file, first, columns, layout, roles)
    extra = {name: np.array(values) for name, values in columns.items() if None not in values}
    rows_of: dict[tuple[str | None, Role], list[int]] = {}
    for row, both in enumerate(zip(owners, roles, strict=True)):
        rows_of.setdefault(both, []).append(row)
    for (owner, role), rows in rows_of.items():
        where = file.name if owner in (None, NOBODY) else f"{file.name}, client {owner}"
        for name, values in ((layout.label, labels), *zip(layout.inputs, inputs, strict=True)):
            empty = next((row for row in rows if values[row] is None), None)
            if empty is not None:
                raise CoreshotError(f"{where}: {name} of line {first + empty} is null; fill or remove that line.")
        lines = [first + row for row in rows]
        if layout.is_wide:
            found = np.array([[values[row] for values in inputs] for row in rows], np.float64)
        else:
            found = _read_inputs(file.reading, [inputs[0][row] for row in rows], lines, where)
        yield Batch(
            where,
            owner,
            role,
            found,
            name_labels([labels[row] for row in rows], layout.class_names, where),
            layout.class_names,
            {name: values[rows] for name, values in extra.items()},
            is_complete=False,
        )


def _read_owners(
    file: SourceFile, first: int, columns: dict[str, list[Any]], layout: _Layout, roles: Sequence[str]
) -> list[str | None]:
    if layout.client is None:
        return [NOBODY if role == "test" else None for role in roles]
    values = columns[layout.client]
    if None in values:
        raise CoreshotError(
            f"{file.name}: {layout.client} of line {first + values.index(None)} is null, so its record belongs to no "
            "client; fill or remove that line."
        )
    return [make_client_name(layout.client, value) for value in values]


def _read_inputs(reading: Reading, values: list[Any], lines: list[int], where: str) -> np.ndarray:
    """[n, ...], from image files, from Hugging Face's structs of bytes and path, or from (nested) lists of numbers."""
    names = [f"{where}, line {line}" for line in lines]
    records = [_read_input(reading, value, name) for value, name in zip(values, names, strict=True)]
    return stack_records(records, names)


def _read_input(reading: Reading, value: Any, where: str) -> np.ndarray:
    if isinstance(value, dict):
        value = value.get("bytes")
        if value is None:
            raise CoreshotError(
                f"{where}: the image is only named, not in the file; save the table with its images embedded."
            )
    if isinstance(value, bytes):
        return decode_image(value, where, reading.channels, reading.size)
    return stack_inputs(value, where)
