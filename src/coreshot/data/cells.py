"""Cells of one column as a file has them, and what a cell says: text as a person would type it, or nothing."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow
import pyarrow.compute as pc
from jaxtyping import Bool, Int

# Text, numbers, None: a list, an array, or a column of pyarrow, which is read without a loop over its cells.
Cells: TypeAlias = Sequence[Any] | np.ndarray | pyarrow.Array | pyarrow.ChunkedArray

# Words that mean "missing" wherever only a number, a date or yes and no make sense. The list is public, so reports
# may print the words with their counts. In a category such a word may be a value, and is missing only if agreed.
MISSING_WORDS = (
    *("na", "n/a", "n.a.", "#n/a", "nan", "null", "none", "nil", "missing", "unknown"),
    *("-", "--", "?", ".", "k.a.", "unbekannt"),
)
EMPTY_WORDS = ("nan", "null")  # what programs write for an empty cell: missing everywhere, unless it is a value
YES_WORDS = ("yes", "y", "true", "t", "1", "ja", "j", "wahr", "oui", "vrai", "si", "sí", "sim")
NO_WORDS = ("no", "n", "false", "f", "0", "nein", "falsch", "non", "faux", "não", "nao")
NUM_COMMONEST = 3


def as_text(cell: Any, missing_words: Iterable[str] = MISSING_WORDS) -> str | None:
    """A cell as a person would type it: 1.0 is "1", True is "true". None if it is missing: empty, NaN, None, a word."""
    if cell is None or (isinstance(cell, float | np.floating) and math.isnan(cell)):
        return None
    if isinstance(cell, bool | np.bool_):
        return "true" if cell else "false"
    if isinstance(cell, float | np.floating) and float(cell).is_integer():
        return str(int(cell))
    text = unicodedata.normalize("NFC", str(cell).strip())
    if not text or text.lower() in missing_words:
        return None
    try:
        number = float(text)
    except ValueError:
        return text
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else text


def as_array(cells: Cells) -> pyarrow.Array:
    """The cells as one array of pyarrow; cells of several types become text. Text has no spaces around it, and empty
    text is null."""
    if isinstance(cells, pyarrow.ChunkedArray):
        array = cells.combine_chunks()
    elif isinstance(cells, pyarrow.Array):
        array = cells
    else:
        try:
            array = pyarrow.array(cells)
        except (pyarrow.ArrowException, TypeError, ValueError, OverflowError):
            array = pyarrow.array([as_text(cell, ()) for cell in cells], pyarrow.string())
    if pyarrow.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if is_text(array):
        trimmed = pc.utf8_trim_whitespace(array)
        array = pc.if_else(pc.equal(trimmed, ""), pyarrow.scalar(None, trimmed.type), trimmed)
    return array


def is_text(array: pyarrow.Array) -> bool:
    return pyarrow.types.is_string(array.type) or pyarrow.types.is_large_string(array.type)


def distinct(array: pyarrow.Array) -> tuple[Int[np.ndarray, " n"], list[Any]]:
    """The different values of an array, and for each cell the index of its value; -1 for null."""
    if pyarrow.types.is_null(array.type):
        return np.full(len(array), -1, np.int64), []
    encoded = array.dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, encoded.dictionary.to_pylist()


def spread(codes: Int[np.ndarray, " n"], of_values: Sequence[Any], of_null: Any, dtype: Any) -> np.ndarray:
    """What is known of each different value, for each cell."""
    return np.asarray([*of_values, of_null], dtype)[codes]  # index -1, null, is the last


def commonest(
    array: pyarrow.Array, mask: Bool[np.ndarray, " n"], most: int | None = NUM_COMMONEST
) -> tuple[tuple[str, int], ...]:
    """The commonest cells where the mask is true, with counts; the same for records in any order."""
    counted = pc.value_counts(array.filter(pyarrow.array(mask))).to_pylist()
    pairs = sorted((-entry["counts"], str(entry["values"])) for entry in counted)
    return tuple((text, -count) for count, text in pairs[:most])


def count_words(codes: Int[np.ndarray, " n"], texts: Sequence[str | None]) -> tuple[tuple[str, int], ...]:
    """How many cells have each text, for the texts that are not None."""
    counts = np.bincount(codes[codes >= 0], minlength=len(texts))
    found: dict[str, int] = {}
    for text, count in zip(texts, counts, strict=True):
        if text is not None:
            found[text] = found.get(text, 0) + int(count)
    return tuple(sorted((text, count) for text, count in found.items() if count))


class Lookup:
    """Finds what a text means: as it is written or, if that is not known, in any case where only one meaning fits."""

    def __init__(self, meaning: Mapping[str, int]) -> None:
        self._exact = dict(meaning)
        folded: dict[str, set[int]] = {}
        for text, index in meaning.items():
            folded.setdefault(text.casefold(), set()).add(index)
        self._folded = {text: found.pop() for text, found in folded.items() if len(found) == 1}

    def is_exact(self, text: str) -> bool:
        return text in self._exact

    def __call__(self, text: str) -> int | None:
        return self._exact[text] if text in self._exact else self._folded.get(text.casefold())
