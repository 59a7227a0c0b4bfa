"""`coreshot budget`: what this site has released, and the total that it allows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coreshot.cli.options import LedgerPath
from coreshot.cli.output import Json, make_table, print_result
from coreshot.errors import CoreshotError

if TYPE_CHECKING:
    from coreshot.cli.output import Part
    from coreshot.privacy.release_ledger import Entry, ReleaseLedger, Total

budget_app = typer.Typer(no_args_is_help=True, help="What this site has released, and the total that it allows.")
OfData = Annotated[
    Path | None, typer.Option("--data", help="Of this file or folder of records alone; otherwise all together.")
]
SHOWN = 8  # letters of a data set's keyed hash
NO_BOUND = "exact: no bound"


@budget_app.command("set")
def set_total(
    epsilon: Annotated[float, typer.Option("--epsilon", help="The sum over studies that must not be passed.")],
    delta: Annotated[
        float | None,
        typer.Option("--delta", help="At which the sum is computed; the default is the smallest of the studies'."),
    ] = None,
    data: OfData = None,
    ledger: LedgerPath = None,
    as_json: Json = False,
) -> None:
    """Set the total that this site's private releases must not pass, of all data sets together or of one file.

    A study that would pass it is refused, and so is every study without noise, to which no epsilon is a bound.

    Example: coreshot budget set --epsilon 10
    """
    from coreshot.privacy.release_ledger import ReleaseLedger, Total

    if not 0 < epsilon < float("inf"):
        raise CoreshotError(f"--epsilon {epsilon:g}: a total is a number above 0; change it.")
    if delta is not None and not 0 < delta < 0.1:
        raise CoreshotError(f"--delta {delta:g}: a delta lies between 0 and 0.1; change it.")
    opened = ReleaseLedger(ledger)
    opened.set_total(Total(epsilon, delta), _name_data(opened, data))
    _show(opened, data, as_json)


@budget_app.command("remove")
def remove_total(data: OfData = None, ledger: LedgerPath = None, as_json: Json = False) -> None:
    """Remove a total; what was released stays in the ledger.

    Example: coreshot budget remove
    """
    from coreshot.privacy.release_ledger import ReleaseLedger

    opened = ReleaseLedger(ledger)
    if _name_data(opened, data) not in opened.totals():
        raise CoreshotError(f"ledger {opened.path}: there is no such total; see `coreshot budget show`.")
    opened.set_total(None, _name_data(opened, data))
    _show(opened, data, as_json)


@budget_app.command()
def show(data: OfData = None, ledger: LedgerPath = None, as_json: Json = False) -> None:
    """Show what was released for which study, the sum over studies, and the totals.

    Example: coreshot budget show --data patients.csv
    """
    from coreshot.privacy.release_ledger import ReleaseLedger

    _show(ReleaseLedger(ledger), data, as_json)


def _name_data(ledger: ReleaseLedger, data: Path | None) -> str:
    from coreshot.privacy.release_ledger import EVERYTHING

    if data is not None and not data.exists():
        raise CoreshotError(f"{data}: there is no such file or folder; check the path.")
    return EVERYTHING if data is None else ledger.hash_file(data)


def _show(ledger: ReleaseLedger, data: Path | None, as_json: bool) -> None:
    from coreshot.privacy.release_ledger import EVERYTHING

    only = _name_data(ledger, data)
    entries = [entry for entry in ledger.entries() if only == EVERYTHING or only in entry.sources]
    totals = ledger.totals()
    known = sorted({name for entry in entries for name in entry.sources} | totals.keys() - {EVERYTHING})
    names = [*known, EVERYTHING] if only == EVERYTHING else [only]
    sums = [_sum_values(entries, name, totals.get(name)) for name in names]
    values = {"ledger": str(ledger.path), "releases": [_entry_values(entry) for entry in entries], "sums": sums}
    print_result(values, as_json, _parts(values))


def _entry_values(entry: Entry) -> dict[str, Any]:
    from coreshot.privacy.release_ledger import private_epsilon

    epsilon, delta = (None, None) if entry.share.is_exact else private_epsilon([entry.share])
    return {
        "data": sorted(entry.sources),
        "study": entry.share.study,
        "name": entry.share.name,
        "began": entry.began,
        "epsilon": epsilon,
        "delta": delta,
        "num_answers": entry.num_answers,
        "steps": {
            release.name: [entry.steps.get(release.name, 0), release.num_steps]
            for release in entry.share.releases
            if not release.is_exact
        },
    }


def _sum_values(entries: Sequence[Entry], data: str, total: Total | None) -> dict[str, Any]:
    """Over the studies of a data set, or of all data sets."""
    from coreshot.privacy.release_ledger import EVERYTHING, private_epsilon

    shares = [entry.share for entry in entries if data == EVERYTHING or data in entry.sources]
    epsilon, delta = private_epsilon(shares, total.delta if total else None)
    return {
        "data": data or None,
        "epsilon": epsilon,
        "delta": delta,
        "num_studies": len(shares),
        "num_exact": sum(share.is_exact for share in shares),
        "total": total.epsilon if total else None,
    }


def _parts(values: dict[str, Any]) -> Iterator[Part]:
    yield f"ledger: {values['ledger']}"
    rows = (
        (
            ", ".join(name[:SHOWN] for name in one["data"]),
            one["name"],
            one["study"][:12],
            one["began"],
            NO_BOUND if one["epsilon"] is None else f"{one['epsilon']:.4g}",
            "" if one["delta"] is None else f"{one['delta']:.3g}",
            ", ".join(f"{taken:,} of {all_steps:,}" for taken, all_steps in one["steps"].values()),
        )
        for one in values["releases"]
    )
    if values["releases"]:
        yield make_table(("data set", "study", "hash", "first released", "epsilon", "delta", "steps"), rows)
    else:
        yield "nothing was released yet"
    for one in values["sums"]:
        yield _sum_line(one)


def _sum_line(one: dict[str, Any]) -> str:
    what = f"data set {one['data'][:SHOWN]}" if one["data"] else "all data sets together"
    number = one["num_studies"] - one["num_exact"]
    line = f"{what}: epsilon {one['epsilon']:.4g} at delta {one['delta']:.3g}, private studies: {number}"
    line += f"; total: {one['total']:g}" if one["total"] is not None else "; no total is set"
    if one["num_exact"]:
        line += f"; released without noise: {one['num_exact']} ({NO_BOUND})"
    return line
