"""What a record of a study looks like: columns or pixels, with public ranges, so that scaling needs no private data.

A number is scaled linearly from its range to [-1, 1], and so is a date. A category is one-hot; yes and no are 1 and -1.
A missing value is 0 and, with `missing = "indicator"` or "mean", one more column says that it is missing: a model can
then distinguish a hospital that does not measure something from patients with average values.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from jaxtyping import Float, Int
from pydantic import Field

from coreshot.config import Count, decode, settings
from coreshot.data.cells import NO_WORDS, YES_WORDS, Cells, Lookup, as_array, as_text, distinct, spread
from coreshot.data.columns import PLAIN, Finding, Reading, encode_column, first_records, is_date_format, list_names
from coreshot.errors import CoreshotError
from coreshot.frozen.text import Embedding


@settings
class Column:
    """A number or a date has a range, a category its values, a text the network that makes a vector of it.

    `outside` says what happens to any other value.
    """

    name: str
    kind: Literal["number", "category", "yes_no", "date", "text"]
    range: tuple[float | str, float | str] | None = None  # of a date: two dates, written 2020-12-31
    values: tuple[str, ...] | None = None
    outside: Literal["refuse", "missing", "clip"] = "refuse"  # clip: to the nearest value of the range
    names: tuple[str, ...] = ()  # other names of the column in a site's file
    aliases: dict[str, tuple[str, ...]] | None = None  # other spellings of a value, or of yes and no
    format: str | None = None  # of a date that is not written 2020-12-31, such as "%d.%m.%Y"
    may_be_missing: bool = False  # a site may have most cells of it empty, and is not stopped
    missing_words: tuple[str, ...] = ()  # as the table's, for this column
    embedding: Embedding | None = None  # of a text

    def __post_init__(self) -> None:
        where = f"study, column {self.name!r}"
        has_range, has_values = self.range is not None, self.values is not None
        if self.kind == "number" and (has_values or not _is_range(self.range, float)):
            raise CoreshotError(
                f"{where}: a number has range = [low, high] with low below high, and no values; change it."
            )
        if self.kind == "date" and (has_values or not _is_range(self.range, str)):
            raise CoreshotError(
                f'{where}: a date has range = ["1930-01-31", "2020-12-31"], earlier first, and no values; change it.'
            )
        if self.kind == "category" and (has_range or not self.values or len(set(self.values)) < len(self.values)):
            raise CoreshotError(f"{where}: a category has values = [...], each once, and no range; change it.")
        if self.kind == "yes_no" and (has_range or has_values):
            raise CoreshotError(f"{where}: yes_no has neither range nor values; remove them.")
        if (self.kind == "text") != (self.embedding is not None) or (self.kind == "text" and (has_range or has_values)):
            raise CoreshotError(
                f"{where}: a text has an embedding = {{file, sha256, ...}} and neither range nor values, and no other "
                "kind has one; change it."
            )
        if self.kind in ("category", "yes_no", "text") and self.outside == "clip":
            raise CoreshotError(f'{where}: a category cannot be clipped; use outside = "missing" or "refuse".')
        if self.format is not None and self.kind != "date":
            raise CoreshotError(f"{where}: only a date has a format; remove it.")
        if self.format is not None and not is_date_format(self.format):
            raise CoreshotError(f'{where}: {self.format!r} is no format of dates; write, for example, "%d.%m.%Y".')
        self._check_words(where)

    def _check_words(self, where: str) -> None:
        every = [spelling for spellings in (self.aliases or {}).values() for spelling in spellings]
        if self.aliases and not set(self.aliases) <= set(self.choices):
            raise CoreshotError(f"{where}: aliases are for {list_names(self.choices)} only; change it.")
        if len(set(every)) < len(every) or set(every) & set(self.values or ()):
            raise CoreshotError(f"{where}: an alias means two values; give it to one.")
        check_names([*(self.values or ()), *every], where, self.missing_words)

    @property
    def width(self) -> int:
        if self.embedding is not None:
            return self.embedding.dimension
        return len(self.values or ()) if self.kind == "category" else 1

    @property
    def choices(self) -> tuple[str, ...]:
        """What a cell may say, if it is no number and no date."""
        return ("no", "yes") if self.kind == "yes_no" else self.values or ()

    @property
    def lookup(self) -> Lookup:
        """The index of a choice, by all its spellings."""
        meaning = {word: index for index, words in enumerate((NO_WORDS, YES_WORDS)) for word in words}
        meaning = meaning if self.kind == "yes_no" else {}
        meaning |= {choice: index for index, choice in enumerate(self.choices)}
        for choice, spellings in (self.aliases or {}).items():
            meaning |= dict.fromkeys(spellings, self.choices.index(choice))
        return Lookup(meaning)

    @property
    def bounds(self) -> tuple[float, float]:
        """The range as numbers; of a date, days."""
        low, high = self.range or (0.0, 1.0)
        return _as_number(low), _as_number(high)

    @property
    def bounds_text(self) -> str:
        low, high = self.range or (0.0, 1.0)
        return " to ".join(end if isinstance(end, str) else f"{end:g}" for end in (low, high))

    def in_units(self, part: Float[np.ndarray, "n width"]) -> list[Any]:
        """Encoded cells in readable form: numbers in their units, of a category the value with most weight."""
        if self.kind == "category":
            return [self.choices[index] for index in np.argmax(part, axis=1)]
        if self.kind == "yes_no":
            return ["yes" if value > 0 else "no" for value in part[:, 0]]
        if self.kind == "text":
            return ["(a vector)"] * len(part)
        low, high = self.bounds
        values = (low + (part[:, 0] + 1) / 2 * (high - low)).tolist()
        if self.kind == "number":
            return values
        first, last = 1, datetime.date.max.toordinal()
        return [datetime.date.fromordinal(min(max(round(value), first), last)).isoformat() for value in values]


def _is_range(values: tuple[float | str, float | str] | None, kind: type) -> bool:
    if values is None or not all(isinstance(value, str) == (kind is str) for value in values):
        return False
    try:
        return _as_number(values[0]) < _as_number(values[1])
    except ValueError:
        return False


def _as_number(value: float | str) -> float:
    return float(datetime.date.fromisoformat(value).toordinal()) if isinstance(value, str) else value


@settings
class Table:
    """Records are the rows of a table."""

    columns: Annotated[tuple[Column, ...], Field(min_length=1)]
    missing: Literal["indicator", "mean", "zero", "refuse"] = "indicator"  # mean: glm fills numbers in
    missing_words: tuple[str, ...] = ()  # further cells that mean missing, in all columns, such as "NA" or "-9"

    def __post_init__(self) -> None:
        names = [name for column in self.columns for name in {column.name, *column.names}]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise CoreshotError(f"study: the column {twice!r} is there twice; give each a name of its own.")
        for column in self.columns:
            check_names(column.values or (), f"study, column {column.name!r}", self.missing_words)

    @property
    def input_shape(self) -> tuple[int, ...]:
        indicators = len(self.columns) if self.has_indicators else 0
        return (sum(column.width for column in self.columns) + indicators,)

    @property
    def has_indicators(self) -> bool:
        return self.missing in ("indicator", "mean")

    @property
    def filled_inputs(self) -> tuple[tuple[int, int], ...]:
        """Inputs whose missing cells are filled in, each with its indicator: those that are not one-hot."""
        if self.missing != "mean":
            return ()
        ends = np.cumsum([column.width for column in self.columns]).tolist()
        kinds = [column.kind for column in self.columns]
        return tuple(
            (end - 1, ends[-1] + index) for index, end in enumerate(ends) if kinds[index] not in ("category", "text")
        )

    @property
    def number_inputs(self) -> tuple[int, ...]:
        """The inputs that take more than two values: numbers and dates."""
        ends = np.cumsum([column.width for column in self.columns])
        return tuple(
            int(end) - 1 for end, column in zip(ends, self.columns, strict=True) if column.kind in ("number", "date")
        )

    @property
    def column_inputs(self) -> tuple[int, ...]:
        """All inputs but the indicators of missing cells, which come last."""
        return tuple(range(sum(column.width for column in self.columns)))

    @property
    def product_inputs(self) -> tuple[int, ...]:
        """The inputs whose products mean something: all but the indicators, and the vectors of texts."""
        is_text = np.repeat([c.kind == "text" for c in self.columns], [c.width for c in self.columns])
        return tuple(int(index) for index in np.flatnonzero(~is_text))

    def encode(
        self, cells: Mapping[str, Cells], where: str, reading: Reading = PLAIN
    ) -> tuple[Float[np.ndarray, "n d"], list[Finding]]:
        parts, indicators, findings = [], [], []
        for column in self.columns:
            if column.name not in cells:
                raise CoreshotError(
                    f"{where}: there is no column {column.name!r}; it has {list_names(list(cells))}: add it, "
                    "empty where it is unknown."
                )
            numbers, is_missing, finding = encode_column(column, cells[column.name], where, self.missing_words, reading)
            if self.missing == "refuse" and np.any(is_missing):
                line = int(np.flatnonzero(is_missing)[0]) + 1
                raise CoreshotError(
                    f"{where}: record {line} has no {column.name!r}, and the study wants all cells; "
                    "fill it or drop the record."
                )
            parts.append(numbers)
            indicators.append(is_missing.astype(np.float32)[:, None])
            findings.append(finding)
        if self.has_indicators:
            parts += indicators
        return np.concatenate(parts, axis=1), findings

    def decode(self, x: Float[np.ndarray, "n d"]) -> dict[str, list[Any]]:
        """Points of a coreset in readable form."""
        found: dict[str, list[Any]] = {}
        first = 0
        for column in self.columns:
            found[column.name] = column.in_units(x[:, first : first + column.width])
            first += column.width
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
    names: tuple[str, ...] = ()  # other names of the column in a site's file
    time: str | None = None  # the column that says when the event, the second class, was, or until when it was not
    ends: tuple[float, ...] = ()  # of the periods of this time

    def __post_init__(self) -> None:
        given = self.values or {}
        self._check_times()
        if len(set(self.classes)) < len(self.classes) or (given and set(given) != set(self.classes)):
            raise CoreshotError(
                f"study, target {self.name!r}: "
                "classes are different names, and values (if given) are for each of them; change it."
            )
        every = [value for values in given.values() for value in values]
        check_names(every if given else self.classes, f"study, target {self.name!r}")
        if len(set(every)) < len(every):
            raise CoreshotError(f"study, target {self.name!r}: a value belongs to two classes; give it to one.")

    def _check_times(self) -> None:
        where = f"study, target {self.name!r}"
        if (self.time is None) != (not self.ends):
            raise CoreshotError(f'{where}: a time to an event has time = "COLUMN" and ends = [...]; give both.')
        if self.ends and (self.ends[0] <= 0 or any(np.diff(self.ends) <= 0)):
            raise CoreshotError(f"{where}: ends of periods are above 0, each later than the one before; change them.")
        if self.ends and len(self.classes) != 2:
            raise CoreshotError(f"{where}: an event has two classes, no before yes; change classes.")

    @property
    def num_outputs(self) -> int:
        return len(self.classes)

    def encode(self, cells: Cells, where: str, reading: Reading = PLAIN) -> tuple[Int[np.ndarray, " n"], Finding]:
        spellings = self.values or {name: (name,) for name in self.classes}
        meaning = {value: index for index, name in enumerate(self.classes) for value in spellings[name]}
        array, lookup = as_array(cells), Lookup(meaning)
        codes, values = distinct(array)
        texts = [as_text(value, ()) for value in values]
        found = [-2 if text is None else -1 if (index := lookup(text)) is None else index for text in texts]
        labels = spread(codes, found, -2, np.int64)
        if np.any(labels == -2):
            line = int(np.flatnonzero(labels == -2)[0]) + 1
            raise CoreshotError(
                f"{where}: record {line} has no {self.name!r} ({int(np.sum(labels == -2)):,} in all), "
                "which is what is to be learned; fill it or drop the record."
            )
        if np.any(labels == -1):
            first = self.classes[0]
            raise CoreshotError(
                f"{where}: {first_records(labels == -1, self.name, array, reading)} that the study does not know "
                f"(it knows {list_names(list(meaning))}); mend it, drop the record, or agree on all "
                f'spellings: values = {{ {first} = ["{spellings[first][0]}", "..."], ... }} in [target].'
            )
        return labels, self.count(labels)

    def count(self, labels: Int[np.ndarray, " n"]) -> Finding:
        counts = ", ".join(f"{name} {int(np.sum(labels == index))}" for index, name in enumerate(self.classes))
        return Finding(self.name, len(labels), 0, 0, counts)


@settings
class Quantity:
    """The target of a regression: a column whose public range is scaled to [-1, 1]."""

    name: str
    range: tuple[float, float]
    outside: Literal["refuse", "clip"] = "refuse"
    names: tuple[str, ...] = ()  # other names of the column in a site's file
    counts: bool = False  # whole numbers from 0, with a Poisson likelihood

    def __post_init__(self) -> None:
        if self.counts and (self.range[0] != 0 or self.range[1] != round(self.range[1])):
            raise CoreshotError(
                f"study, target {self.name!r}: counts have range = [0, largest], a whole number; change it."
            )
        if not self.range[0] < self.range[1]:
            raise CoreshotError(f"study, target {self.name!r}: range = [low, high] with low below high; change it.")

    @property
    def num_outputs(self) -> int:
        return 1

    @property
    def as_column(self) -> Column:
        return Column(name=self.name, kind="number", range=self.range, outside=self.outside)

    def encode(self, cells: Cells, where: str, reading: Reading = PLAIN) -> tuple[Float[np.ndarray, "n 1"], Finding]:
        advice = 'a wider range or outside = "clip"'
        numbers, is_missing, finding = encode_column(self.as_column, cells, where, (), reading, advice)
        if np.any(is_missing):
            line = int(np.flatnonzero(is_missing)[0]) + 1
            raise CoreshotError(
                f"{where}: record {line} has no {self.name!r}, which is what is to be learned; "
                "fill it or drop the record."
            )
        counted = self.in_units(numbers.astype(np.float64))[:, 0]
        is_part = np.abs(counted - np.rint(counted)) > 1e-4 * max(self.range[1], 1.0)
        if self.counts and np.any(is_part):
            line = int(np.flatnonzero(is_part)[0]) + 1
            raise CoreshotError(f"{where}: record {line} has a {self.name!r} that is no whole number; mend it.")
        return numbers, finding

    def in_units(self, y: Float[np.ndarray, "n 1"], *, is_deviation: bool = False) -> Float[np.ndarray, "n 1"]:
        low, high = self.range
        return y * (high - low) / 2 + (0.0 if is_deviation else (low + high) / 2)


def parse_inputs(values: Mapping[str, Any], where: str) -> Table | Images:
    return decode(Table, values, where) if "columns" in values else decode(Images, values, where)


def parse_target(values: Mapping[str, Any], where: str) -> Classes | Quantity:
    return decode(Classes, values, where) if "classes" in values else decode(Quantity, values, where)


def check_names(values: Sequence[str], where: str, missing_words: Sequence[str] = ()) -> None:
    """A value must be written as its cells are read; otherwise no cell could have it."""
    for value in values:
        text = as_text(value, ())
        if text != value or value in missing_words:
            read = "as missing" if text is None or value in missing_words else f"as {text!r}"
            raise CoreshotError(
                f"{where}: a cell with {value!r} is read {read}, so no value can be called that; use another name."
            )
