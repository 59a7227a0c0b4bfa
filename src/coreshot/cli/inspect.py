"""`coreshot inspect`: what a file holds before it leaves a site, as text, table or picture, and how close its points
are to single records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coreshot.cli.output import make_table, print_result, refuse_existing
from coreshot.errors import CoreshotError

if TYPE_CHECKING:
    from coreshot.cli.output import Part
    from coreshot.fitted.inspection import Inspected
    from coreshot.study import Study
    from coreshot.types import Points

MAX_ROWS = 20  # points in the table
MAX_COLUMNS = 10


def inspect(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Coresets, or messages under messages/ of a run's folder.")
    ],
    study: Annotated[
        Path | None, typer.Option("--study", help="The study's TOML file: the files are checked against it.")
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option("--against", help="The records that it was made from: how close does it come to single ones?"),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option("--picture", help="For images: the PNG file to draw them into.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per file, for machines.")] = False,
) -> None:
    """Show what a client's message holds, what was computed from its records, and what is guaranteed about them.

    Example: coreshot inspect site.coreset --study study.toml --against patients.csv
    """
    from coreshot.fitted.inspection import inspect_message
    from coreshot.study.file import read_study

    if study is None and (against or picture):
        raise CoreshotError("inspect: --against and --picture need --study, which says what the numbers mean.")
    agreed = read_study(study) if study else None
    for path in files:
        if not path.is_file():
            raise CoreshotError(f"{path}: there is no such file; give the path of a message.")
        data = path.read_bytes()
        seen = inspect_message(data, str(path))
        points = _points(agreed, data) if agreed else None
        near = _nearness(agreed, points, against) if agreed and against else None
        if picture:
            _draw(agreed, points, picture)
        print_result(_values(path, seen, points, near), as_json, _parts(path, seen, agreed, points, near, picture))


def _points(study: Study, data: bytes) -> Points | None:
    """The points in input space; None where the message has none.

    A message of another study, or with other releases, is an error.
    """
    from coreshot.wire.messages import decode_message, read_header

    client, message = read_header(data)["client"], decode_message(data, study_hash=study.hash, releases=study.releases)
    content = study.read(client, message)
    if study.learner is None:
        return None
    points: Points = content.points
    return points


def _nearness(study: Study, points: Points | None, against: Path) -> dict[str, Any]:
    from coreshot.audit.distances import between_records, compare_distances, to_records
    from coreshot.study.site_records import read_study_records
    from coreshot.types import make_points

    if points is None:
        raise CoreshotError(
            "--against: this message has no points in the records' space, only rows of features: "
            "there is nothing to measure distances to."
        )
    records = read_study_records(study, against, needs_target=False)
    real = make_points(records.x, records.x.reshape(len(records.x), -1)[:, :1])
    found = compare_distances(to_records(points.x, real).tolist(), between_records(real))
    middle = found.quantiles.index(0.5)
    return {
        "points": found.num_points,
        "copies": found.num_copies,
        "near": found.num_near,
        "median distance to the nearest record": found.points_to_records[middle],
        "median distance between records": found.records_to_records[middle],
    }


def _values(path: Path, seen: Inspected, points: Points | None, near: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "file": str(path),
        "summary": seen.summary,
        "arrays": [
            {"name": name, "type": kind, "shape": shape, "bytes": size} for name, kind, shape, size in seen.arrays
        ],
        "releases": [release.to_dict() for release in seen.releases],
        "promise": seen.promise,
        "num_points": None if points is None else points.num_points,
        "against": near,
    }


def _parts(
    path: Path,
    seen: Inspected,
    study: Study | None,
    points: Points | None,
    near: dict[str, Any] | None,
    picture: Path | None,
) -> Iterator[Part]:
    yield f"{path}: {seen.summary}"
    arrays = ((name, kind, shape, f"{size:,}") for name, kind, shape, size in seen.arrays)
    yield make_table(("array", "type", "shape", "bytes"), arrays)
    releases = (
        (one.name, one.content, one.mechanism, f"{one.noise_multiplier:.4g}" if one.noise_multiplier else "none")
        for one in seen.releases
    )
    yield make_table(("computed from the records", "what it is", "mechanism", "noise over sensitivity"), releases)
    if study is not None:
        yield (
            "It is of this study, has the arrays that the study wants, and declares what the study says. "
            "Noise cannot be checked from outside."
        )
        yield _points_part(study, points)
    for key, value in (near or {}).items():
        yield f"{key}: {value:.4g}" if isinstance(value, float) else f"{key}: {value}"
    yield seen.promise
    if picture:
        yield f"picture: {picture}"


def _points_part(study: Study, points: Points | None) -> Part:
    import numpy as np

    from coreshot.data.schema import Classes, Table

    if points is None:
        return "It holds rows in feature space, each computed from all records; there are no points to show."
    if not isinstance(study.inputs, Table):
        return f"{points.num_points} images; --picture FILE.png draws them."
    decoded = study.inputs.decode(np.asarray(points.x))
    names = list(decoded)[:MAX_COLUMNS]
    rows = []
    for index in range(min(points.num_points, MAX_ROWS)):
        values = [decoded[name][index] for name in names]
        label = points.y[index]
        target = (
            study.target.classes[int(label.argmax())] if isinstance(study.target, Classes) else f"{float(label[0]):.4g}"
        )
        rows.append([*(f"{value:.4g}" if isinstance(value, float) else str(value) for value in values), target])
    columns = [*names, study.target.name if study.target else "target"]
    return make_table(columns, rows, title="points, in the study's units")


def _draw(study: Study | None, points: Points | None, picture: Path) -> None:
    import numpy as np

    from coreshot.data.schema import Classes, Images
    from coreshot.report.images import gallery, png
    from coreshot.storage import write_bytes

    if points is None or study is None or not isinstance(study.inputs, Images):
        raise CoreshotError("--picture: this message holds no images; leave it out.")
    refuse_existing(picture)
    labels = np.argmax(np.asarray(points.y), axis=1)
    titles = (
        [study.target.classes[label] for label in labels] if isinstance(study.target, Classes) else [""] * len(labels)
    )
    write_bytes(picture, png(gallery(points.x, titles, show_scale=True)))
