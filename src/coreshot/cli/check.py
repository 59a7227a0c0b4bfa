"""`coreshot check`: does a model fit the place where it is to be used?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coreshot.cli.options import DataPath, ModelPath, SiteSettingsPath
from coreshot.cli.output import Json, make_table, print_result
from coreshot.cli.records import read_with_warnings

SMALLEST_SHOWN = 1e-12

if TYPE_CHECKING:
    from coreshot.cli.output import Part
    from coreshot.fitted.calibrated_here import Calibrated
    from coreshot.fitted.fits_here import Fit


def check(
    model: ModelPath,
    data: DataPath,
    labelled: Annotated[
        bool, typer.Option("--labelled", help="The records have targets: say also how well the model is calibrated.")
    ] = False,
    site_settings: SiteSettingsPath = None,
    as_json: Json = False,
) -> None:
    """Say whether records look like those of the federation, of one of its clients, or of nobody. No labels needed.

    An alarm is rare where nothing is wrong: about one in a hundred samples of a client's own records has one.

    Example: coreshot check model our-patients.csv
    """
    from coreshot.fitted.calibrated_here import calibration_here
    from coreshot.fitted.fits_here import check_fit
    from coreshot.fitted.folder import open_model
    from coreshot.fitted.model import read_messages

    folder = open_model(model)
    study = folder.study_file.study
    contents = read_messages(study, folder.coresets().values())
    fitted = folder.load()
    records = read_with_warnings(study, data, site_settings, needs_target=labelled)
    found = check_fit(fitted, contents, records.x)
    calibrated = calibration_here(fitted, records.x, records.y) if labelled else []
    values: dict[str, Any] = {
        "sentence": found.sentence,
        "alarm": found.is_alarm,
        "nearest": found.nearest,
        "records": found.num_records,
        "unlike the training data": found.num_unlike,
        "p values": found.p_values,
        "differing columns": found.differing,
        "columns missing here": list(found.lost),
        "columns that no client had": list(found.unknown),
        "calibration": {one.name: [one.difference, one.low, one.high] for one in calibrated},
    }
    print_result(values, as_json, _parts(found, calibrated))


def _parts(found: Fit, calibrated: list[Calibrated]) -> Iterator[Part]:
    yield ("warning: " if found.is_alarm else "") + found.sentence
    yield f"records unlike the training data: {found.num_unlike:,} of {found.num_records:,}"
    if found.differing:
        rows = ((name, f"{value:+.1f}") for name, value in found.differing.items())
        yield make_table(("column", "standard errors"), rows, title=f"what differs most from {found.nearest}")
    if found.lost:
        yield f"warning: missing here in all records, and not at all clients: {', '.join(found.lost)}"
    if found.unknown:
        yield f"warning: no client had these columns, so the model knows nothing of them: {', '.join(found.unknown)}"
    yield make_table(("compared with", "p-value"), ((name, _shown(value)) for name, value in found.p_values.items()))
    yield from (one.sentence for one in calibrated)


def _shown(p_value: float) -> str:
    return f"{p_value:.3g}" if p_value > SMALLEST_SHOWN else f"below {SMALLEST_SHOWN:g}"
