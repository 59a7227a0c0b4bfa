"""What commands print: words for people, or, with --json, one JSON object on standard output and everything else on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from coreshot.errors import CoreshotError
from coreshot.progress import Progress, shown_on

if TYPE_CHECKING:
    from coreshot.report.tables import Grid

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, for machines.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print the table as Markdown, for a document.")]
console = Console(width=None if sys.stdout.isatty() else 160)


def say(line: str) -> None:
    console.print(line, highlight=False, markup=False, soft_wrap=True)


def teller(as_json: bool) -> Callable[[str], None]:
    """What to say on the way with: as `say`, but where a machine waits for its object, on standard error."""
    return Console(stderr=True, highlight=False, markup=False, soft_wrap=True).print if as_json else say


def print_json(facts: Mapping[str, Any]) -> None:
    print(json.dumps(facts))


def print_facts(facts: Mapping[str, Any], as_json: bool) -> None:
    """As one object, or a line for each."""
    if as_json:
        print_json(facts)
        return
    for key, value in facts.items():
        say(f"{key}: {', '.join(map(shown, value)) if isinstance(value, list) else shown(value)}")


def print_grid(
    title: str, grid: Grid, rows: Sequence[Mapping[str, Any]], files: Mapping[str, Path], as_json: bool, markdown: bool
) -> None:
    """A command's table, as a machine, a document or a terminal wants it, and where its files are."""
    from coreshot.report.tables import grid_markdown, rich_table

    if as_json:
        print_json({**{name: str(path) for name, path in files.items()}, "rows": rows})
    elif markdown:
        print(grid_markdown(grid), end="")
    else:
        console.print(rich_table(title, grid))
        for name, path in files.items():
            say(f"{name + ':':8} {path}")


def shown(value: Any) -> str:
    if isinstance(value, dict):
        return f"{value['name']} ({value['mechanism']})"
    return f"{value:.4f}" if isinstance(value, float) else str(value)


@contextmanager
def working(as_json: bool) -> Iterator[Progress]:
    """How far along, where it does not come between a machine and its object."""
    with shown_on(Console(stderr=True) if as_json else console) as progress:
        yield progress


def write_new(path: Path, data: bytes) -> None:
    from coreshot.storage import write_bytes

    try:
        write_bytes(path, data)
    except OSError as error:
        raise CoreshotError(f"{path}: cannot be written ({error.strerror}); choose another place.") from None
