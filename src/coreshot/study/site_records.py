"""A site's own file as the points of a study, checked before any work."""

from __future__ import annotations

from pathlib import Path

from coreshot.data.files import read_arrays, read_records
from coreshot.data.validate import check_points
from coreshot.study import Study
from coreshot.types import Points


def read_points(study: Study, path: Path, client: str) -> Points:
    terms = study.agreement
    if study.inputs is not None and study.target is not None:
        records = read_records(path, study.inputs, study.target)
        x, y = records.x, records.y
    else:
        x, y = read_arrays(path)
    points = check_points(
        x, y, kind=terms.kind, input_shape=terms.input_shape, num_outputs=terms.num_outputs, client=client
    )
    study.check_records(points, client)
    return points
