"""What `coreshot inspect` shows of a message as a table: its columns, or its points, in the study's units."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from coreshot.data.schema import Classes, Table
from coreshot.fitted.column_facts import ColumnFact
from coreshot.fitted.column_words import format_deviation, format_share, format_signed, format_value
from coreshot.fitted.message_facts import MessageFacts
from coreshot.study import Study
from coreshot.types import Points

Lines = tuple[list[str], list[list[str]]]  # headings, and a list of cells for each line


def column_lines(facts: MessageFacts, most_columns: int, most_classes: int) -> Lines:
    classes, is_two = facts.classes[:most_classes], len(facts.classes) == 2
    has_correlation = is_two or not facts.classes
    slopes = facts.slopes if is_two else None
    which = f"{facts.target_name} = {facts.classes[1]}" if is_two else facts.target_name
    heading = [
        "column",
        "mean",
        "deviation",
        "missing",
        *(f"mean where {facts.target_name} = {name}" for name in classes),
        *([f"correlation with {which}"] if has_correlation else []),
        *(["own fit"] if slopes is not None else []),
    ]
    rows = []
    for index, fact in enumerate(facts.columns[:most_columns]):
        slope = [] if slopes is None else [f"{slopes[index, 0]:+.2f}"]
        rows.append([*_cells(fact, len(classes), has_correlation), *slope])
    return heading, rows


def _cells(fact: ColumnFact, num_classes: int, has_correlation: bool) -> Iterator[str]:
    yield fact.name
    yield format_value(fact.mean, fact.kind, fact.deviation) or "no cells"
    yield format_deviation(fact.deviation, fact.kind)
    yield format_share(fact.missing)
    means = [*fact.class_means, *[None] * num_classes][:num_classes]
    yield from (format_value(mean, fact.kind, fact.deviation) for mean in means)
    if has_correlation:
        yield format_signed(fact.correlations[0] if fact.correlations else None)


def point_lines(study: Study, points: Points, most_points: int, most_columns: int) -> Lines:
    """Of a study of a table."""
    assert isinstance(study.inputs, Table)
    decoded = study.inputs.decode(np.asarray(points.x))
    names, rows = list(decoded)[:most_columns], []
    for index in range(min(points.num_points, most_points)):
        values = [decoded[name][index] for name in names]
        cells = [f"{value:.4g}" if isinstance(value, float) else str(value) for value in values]
        rows.append([*cells, label_words(study, points, index)])
    return [*names, study.target.name if study.target else "target"], rows


def label_words(study: Study, points: Points, index: int) -> str:
    """The class of a point, or its target, scaled."""
    label = np.asarray(points.y[index])
    if study.agreement.kind == "regression":
        return f"{float(label[0]):.4g}"
    names = study.target.classes if isinstance(study.target, Classes) else [str(n) for n in range(len(label))]
    return names[int(label.argmax())]
