"""`coreshot evaluate`: how good a model is on records whose targets are known."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coreshot.cli.options import DataPath, ModelPath, NewSite, SiteSettingsPath
from coreshot.cli.output import Json, print_result, refuse_existing, value_lines, write_new
from coreshot.cli.records import read_column, read_with_warnings
from coreshot.errors import CoreshotError

if TYPE_CHECKING:
    from coreshot.cli.output import Part
    from coreshot.fitted.folder import ModelFolder
    from coreshot.fitted.model import FittedModel
    from coreshot.report.model_page import Evaluated


def evaluate(
    model: ModelPath,
    data: DataPath,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write an HTML page about the model here; it needs no other file.")
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option("--picture", help="Write the reliability diagram, or the coverage of intervals, here as PNG."),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            "--by", help="The column that names the client of a record; the default is client, where there is one."
        ),
    ] = None,
    positive: Annotated[
        str | None,
        typer.Option(
            "--positive", metavar="CLASS", help="The class of sensitivity and specificity; the default is the last."
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option("--threshold", help="The probability from which this class counts as found; 0.5 if not given."),
    ] = None,
    new_site: NewSite = False,
    site_settings: SiteSettingsPath = None,
    as_json: Json = False,
) -> None:
    """Measure a model on records with known targets, in all and for each client; also as a page or a picture.

    The first line says how good the model is, and compared with what. All numbers have 95 % intervals.

    Example: coreshot evaluate model held-out.csv --html model.html
    """
    from coreshot.fitted.folder import open_model
    from coreshot.fitted.quality import THRESHOLD
    from coreshot.report.drawing import render
    from coreshot.report.model_page import evaluate_model, model_page

    _refuse_unwritable(html, picture)
    folder = open_model(model)
    fitted = _load(folder, new_site)
    if fitted.study.agreement.kind == "regression" and (positive is not None or threshold is not None):
        raise CoreshotError("--positive and --threshold: are for classes, and this study predicts a number; omit them.")
    records = read_with_warnings(fitted.study, data, site_settings)
    level = THRESHOLD if threshold is None else threshold
    clients = _owners(data, by, site_settings)
    clients = clients if clients is None or records.owner is None else clients[records.owner]
    found = evaluate_model(
        fitted, records.x, records.y, clients, positive=positive, threshold=level, owner=records.owner
    )
    written = {name: str(path) for name, path in (("page", html), ("picture", picture)) if path is not None}
    if html is not None:
        write_new(html, model_page(folder, fitted, found, data.name))
    if picture is not None:
        write_new(picture, render(found.drawing, "png"))
    by_client = {name: quality.numbers() for name, quality in found.clients.items()}
    print_result({**found.overall.to_dict(), **written, "clients": by_client}, as_json, _parts(found, written))


def _load(folder: ModelFolder, new_site: bool) -> FittedModel:
    if not new_site:
        return folder.load()
    from coreshot.fitted.new_place import at_new_place

    return at_new_place(folder.load())


def _refuse_unwritable(html: Path | None, picture: Path | None) -> None:
    """Before any work: two files of one name, or a file that is there."""
    if html is not None and html == picture:
        raise CoreshotError(f"{html}: is to be both the page and the picture; give two names.")
    for path in (html, picture):
        if path is not None:
            refuse_existing(path)


def _parts(found: Evaluated, written: dict[str, str]) -> Iterator[Part]:
    from coreshot.report.quality_tables import calibration_grid, clients_grid, confusion_grid, measures_grid
    from coreshot.report.tables import rich_table

    yield found.overall.sentence
    yield rich_table("quality", measures_grid(found.overall))
    for title, grid in (
        ("confusion matrix: records", confusion_grid(found.overall)),
        ("calibration of each class", calibration_grid(found.overall)),
        ("each client's records", clients_grid(found.clients)),
    ):
        if grid is not None:
            yield rich_table(title, grid)
    yield from found.overall.notes
    yield from value_lines(written)


def _owners(data: Path, by: str | None, site_settings: Path | None) -> Any:
    """The client of each record, as an array; None where the file does not name clients."""
    import numpy as np

    cells = read_column(data, by or "client", site_settings) if data.is_file() else None
    if cells is None and by is not None:
        raise CoreshotError(f"--by {by}: {data} has no such column; give the name of one as it is in the file.")
    return None if cells is None else np.asarray([cell.strip() or "(not given)" for cell in cells])
