"""What commands print of a site's records: how the file was read, counts of its columns, and no cells unless asked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coreshot.cli.output import make_table, print_now

if TYPE_CHECKING:
    from rich.table import Table

    from coreshot.data.files import EncodedRecords
    from coreshot.data.schema import Finding
    from coreshot.data.site_settings import SiteSettings
    from coreshot.study import Study

Delimiter = Annotated[
    str | None, typer.Option("--delimiter", help="Between cells: , ; | or tab. The default is detected.")
]
Decimal = Annotated[
    str | None, typer.Option("--decimal", help="Before decimals: a point or a comma. The default is detected.")
]
Thousands = Annotated[
    str | None,
    typer.Option("--thousands", help="Between thousands: a comma, a point or a space. The default is detected."),
]
Encoding = Annotated[
    str | None, typer.Option("--encoding", help="Of the text, such as cp1252. The default is detected.")
]
Sheet = Annotated[str | None, typer.Option("--sheet", help="The sheet of an Excel file.")]
Allow = Annotated[
    list[str] | None, typer.Option("--allow", help="Go on although this column looks broken; may be repeated.")
]
ShowValues = Annotated[
    bool, typer.Option("--show-values", help="Show the commonest cells that do not fit the study: private data.")
]


def report_records(data: Path, records: EncodedRecords, how: SiteSettings, show_values: bool, as_json: bool) -> None:
    """Print how the file was read and what its columns hold; a CoreshotError where a column is broken."""
    from coreshot.data.broken_columns import offending_lines, refuse_broken

    if records.read_as:
        print_now(f"read as: {records.read_as}", as_json)
    print_now(_findings_table(data, records.findings), as_json)
    for line in offending_lines(records.findings) if show_values else ():
        print_now(line, as_json)
    refuse_broken(records.findings, str(data), how.allow)


def read_with_warnings(
    study: Study, data: Path, site_settings: Path | None, *, needs_target: bool = True
) -> EncodedRecords:
    """Records for a model that is there already: a broken column is worth a warning, and does not stop anything."""
    from coreshot.data.broken_columns import describe_broken
    from coreshot.data.site_settings import read_site_settings
    from coreshot.study.site_records import read_study_records

    how = read_site_settings(site_settings)
    records = read_study_records(study, data, needs_target, how=how)
    for name, reason in describe_broken(records.findings).items():
        if name not in how.allow:
            print_now(f"warning: {data}: the column {name!r} looks broken: {reason}.", as_json=True)
    return records


def read_column(data: Path, name: str, site_settings: Path | None) -> list[str] | None:
    """One column of the site's own, as text: what is text in the file stays as it is. None: there is no such column."""
    import pyarrow

    from coreshot.data.cells import as_text
    from coreshot.data.site_settings import read_site_settings
    from coreshot.data.table_files import read_table

    cells: Any = read_table(data, read_site_settings(site_settings)).columns.get(name)
    if cells is None:
        return None
    listed = cells.to_pylist() if isinstance(cells, pyarrow.Array | pyarrow.ChunkedArray) else list(cells)
    return [cell if isinstance(cell, str) else as_text(cell, ()) or "" for cell in listed]


def _findings_table(path: Path, findings: Sequence[Finding]) -> Table:
    rows = (
        (one.name, f"{one.num_present:,}", f"{one.num_missing:,}", f"{one.num_outside:,}", one.note) for one in findings
    )
    return make_table(("column", "present", "missing", "outside", ""), rows, title=str(path))
