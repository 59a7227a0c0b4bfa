"""`coreshot predict`: what a model says about new records, as a table for people."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coreshot.cli.options import DataPath, ModelPath
from coreshot.cli.output import Json, make_table, print_result, refuse_existing, value_lines, write_new
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
    as_json: Json = False,
) -> None:
    """Predict the target of every record: class probabilities, or a value with a 90 % interval.

    Beside the CSV file a second one, NAME.columns.txt, says what each column means.

    Example: coreshot predict model new-patients.csv --id patient --out predictions.csv
    """
    from coreshot.fitted.folder import open_model
    from coreshot.fitted.prediction_table import tabulate_predictions
    from coreshot.study.site_records import read_study_records

    beside = out.with_suffix(".columns.txt")  # the CSV file itself has no comments: many programs cannot read them
    refuse_existing(out)
    refuse_existing(beside)
    fitted = open_model(model).load()
    records = read_study_records(fitted.study, data, needs_target=False)
    table = tabulate_predictions(fitted, records.x, None if id_column is None else read_ids(data, id_column))
    lines = [f"The columns of {out.name}", "", *(f"{name}: {text}" for name, text in table.meanings.items())]
    write_new(out, table.to_csv())
    write_new(beside, ("\n".join(lines) + "\n").encode())
    values: dict[str, Any] = {"predictions": str(out), "columns": str(beside), "records": len(records.x)}
    if table.num_unlike is not None:
        values["unlike the training data"] = table.num_unlike
    print_result({**values, "meanings": table.meanings}, as_json, _parts(values, table.meanings))


def _parts(values: dict[str, Any], meanings: dict[str, str]) -> Iterator[Part]:
    yield from value_lines(values)
    yield make_table(("column", "what it says"), meanings.items())


def read_ids(data: Path, name: str) -> dict[str, list[str]]:
    """The cells of one column as the file has them; an empty one stays empty."""
    from coreshot.data.files import read_columns

    if data.is_dir():
        raise CoreshotError(f"--id {name}: {data} is a folder of images and has no columns; leave --id away.")
    columns = read_columns(data)
    if name not in columns:
        raise CoreshotError(f"--id {name}: {data} has no such column; it has {', '.join(columns) or 'none'}.")
    return {name: ["" if cell is None else str(cell) for cell in columns[name]]}
