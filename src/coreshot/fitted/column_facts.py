"""What sums over records say about the columns of a table: means, deviations, missing cells, relation to the target.

Everything here is computed from a message, as anybody who has the message can do it. A missing cell is 0 in the sums
(if it was filled in, that is undone), and an indicator counts it, so means and deviations are those of the cells that
are there. Correlations count a missing cell as the mean of the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from coreshot.data.schema import Classes, Column, Quantity, Table
from coreshot.glm.filling import Pairs, without_filling
from coreshot.glm.polynomials import SMALLEST_DEVIATION
from coreshot.glm.summary import Summary
from coreshot.methods.protocol import Content
from coreshot.methods.spectral import Spectral
from coreshot.spectral.features import AnyFeatures, Identity, RandomVector
from coreshot.spectral.received import ReceivedRows
from coreshot.study import Study

SHARE = "share"  # the kind of a fact about yes and no, or about one value of a category


@dataclass(frozen=True)
class InputSums:
    """Sums over records of products of all pairs of [1, inputs, labels]; labels are one-hot, or the scaled target."""

    joint: Float[np.ndarray, "size size"]
    num_inputs: int

    @property
    def count(self) -> float:
        return float(self.joint[0, 0])

    @property
    def labels(self) -> slice:
        return slice(1 + self.num_inputs, None)

    @property
    def label_sums(self) -> Float[np.ndarray, " outputs"]:
        return self.joint[0, self.labels]


def sums_of_summary(summary: Summary, num_inputs: int, fills: Pairs) -> InputSums:
    """Of one site."""
    order = [*range(num_inputs + 1), *range(summary.dimension, len(summary.moments))]
    return InputSums(without_filling(summary.moments[np.ix_(order, order)], fills), num_inputs)


def sums_of_moments(study: Study, content: Content) -> InputSums | None:
    """Of a spectral message; None where its features are not the inputs themselves and others."""
    if not isinstance(study.method, Spectral) or not isinstance(content, ReceivedRows):
        return None
    num_inputs, scale = math.prod(study.agreement.input_shape), _input_scale(study.method.features)
    if scale is None:
        return None
    order = [content.dimension - 1, *range(num_inputs), *range(content.dimension, content.sent.shape[1])]
    change = np.diag([1.0, *[scale] * num_inputs, *[1.0] * content.num_outputs])
    if study.agreement.kind == "classification":  # labels are sent minus 1 / classes
        change[0, 1 + num_inputs :] = 1 / content.num_outputs
    joint = change.T @ content.moments.joint[np.ix_(order, order)] @ change
    joint[0, 0] = content.num_examples
    return InputSums(joint, num_inputs)


def _input_scale(features: AnyFeatures) -> float | None:
    if isinstance(features, Identity):
        return 1.0
    return features.input_scale if isinstance(features, RandomVector) and features.with_inputs else None


@dataclass(frozen=True)
class ColumnFact:
    """Of one column, or of one value of a category, in the study's units; None: it cannot be told."""

    name: str
    kind: str  # number, date (in days) or share
    bounds: tuple[float, float]  # the public range
    mean: float | None
    deviation: float | None
    missing: float | None  # share of the records
    correlations: tuple[float | None, ...] = ()  # with the second of two classes, with each of more, or with the target
    class_means: tuple[float | None, ...] = ()


@dataclass(frozen=True)
class _Place:
    """Where a fact's input is in the sums, and how it is scaled."""

    name: str
    kind: str
    bounds: tuple[float, float]
    entry: int
    indicator: int | None
    is_category: bool

    @property
    def scale(self) -> float:
        return 1.0 if self.is_category else (self.bounds[1] - self.bounds[0]) / 2

    def in_units(self, value: float | None) -> float | None:
        if value is None:
            return None
        value = value if self.is_category else self.bounds[0] + (value + 1) * self.scale
        return _share(value) if self.kind == SHARE else value  # rounding may leave a share a little outside


def input_names(table: Table) -> list[str]:
    """Of all inputs, in their order; the indicators of missing cells come last."""
    names = [place.name for place in _places(table)]
    if table.has_indicators:
        names += [f"{column.name} is missing" for column in table.columns]
    return names


def _places(table: Table) -> Iterator[_Place]:
    entry, first_indicator = 1, 1 + len(table.column_inputs)
    for index, column in enumerate(table.columns):
        indicator = first_indicator + index if table.has_indicators else None
        for name, kind, bounds in _parts(column):
            yield _Place(name, kind, bounds, entry, indicator, column.kind == "category")
            entry += 1


def _parts(column: Column) -> Iterator[tuple[str, str, tuple[float, float]]]:
    if column.kind == "category":
        for value in column.choices:
            yield f"{column.name} = {value}", SHARE, (0.0, 1.0)
    elif column.kind == "yes_no":
        yield f"{column.name} = yes", SHARE, (0.0, 1.0)
    elif column.kind == "text":
        for index in range(column.width):
            yield f"{column.name}, entry {index + 1} of its vector", "number", (-1.0, 1.0)
    else:
        yield column.name, column.kind, column.bounds


def column_facts(table: Table, target: Classes | Quantity | None, sums: InputSums) -> list[ColumnFact]:
    is_classes = isinstance(target, Classes)
    facts = [_fact(place, sums, is_classes) for place in _places(table)]
    if not table.has_indicators:
        known = {place.name: share for place, share in _known_missing(table, sums)}
        unknown = 0.0 if table.missing == "refuse" else None
        facts = [replace(fact, missing=known.get(fact.name, unknown)) for fact in facts]
    return facts


def _known_missing(table: Table, sums: InputSums) -> Iterator[tuple[_Place, float]]:
    """Without indicators: a missing category has no value, and a missing yes or no has the square 0, not 1."""
    places = iter(_places(table))
    for column in table.columns:
        own = [next(places) for _ in range(column.width)]
        if column.kind in ("category", "yes_no"):
            present = sum(float(sums.joint[place.entry, place.entry]) for place in own)
            yield from ((place, _share(1 - present / sums.count)) for place in own)


def _share(value: float) -> float:
    return float(min(max(value, 0.0), 1.0))


def _fact(place: _Place, sums: InputSums, is_classes: bool) -> ColumnFact:
    absent = np.zeros(len(sums.joint)) if place.indicator is None else sums.joint[place.indicator]
    present = sums.joint[0] - absent  # the first entry: records with this cell; those of labels: their sums there
    missing = _share(absent[0] / sums.count)
    if present[0] < 0.5:
        return ColumnFact(place.name, place.kind, place.bounds, None, None, missing)
    own = sums.joint[place.entry]
    mean = float(own[0] / present[0])
    variance = max(float(own[place.entry] / present[0]) - mean**2, 0.0)
    mean_units = place.in_units(mean)
    deviation = place.scale * math.sqrt(variance)
    correlations = _correlations(sums, own, present, mean, variance)
    means: tuple[float | None, ...] = ()
    if is_classes:
        pairs = zip(own[sums.labels], present[sums.labels], strict=True)
        means = tuple(place.in_units(float(total / size)) if size > 0.5 else None for total, size in pairs)
        correlations = correlations[1:] if len(correlations) == 2 else correlations
    return ColumnFact(place.name, place.kind, place.bounds, mean_units, deviation, missing, correlations, means)


def _correlations(
    sums: InputSums, own: np.ndarray, present: np.ndarray, mean: float, variance: float
) -> tuple[float | None, ...]:
    """With each label, over all records."""
    together = own[sums.labels] - mean * present[sums.labels]
    energy = np.diag(sums.joint)[sums.labels] - sums.label_sums**2 / sums.count
    found: list[float | None] = []
    for product, square in zip(together, energy, strict=True):
        is_constant = min(variance, square / sums.count) < SMALLEST_DEVIATION**2
        size = math.sqrt(max(present[0] * variance * square, 0.0))
        found.append(None if is_constant else float(np.clip(product / size, -1, 1)))
    return tuple(found)


def target_fact(target: Quantity, sums: InputSums) -> ColumnFact:
    place = _Place(target.name, "number", target.range, 1 + sums.num_inputs, None, is_category=False)
    return replace(_fact(place, sums, is_classes=False), correlations=())


def lone_records(table: Table, sums: InputSums, target: Classes | Quantity | None) -> list[tuple[str, np.ndarray]]:
    """What one record alone has, in words, and that record's inputs: sums over one record are this record.

    The sum of products with a 0/1 input is the sum over the records that have a 1 there.
    """
    inputs = slice(1, 1 + sums.num_inputs)
    groups: list[tuple[str, np.ndarray]] = []
    for place in _places(table):
        own = sums.joint[place.entry]
        if place.is_category:
            groups.append((place.name, own))
        elif place.kind == SHARE and table.missing != "zero":  # yes is 1, no is -1, and a missing cell is 0
            present = sums.joint[0] if place.indicator is None else sums.joint[0] - sums.joint[place.indicator]
            groups.append((place.name, (present + own) / 2))
            groups.append((place.name.removesuffix("yes") + "no", (present - own) / 2))
    if table.has_indicators:
        first = 1 + len(table.column_inputs)
        groups += [(f"{one.name} missing", sums.joint[first + index]) for index, one in enumerate(table.columns)]
    if isinstance(target, Classes):
        rows = sums.joint[sums.labels]
        groups += [(f"{target.name} = {name}", row) for name, row in zip(target.classes, rows, strict=True)]
    return [(words, row[inputs]) for words, row in groups if 0.5 < row[0] < 1.5]
