"""`coreshot inspect`: what is in a file before it leaves, in words, as a table or a picture, and how near it comes to single records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from coreshot.cli.output import console, print_json, say
from coreshot.errors import CoreshotError

if TYPE_CHECKING:
    from coreshot.fitted.inspection import Inspected
    from coreshot.study import Study
    from coreshot.types import Points

MAX_LINES = 20  # of points in the table
MAX_COLUMNS = 10


def inspect(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Coresets, or messages under messages/ of a run directory.")
    ],
    study: Annotated[
        Path | None, typer.Option("--study", help="The study's TOML file: the file is checked against it.")
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option("--against", help="The records it was made from: how near does it come to single ones?"),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option("--picture", help="Of images: write a page of them here, as PNG.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a file, for machines.")] = False,
) -> None:
    """What a client's message holds, what of its records went into it, and what is promised about them.

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
        if as_json:
            print_json(_facts(path, seen, points, near))
            continue
        _print(path, seen, agreed, points, near)
        if picture:
            say(f"picture: {picture}")


def _points(study: Study, data: bytes) -> Points | None:
    """In input space; None where the message has none. A message of another study, or with other releases, is refused."""
    from coreshot.wire.messages import decode_message, read_header

    client, message = read_header(data)["client"], decode_message(data, study_hash=study.hash, releases=study.releases)
    content = study.method.read(study.model, client, message)
    if study.learner is None:
        return None
    points: Points = content.points
    return points


def _nearness(study: Study, points: Points | None, against: Path) -> dict[str, Any]:
    from coreshot.audit.distances import between_records, compared, to_records
    from coreshot.data.files import read_records
    from coreshot.types import points_of

    if points is None:
        raise CoreshotError(
            "--against: this message has no points in the records' space, only rows of features: there is nothing to measure distances to."
        )
    records = read_records(against, study.inputs, study.target, needs_target=False)  # type: ignore[arg-type]
    real = points_of(records.x, records.x.reshape(len(records.x), -1)[:, :1])
    found = compared(to_records(points.x, real).tolist(), between_records(real))
    middle = found.quantiles.index(0.5)
    return {
        "points": found.num_points,
        "copies": found.num_copies,
        "near": found.num_near,
        "median distance to the nearest record": found.points_to_records[middle],
        "median distance between records": found.records_to_records[middle],
    }


def _facts(path: Path, seen: Inspected, points: Points | None, near: dict[str, Any] | None) -> dict[str, Any]:
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


def _print(
    path: Path, seen: Inspected, study: Study | None, points: Points | None, near: dict[str, Any] | None
) -> None:
    say(f"{path}: {seen.summary}")
    arrays = Table("array", "type", "shape", "bytes")
    for name, kind, shape, size in seen.arrays:
        arrays.add_row(name, kind, shape, f"{size:,}")
    releases = Table("computed from the records", "what it is", "mechanism", "noise over sensitivity")
    for release in seen.releases:
        noise = f"{release.noise_multiplier:.4g}" if release.noise_multiplier else "none"
        releases.add_row(release.name, release.content, release.mechanism, noise)
    console.print(arrays, releases, sep="\n")
    if study is not None:
        say(
            "It is of this study, has the arrays that the study wants, and declares what the study says. Noise cannot be checked from outside."
        )
        _print_points(study, points)
    if near is not None:
        for key, value in near.items():
            say(f"{key}: {value:.4g}" if isinstance(value, float) else f"{key}: {value}")
    say(seen.promise)


def _print_points(study: Study, points: Points | None) -> None:
    from coreshot.data.schema import Classes
    from coreshot.data.schema import Table as Columns

    if points is None:
        say("It holds numbers of feature space, each a mixture of all records; there are no points to show.")
        return
    if not isinstance(study.inputs, Columns):
        say(f"{points.num_points} images; --picture FILE.png draws them.")
        return
    decoded = study.inputs.decode(points.x)  # type: ignore[arg-type]
    names = list(decoded)[:MAX_COLUMNS]
    table = Table(
        *names,
        study.target.name if study.target else "target",
        title="points, in the study's units",
        title_justify="left",
    )
    for line in range(min(points.num_points, MAX_LINES)):
        cells = [
            f"{decoded[name][line]:.4g}" if isinstance(decoded[name][line], float) else str(decoded[name][line])
            for name in names
        ]
        label = points.y[line]
        shown = (
            study.target.classes[int(label.argmax())] if isinstance(study.target, Classes) else f"{float(label[0]):.4g}"
        )
        table.add_row(*cells, shown)
    console.print(table)


def _draw(study: Study | None, points: Points | None, picture: Path) -> None:
    import numpy as np

    from coreshot.data.schema import Classes, Images
    from coreshot.report.images import gallery, png
    from coreshot.storage import write_bytes

    if points is None or study is None or not isinstance(study.inputs, Images):
        raise CoreshotError("--picture: this message holds no images; leave it out.")
    if picture.exists():
        raise CoreshotError(f"{picture}: is there already; use another name, or remove it.")
    labels = np.argmax(np.asarray(points.y), axis=1)
    titles = (
        [study.target.classes[label] for label in labels] if isinstance(study.target, Classes) else [""] * len(labels)
    )
    write_bytes(picture, png(gallery(points.x, titles, show_scale=True)))
