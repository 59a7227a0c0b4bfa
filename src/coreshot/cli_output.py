"""What commands print: words for people, or, with --json, one JSON object on standard output and everything else on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console

from coreshot.progress import Progress, shown_on

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, for machines.")]
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


def shown(value: Any) -> str:
    if isinstance(value, dict):
        return f"{value['name']} ({value['mechanism']})"
    return f"{value:.4f}" if isinstance(value, float) else str(value)


@contextmanager
def working(as_json: bool) -> Iterator[Progress]:
    """How far along, where it does not come between a machine and its object."""
    with shown_on(Console(stderr=True) if as_json else console) as progress:
        yield progress
