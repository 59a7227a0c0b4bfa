"""`coreshot inspect`: what a file holds before it leaves a site, as text, table or picture, and how close its points
are to single records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coreshot.cli.inspected import compare_with_records, comparison_parts, distances, fact_parts, fact_values
from coreshot.cli.options import SiteSettingsPath
from coreshot.cli.output import make_table, print_result, refuse_existing, value_lines, write_new
from coreshot.cli.records import read_with_warnings
from coreshot.errors import CoreshotError

if TYPE_CHECKING:
    from coreshot.cli.inspected import Comparison
    from coreshot.cli.output import Part
    from coreshot.fitted.inspection import Inspected
    from coreshot.fitted.message_facts import MessageFacts
    from coreshot.study import Study
    from coreshot.types import Points

MAX_ROWS = 20  # points in the table
MAX_COLUMNS = 10


def inspect(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Coresets, or messages under messages/ of a run's folder.")
    ],
    study: Annotated[
        Path | None,
        typer.Option("--study", help="The study's TOML file: the files are checked, and shown in its units."),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            "--against", help="The records that it was made from: what was lost, what of single ones is left?"
        ),
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option("--picture", help="The PNG file to draw into: images, or what it tells about each column."),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", help="Write a page for a data-protection officer here; it needs no other file."),
    ] = None,
    site_settings: SiteSettingsPath = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per file, for machines.")] = False,
) -> None:
    """Show what a client's message tells, what was computed from its records, and what is guaranteed about them.

    Example: coreshot inspect site.coreset --study study.toml --against patients.csv --html site.html
    """
    from coreshot.fitted.inspection import inspect_message
    from coreshot.study.file import read_study

    if study is None and (against or picture or html):
        raise CoreshotError(
            "inspect: --against, --picture and --html need --study, which says what the numbers mean; give it."
        )
    _refuse_unwritable(files, picture, html)
    agreed = read_study(study) if study else None
    for path in files:
        if not path.is_file():
            raise CoreshotError(f"{path}: there is no such file; give the path of a message.")
        data = path.read_bytes()
        seen = inspect_message(data, str(path))
        found = _look(agreed, data, against, site_settings) if agreed else None
        if picture and agreed and found:
            _draw(agreed, found, path, picture)
        if html and agreed and found:
            _write_page(html, agreed, data, seen, found, path, against)
        written = {name: str(to) for name, to in (("picture", picture), ("page", html)) if to}
        print_result({**_values(path, seen, found), **written}, as_json, _parts(path, seen, found, agreed, written))


def _refuse_unwritable(files: list[Path], picture: Path | None, html: Path | None) -> None:
    if html is not None and html == picture:
        raise CoreshotError(f"{html}: is to be both the page and the picture; give two names.")
    for option, path in (("--picture", picture), ("--html", html)):
        if path is None:
            continue
        if len(files) > 1:
            raise CoreshotError(f"{option}: it shows one message, and {len(files)} are given; give one of them.")
        refuse_existing(path)


@dataclass(frozen=True)
class _Look:
    """What is in a message of a study: points in input space, or sums that say something about columns."""

    points: Points | None
    facts: MessageFacts | None
    near: dict[str, Any] | None = None  # how close points come to records
    nearest: list[float] | None = None  # the distance of each point to the nearest record
    comparison: Comparison | None = None  # of sums with records


def _look(study: Study, data: bytes, against: Path | None, site_settings: Path | None) -> _Look:
    """A message of another study, or with other releases, is an error."""
    from coreshot.fitted.message_facts import message_facts
    from coreshot.wire.messages import decode_message, read_header

    client, message = read_header(data)["client"], decode_message(data, study_hash=study.hash, releases=study.releases)
    content = study.read(client, message)
    if study.learner is not None:
        if against is None:
            return _Look(content.points, None)
        return _Look(content.points, None, *_nearness(study, content.points, against, site_settings))
    facts = message_facts(study, message, content)
    if against is None:
        return _Look(None, facts)
    if not all(release.is_exact for release in study.releases):
        raise CoreshotError("--against: this message carries noise, which hides what was rounded; leave it out.")
    compared = compare_with_records(study, data, message, content, facts, against, site_settings)
    return _Look(None, facts, comparison=compared)


def _nearness(
    study: Study, points: Points, against: Path, site_settings: Path | None
) -> tuple[dict[str, Any], list[float]]:
    from coreshot.audit.distances import to_records
    from coreshot.types import make_points

    records = read_with_warnings(study, against, site_settings, needs_target=False)
    real = make_points(records.x, records.x.reshape(len(records.x), -1)[:, :1])
    return distances(points.x, real), to_records(points.x, real).tolist()


def _values(path: Path, seen: Inspected, found: _Look | None) -> dict[str, Any]:
    points = found.points if found else None
    near = found.near if found else None
    if found and found.comparison:
        near = found.comparison.values()
    return {
        "file": str(path),
        "summary": seen.summary,
        "arrays": [
            {"name": name, "type": kind, "shape": shape, "bytes": size} for name, kind, shape, size in seen.arrays
        ],
        "releases": [release.to_dict() for release in seen.releases],
        "promise": seen.promise,
        "num_points": None if points is None else points.num_points,
        "tells": fact_values(found.facts) if found and found.facts else None,
        "against": near,
    }


def _parts(
    path: Path, seen: Inspected, found: _Look | None, study: Study | None, written: dict[str, str]
) -> Iterator[Part]:
    yield f"{path}: {seen.summary}"
    arrays = ((name, kind, shape, f"{size:,}") for name, kind, shape, size in seen.arrays)
    yield make_table(("array", "type", "shape", "bytes"), arrays)
    releases = (
        (one.name, one.content, one.mechanism, f"{one.noise_multiplier:.4g}" if one.noise_multiplier else "none")
        for one in seen.releases
    )
    yield make_table(("computed from the records", "what it is", "mechanism", "noise over sensitivity"), releases)
    if study is None or found is None:
        yield "--study STUDY shows what it tells about your records, in the study's units."
    else:
        yield (
            "It is of this study, has the arrays that the study wants, and declares what the study says. "
            "Noise cannot be checked from outside."
        )
        yield from fact_parts(found.facts) if found.facts else (_points_part(study, found.points),)
        for key, value in (found.near or {}).items():
            yield f"{key}: {value:.4g}" if isinstance(value, float) else f"{key}: {value}"
        if found.comparison:
            yield from comparison_parts(found.comparison, study.agreement.kind)
    yield seen.promise
    yield from value_lines(written)


def _points_part(study: Study, points: Points | None) -> Part:
    from coreshot.data.schema import Table
    from coreshot.fitted.inspected_tables import point_lines

    if points is None:
        return "It holds rows in feature space, each computed from all records; there are no points to show."
    if not isinstance(study.inputs, Table):
        return f"{points.num_points} images; --picture FILE.png draws them."
    columns, rows = point_lines(study, points, MAX_ROWS, MAX_COLUMNS)
    return make_table(columns, rows, title="points, in the study's units")


def _draw(study: Study, found: _Look, path: Path, picture: Path) -> None:
    import numpy as np

    from coreshot.data.schema import Classes, Images
    from coreshot.report.columns import draw_columns
    from coreshot.report.drawing import render
    from coreshot.report.images import gallery, png

    if found.facts is not None:
        write_new(picture, render(draw_columns(found.facts, path.name, has_title=True), "png"))
        return
    if found.points is None or not isinstance(study.inputs, Images):
        raise CoreshotError("--picture: this message holds no images and no sums over columns; leave it out.")
    labels = np.argmax(np.asarray(found.points.y), axis=1)
    titles = (
        [study.target.classes[label] for label in labels] if isinstance(study.target, Classes) else [""] * len(labels)
    )
    write_new(picture, png(gallery(found.points.x, titles, show_scale=True)))


def _write_page(
    html: Path, study: Study, data: bytes, seen: Inspected, found: _Look, path: Path, against: Path | None
) -> None:
    from coreshot.report.inspect_page import Compared, Sent, inspect_page

    compared = None
    if against is not None:
        lines = list(comparison_parts(found.comparison, study.agreement.kind)) if found.comparison else []
        compared = Compared(against.name, lines, found.near, found.nearest)
    write_new(html, inspect_page(study, Sent(path.name, data, seen, found.points, found.facts), compared))
