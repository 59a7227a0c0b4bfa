"""Predictions as a table for people: one row for each record, and a sentence for each column."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.stats
from jaxtyping import Bool

from coreshot.data.schema import Classes, Quantity
from coreshot.errors import CoreshotError
from coreshot.fitted.calibration import INTERVAL
from coreshot.fitted.model import FittedModel
from coreshot.fitted.survival import curves
from coreshot.fitted.unlike import LIMIT, is_unlike_training
from coreshot.glm.count_predictions import count_interval
from coreshot.types import Predictive

PREDICTED, UNCERTAINTY, UNLIKE = "predicted", "uncertainty of the model", "unlike the training data"
FORMULA_STARTS = tuple("=+-@\t\r\n＝＋－＠")  # a spreadsheet computes a cell that starts with one of these
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


@dataclass(frozen=True)
class PredictionTable:
    """Cells by column, and what each column says."""

    columns: dict[str, list[str]]
    meanings: dict[str, str]
    num_unlike: int | None  # records unlike the training data; None: the model cannot tell

    def to_csv(self) -> bytes:
        """Only rows of cells, so that every program reads it. UTF-8."""
        buffer = io.StringIO()
        writer = csv.writer(buffer)
        writer.writerow(map(disarm, self.columns))
        writer.writerows(map(disarm, row) for row in zip(*self.columns.values(), strict=True))
        return buffer.getvalue().encode()


def disarm(cell: str) -> str:
    """A cell that no spreadsheet takes for a formula: an apostrophe is put before it, unless it is a number."""
    return f"'{cell}" if cell.startswith(FORMULA_STARTS) and not NUMBER.fullmatch(cell) else cell


def tabulate_predictions(
    model: FittedModel, x: np.ndarray, ids: Mapping[str, Sequence[str]] | None = None
) -> PredictionTable:
    """`ids` is the column that names the records; without it they are numbered as in the file."""
    target = model.study.target
    assert target is not None  # else there was no file to read
    if isinstance(target, Classes) and target.ends:
        return _tabulate_survival(model, x[:: len(target.ends)], target, ids)
    ids = ids or _numbered(len(x))
    predicted, unlike = model.predict(x), is_unlike_training(model, x)
    columns = _class_columns(target, predicted) if isinstance(target, Classes) else _quantity_columns(target, predicted)
    if model.posterior.is_point_estimate:
        del columns[UNCERTAINTY]  # it would be 0, as if the model were certain
    if unlike is not None:
        columns[UNLIKE] = ["yes" if one else "no" for one in unlike]
    if clash := next((name for name in ids if name in columns), None):
        raise CoreshotError(f"--id {clash}: the predictions have a column of this name too; rename it in the file.")
    meanings = {name: _id_meaning(cells) for name, cells in ids.items()}
    if set(ids) == {"record"}:
        meanings["record"] = "the number of the record in your file; the first one after the header is 1."
    meanings |= {name: _meaning(name, target) for name in columns}
    return PredictionTable({**{name: list(cells) for name, cells in ids.items()}, **columns}, meanings, _count(unlike))


def _numbered(size: int) -> dict[str, list[str]]:
    return {"record": [str(line) for line in range(1, size + 1)]}


def _tabulate_survival(
    model: FittedModel, x: np.ndarray, target: Classes, ids: Mapping[str, Sequence[str]] | None
) -> PredictionTable:
    """`x` has one record for each person."""
    ids, survival, unlike = ids or _numbered(len(x)), curves(model, x), is_unlike_training(model, x)
    names = [f"without {target.name} until {end:g}" for end in target.ends]
    columns = {name: [f"{value:.3f}" for value in column] for name, column in zip(names, survival.T, strict=True)}
    meanings = {name: _id_meaning(cells) for name, cells in ids.items()}
    for name, end in zip(names, target.ends, strict=True):
        what = f"the probability that {target.name} is not {target.classes[1]} until {target.time} is {end:g}"
        meanings[name] = f"{what}, between 0 and 1."
    if unlike is not None:
        columns[UNLIKE], meanings[UNLIKE] = ["yes" if one else "no" for one in unlike], _meaning(UNLIKE, target)
    return PredictionTable({**{name: list(cells) for name, cells in ids.items()}, **columns}, meanings, _count(unlike))


def _id_meaning(cells: Sequence[str]) -> str:
    changed = any(disarm(cell) != cell for cell in cells)
    mark = "; an apostrophe stands before what a spreadsheet would take for a formula" if changed else ""
    return f"the record, named as in your file{mark}."


def _count(unlike: Bool[np.ndarray, " n"] | None) -> int | None:
    return None if unlike is None else int(np.sum(unlike))


def _class_columns(target: Classes, predicted: Predictive) -> dict[str, list[str]]:
    mean, epistemic = np.asarray(predicted.mean), np.asarray(predicted.epistemic)
    best = mean.argmax(axis=1)
    return {
        PREDICTED: [target.classes[index] for index in best],
        **{
            f"probability of {name}": [f"{value:.3f}" for value in mean[:, index]]
            for index, name in enumerate(target.classes)
        },
        UNCERTAINTY: [f"{value:.3f}" for value in np.take_along_axis(epistemic, best[:, None], axis=1)[:, 0]],
    }


def _quantity_columns(target: Quantity, predicted: Predictive) -> dict[str, list[str]]:
    mean = target.in_units(np.asarray(predicted.mean))[:, 0]
    epistemic, aleatoric = (
        target.in_units(np.asarray(part), is_deviation=True)[:, 0]
        for part in (predicted.epistemic, predicted.aleatoric)
    )
    if target.counts:
        low, high = count_interval(mean, np.hypot(epistemic, aleatoric), INTERVAL)
        parts = {PREDICTED: mean, "low 90%": low, "high 90%": high, UNCERTAINTY: epistemic}
        return {name: [f"{value:.6g}" for value in values] for name, values in parts.items()}
    reach = scipy.stats.norm.ppf(0.5 + INTERVAL / 2) * np.hypot(epistemic, aleatoric)
    parts = {PREDICTED: mean, "low 90%": mean - reach, "high 90%": mean + reach, UNCERTAINTY: epistemic}
    return {name: [f"{value:.6g}" for value in values] for name, values in parts.items()}


def _meaning(name: str, target: Classes | Quantity) -> str:
    if name.startswith("probability of "):
        of_class = name.removeprefix("probability of ")
        return f"the probability that {target.name} is {of_class}, between 0 and 1; those of a row add up to 1."
    is_class = isinstance(target, Classes)
    return {
        PREDICTED: f"the most probable class of {target.name}."
        if is_class
        else f"the predicted {target.name}, in the units of the study's file.",
        "low 90%": f"the lower end of an interval that holds {target.name} with a probability of 90 %.",
        "high 90%": "the upper end of this interval.",
        UNCERTAINTY: "how much the sites' data leave open: the standard deviation of "
        + ("the predicted class's probability" if is_class else f"the predicted {target.name}")
        + " over all models that agree with what the sites sent. More data of this kind would make it smaller.",
        UNLIKE: f"yes: the record is more than {LIMIT:g} times as far from the sites' records as these usually are, so "
        "that the model has to guess there; do not rely on the other columns.",
    }[name]
