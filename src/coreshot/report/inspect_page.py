"""The page about one site's file, for whoever decides whether it may leave: what it is, what it tells, what holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coreshot.data.schema import Images, Table
from coreshot.fitted.inspected_tables import column_lines, label_words, point_lines
from coreshot.fitted.inspection import Inspected
from coreshot.fitted.message_facts import MessageFacts, not_told, told
from coreshot.privacy.promise import promise, promised_epsilon
from coreshot.privacy.releases import Release
from coreshot.report.columns import draw_columns
from coreshot.report.drawing import Drawing
from coreshot.report.images import gallery
from coreshot.report.page import embed_drawing, render_page
from coreshot.report.tables import NO_VALUE, Grid
from coreshot.report.units import format_bytes
from coreshot.study import Study
from coreshot.types import Points
from coreshot.wire.messages import read_header

WARNING = "warning: "
MOST_POINTS, MOST_COLUMNS, MOST_CLASSES = 400, 60, 4  # of tables and pictures


@dataclass(frozen=True)
class Sent:
    """A site's file, as `coreshot inspect` has read it."""

    name: str  # of the file
    data: bytes
    seen: Inspected
    points: Points | None
    facts: MessageFacts | None


@dataclass(frozen=True)
class Compared:
    """The file beside the records that it was made from: numbers only, no record."""

    source: str
    lines: Sequence[str]
    near: Mapping[str, Any] | None  # how close points come to records
    nearest: Sequence[float] | None  # the distance of each point to the nearest record


def inspect_page(study: Study, sent: Sent, compared: Compared | None) -> bytes:
    """`study` is the file's own, and the file was checked against it."""
    header = read_header(sent.data)
    epsilon = promised_epsilon(study.releases)
    facts, points = sent.facts, sent.points
    sentences = [*told(facts), *not_told(facts)] if facts else []
    compared_lines = list(compared.lines) if compared else []
    return render_page(
        "inspect.html.j2",
        file=sent.name,
        client=header["client"],
        task=study.agreement.task,
        study_hash=study.hash,
        size=format_bytes(len(sent.data)),
        verdict=_verdict(study, facts, epsilon),
        cards=_cards(study, sent, epsilon),
        warnings=_warnings([*sentences, *compared_lines]),
        what=_what(study, points, facts),
        told=[line for line in sentences if not line.startswith(WARNING)],
        columns=_column_grid(facts),
        figure=embed_drawing(draw_columns(facts, sent.name)) if facts else _point_figure(study, points),
        points=_point_grid(study, points),
        releases=_release_grid(study),
        compared=compared,
        compared_lines=[line for line in compared_lines if not line.startswith(WARNING)],
        nearness=_nearness_sentence(compared),
        nearest=_nearest_grid(study, points, compared),
        promise=promise(study.releases),
        against=_against_grid(epsilon),
        checklist=_checklist(study, sent, compared, "signature" in header),
        arrays=Grid(["array", "type", "shape", "bytes"], [[*one[:3], f"{one[3]:,}"] for one in sent.seen.arrays], 3),
    )


def _verdict(study: Study, facts: MessageFacts | None, epsilon: float | None) -> str:
    if epsilon is not None:
        return (
            f"Single records are protected by differential privacy with epsilon = {epsilon:.3g}, if the program at "
            "this site has added the noise that the file declares."
        )
    whose = f"the {facts.num_records:,} records" if facts else "the records"
    return (
        f"Nothing is promised about single records: treat this file as confidential as {whose} that it was computed "
        "from."
    )


def _cards(study: Study, sent: Sent, epsilon: float | None) -> list[tuple[str, str]]:
    cards = [(format_bytes(len(sent.data)), "leave, once")]
    if sent.facts:
        cards.append((f"{sent.facts.num_records:,}", "records are behind it"))
        cards.append((f"{len(sent.facts.lone):,}", "values or classes that one record alone has"))
    if sent.points is not None:
        cards.append((f"{sent.points.num_points:,}", "points, each of which can be looked at"))
    exact = sum(release.is_exact for release in study.releases)
    cards.append((f"{exact} of {len(study.releases)}", "releases are exact, without noise"))
    cards.append((f"epsilon {epsilon:.3g}" if epsilon is not None else "none", "is promised about single records"))
    return cards


def _warnings(lines: Sequence[str]) -> list[str]:
    found = [line.removeprefix(WARNING) for line in lines if line.startswith(WARNING)]
    return [line[0].upper() + line[1:] for line in found]


def _what(study: Study, points: Points | None, facts: MessageFacts | None) -> str:
    if points is not None:
        kind = "images" if isinstance(study.inputs, Images) or len(study.agreement.input_shape) == 3 else "lines"
        return f"{points.num_points:,} learned points, shown below as the {kind} that they are."
    if facts is not None:
        return "Sums over all records, and a fit to them. There is no row that stands for one record."
    return (
        "Rows of features, each a mixture of all records. They are not pictures and cannot be shown as such: a feature "
        "is a number that a fixed random function computes from a whole record."
    )


def _column_grid(facts: MessageFacts | None) -> Grid | None:
    return Grid(*column_lines(facts, MOST_COLUMNS, MOST_CLASSES)) if facts else None


def _point_grid(study: Study, points: Points | None) -> Grid | None:
    if points is None or not isinstance(study.inputs, Table):
        return None
    headings, lines = point_lines(study, points, MOST_POINTS, MOST_COLUMNS)
    return Grid(["point", *headings], [[str(index), *line] for index, line in enumerate(lines, 1)])


def _point_figure(study: Study, points: Points | None) -> dict[str, Any] | None:
    """Every image that leaves."""
    if points is None or len(study.agreement.input_shape) != 3:
        return None
    shown = min(points.num_points, MOST_POINTS)
    names = [label_words(study, points, index) for index in range(shown)]
    figure = gallery(np.asarray(points.x)[:shown], names, show_scale=True)
    caption = (
        f"{'All' if shown == points.num_points else 'The first'} {shown:,} images in the file, with their classes."
    )
    return embed_drawing(Drawing(figure, f"{shown} images that leave: {', '.join(sorted(set(names)))}", caption))


def _release_grid(study: Study) -> Grid:
    lines = [[one.name, one.content, _noise(one)] for one in study.releases]
    return Grid(["release", "what it is", "noise"], lines, first_number=3)


def _noise(release: Release) -> str:
    if release.is_exact:
        return "none: it is exact"
    return f"Gaussian, {release.noise_multiplier:.3g} times what one record can move ({release.mechanism})"


def _nearness_sentence(compared: Compared | None) -> str:
    if compared is None or compared.near is None or "copies" not in compared.near:
        return ""
    near = compared.near
    return (
        f"{near['copies']} of {near['points']} points are copies of a record, up to rounding, and {near['near']} are "
        f"nearer to a record than 95 % of the records are to each other. The median distance of a point to the nearest "
        f"record is {near['median distance to the nearest record']:.4g}, between records "
        f"{near['median distance between records']:.4g}."
    )


def _nearest_grid(study: Study, points: Points | None, compared: Compared | None) -> Grid | None:
    """Distances only: a record stays where it is."""
    if points is None or compared is None or compared.nearest is None or compared.near is None:
        return None
    usual = compared.near["median distance between records"]
    lines = [
        [str(index + 1), label_words(study, points, index), f"{distance:.4g}", f"{distance / max(usual, 1e-12):.2f}"]
        for index, distance in enumerate(compared.nearest[:MOST_POINTS])
    ]
    return Grid(["point", "class or target", "distance to the nearest record", "as a share of the usual"], lines, 2)


def _against_grid(epsilon: float | None) -> Grid:
    """Who sees what, and what holds against them."""
    is_private = epsilon is not None
    everything = "nothing: they can compute all that can be read off it"
    bound = f"the bound of epsilon = {epsilon:.3g}, whatever else they know" if is_private else everything
    derived = "the same bound: it is computed from files with noise" if is_private else "nothing is promised"
    lines = [
        ["the coordinator", "this file, its size, its name, when it came", bound],
        ["a thief of the file", "this file", bound],
        ["the other sites", "at most the model, if the coordinator gives it to them", derived],
        ["whoever uses the model", "its predictions", derived],
        ["a group of records of one person", "this file", _of_groups(is_private)],
        ["you", "this page, and the records", "what is compared with records is for this site only"],
    ]
    return Grid(["who", "what they see", "what holds against them"], lines, first_number=3)


def _of_groups(is_private: bool) -> str:
    return "less: the bound is for one record, and grows faster than their number" if is_private else "nothing"


def _checklist(study: Study, sent: Sent, compared: Compared | None, is_signed: bool) -> Grid:
    """What the program can answer; what a person decides has no answer yet."""
    facts, epsilon = sent.facts, promised_epsilon(study.releases)
    copies = compared.near.get("copies") if compared and compared.near else None
    looked = "give --against RECORDS to measure it"
    alone = ("yes, see above" if facts.lone else "no") if facts else "the file does not show it"
    lines = [
        ["Is it a file of the study that we agreed to?", f"yes: {study.hash[:12]}; compare it with yours"],
        ["Does it declare what the study says, and nothing more?", "yes, it was checked"],
        ["Is anything promised about single records?", "no" if epsilon is None else f"yes: epsilon = {epsilon:.3g}"],
        ["Has one record alone some value, missing cell or class?", alone if epsilon is None else "noise hides it"],
        ["Can so many sums determine records?", _determined(facts, epsilon)],
        ["Is a point a copy of a record?", _copies(sent.points, copies, looked)],
        ["Was it made from these very records?", _same(compared, looked)],
        ["Is it signed, so that nobody can send in our name?", "yes" if is_signed else "no: distill --key"],
        ["May these numbers leave by law, contract and consent?", NO_VALUE],
        ["By which way is it sent, and is it encrypted?", NO_VALUE],
        ["Who deletes it when, and whom do we ask to forget us?", NO_VALUE],
        ["Is it in our ledger, with all that left before?", "coreshot budget show"],
    ]
    return Grid(["question", "answer"], lines, first_number=2)


def _determined(facts: MessageFacts | None, epsilon: float | None) -> str:
    if facts is None or epsilon is not None:
        return "not with noise" if epsilon is not None else NO_VALUE
    return "perhaps, see above" if facts.may_determine_records else "no: there are fewer sums than cells"


def _copies(points: Points | None, copies: int | None, looked: str) -> str:
    if points is None:
        return "it has no points"
    return looked if copies is None else f"{copies} of {points.num_points}"


def _same(compared: Compared | None, looked: str) -> str:
    if compared is None:
        return looked
    return "see above" if compared.lines else "points cannot tell"
