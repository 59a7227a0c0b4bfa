"""How a file writes its numbers: 1234.5, 1234,5, 1,234.5 or 1.234,5. The study's ranges decide where cells do not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow
import pyarrow.compute as pc
from jaxtyping import Float

from coreshot.errors import CoreshotError

SPACES = " \u00a0\u202f\u2009'\u2019"  # between thousands they cannot mean anything else, so they are always allowed
MAX_MISFITS = 0.1  # a format fits the study if at most this share of the cells that it decides is outside a range


@dataclass(frozen=True)
class NumberFormat:
    """The mark before the decimals, and the mark between thousands (none: spaces and apostrophes only)."""

    decimal: str = "."
    thousands: str = ""

    @property
    def words(self) -> str:
        name = {".": "points", ",": "commas"}
        between = f", {name[self.thousands]} between thousands" if self.thousands else ""
        return f"decimal {'comma' if self.decimal == ',' else 'point'}{between}"


POINT = NumberFormat()
FORMATS = (POINT, NumberFormat(".", ","), NumberFormat(","), NumberFormat(",", "."))


@dataclass(frozen=True)
class NumberColumn:
    """A column that the study wants as numbers: its text, and its public range."""

    name: str
    texts: pyarrow.Array
    low: float
    high: float


def parse_numbers(texts: pyarrow.Array, form: NumberFormat) -> Float[np.ndarray, " n"]:
    """The texts as numbers; NaN where there is none."""
    if form == POINT:
        try:
            return pc.cast(texts, pyarrow.float64()).fill_null(np.nan).to_numpy(zero_copy_only=False)
        except pyarrow.ArrowInvalid:
            pass  # some cell is not a plain number: find out which
    point = re.escape(form.decimal)
    between = f"[{re.escape(form.thousands)}{SPACES}]"
    grouped = pc.match_substring_regex(texts, rf"^[+-]?\d{{1,3}}({between}\d{{3}})+({point}\d*)?$")
    if pc.any(grouped).as_py():
        texts = pc.if_else(grouped, pc.replace_substring_regex(texts, between, ""), texts)
    plain = pc.match_substring_regex(texts, rf"^[+-]?(\d+({point}\d*)?|{point}\d+)([eE][+-]?\d+)?$")
    texts = pc.if_else(plain, texts, pyarrow.scalar(None, texts.type))
    if form.decimal == ",":
        texts = pc.replace_substring(texts, ",", ".")
    return pc.cast(texts, pyarrow.float64()).fill_null(np.nan).to_numpy(zero_copy_only=False)


def detect_format(
    columns: Sequence[NumberColumn],
    where: str,
    *,
    decimal: str | None = None,
    thousands: str | None = None,
    is_point_usual: bool = True,
) -> NumberFormat:
    """The format that reads most cells; of several, the one whose numbers are in the study's ranges.

    Where that decides nothing, a file in which a decimal point is usual has one, and any other file is refused."""
    allowed = [
        form
        for form in FORMATS
        if decimal in (None, form.decimal) and (thousands is None or form.thousands == thousands.strip(SPACES))
    ]
    if not allowed:
        raise CoreshotError(
            f"{where}: numbers cannot have {decimal!r} before the decimals and {thousands!r} between thousands; "
            "give two different marks of ',' and '.'."
        )
    if len(allowed) == 1 or not any(has_marks(column.texts) for column in columns):
        return allowed[0]
    parsed = [[parse_numbers(column.texts, form) for column in columns] for form in allowed]
    unread = [sum(int(np.isnan(values).sum()) for values in found) for found in parsed]
    best = [index for index, count in enumerate(unread) if count == min(unread)]
    different = [best[0]]
    for index in best[1:]:
        if not any(_is_same(parsed[index], parsed[other]) for other in different):
            different.append(index)
    if len(different) == 1:
        return allowed[different[0]]
    decided = [_differing([parsed[index][at] for index in different]) for at in range(len(columns))]
    fitting = [index for index in different if _fits(parsed[index], decided, columns)]
    if len(fitting) == 1:
        return allowed[fitting[0]]
    if is_point_usual and POINT in [allowed[index] for index in fitting or different]:
        return POINT
    names = ", ".join(column.name for column, mask in zip(columns, decided, strict=True) if np.any(mask))
    ways = " or with ".join(allowed[index].words for index in different)
    raise CoreshotError(
        f"{where}: the numbers of {names} can be read with {ways}, and the study's ranges do not decide; "
        "say which with --decimal and --thousands."
    )


def has_marks(texts: pyarrow.Array) -> bool:
    """Whether a cell could be read in two ways, or only in another way than with a decimal point."""
    return bool(pc.any(pc.match_substring_regex(texts, r",|^[+-]?[1-9]\d{0,2}(\.\d{3})+$")).as_py())


def _is_same(one: Sequence[np.ndarray], other: Sequence[np.ndarray]) -> bool:
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(one, other, strict=True))


def _differing(ways: Sequence[np.ndarray]) -> np.ndarray:
    """The cells of a column that are not the same in all ways of reading it."""
    first = ways[0]
    return np.any([(way != first) & ~(np.isnan(way) & np.isnan(first)) for way in ways[1:]], axis=0)


def _fits(parsed: Sequence[np.ndarray], decided: Sequence[np.ndarray], columns: Sequence[NumberColumn]) -> bool:
    for values, mask, column in zip(parsed, decided, columns, strict=True):
        if np.any(mask) and np.mean(~((values[mask] >= column.low) & (values[mask] <= column.high))) > MAX_MISFITS:
            return False
    return True
