"""A draft of a study from a file: its header, and if asked for a guess from its records."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow

from coreshot.data.cells import Cells, as_array, is_text
from coreshot.data.number_format import FORMATS, POINT, NumberColumn, NumberFormat, detect_format, parse_numbers
from coreshot.data.table import TableFile
from coreshot.data.table_files import read_table
from coreshot.errors import CoreshotError, check_text
from coreshot.study.draft import Draft, DraftColumn, DraftTarget, LeftOut
from coreshot.study.guess import IDENTIFIER, MIN_RECORDS, find_facts, guess_column
from coreshot.study.guess_target import TargetChoice, guess_target
from coreshot.study.looks import as_number, is_identifier_name, looks_like_date, looks_like_identifier


@dataclass(frozen=True)
class Source:
    """The columns of a table; with their cells where these may be used for guesses."""

    header: Sequence[str]
    cells: Mapping[str, Cells] | None
    read_as: str = ""  # how the file is written, in words

    def column(self, name: str) -> DraftColumn | LeftOut:
        if self.cells is not None:
            return guess_column(name, self.cells[name])
        return LeftOut(name, f"{IDENTIFIER}: its name does") if is_identifier_name(name) else DraftColumn(name)

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
        if all(isinstance(column, LeftOut) for column in columns):
            raise CoreshotError(
                "study new: no column is left beside the target, because each looks like an identifier, a date or "
                f"text, or has no two values that {MIN_RECORDS} records have; give a file with more, or --interactive."
            )
        return Draft(name, found, columns)


def open_source(path: Path, *, with_cells: bool) -> Source:
    if not path.is_file():
        raise CoreshotError(f"{path}: there is no such file; give a table whose first line names the columns.")
    table = read_table(path)
    header = refuse_a_record(list(table.columns), path)
    _refuse_names_among_cells(table, path)
    read_as = "; ".join([", ".join(table.read_as), *table.notes])
    return Source(header, _with_point(table, path) if with_cells else None, read_as)


def _refuse_names_among_cells(table: TableFile, path: Path) -> None:
    """A first line without numbers may be a record too: then its cells come again, or are identifiers like the rest."""
    for position, (name, cells) in enumerate(table.columns.items(), 1):
        counts = find_facts("", cells).counts
        num_alike = sum(looks_like_identifier(text) for text in counts) if looks_like_identifier(name) else 0
        if name in counts or (counts and num_alike > 0.5 * len(counts)):
            raise CoreshotError(
                f"{path}: entry {position} of its first line looks like a cell of the lines below, so the line looks "
                "like a record; add a first line with the names of the columns, and have it once."
            )


def _with_point(table: TableFile, path: Path) -> dict[str, Cells]:
    """The columns, with numbers that have a decimal point, whatever the file writes."""
    texts = {name: array for name, cells in table.columns.items() if is_text(array := as_array(cells))}
    columns = [NumberColumn(name, array, -math.inf, math.inf) for name, array in texts.items() if _are_numbers(array)]
    try:
        form = detect_format(columns, str(path), is_point_usual=table.is_point_usual)
    except CoreshotError:
        raise CoreshotError(
            f"{path}: its numbers can be read with a decimal comma, or with marks between thousands; "
            "save it with decimal points and nothing between thousands."
        ) from None
    if form == POINT:
        return dict(table.columns)
    return {**table.columns, **{column.name: _converted(column.texts, form) for column in columns}}


def _are_numbers(texts: pyarrow.Array) -> bool:
    num_present = len(texts) - texts.null_count
    return any(np.sum(np.isfinite(parse_numbers(texts, form))) > 0.8 * num_present for form in FORMATS)


def _converted(texts: pyarrow.Array, form: NumberFormat) -> list[str | None]:
    """What is not a number stays as it is."""
    pairs = zip(texts.to_pylist(), parse_numbers(texts, form).tolist(), strict=True)
    return [repr(number) if math.isfinite(number) else text for text, number in pairs]


def refuse_a_record(header: Sequence[str], path: Path) -> list[str]:
    """A file without a header has a record as its first line; its cells must not become names in a public file.

    Names may be numbers if they count: 0, 1, 2.
    """
    whole = sorted(int(name) for name in header if re.fullmatch(r"\d{1,18}", name, re.ASCII))
    is_count = not whole or (whole == list(range(whole[0], whole[0] + len(whole))) and (whole[0] <= 1 or whole[1:]))
    for position, name in enumerate(header, 1):
        if "\n" in name or "\r" in name:
            raise CoreshotError(
                f"{path}: entry {position} of its first line goes on over other lines, as with a quotation mark that "
                "is not closed; give each column a name of one line."
            )
        check_text(name, f"{path}: entry {position} of its first line")
        is_cell = looks_like_date(name) or math.isfinite(as_number(name)) or "@" in name
        if is_cell and not (is_count and name.isdecimal()):
            raise CoreshotError(
                f"{path}: entry {position} of its first line is a number, a date or an address, so the line looks like "
                "a record; add a first line with the names of the columns."
            )
    return list(header)
