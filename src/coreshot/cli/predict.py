"""`coreshot predict`: what a model says about new records, as a table for people."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coreshot.cli.options import DataPath, ModelPath, NewSite, SiteSettingsPath
from coreshot.cli.output import Json, make_table, print_result, refuse_existing, value_lines, write_new
from coreshot.cli.records import read_column, read_with_warnings
from coreshot.errors import CoreshotError

if TYPE_CHECKING:
    from coreshot.cli.output import Part


def predict(
    model: ModelPath,
    data: DataPath,
    out: Annotated[Path, typer.Option("--out", help="The CSV file to write; it must not exist yet.")],
    id_column: Annotated[
        str | None,
        typer.Option("--id", metavar="COLUMN", help="The column that names the records; it is copied as it is."),
    ] = None,
    new_site: NewSite = False,
    site_settings: SiteSettingsPath = None,
    as_json: Json = False,
) -> None:
    """Predict the target of every record: class probabilities, or a value with a 90 % interval.

    Beside the CSV file a second one, NAME.columns.txt, says what each column means.

    Example: coreshot predict model new-patients.csv --id patient --out predictions.csv
    """
    from coreshot.fitted.folder import open_model
    from coreshot.fitted.prediction_table import tabulate_predictions

    beside = out.with_suffix(".columns.txt")  # the CSV file itself has no comments: many programs cannot read them
    refuse_existing(out)
    refuse_existing(beside)
    fitted = open_model(model).load()
    if new_site:
        from coreshot.fitted.new_place import at_new_place

        fitted = at_new_place(fitted)
    records = read_with_warnings(fitted.study, data, site_settings, needs_target=False)
    ids = None if id_column is None else _read_ids(data, id_column, site_settings)
    table = tabulate_predictions(fitted, records.x, ids)
    lines = [f"The columns of {out.name}", "", *(f"{name}: {text}" for name, text in table.meanings.items())]
    write_new(out, table.to_csv())
    write_new(beside, ("\n".join(lines) + "\n").encode())
    num_records = len(records.x) if records.owner is None else len(set(records.owner.tolist()))
    values: dict[str, Any] = {"predictions": str(out), "columns": str(beside), "records": num_records}
    if table.num_unlike is not None:
        values["unlike the training data"] = table.num_unlike
    print_result({**values, "meanings": table.meanings}, as_json, _parts(values, table.meanings))


def _parts(values: dict[str, Any], meanings: dict[str, str]) -> Iterator[Part]:
    yield from value_lines(values)
    yield make_table(("column", "what it says"), meanings.items())


def _read_ids(data: Path, name: str, site_settings: Path | None) -> dict[str, list[str]]:
    if data.is_dir():
        raise CoreshotError(f"--id {name}: {data} is a folder of images and has no columns; leave --id away.")
    cells = read_column(data, name, site_settings)
    if cells is None:
        raise CoreshotError(f"--id {name}: {data} has no such column; give the name of one as it is in the file.")
    return {name: cells}
