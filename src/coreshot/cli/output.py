"""What commands print: lines and tables for people, or, with --json, one JSON object on standard output.

With --json everything else (progress, remarks on the way) goes to standard error. rich is imported when it is used,
so that `coreshot --help` starts quickly.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO, TypeAlias

import typer

from coreshot.errors import CoreshotError, visible
from coreshot.progress import Progress, show_progress

if TYPE_CHECKING:
    from rich.table import Table

    from coreshot.report.tables import Grid

    Part: TypeAlias = str | Table  # of what people read

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, for machines.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print the table as Markdown, for a document.")]
WIDTH = 160  # of tables that go into a file or a pipe


def print_result(values: Mapping[str, Any], as_json: bool, parts: Iterable[Part] | None = None) -> None:
    """Print the result of a command: `values` as one JSON object, or `parts`, the lines and tables for people.

    A part is one line: a line break in it came from a file, and is shown as \\n. Text of ours of several lines is
    several parts.

    Without `parts` each value gets a line. A generator of parts is not run where JSON is asked for.
    """
    if as_json:
        print(json.dumps(values))
        return
    for part in value_lines(values) if parts is None else parts:
        _print_part(part, sys.stdout)


def print_now(part: Part, as_json: bool) -> None:
    """Print a remark before the result is there; with --json on standard error."""
    _print_part(part, sys.stderr if as_json else sys.stdout)


def _print_part(part: Part, file: TextIO) -> None:
    if isinstance(part, str):
        print(visible(part), file=file, flush=True)
        return
    from rich.console import Console

    Console(file=file, width=None if file.isatty() else WIDTH).print(part)


def ask(question: str, as_json: bool) -> str:
    """A line from standard input, which is shown where no terminal does so; a CoreshotError when there are no more."""
    file = sys.stderr if as_json else sys.stdout
    print(visible(question), end=" ", file=file, flush=True)
    try:
        line = sys.stdin.readline()
    except UnicodeDecodeError:
        line = ""
    if not sys.stdin.isatty():
        print(visible(line.strip()), file=file, flush=True)
    if not line:
        raise CoreshotError(
            "standard input: it ended before the last question, or is not UTF-8; nothing was written, start again."
        )
    return line.strip()


def print_grid(
    title: str, grid: Grid, rows: Sequence[Mapping[str, Any]], files: Mapping[str, Path], as_json: bool, markdown: bool
) -> None:
    """Print a table of results as JSON, as Markdown, or for a terminal with the paths of the files beside it."""
    from coreshot.report.tables import grid_markdown, rich_table

    paths = {name: str(path) for name, path in files.items()}
    if markdown:
        parts: list[Part] = list(grid_markdown(grid).rstrip("\n").split("\n"))
    else:
        parts = [rich_table(title, grid), *(f"{name + ':':8} {path}" for name, path in paths.items())]
    print_result({**paths, "rows": rows}, as_json, parts)


def print_run(folder: Path, rows: list[dict[str, Any]], as_json: bool, **more: Any) -> None:
    """Write the report of a run and print its results; `more` is added to the JSON object."""
    from coreshot.report.run_report import write_report
    from coreshot.report.tables import summary_table

    values = {"results": str(folder / "results.json"), "report": str(write_report(folder)), "rows": rows, **more}
    parts: list[Part] = [*summary_table(rows), f"results: {values['results']}", f"report:  {values['report']}"]
    print_result(values, as_json, parts)


def make_table(
    columns: Iterable[str], rows: Iterable[Iterable[str]], title: str | None = None, caption: str | None = None
) -> Table:
    """A table of plain text: a `Text` of rich has no markup and no emoji names, so brackets are brackets."""
    from rich.table import Column, Table
    from rich.text import Text

    def plain(text: str) -> Text:
        return Text(visible(text))

    headings = (Column(header=plain(column)) for column in columns)
    table = Table(
        *headings,
        title=plain(title) if title else None,
        caption=plain(caption) if caption else None,
        title_justify="left",
    )
    for row in rows:
        table.add_row(*map(plain, row))
    return table


def value_lines(values: Mapping[str, Any]) -> Iterator[str]:
    """A line for each value, "name: value"."""
    for key, value in values.items():
        yield f"{key}: {', '.join(map(format_value, value)) if isinstance(value, list) else format_value(value)}"


def format_value(value: Any) -> str:
    """A number with four digits; a release by its name and its mechanism."""
    if isinstance(value, dict):
        return f"{value['name']} ({value['mechanism']})"
    return f"{value:.4f}" if isinstance(value, float) else str(value)


@contextmanager
def working(as_json: bool) -> Iterator[Progress]:
    """Show how far the work is; with --json on standard error."""
    with show_progress(sys.stderr if as_json else sys.stdout) as progress:
        yield progress


def refuse_existing(path: Path) -> None:
    if path.exists():
        raise CoreshotError(f"{path}: is there already; use another name, or remove it.")


def write_new(path: Path, data: bytes, mode: int = 0o666) -> None:
    from coreshot.storage import write_bytes

    try:
        write_bytes(path, data, mode)
    except OSError as error:
        raise CoreshotError(f"{path}: cannot be written ({error.strerror}); choose another place.") from None
