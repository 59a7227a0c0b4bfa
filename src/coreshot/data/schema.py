"""What a record of a study looks like: columns or pixels, with public ranges, so that scaling needs no private data.

A number is scaled linearly from its range to [-1, 1]. A category is one-hot. A missing value is 0 and, with
`missing = "indicator"`, one more column says that it is missing: a model can then distinguish a hospital that does not
measure something from patients with average values.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from pydantic import Field

from coreshot.config import Count, decode, settings
from coreshot.errors import CoreshotError

Cells = Sequence[Any]  # the cells of one column as the file has them: text, numbers, None


@settings
class Column:
    """A number has a range, a category its values; `outside` says what happens to any other value."""

    name: str
    kind: Literal["number", "category"]
    range: tuple[float, float] | None = None
    values: tuple[str, ...] | None = None
    outside: Literal["refuse", "missing", "clip"] = "refuse"  # clip: numbers only, to the nearest value of the range

    def __post_init__(self) -> None:
        where = f"study, column {self.name!r}"
        if self.kind == "number" and (
            self.range is None or self.values is not None or not self.range[0] < self.range[1]
        ):
            raise CoreshotError(
                f"{where}: a number has range = [low, high] with low below high, and no values; change it."
            )
        if self.kind == "category" and (
            self.values is None or self.range is not None or len(set(self.values)) < len(self.values) or not self.values
        ):
            raise CoreshotError(f"{where}: a category has values = [...], each once, and no range; change it.")
        if self.kind == "category" and self.outside == "clip":
            raise CoreshotError(f'{where}: a category cannot be clipped; use outside = "missing" or "refuse".')
        _check_names(self.values or (), where)

    @property
    def width(self) -> int:
        return 1 if self.kind == "number" else len(self.values or ())


@dataclass(frozen=True)
class Finding:
    """Counts of what one column of a site's data holds; they are shown at the site and never sent."""

    name: str
    num_present: int
    num_missing: int
    num_outside: int
    note: str = ""


@settings
class Table:
    """Records are the rows of a table."""

    columns: Annotated[tuple[Column, ...], Field(min_length=1)]
    missing: Literal["indicator", "zero", "refuse"] = "indicator"

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise CoreshotError(f"study: the column {twice!r} is there twice; give each a name of its own.")

    @property
    def input_shape(self) -> tuple[int, ...]:
        indicators = len(self.columns) if self.missing == "indicator" else 0
        return (sum(column.width for column in self.columns) + indicators,)

    def encode(self, cells: Mapping[str, Cells], where: str) -> tuple[Float[np.ndarray, "n d"], list[Finding]]:
        parts, indicators, findings = [], [], []
        for column in self.columns:
            if column.name not in cells:
                raise CoreshotError(
                    f"{where}: there is no column {column.name!r}; it has {_list_names(list(cells))}: add it, "
                    "empty where it is unknown."
                )
            numbers, is_missing, finding = encode_column(column, cells[column.name], where)
            if self.missing == "refuse" and np.any(is_missing):
                line = int(np.flatnonzero(is_missing)[0]) + 1
                raise CoreshotError(
                    f"{where}: record {line} has no {column.name!r}, and the study wants all cells; "
                    "fill it or drop the record."
                )
            parts.append(numbers)
            indicators.append(is_missing.astype(np.float32)[:, None])
            findings.append(finding)
        if self.missing == "indicator":
            parts += indicators
        return np.concatenate(parts, axis=1), findings

    def decode(self, x: Float[np.ndarray, "n d"]) -> dict[str, list[Any]]:
        """Points of a coreset in readable form: numbers in their units, of a category the value with most weight."""
        found: dict[str, list[Any]] = {}
        first = 0
        for column in self.columns:
            part = x[:, first : first + column.width]
            first += column.width
            if column.kind == "number":
                low, high = column.range or (0.0, 1.0)
                found[column.name] = (low + (part[:, 0] + 1) / 2 * (high - low)).tolist()
            else:
                found[column.name] = [(column.values or ())[index] for index in np.argmax(part, axis=1)]
        return found


@settings
class Images:
    """Records are images of shape (height, width, channels); the public range of the pixels is scaled to [0, 1]."""

    shape: tuple[Count, Count, Count]
    range: tuple[float, float] = (0.0, 255.0)

    def __post_init__(self) -> None:
        if not self.range[0] < self.range[1]:
            raise CoreshotError("study, image: range = [low, high] with low below high; change it.")

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self.shape

    def encode(
        self, images: np.ndarray, where: str
    ) -> tuple[Float[np.ndarray, "n height width channels"], list[Finding]]:
        images = images[..., None] if images.ndim == 3 and self.shape[2] == 1 else images
        if images.shape[1:] != self.shape:
            raise CoreshotError(f"{where}: images are {images.shape[1:]}, the study wants {self.shape}; resize them.")
        low, high = self.range
        if images.size and (np.min(images) < low or np.max(images) > high):
            raise CoreshotError(
                f"{where}: pixels go from {np.min(images):g} to {np.max(images):g}, "
                f"the study says {low:g} to {high:g}; scale them."
            )
        scaled = (images.astype(np.float32) - low) / (high - low)
        return scaled.astype(np.float32), [Finding("images", len(images), 0, 0)]


@settings
class Classes:
    """The target of a classification: a column, its classes in order, and the values of each (by default its name)."""

    name: str
    classes: Annotated[tuple[str, ...], Field(min_length=2)]
    values: dict[str, tuple[str, ...]] | None = None

    def __post_init__(self) -> None:
        given = self.values or {}
        if len(set(self.classes)) < len(self.classes) or (given and set(given) != set(self.classes)):
            raise CoreshotError(
                f"study, target {self.name!r}: "
                "classes are different names, and values (if given) are for each of them; change it."
            )
        every = [value for values in given.values() for value in values]
        _check_names(every if given else self.classes, f"study, target {self.name!r}")
        if len(set(every)) < len(every):
            raise CoreshotError(f"study, target {self.name!r}: a value belongs to two classes; give it to one.")

    @property
    def num_outputs(self) -> int:
        return len(self.classes)

    def encode(self, cells: Cells, where: str) -> tuple[Int[np.ndarray, " n"], Finding]:
        meaning = {
            value: index for index, name in enumerate(self.classes) for value in (self.values or {}).get(name, (name,))
        }
        found = []
        for line, cell in enumerate(cells, 1):
            text = as_text(cell)
            if text is None or text not in meaning:
                what = "no" if text is None else f"{text!r} as its"
                raise CoreshotError(
                    f"{where}: record {line} has {what} {self.name!r}; "
                    f"the study knows {_list_names(list(meaning))}: mend or drop it."
                )
            found.append(meaning[text])
        labels = np.asarray(found, np.int64)
        counts = ", ".join(f"{name} {int(np.sum(labels == index))}" for index, name in enumerate(self.classes))
        return labels, Finding(self.name, len(labels), 0, 0, counts)


@settings
class Quantity:
    """The target of a regression: a column whose public range is scaled to [-1, 1]."""

    name: str
    range: tuple[float, float]

    def __post_init__(self) -> None:
        if not self.range[0] < self.range[1]:
            raise CoreshotError(f"study, target {self.name!r}: range = [low, high] with low below high; change it.")

    @property
    def num_outputs(self) -> int:
        return 1

    def encode(self, cells: Cells, where: str) -> tuple[Float[np.ndarray, "n 1"], Finding]:
        column = Column(name=self.name, kind="number", range=self.range)
        numbers, is_missing, finding = _encode_numbers(column, cells, where, "agree on a wider range")
        if np.any(is_missing):
            line = int(np.flatnonzero(is_missing)[0]) + 1
            raise CoreshotError(
                f"{where}: record {line} has no {self.name!r}, which is what is to be learned; "
                "fill it or drop the record."
            )
        return numbers, finding

    def in_units(self, y: Float[np.ndarray, "n 1"], *, is_deviation: bool = False) -> Float[np.ndarray, "n 1"]:
        low, high = self.range
        return y * (high - low) / 2 + (0.0 if is_deviation else (low + high) / 2)


def parse_inputs(values: Mapping[str, Any], where: str) -> Table | Images:
    return decode(Table, values, where) if "columns" in values else decode(Images, values, where)


def parse_target(values: Mapping[str, Any], where: str) -> Classes | Quantity:
    return decode(Classes, values, where) if "classes" in values else decode(Quantity, values, where)


def encode_column(
    column: Column, cells: Cells, where: str
) -> tuple[Float[np.ndarray, "n width"], Bool[np.ndarray, " n"], Finding]:
    return (
        _encode_numbers(column, cells, where) if column.kind == "number" else _encode_categories(column, cells, where)
    )


def _encode_numbers(
    column: Column, cells: Cells, where: str, advice: str = 'agree on outside = "missing" or "clip"'
) -> tuple[Float[np.ndarray, "n 1"], Bool[np.ndarray, " n"], Finding]:
    values = np.asarray([_as_number(cell, column.name, line, where) for line, cell in enumerate(cells, 1)], np.float64)
    low, high = column.range or (0.0, 1.0)
    is_missing = np.isnan(values)
    is_outside = ~is_missing & ((values < low) | (values > high))
    if column.outside == "refuse" and np.any(is_outside):
        line = int(np.flatnonzero(is_outside)[0])
        raise CoreshotError(
            f"{where}: record {line + 1} has {column.name} = {values[line]:g}, outside the study's {low:g} to {high:g} "
            f"({int(np.sum(is_outside))} such records); mend them, or {advice}."
        )
    if column.outside == "missing":
        is_missing = is_missing | is_outside
    clipped = np.clip(np.where(is_missing, low, values), low, high)
    scaled = np.where(is_missing, 0.0, 2 * (clipped - low) / (high - low) - 1)
    return scaled.astype(np.float32)[:, None], is_missing, _count_cells(column, is_missing, is_outside)


def _encode_categories(
    column: Column, cells: Cells, where: str
) -> tuple[Float[np.ndarray, "n values"], Bool[np.ndarray, " n"], Finding]:
    position = {value: index for index, value in enumerate(column.values or ())}
    texts = [as_text(cell) for cell in cells]
    is_missing = np.asarray([text is None for text in texts], bool)
    is_outside = np.asarray([text is not None and text not in position for text in texts], bool)
    if column.outside == "refuse" and np.any(is_outside):
        line = int(np.flatnonzero(is_outside)[0])
        raise CoreshotError(
            f"{where}: record {line + 1} has {column.name} = {texts[line]!r}, "
            f"and the study knows {_list_names(list(position))} "
            f'({int(np.sum(is_outside))} such records); mend them, or agree on outside = "missing".'
        )
    is_missing = is_missing | is_outside
    hot = np.zeros((len(texts), len(position)), np.float32)
    for line, text in enumerate(texts):
        if text in position:
            hot[line, position[text]] = 1.0
    return hot, is_missing, _count_cells(column, is_missing, is_outside)


def _count_cells(column: Column, is_missing: Bool[np.ndarray, " n"], is_outside: Bool[np.ndarray, " n"]) -> Finding:
    notes = {"missing": "outside counts as missing", "clip": "outside is set to the nearer end"}
    return Finding(
        column.name,
        num_present=int(np.sum(~is_missing)),
        num_missing=int(np.sum(is_missing & ~is_outside)),
        num_outside=int(np.sum(is_outside)),
        note=notes.get(column.outside, "") if np.any(is_outside) else "",
    )


def _as_number(cell: Any, name: str, line: int, where: str) -> float:
    text = as_text(cell)
    if text is None:
        return math.nan
    try:
        value = float(text)
    except ValueError:
        value = math.inf
    if not math.isfinite(value):
        raise CoreshotError(
            f"{where}: record {line} has {name} = {text!r}, which is not a number; mend it, or leave the cell empty."
        )
    return value


def as_text(cell: Any) -> str | None:
    """A cell as a person would type it: 1.0 is "1", True is "true". None if it is missing: empty, NaN, None, "na"."""
    if cell is None or (isinstance(cell, float | np.floating) and math.isnan(cell)):
        return None
    if isinstance(cell, bool | np.bool_):
        return "true" if cell else "false"
    if isinstance(cell, float | np.floating) and float(cell).is_integer():
        return str(int(cell))
    text = unicodedata.normalize("NFC", str(cell).strip())
    if not text or text.lower() in ("na", "nan", "null", "none", "?"):
        return None
    try:
        number = float(text)
    except ValueError:
        return text
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else text


def _check_names(values: Sequence[str], where: str) -> None:
    """A value must be written as its cells are read; otherwise no cell could have it."""
    for value in values:
        text = as_text(value)
        if text != value:
            read = "as missing" if text is None else f"as {text!r}"
            raise CoreshotError(
                f"{where}: a cell with {value!r} is read {read}, so no value can be called that; use another name."
            )


def _list_names(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "") if names else "none"
