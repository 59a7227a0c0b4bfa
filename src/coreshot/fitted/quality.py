"""How good a model is on records whose targets are known: each number with its 95 % interval and with what it is
compared with.

The comparisons are the best constant answers for these very records: the commonest class, the classes' shares, the
mean. A model learned nothing that is not better than they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import jax
import numpy as np
from jaxtyping import Bool, Float

from coreshot.data.validate import check_points
from coreshot.errors import CoreshotError
from coreshot.fitted.intervals import Interval
from coreshot.fitted.metrics import POINTS_AT_ONCE
from coreshot.fitted.model import FittedModel

Form = Literal["share", "number", "units"]
THRESHOLD = 0.5


@dataclass(frozen=True)
class Measure:
    """A number about a model; `baseline` is the same number for a constant answer, `compared` says which."""

    name: str  # in JSON
    heading: str
    value: float
    interval: Interval | None
    form: Form = "number"
    baseline: float | None = None
    compared: str = ""

    def show(self, value: float) -> str:
        return {"share": f"{100 * value:.1f} %", "number": f"{value:.3f}", "units": f"{value:.4g}"}[self.form]

    @property
    def shown_interval(self) -> str:
        if self.interval is None:
            return ""
        low, high = map(self.show, self.interval)
        return f"{low.removesuffix(' %')} to {high}"

    @property
    def shown_baseline(self) -> str:
        return "" if self.baseline is None else self.show(self.baseline)


@dataclass(frozen=True)
class ClassCalibration:
    """The model's mean probability of a class, beside how often the class is there."""

    name: str
    num_records: int
    mean_probability: float
    share: float
    interval: Interval | None


@dataclass(frozen=True)
class Quality:
    """`sentence` says how good, compared with what; the confusion matrix has a row for each true class."""

    records: int
    sentence: str
    measures: tuple[Measure, ...]
    notes: tuple[str, ...] = ()
    settings: dict[str, Any] | None = None  # positive class and threshold
    classes: tuple[ClassCalibration, ...] = ()
    confusion: tuple[tuple[int, ...], ...] = ()

    def measure(self, name: str) -> Measure | None:
        return next((one for one in self.measures if one.name == name), None)

    def numbers(self) -> dict[str, Any]:
        """For JSON: values by name, then their intervals and baselines."""
        return {
            "records": self.records,
            **{one.name: one.value for one in self.measures},
            "intervals": {one.name: one.interval for one in self.measures if one.interval is not None},
            "baselines": {one.name: one.baseline for one in self.measures if one.baseline is not None},
        }

    def to_dict(self) -> dict[str, Any]:
        found = {"sentence": self.sentence, **self.numbers(), **(self.settings or {}), "notes": list(self.notes)}
        if self.classes:
            found["classes"] = [
                {
                    "name": one.name,
                    "records": one.num_records,
                    "mean_probability": one.mean_probability,
                    "share": one.share,
                    "interval": one.interval,
                }
                for one in self.classes
            ]
            found["confusion"] = [list(row) for row in self.confusion]
        return found


@dataclass(frozen=True)
class Answers:
    """What a model says about records, and what is true; on the study's scale."""

    mean: Float[np.ndarray, "n outputs"]
    deviation: Float[np.ndarray, "n outputs"]  # of a target: that of the model and that of the noise together
    log_prob: Float[np.ndarray, " n"]
    y: Float[np.ndarray, "n outputs"]

    def select(self, chosen: Bool[np.ndarray, " n"]) -> Answers:
        return Answers(self.mean[chosen], self.deviation[chosen], self.log_prob[chosen], self.y[chosen])


def ask(model: FittedModel, x: Any, y: Any) -> Answers:
    terms, parts = model.study.agreement, []
    test = check_points(
        x, y, kind=terms.kind, input_shape=terms.input_shape, num_outputs=terms.num_outputs, client="test data"
    )
    for first in range(0, test.num_points, POINTS_AT_ONCE):
        part = jax.tree.map(lambda array, first=first: array[first : first + POINTS_AT_ONCE], test)
        said = model.posterior.predict(part.x)
        deviation = np.hypot(np.asarray(said.epistemic, np.float64), np.asarray(said.aleatoric, np.float64))
        log_prob = np.asarray(model.posterior.log_predictive(part), np.float64)
        parts.append((np.asarray(said.mean, np.float64), deviation, log_prob, np.asarray(part.y, np.float64)))
    return Answers(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def check_positive(classes: tuple[str, ...], positive: str | None, threshold: float) -> int:
    """The index of the positive class; by default the last one."""
    if not 0 < threshold < 1:
        raise CoreshotError(f"--threshold {threshold:g}: is a probability between 0 and 1; change it.")
    if positive is not None and positive not in classes:
        raise CoreshotError(f"--positive {positive}: is no class of the study; give one of {', '.join(classes)}.")
    return len(classes) - 1 if positive is None else classes.index(positive)


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def count_records(number: int) -> str:
    return f"{number:,} record" + ("" if number == 1 else "s")
