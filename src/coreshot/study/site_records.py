"""A site's own file as the records or the points of a study, checked before any work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coreshot.data.broken_columns import refuse_broken
from coreshot.data.files import EncodedRecords, read_arrays, read_records
from coreshot.data.schema import Quantity, Table
from coreshot.data.site_settings import DETECT, SiteSettings
from coreshot.data.validate import check_points
from coreshot.errors import CoreshotError
from coreshot.methods import Glm
from coreshot.study import Study
from coreshot.study.embedded_files import check_embedding
from coreshot.study.file import read_study
from coreshot.types import Points


def read_open_study(path: Path) -> Study:
    """A study that sites are still to answer."""
    study = read_study(path)
    refuse_telling_refusals(study)
    return study


def refuse_telling_refusals(study: Study) -> None:
    """A CoreshotError where a private study would have a site refuse its file for the sake of one record: whether there
    is an answer would then tell of that record, outside of the promise. Checked before records are read, and not for a
    study whose files are there already."""
    telling = []
    if isinstance(study.inputs, Table):
        telling += [f"cell in {column.name!r}" for column in study.inputs.columns if column.outside == "refuse"]
        telling += ["missing cells"] if study.inputs.missing == "refuse" else []
    if isinstance(study.target, Quantity) and study.target.outside == "refuse":
        telling.append(f"cell in {study.target.name!r}")
    if not telling or any(release.is_exact for release in study.releases):
        return
    more = f" (and {len(telling) - 1} more)" if len(telling) > 1 else ""
    raise CoreshotError(
        f"study {study.agreement.task!r}: promises privacy, but a site would refuse one record's {telling[0]}{more}, "
        'which tells of that record; write outside = "missing" or "clip" for each column, '
        'outside = "clip" for a target, and missing = "indicator" or "zero" for the table.'
    )


def read_study_records(
    study: Study,
    path: Path,
    needs_target: bool = True,
    *,
    how: SiteSettings = DETECT,
    show_values: bool = False,
) -> EncodedRecords:
    """The records of a file as the study encodes them; `how` is the site's own, and cells are only shown if asked."""
    if study.inputs is None or study.target is None:
        raise CoreshotError(f"{path}: the study does not say how records become inputs; give it a [table] or [image].")
    return read_records(path, study.inputs, study.target, needs_target=needs_target, how=how, show_values=show_values)


def read_points(study: Study, path: Path, client: str, how: SiteSettings = DETECT) -> Points:
    """The client's points, unless a column is broken; of a study without a schema, arrays x and y of an npz file."""
    refuse_telling_refusals(study)
    if study.inputs is not None and study.target is not None:
        records = read_study_records(study, path, how=how)
        refuse_broken(records.findings, str(path), how.allow)
        x, y = records.x, records.y
    else:
        x, y = read_arrays(path)
        check_embedding(study, path)
    return check_study_points(study, x, y, client)


def check_study_points(study: Study, x: Any, y: Any, client: str) -> Points:
    terms = study.agreement
    points = check_points(
        x,
        y,
        kind=terms.kind,
        input_shape=terms.input_shape,
        num_outputs=terms.num_outputs,
        client=client,
        on_device=not isinstance(study.method, Glm),  # it reads them part by part
    )
    study.check_records(points, client)
    return points
