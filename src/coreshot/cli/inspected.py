"""What `coreshot inspect` prints of a message of sums: its table of columns, and its comparison with records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coreshot.cli.output import make_table
from coreshot.cli.records import read_with_warnings
from coreshot.errors import CoreshotError

if TYPE_CHECKING:
    from coreshot.cli.output import Part
    from coreshot.fitted.against import Loss, ReadOff
    from coreshot.fitted.message_facts import MessageFacts
    from coreshot.methods.protocol import Content
    from coreshot.study import Study
    from coreshot.types import Points
    from coreshot.wire.messages import Message

MAX_COLUMNS = 60  # lines of the table
MAX_CLASSES = 4


@dataclass(frozen=True)
class Comparison:
    """A message of sums, or of rows of features, beside the records that it was made from."""

    loss: Loss
    same_bytes: bool
    read_off: list[ReadOff]
    rows: dict[str, Any] | None  # how near rows of features come to those of records

    def values(self) -> dict[str, Any]:
        return {
            "loss": asdict(self.loss),
            "same_bytes": self.same_bytes,
            "read_off": [asdict(one) for one in self.read_off],
            "rows": self.rows,
        }


def compare_with_records(
    study: Study,
    data: bytes,
    message: Message,
    content: Content,
    facts: MessageFacts | None,
    against: Path,
    site_settings: Path | None,
) -> Comparison:
    """The file is read as `distill` reads it."""
    from coreshot.api import distill
    from coreshot.data.validate import check_points
    from coreshot.fitted.against import measure_loss, read_off
    from coreshot.wire.messages import read_header

    records, terms, client = (
        read_with_warnings(study, against, site_settings),
        study.agreement,
        read_header(data)["client"],
    )
    points = check_points(
        records.x,
        records.y,
        kind=terms.kind,
        input_shape=terms.input_shape,
        num_outputs=terms.num_outputs,
        client=str(against),
    )
    loss = measure_loss(study, content, points, facts.sums if facts else None, str(against))
    again = distill(study, records.x, records.y, client=client)
    found = read_off(study, facts, points) if facts else []
    return Comparison(loss, again == data, found, _row_distances(study, client, message, points))


def _row_distances(study: Study, client: str, message: Message, points: Points) -> dict[str, Any] | None:
    """In the space of features, of a spectral message; None where there are no rows."""
    import numpy as np

    from coreshot.methods.spectral import Spectral
    from coreshot.types import make_points

    if not isinstance(study.method, Spectral):
        return None
    if points.num_points == 1:
        return {"points": 1, "copies": 1}  # one record has one row, which is its features, up to sign and rounding
    rows, _ = study.method.read_rows(study.model, client, message)
    features = study.method.draw_map(study.model, study.shared_key)(np.asarray(points.x))
    return distances(rows[:, : features.shape[1]], make_points(features, features[:, :1]))


def distances(x: Any, real: Points) -> dict[str, Any]:
    from coreshot.audit.distances import between_records, compare_distances, to_records

    if real.num_points == 1:
        raise CoreshotError("--against: one record has no distance to others; give the file of all records.")
    found = compare_distances(to_records(x, real).tolist(), between_records(real))
    middle = found.quantiles.index(0.5)
    return {
        "points": found.num_points,
        "copies": found.num_copies,
        "near": found.num_near,
        "median distance to the nearest record": found.points_to_records[middle],
        "median distance between records": found.records_to_records[middle],
    }


def fact_values(facts: MessageFacts) -> dict[str, Any]:
    """Of everything that can be read off, as plain values."""
    from coreshot.fitted.message_facts import not_told, told

    columns = [asdict(fact) for fact in facts.columns]
    for index, column in enumerate(columns):
        column["slopes"] = None if facts.slopes is None else facts.slopes[index].tolist()
    return {
        "records": facts.num_records,
        "classes": facts.class_sizes,
        "columns": columns,
        "target": None if facts.target is None else asdict(facts.target),
        "products": list(facts.products),
        "features": facts.num_features,
        "different_sums": facts.num_sums,
        "cells": facts.num_cells,
        "rounding_loss": facts.loss,
        "groups_of_one_record": [group for group, _ in facts.lone],
        "may_determine_records": facts.may_determine_records,
        "told": told(facts),
        "not_told": not_told(facts),
    }


def fact_parts(facts: MessageFacts) -> Iterator[Part]:
    from coreshot.fitted.message_facts import not_told, told

    first, *rest = told(facts)
    yield first
    yield _columns_table(facts)
    if len(facts.columns) > MAX_COLUMNS or len(facts.classes) > MAX_CLASSES:
        yield f"The table shows {MAX_COLUMNS} columns and {MAX_CLASSES} classes at most; --json has all."
    yield from rest
    yield from not_told(facts)


def _columns_table(facts: MessageFacts) -> Part:
    from coreshot.fitted.inspected_tables import column_lines

    heading, rows = column_lines(facts, MAX_COLUMNS, MAX_CLASSES)
    return make_table(heading, rows, title="can be read off it exactly, up to rounding, in the study's units")


def comparison_parts(found: Comparison, kind: str) -> Iterator[str]:
    what = "probability" if kind == "classification" else "prediction, in units of the noise's deviation,"
    yield (
        f"On these records, rounding changes a {what} by {found.loss.mean_change:.5f} on average, "
        f"and by {found.loss.largest_change:.5f} at most."
    )
    if found.loss.mean_error is not None:
        yield f"The columns' means are right to {found.loss.mean_error:.2g} of their deviations."
    if found.same_bytes:
        yield "Distilled again, these records give this very file, byte by byte."
    else:
        yield (
            "warning: distilled again, these records give another file: other records, another --seed, or another "
            "version of coreshot; if the records are others, the numbers above are not about rounding."
        )
    if found.rows is None:
        yield "There are no rows that could be records: all numbers are sums over records, or a fit to them."
    else:
        yield _rows_sentence(found.rows)
    for one in found.read_off:
        read = f"can be read off with an error of {one.error:.2g} deviations in its numbers"
        yield f"warning: the one record with {one.group} {read}; two records usually differ by 1.4."
    yield (
        "What a thief of the file could do: check a guess of the whole table against these sums; and whoever has all "
        "records but one can subtract them and is left with that one, up to rounding."
    )


def _rows_sentence(rows: dict[str, Any]) -> str:
    if rows["points"] == 1:
        return "warning: the one row is the one record's features."
    are = f"{rows['copies']} of {rows['points']} rows are" if rows["copies"] else f"None of {rows['points']} rows is"
    return (
        f"{are} a record's features: the median distance of a row to the nearest record's is "
        f"{rows['median distance to the nearest record']:.4g}, between records "
        f"{rows['median distance between records']:.4g}."
    )
