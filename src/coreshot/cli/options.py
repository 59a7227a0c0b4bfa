"""Arguments and options that several commands share, and how their text is read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from coreshot.errors import CoreshotError

PresetName = Annotated[
    str, typer.Argument(metavar="PRESET", help="A name from `coreshot list`, or the path of a TOML file.")
]
StudyPath = Annotated[Path, typer.Argument(metavar="STUDY", help="The study's TOML file.")]
DataPath = Annotated[
    Path, typer.Argument(metavar="DATA", help="The records: CSV, Excel, parquet, npz, or a folder of images.")
]
MaxMemory = Annotated[
    float | None,
    typer.Option("--max-memory", min=0.0, help="GB of memory or disk that a study may take here; the default is 8."),
]
SiteSettingsPath = Annotated[
    Path | None,
    typer.Option("--site-settings", help="A TOML file that says how this site's file is written; it never leaves."),
]
LedgerPath = Annotated[
    Path | None,
    typer.Option(
        "--ledger",
        help="This site's ledger of releases; the default is CORESHOT_LEDGER, or a file in your data folder.",
    ),
]
ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help="A folder that `coreshot fit` has written.")]
NewSite = Annotated[
    bool,
    typer.Option(
        "--new-site", help="The records are of a place that is no client: allow for how the clients differ (glm)."
    ),
]
Seeds = Annotated[
    str | None, typer.Option("--seeds", help="The seeds to run, such as 0,1; the default is the preset's.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change a setting, such as learner.bpc.num_updates=50; may be repeated."),
]


RESEARCH = ("flax", "blackjax", "h5py")


def refuse_without_research(what: str) -> None:
    """A CoreshotError where a package of `coreshot[research]` is missing, before any work."""
    from importlib.util import find_spec

    missing = [name for name in RESEARCH if find_spec(name) is None]
    if missing:
        raise CoreshotError(missing_research(what, missing))


def missing_research(what: str, missing: Iterable[str]) -> str:
    return f"{what}: needs packages that are not installed ({', '.join(missing)}); pip install 'coreshot[research]'."


def parse_seeds(text: str | None) -> list[int] | None:
    return parse_whole_numbers("--seeds", text, 0, "0,1")


def parse_whole_numbers(option: str, text: str | None, least: int, example: str) -> list[int] | None:
    """Read different whole numbers, each at least `least`, with commas between them."""
    if text is None:
        return None
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise CoreshotError(
            f"{option} {text}: not whole numbers with commas between; write, for example, {option} {example}."
        ) from None
    if min(numbers) < least or len(set(numbers)) < len(numbers):
        raise CoreshotError(f"{option} {text}: these are different whole numbers of at least {least}; change it.")
    return numbers


def parse_names(text: str | None) -> list[str] | None:
    """Read names with commas between them; None where there are none."""
    return [part.strip() for part in text.split(",")] if text else None
