"""What a report must know about a task to draw and label it. Each task describes itself, no report knows its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

Range = tuple[float, float]


@dataclass(frozen=True)
class CurvePlane:
    """A regression with one input and one output. Its functions are drawn as curves."""

    title: str
    x: Range
    y: Range
    y_ticks: tuple[float, ...]
    true_function: Callable[[Float[np.ndarray, " n"]], Float[np.ndarray, " n"]]
    data_intervals: tuple[Range, ...]  # of x, where clients have data


@dataclass(frozen=True)
class FieldPlane:
    """A classification with two inputs and two classes. The probability of class 1 is drawn as a field of colours."""

    title: str
    x: Range
    y: Range


@dataclass(frozen=True)
class SummaryColumn:
    """A column for one number of the task's `summaries`, or for the ratio of two of them."""

    name: str
    heading: str
    format: str
    divisor: str | None = None
    factor: float = 1.0  # of the number, such as the size of a unit

    def value(self, summaries: Mapping[str, Any]) -> float | None:
        """None where the number is missing or the divisor is zero."""
        number: float | None = summaries.get(self.name)
        if number is None or self.divisor is None:
            return number if number is None else self.factor * number
        divisor = summaries.get(self.divisor)
        return self.factor * number / divisor if divisor else None


@dataclass(frozen=True)
class Display:
    """The defaults suit any task: classes are numbers, there is no drawing on a plane and no column of its own."""

    class_names: tuple[str, ...] | None = None
    high_is_dark: bool = False  # of images with one channel: high values are ink on paper, not light
    plane: CurvePlane | FieldPlane | None = None
    columns: tuple[SummaryColumn, ...] = ()
    columns_note: str = ""  # one sentence under the table that explains the columns

    def class_name(self, label: int) -> str:
        return str(label) if self.class_names is None else self.class_names[label]
