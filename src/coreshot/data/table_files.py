"""The columns of a site's table by name, from any format: text, parquet, npz, Excel."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from coreshot.data.cells import Cells, as_array
from coreshot.data.readers.npz_archive import load_arrays
from coreshot.data.site_settings import DETECT, SiteSettings
from coreshot.data.table import TableFile, check_header, named_columns
from coreshot.data.text_tables import read_text_table
from coreshot.errors import CoreshotError


def read_table(path: Path, how: SiteSettings = DETECT, known: Collection[str] = ()) -> TableFile:
    """The columns of a table as the file has them. `known` are the study's names, which are public."""
    suffix = path.suffix.lower()
    try:
        if suffix in WRITTEN_FORMATS:
            return WRITTEN_FORMATS[suffix](path, how, known)
        if suffix in TABLE_FORMATS:
            return TableFile(TABLE_FORMATS[suffix](path), (suffix.removeprefix("."),))
    except (pyarrow.ArrowException, UnicodeDecodeError, OSError) as error:  # the text of some may have cells
        reason = f" ({error.strerror})" if isinstance(error, OSError) and error.strerror else ""
        raise CoreshotError(f"{path}: cannot be read{reason}; give a whole {suffix} file.") from None
    *first, last = (*WRITTEN_FORMATS, *TABLE_FORMATS)
    raise CoreshotError(f"{path}: a table is a file ending in {', '.join(first)} or {last}; give one of these.")


def read_columns(path: Path) -> dict[str, list[Any]]:
    """The columns of a table by name, as lists of text, numbers and None."""
    return {name: as_array(cells).to_pylist() for name, cells in read_table(path).columns.items()}


def rename_columns(columns: Mapping[str, Cells], names: Mapping[str, str], path: Path) -> dict[str, Cells]:
    """Columns by the names that a site's own settings give them."""
    lost = next((name for name in names if name not in columns), None)
    if lost is not None:
        raise CoreshotError(f"{path}: has no column {lost!r}, which the site's settings rename; mend [columns].")
    renamed = [names.get(name, name) for name in columns]
    check_header(renamed, path, set(names.values()))
    return dict(zip(renamed, columns.values(), strict=True))


def _read_parquet(path: Path) -> dict[str, Cells]:
    table = pyarrow.parquet.read_table(path)
    table.validate(full=True)  # a damaged file may have text that is none, which would only be noticed later
    names = check_header(table.column_names, path)
    # Lists and structures are no cells; a study that wants such a column is told that it is not there.
    return {
        name: column
        for name, column in zip(names, table.columns, strict=True)
        if not pyarrow.types.is_nested(column.type)
    }


def _read_npz(path: Path) -> dict[str, Cells]:
    return {name: array for name, array in load_arrays(path, str(path)).items() if array.ndim == 1}


def _read_excel(path: Path, how: SiteSettings, known: Collection[str]) -> TableFile:
    try:
        import python_calamine as calamine
    except ImportError:
        raise CoreshotError(
            f"{path}: Excel files need python-calamine; install it with `pip install 'coreshot[excel]'`, "
            "or save the sheet as CSV."
        ) from None
    try:
        book = calamine.CalamineWorkbook.from_path(str(path))
        sheets = book.sheet_names
        sheet = _choose_sheet(sheets, how.sheet, path)
        rows = book.get_sheet_by_name(sheet).to_python(skip_empty_area=True)
    except (calamine.CalamineError, calamine.PasswordError, calamine.ZipError, calamine.XmlError, OSError):
        raise CoreshotError(f"{path}: cannot be read as an Excel file; give a whole one without a password.") from None
    rows = [row for row in rows if any(cell != "" for cell in row)]
    if not rows:
        raise CoreshotError(f"{path}: the sheet {sheet!r} is empty; give one whose first line names the columns.")
    columns = [_excel_column([row[index] for row in rows[1:]]) for index in range(len(rows[0]))]
    found, notes = named_columns([str(name) for name in rows[0]], columns, path, known)
    return TableFile(found, ("Excel", f"sheet {sheet!r}"), tuple(notes), is_point_usual=False)


def _choose_sheet(sheets: list[str], wanted: str | None, path: Path) -> str:
    if wanted is None and len(sheets) == 1:
        return sheets[0]
    if wanted in sheets:
        return wanted
    listed = ", ".join(map(repr, sheets))
    what = f"has the sheets {listed}" if wanted is None else f"has no sheet {wanted!r}, it has {listed}"
    raise CoreshotError(f"{path}: {what}; choose one with --sheet.")


def _excel_column(cells: list[Any]) -> pyarrow.Array:
    """Excel keeps dates with a time of 0:00; such a time is not told apart from none."""
    plain = [None if cell == "" else cell.date() if isinstance(cell, datetime.datetime) else cell for cell in cells]
    return as_array(plain)


# A new format of tables is a function here, or in a file of its own, and a line in this registry.
TABLE_FORMATS: dict[str, Callable[[Path], dict[str, Cells]]] = {".parquet": _read_parquet, ".npz": _read_npz}
# Formats that sites write in different ways: the site's settings say which, and so does the report.
WRITTEN_FORMATS: dict[str, Callable[[Path, SiteSettings, Collection[str]], TableFile]] = {
    ".csv": read_text_table,
    ".tsv": read_text_table,
    ".txt": read_text_table,
    ".xlsx": _read_excel,
}
