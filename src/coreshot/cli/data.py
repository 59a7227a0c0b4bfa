"""`coreshot data add | list | show | get`: federated data sets that are stored on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coreshot.cli.data_add import add
from coreshot.cli.data_facts import collect_facts, describe_shape, describe_targets, summarise_sources
from coreshot.cli.data_show import show
from coreshot.cli.output import Json, make_table, print_result, working

if TYPE_CHECKING:
    from rich.table import Table

    from coreshot.data.store import StoredData

data_app = typer.Typer(
    no_args_is_help=True, help="Federated data sets: convert them once, look at them, download them."
)
data_app.command()(add)


@data_app.command("list")
def list_sets(as_json: Json = False) -> None:
    """List the stored sets. They are in ~/.coreshot/data, or in the folder of the environment variable CORESHOT_DATA.

    Example: coreshot data list
    """
    from coreshot.data.store import data_home, open_data_set, stored_names

    found = [open_data_set(name) for name in stored_names()]
    empty = f"{data_home()}: no data yet; add some with `coreshot data add NAME --from PATH`"
    values = {"store": str(data_home()), "sets": [collect_facts(data) for data in found]}
    print_result(values, as_json, [_sets_table(found) if found else empty])


def _sets_table(found: Sequence[StoredData]) -> Table:
    rows = []
    for data in found:
        facts = collect_facts(data)
        num_clients = [str(facts[role]["clients"]) for role in ("train", "extra")]
        records = f"{facts['train']['records'] + facts['extra']['records']:,}"
        num_classes, num_test = describe_targets(data), f"{facts['test']['records']:,}"
        shape, sources = describe_shape(data), summarise_sources(data)
        rows.append((data.name, shape, num_classes, *num_clients, records, num_test, sources))
    clients = ("training clients", "extra clients")
    return make_table(("name", "shape", "classes", *clients, "records", "test records", "source"), rows)


data_app.command()(show)


@data_app.command()
def get(
    url: Annotated[str, typer.Argument(help="The address of a file, http or https.")],
    sha256: Annotated[str, typer.Option("--sha256", help="The SHA-256 checksum that the file must have.")],
    folder: Annotated[Path, typer.Option("--to", help="The folder to write the file to.")] = Path(),
    as_json: Json = False,
) -> None:
    """Download a file and keep it only if its SHA-256 is right. A download that was stopped continues.

    Example: coreshot data get https://example.org/femnist.parquet --sha256 9f86d0... --to downloads
    """
    from coreshot.data.download import download

    with working(as_json) as progress:
        path, is_new = download(url, folder, sha256, progress)
    outcome = "downloaded, its SHA-256 is right" if is_new else "is already there, its SHA-256 is right"
    print_result({"file": str(path), "sha256": sha256, "is_new": is_new}, as_json, [f"{path}: {outcome}"])
