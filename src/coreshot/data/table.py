"""A table as it was read from a site's file: columns by name, and in words how it was read."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from coreshot.data.cells import Cells
from coreshot.errors import CoreshotError, without_marks


@dataclass(frozen=True)
class TableFile:
    """`read_as` says how the file is written, `notes` what was left out; neither has a cell of it."""

    columns: Mapping[str, Cells]
    read_as: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    is_point_usual: bool = True  # whether a number such as 1.234 has decimals, where nothing else decides


def check_header(names: Sequence[str], path: Path, known: Collection[str] = ()) -> list[str]:
    """Column names without spaces around them; two that are the same are refused.

    A file without a header has a record in its place, so only names that are public are in an error."""
    clean = [unicodedata.normalize("NFC", without_marks(str(name)).strip()) for name in names]
    for index, name in enumerate(clean):
        first = clean.index(name)
        if name and first < index:
            which = f"columns {first + 1} and {index + 1} have the same name"
            raise CoreshotError(
                f"{path}: {f'two columns are called {name!r}' if name in known else which}; rename one of them."
            )
    return clean


def named_columns(
    names: Sequence[str], columns: Sequence[Cells], path: Path, known: Collection[str]
) -> tuple[dict[str, Cells], list[str]]:
    """Columns by name, and a note where some have none: programs write the numbers of lines so."""
    clean = check_header(names, path, known)
    nameless = [str(index) for index, name in enumerate(clean, 1) if not name]
    notes = [f"column {', '.join(nameless)} without a name left out"] if nameless else []
    return {name: column for name, column in zip(clean, columns, strict=True) if name}, notes
