"""A draft of a study from a file: its header, and if asked for a guess from its records."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from coreshot.data.files import check_header, read_columns
from coreshot.data.schema import Cells
from coreshot.errors import CoreshotError
from coreshot.study.draft import Draft, DraftColumn, DraftTarget, LeftOut
from coreshot.study.guess import MIN_RECORDS, guess_column
from coreshot.study.guess_target import TargetChoice, guess_target
from coreshot.study.looks import as_number, looks_like_date


@dataclass(frozen=True)
class Source:
    """The columns of a table; with their cells where these may be used for guesses."""

    header: Sequence[str]
    cells: Mapping[str, Cells] | None

    def column(self, name: str) -> DraftColumn | LeftOut:
        return DraftColumn(name) if self.cells is None else guess_column(name, self.cells[name])

    def target(self, name: str, choice: TargetChoice) -> DraftTarget:
        """Without cells only what a person has decided is known."""
        if name not in self.header:
            names = ", ".join(map(repr, self.header))
            raise CoreshotError(f"study new: the target {name!r} is not among the columns {names}; name one of them.")
        if self.cells is not None:
            return guess_target(name, self.cells[name], choice)
        return DraftTarget(name, "regression" if choice.is_quantity else "classification", tuple(choice.classes))

    def draft(self, name: str, target: str, choice: TargetChoice) -> Draft:
        found = self.target(target, choice)
        columns = tuple(self.column(column) for column in self.header if column != target)
        if columns and all(isinstance(column, LeftOut) for column in columns):
            raise CoreshotError(
                "study new --guess: every column looks like an identifier, a date or text, or has no value that "
                f"{MIN_RECORDS} records have, so none is left; give a file with more records, or leave out --guess."
            )
        return Draft(name, found, columns)


def open_source(path: Path, *, with_cells: bool) -> Source:
    cells = read_columns(path) if with_cells or path.suffix.lower() != ".csv" else None
    header = refuse_a_record(csv_header(path) if cells is None else list(cells), path)
    return Source(header, cells if with_cells else None)


def refuse_a_record(header: Sequence[str], path: Path) -> list[str]:
    """A file without a header has a record as its first line; its cells must not become names in a public file.

    Names may be numbers if they count: 0, 1, 2.
    """
    whole = sorted(int(name) for name in header if re.fullmatch(r"\d{1,18}", name, re.ASCII))
    is_count = not whole or (whole == list(range(whole[0], whole[0] + len(whole))) and (whole[0] <= 1 or whole[1:]))
    for position, name in enumerate(header, 1):
        is_cell = looks_like_date(name) or math.isfinite(as_number(name)) or "@" in name
        if is_cell and not (is_count and name.isdecimal()):
            raise CoreshotError(
                f"{path}: entry {position} of its first line is a number, a date or an address, so the line looks like "
                "a record; add a first line with the names of the columns."
            )
    return list(header)


def csv_header(path: Path) -> list[str]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            header = next(csv.reader(file), [])
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CoreshotError(
            f"{path}: cannot be read as CSV ({error}); give a file whose first line names the columns."
        ) from None
    if not header:
        raise CoreshotError(f"{path}: the first line does not name columns; add a header.")
    return check_header(header, path)
