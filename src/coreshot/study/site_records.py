"""A site's own file as the records or the points of a study, checked before any work."""

from __future__ import annotations

from pathlib import Path

from coreshot.data.broken_columns import refuse_broken
from coreshot.data.files import EncodedRecords, read_arrays, read_records
from coreshot.data.site_settings import DETECT, SiteSettings
from coreshot.data.validate import check_points
from coreshot.errors import CoreshotError
from coreshot.study import Study
from coreshot.types import Points


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
    terms = study.agreement
    if study.inputs is not None and study.target is not None:
        records = read_study_records(study, path, how=how)
        refuse_broken(records.findings, str(path), how.allow)
        x, y = records.x, records.y
    else:
        x, y = read_arrays(path)
    points = check_points(
        x, y, kind=terms.kind, input_shape=terms.input_shape, num_outputs=terms.num_outputs, client=client
    )
    study.check_records(points, client)
    return points
