"""Columns become numbers by the study's public constants, without a loop over cells; what they hold is counted.

No cell's value is in an error unless the site asked to see values.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow
import pyarrow.compute as pc
from jaxtyping import Bool, Float

from coreshot.data.cells import (
    EMPTY_WORDS,
    MISSING_WORDS,
    NUM_COMMONEST,
    Cells,
    Lookup,
    as_array,
    as_text,
    commonest,
    count_words,
    distinct,
    is_text,
    spread,
)
from coreshot.data.number_format import POINT, NumberFormat, parse_numbers
from coreshot.errors import CoreshotError
from coreshot.frozen.text import Embedding

if TYPE_CHECKING:
    from coreshot.data.schema import Column


@dataclass(frozen=True)
class Reading:
    """How a site reads its own cells; no part of the study."""

    numbers: NumberFormat = POINT
    date_format: str | None = None  # instead of the study's
    allow: frozenset[str] = frozenset()  # columns whose unreadable cells count as missing
    show_values: bool = False  # whether errors may show cells
    is_part: bool = False  # of a file: findings are merged, and want all cells that are outside


PLAIN = Reading()
NOTE_MISSING, NOTE_END = "outside counts as missing", "outside is set to the nearer end"


@dataclass(frozen=True)
class Finding:
    """Counts of what one column of a site's data holds; they are shown at the site and never sent."""

    name: str
    num_present: int
    num_missing: int
    num_outside: int  # of the study's range or values, or not readable at all
    note: str = ""
    kind: str = ""  # of a column that is an input or a quantity
    num_records: int = 0
    may_be_missing: bool = True
    words: tuple[tuple[str, int], ...] = ()  # public words that mean missing, with counts
    commonest: tuple[tuple[str, int], ...] = field(default=(), repr=False)  # cells: shown only where asked for


@dataclass(frozen=True)
class _Read:
    """The cells of a column after reading: a value each (NaN: none), and which of them could not be read."""

    array: pyarrow.Array
    values: np.ndarray
    is_unknown: np.ndarray
    words: tuple[tuple[str, int], ...]


def encode_column(
    column: Column,
    cells: Cells,
    where: str,
    missing_words: Sequence[str] = (),
    reading: Reading = PLAIN,
    advice: str = 'outside = "missing" or "clip"',
) -> tuple[Float[np.ndarray, "n width"], Bool[np.ndarray, " n"], Finding]:
    """The numbers of a column, which cells are missing, and what was found."""
    words = tuple(missing_words) + column.missing_words
    if column.embedding is not None:
        return _encode_texts(column, column.embedding, cells, words, reading)
    if column.kind in ("category", "yes_no"):
        return _encode_choices(column, cells, where, words, reading)
    read = _read_dates(column, cells, words, reading) if column.kind == "date" else _read_numbers(cells, words, reading)
    return _encode_scale(column, read, where, reading, advice)


def _encode_scale(
    column: Column, read: _Read, where: str, reading: Reading, advice: str
) -> tuple[Float[np.ndarray, "n 1"], Bool[np.ndarray, " n"], Finding]:
    """Numbers and dates: from the range to [-1, 1]."""
    if np.any(read.is_unknown) and column.name not in reading.allow:
        what = "a date" if column.kind == "date" else "a number"
        how = ", or say how dates are written with date_format in --site-settings" if column.kind == "date" else ""
        raise CoreshotError(
            f"{where}: {first_records(read.is_unknown, column.name, read.array, reading)} that is not {what}; "
            f"mend the cell, leave it empty{how}, or count it as missing with {allow_words([column.name])}."
        )
    low, high = column.bounds
    is_missing = np.isnan(read.values)
    with np.errstate(invalid="ignore"):
        is_outside = ~is_missing & ((read.values < low) | (read.values > high))
    if column.outside == "refuse" and np.any(is_outside):
        raise CoreshotError(
            f"{where}: {first_records(is_outside, column.name, read.array, reading)} "
            f"outside the study's {column.bounds_text}; mend it, or agree on {advice}."
        )
    is_empty = is_missing & ~read.is_unknown
    if column.outside == "missing":
        is_missing = is_missing | is_outside
    finding = _count(column, read, is_missing, is_empty, is_outside | read.is_unknown, reading.is_part)
    clipped = np.clip(np.where(is_missing, low, read.values), low, high)
    scaled = np.where(is_missing, 0.0, 2 * (clipped - low) / (high - low) - 1)
    return scaled.astype(np.float32)[:, None], is_missing, finding


def _encode_choices(
    column: Column, cells: Cells, where: str, words: Sequence[str], reading: Reading
) -> tuple[Float[np.ndarray, "n width"], Bool[np.ndarray, " n"], Finding]:
    """Categories: one-hot. Yes and no: 1 and -1."""
    array = as_array(cells)
    codes, values = distinct(array)
    lookup = column.lookup
    missing = [
        _missing_word(value, lookup, words, MISSING_WORDS if column.kind == "yes_no" else ()) for value in values
    ]
    indices = [-1 if word else _index(lookup, value) for word, value in zip(missing, values, strict=True)]
    found = spread(codes, indices, -1, np.int64)
    is_empty = spread(codes, [word is not None for word in missing], True, bool)
    is_outside = ~is_empty & (found < 0)
    if column.outside == "refuse" and np.any(is_outside):
        hint = _words_hint(codes, values, is_outside)
        raise CoreshotError(
            f"{where}: {first_records(is_outside, column.name, array, reading)} that the study does not know "
            f'(it knows {list_names(column.choices)}{hint}); mend it, or agree on aliases or outside = "missing".'
        )
    is_missing = is_empty | is_outside
    if column.kind == "yes_no":
        hot = np.where(is_missing, 0.0, 2.0 * found - 1.0).astype(np.float32)[:, None]
    else:
        hot = np.zeros((len(found), column.width), np.float32)
        known = np.flatnonzero(~is_missing)
        hot[known, found[known]] = 1.0
    counted = count_words(codes, [word or None for word in missing])
    read = _Read(array, found, is_outside, counted)
    return hot, is_missing, _count(column, read, is_missing, is_empty, is_outside, reading.is_part)


def _encode_texts(
    column: Column, embedding: Embedding, cells: Cells, words: Sequence[str], reading: Reading
) -> tuple[Float[np.ndarray, "n width"], Bool[np.ndarray, " n"], Finding]:
    """Vectors; each different text is embedded once, and an empty one is missing."""
    array = as_array(cells)
    array = array if is_text(array) else pc.cast(array, pyarrow.string())
    codes, values = distinct(array)
    missing = [_missing_word(value, Lookup({}), words, ()) for value in values]
    texts = [str(value) for value, word in zip(values, missing, strict=True) if word is None]
    vectors = np.zeros((len(values) + 1, column.width), np.float32)
    vectors[[index for index, word in enumerate(missing) if word is None]] = embedding.embed(texts)
    is_missing = spread(codes, [word is not None for word in missing], True, bool)
    counted = count_words(codes, [word or None for word in missing])
    read = _Read(array, codes, np.zeros(len(codes), bool), counted)
    return vectors[codes], is_missing, _count(column, read, is_missing, is_missing, read.is_unknown, reading.is_part)


def _index(lookup: Lookup, value: Any) -> int:
    text = as_text(value, ())
    found = None if text is None else lookup(text)
    return -1 if found is None else found


def _missing_word(value: Any, lookup: Lookup, agreed: Sequence[str], usual: Sequence[str]) -> str | None:
    """The word by which a cell says that it is missing, "" for NaN; None if it says something else."""
    text = as_text(value, ())
    if text is None:
        return ""
    for word in agreed:
        if text.casefold() == word.casefold() and not lookup.is_exact(text):
            return word
    is_word = text.lower() in (*EMPTY_WORDS, *usual) and lookup(text) is None
    return text.lower() if is_word else None


def _words_hint(codes: np.ndarray, values: Sequence[Any], is_outside: np.ndarray) -> str:
    """Which of the unknown values are words for missing: they are public, and the study can agree on them."""
    texts = [as_text(value, ()) for value in values]
    usual = [text.lower() if text is not None and text.lower() in MISSING_WORDS else None for text in texts]
    counts = count_words(np.where(is_outside, codes, -1), usual)
    if not counts:
        return ""
    listed = ", ".join(f"{word!r} {count}" for word, count in counts)
    return f"; {listed} of them: if these mean missing, agree on missing_words"


def _read_numbers(cells: Cells, words: Sequence[str], reading: Reading) -> _Read:
    array = as_array(cells)
    kind = array.type
    if pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind) or pyarrow.types.is_decimal(kind):
        values = pc.cast(array, pyarrow.float64(), safe=False).fill_null(np.nan).to_numpy(zero_copy_only=False)
        is_null = np.isnan(values)
    else:
        array = array if is_text(array) else pc.cast(array, pyarrow.string())
        values = parse_numbers(array, reading.numbers)
        is_null = array.is_null().to_numpy(zero_copy_only=False)
    return _with_words(array, values, is_null, {word: _as_float(word) for word in words})


def _with_words(array: pyarrow.Array, values: np.ndarray, is_null: np.ndarray, words: Mapping[str, float]) -> _Read:
    """Take out the words that mean missing, some of which have a value; what then has no finite one is unknown."""
    values = np.where(np.isfinite(values), values, np.nan)
    is_code = np.isin(values, [code for code in words.values() if not np.isnan(code)])
    counted = [(word, int(np.sum(values == code))) for word, code in words.items()]
    is_left = np.isnan(values) & ~is_null
    is_unknown = is_left
    if np.any(is_left):
        left, texts = distinct(array.filter(pyarrow.array(is_left)))
        usual = {*MISSING_WORDS, *(word.lower() for word in words)}
        said = [text.lower() if (text := str(value).strip()).lower() in usual else None for value in texts]
        counted += count_words(left, said)
        is_unknown = is_left.copy()
        is_unknown[is_left] = ~spread(left, [word is not None for word in said], True, bool)
    kept = tuple(sorted((word, count) for word, count in counted if count))
    return _Read(array, np.where(is_code, np.nan, values), is_unknown, kept)


def _as_float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return np.nan


def _read_dates(column: Column, cells: Cells, words: Sequence[str], reading: Reading) -> _Read:
    """Days; each different date is read once."""
    array = as_array(cells)
    if pyarrow.types.is_timestamp(array.type):
        array = pc.cast(array, pyarrow.date32(), safe=False)
    codes, values = distinct(array)
    form = reading.date_format or column.format
    days = spread(codes, [_day(value, form) for value in values], np.nan, np.float64)
    return _with_words(array, days, codes < 0, {word: _day(word, form) for word in words})


def _day(value: Any, form: str | None) -> float:
    """A date as a number of days; NaN if it is none. Without a form it is written as 2020-12-31, with any time."""
    if isinstance(value, datetime.date):
        return float(value.toordinal())
    text = str(value)
    try:
        if form is None:
            is_date = len(text) == 10 or text[10:11] in ("T", " ")
            return float(datetime.date.fromisoformat(text[:10]).toordinal()) if is_date else np.nan
        return float(datetime.datetime.strptime(text, form).toordinal())
    except ValueError:
        return np.nan


def is_date_format(form: str) -> bool:
    """Whether dates can be written and read so."""
    day = datetime.datetime(2001, 2, 3)
    try:
        return datetime.datetime.strptime(day.strftime(form), form).date() == day.date()
    except ValueError:
        return False


def first_records(mask: np.ndarray, name: str, array: pyarrow.Array, reading: Reading) -> str:
    """The beginning of a sentence: "record 3 and 7 more have a cell in 'age'"; cells only where the site asked."""
    count, line = int(np.sum(mask)), int(np.flatnonzero(mask)[0]) + 1
    shown = f" ({show_commonest(commonest(array, mask))})" if reading.show_values else ""
    others = f" and {count - 1:,} more have" if count > 1 else " has"
    return f"record {line}{others} a cell in {name!r}{shown}"


def show_commonest(pairs: Sequence[tuple[str, int]]) -> str:
    """Cells of a site with their counts, for a site that asked to see them."""
    return ", ".join(f"{text!r} {count} times" if count > 1 else f"{text!r} once" for text, count in pairs)


def _count(
    column: Column,
    read: _Read,
    is_missing: np.ndarray,
    is_empty: np.ndarray,
    is_outside: np.ndarray,
    is_part: bool,
) -> Finding:
    notes = []
    if np.any(is_outside & is_missing):
        notes.append(NOTE_MISSING)
    if np.any(is_outside & ~is_missing):
        notes.append(NOTE_END)
    if read.words:
        notes.append(words_note(read.words))
    return Finding(
        column.name,
        num_present=int(np.sum(~is_missing)),
        num_missing=int(np.sum(is_empty)),
        num_outside=int(np.sum(is_outside)),
        note="; ".join(notes),
        kind=column.kind,
        num_records=len(is_missing),
        may_be_missing=column.may_be_missing,
        words=read.words,
        commonest=commonest(read.array, is_outside, None if is_part else NUM_COMMONEST) if np.any(is_outside) else (),
    )


def merge_findings(parts: Sequence[Finding]) -> Finding:
    """Of one column in several parts of a file. Each part's `commonest` are all of its cells that are outside."""
    words, cells = Counter[str](), Counter[str]()
    for part in parts:
        words.update(dict(part.words))
        cells.update(dict(part.commonest))
    notes = [note for note in (NOTE_MISSING, NOTE_END) if any(note in part.note.split("; ") for part in parts)]
    listed = tuple(sorted(words.items()))
    if listed:
        notes.append(words_note(listed))
    return replace(
        parts[0],
        num_present=sum(part.num_present for part in parts),
        num_missing=sum(part.num_missing for part in parts),
        num_outside=sum(part.num_outside for part in parts),
        note="; ".join(notes),
        num_records=sum(part.num_records for part in parts),
        words=listed,
        commonest=tuple(sorted(cells.items(), key=lambda one: (-one[1], one[0]))[:NUM_COMMONEST]),
    )


def words_note(words: Sequence[tuple[str, int]]) -> str:
    return "read as missing: " + ", ".join(f"{word!r} {count}" for word, count in words)


def allow_words(names: Sequence[str]) -> str:
    """How a site goes on with these columns."""
    options = " ".join(f"--allow {name!r}" if " " in name else f"--allow {name}" for name in names)
    return f"{options} (or `allow` in --site-settings)"


def list_names(names: Sequence[str]) -> str:
    """Names for a sentence, at most eight of them."""
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "") if names else "none"
