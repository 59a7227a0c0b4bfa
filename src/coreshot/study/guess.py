"""Kinds, ranges and values of columns, guessed from the records of a file, for a study that everybody can read.

Nothing that could name a person may come into a study. So columns that look like identifiers, dates or free text are
left out; a value that fewer than MIN_RECORDS records have is not copied; and a range is never that of the records,
whose ends are two of them, but a wider one with round numbers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from coreshot.data.cells import (
    EMPTY_WORDS,
    MISSING_WORDS,
    NO_WORDS,
    YES_WORDS,
    Cells,
    as_array,
    as_text,
    distinct,
)
from coreshot.study.draft import DraftColumn, LeftOut
from coreshot.study.looks import (
    as_number,
    is_date_name,
    is_identifier_name,
    looks_like_code,
    looks_like_date,
    looks_like_identifier,
)

MIN_RECORDS = 5  # a value that fewer records have could name one of them
MAX_VALUES = 50  # of a category
MAX_CODES = 12  # a column of whole numbers with at most this many different ones is a category
MAX_LENGTH = 60  # of a value, in characters
MOST = 0.8  # a column is what at least this share of its cells looks like
# Of the cells of a category, by values that are common enough to be copied; with fewer, `distill` would find the column
# broken, in the very file that the study was guessed from.
MIN_COVERED = 0.92
MAY_BE_MISSING = 0.25  # where a larger share of the file is missing, a site may lack the column
NAMES_OF_NOTHING = ("none", "nil")  # in a category they may be a value: no complaints, no drug

IDENTIFIER, DATE, TEXT = "looks like an identifier", "looks like a date", "looks like free text"


@dataclass(frozen=True)
class Facts:
    """The present cells of a column: how many have each text. Of spellings that differ in case only, the commonest."""

    name: str
    num_records: int
    counts: Counter[str]
    words: Counter[str]  # public words that mean "missing" in a column of numbers, and perhaps here
    num_zeros_first: int  # cells such as 00123

    @property
    def num_present(self) -> int:
        return self.counts.total()

    @cached_property
    def numbers(self) -> np.ndarray:
        """The cells that are numbers."""
        found = np.asarray([as_number(text) for text in self.counts], np.float64)
        found = np.repeat(found, list(self.counts.values()))
        return found[~np.isnan(found)]

    @property
    def are_numbers(self) -> bool:
        return len(self.numbers) > 0.9 * self.num_present

    @property
    def are_whole(self) -> bool:
        return bool(np.all(self.numbers == np.round(self.numbers)))

    @property
    def are_yes_no(self) -> bool:
        found = {text.casefold() for text in self.counts}
        return found <= set(YES_WORDS + NO_WORDS) and all(found & set(words) for words in (YES_WORDS, NO_WORDS))

    @property
    def share_missing(self) -> float:
        return 1 - self.num_present / max(self.num_records, 1)

    def share(self, looks: Callable[[str], bool]) -> float:
        """Of the present cells, those that look so."""
        return sum(count for text, count in self.counts.items() if looks(text)) / max(self.num_present, 1)


def find_facts(name: str, cells: Cells) -> Facts:
    """Words such as "none" are values, unless the column is of numbers, or of yes and no."""
    array = as_array(cells)
    codes, values = distinct(array)
    tally = np.bincount(codes[codes >= 0], minlength=len(values)).tolist()
    counts, words, num_zeros_first = Counter[str](), Counter[str](), 0
    for value, count in zip(values, tally, strict=True):
        text = as_text(value, EMPTY_WORDS)
        if text is None:
            continue
        num_zeros_first += count if isinstance(value, str) and _begins_with_zero(value) else 0
        if text.lower() in MISSING_WORDS:
            words[text.lower()] += count
        else:
            counts[text] += count
    facts = Facts(name, len(array), _join_spellings(counts), words, num_zeros_first)
    if (facts.counts and facts.are_numbers) or facts.are_yes_no:
        return facts
    named = Counter({word: count for word, count in words.items() if word in NAMES_OF_NOTHING})
    return replace(facts, counts=facts.counts + named, words=words - named)


def _join_spellings(counts: Counter[str]) -> Counter[str]:
    spellings: dict[str, Counter[str]] = {}
    for text, count in counts.items():
        spellings.setdefault(text.casefold(), Counter())[text] = count
    return Counter({_commonest(found): found.total() for found in spellings.values()})


def _commonest(spellings: Counter[str]) -> str:
    return min(spellings, key=lambda text: (-spellings[text], text))


def _begins_with_zero(text: str) -> bool:
    return len(text) > 1 and text[0] == "0" and text.isdecimal()


def guess_column(name: str, cells: Cells) -> DraftColumn | LeftOut:
    facts = find_facts(name, cells)
    reason = why_left_out(facts)
    if reason is not None:
        return LeftOut(name, reason)
    may_be_missing = facts.share_missing > MAY_BE_MISSING
    if facts.are_yes_no:
        return DraftColumn(name, "yes_no", may_be_missing=may_be_missing, is_guessed=True)
    values = _common_values(facts)
    is_code = facts.are_numbers and facts.are_whole and len(facts.counts) <= MAX_CODES
    if values and (is_code or not facts.are_numbers):
        return _category(facts, values, may_be_missing)
    if not facts.are_numbers:
        return LeftOut(name, _why_no_category(facts))
    return _number(facts, may_be_missing)


def why_left_out(facts: Facts) -> str | None:
    """The reason not to have a column in a public file; None: there is none."""
    if not facts.name.strip() or not facts.counts:
        return "is empty" if facts.name.strip() else "has no name"
    if is_date_name(facts.name) or facts.share(looks_like_date) >= MOST:
        return DATE
    if is_identifier_name(facts.name):
        return f"{IDENTIFIER}: its name does"
    sign = _sign_of_identifying_numbers(facts) if facts.are_numbers else _sign_of_codes(facts)
    if sign is not None:
        return f"{IDENTIFIER}: {sign}"
    if len(facts.counts) == 1:
        return "has the same value in every record"
    return None if facts.are_numbers else _why_text(facts)


def _sign_of_identifying_numbers(facts: Facts) -> str | None:
    """Why numbers may be identifiers. Amounts in a small file can be all different too, and are left out with them."""
    if facts.num_zeros_first > 0.5 * facts.num_present:
        return "numbers that begin with 0"
    numbers = facts.numbers
    if not facts.are_whole:
        return None
    different, digits = np.unique(numbers), len(str(int(np.max(np.abs(numbers)))))
    same_length = float(np.min(numbers)) >= 10 ** (digits - 1)
    if len(different) == len(numbers):
        is_sequence = len(numbers) > 5 and np.max(numbers) - np.min(numbers) == len(numbers) - 1
        if len(numbers) >= 20 or is_sequence or (digits >= 5 and same_length):
            return "whole numbers, all different"
    is_long = same_length and (digits >= 7 or (digits >= 5 and len(different) > 0.9 * len(numbers)))
    return f"whole numbers of {digits} digits" if is_long else None


def _sign_of_codes(facts: Facts) -> str | None:
    if facts.share(looks_like_identifier) >= MOST:
        return "texts with many digits, or addresses"
    is_varied = len(facts.counts) > max(MAX_CODES, 0.1 * facts.num_present)
    return "codes with many digits" if is_varied and facts.share(looks_like_code) >= MOST else None


def _why_text(facts: Facts) -> str | None:
    """Long cells, many words, or hardly a value that comes twice."""
    different = len(facts.counts)
    num_words = float(np.median([len(text.split()) for text in facts.counts]))
    length = float(np.median([len(text) for text in facts.counts]))
    if different > 0.5 * facts.num_present and facts.num_present > MAX_CODES:
        return TEXT if num_words > 2 else "has another value in nearly every record"
    if length > MAX_LENGTH or (different > MAX_CODES and (num_words >= 5 or length > 40)):
        return TEXT
    return None


def is_common(text: str, count: int) -> bool:
    """Whether so many records have this value, and it looks so, that it names nobody."""
    is_strange = math.isnan(as_number(text)) and looks_like_identifier(text)
    return count >= MIN_RECORDS and len(text) <= MAX_LENGTH and not is_strange and not looks_like_date(text)


def sort_values(values: Iterable[str]) -> list[str]:
    """Numbers by size, then texts."""
    return sorted(values, key=lambda text: (0, number, "") if (number := as_number(text)) == number else (1, 0, text))


def _common_values(facts: Facts) -> tuple[str, ...]:
    """The values that may be copied; none if they are too few, too many, or leave too many records out."""
    common = [text for text, count in facts.counts.items() if is_common(text, count)]
    covered = sum(facts.counts[text] for text in common)
    is_enough = 2 <= len(common) <= MAX_VALUES and covered >= MIN_COVERED * facts.num_present
    if not is_enough:
        return ()
    return tuple(sort_values({*common, *_codes_between(common)} if facts.are_numbers else common))


def _codes_between(common: Sequence[str]) -> list[str]:
    """0 and 2 are codes, so 1 is one: whether a record has it or not is not asked, and so not told."""
    codes = {int(as_number(text)) for text in common if not math.isnan(as_number(text))}
    return [str(code + 1) for code in codes if code + 2 in codes and code + 1 not in codes]


def _why_no_category(facts: Facts) -> str:
    common = [text for text, count in facts.counts.items() if is_common(text, count)]
    if len(common) > MAX_VALUES:
        return f"has {len(common)} values; at most {MAX_VALUES} are taken"
    if len(common) < 2:
        return f"has no two values that at least {MIN_RECORDS} records have"
    return f"has too many values that fewer than {MIN_RECORDS} records have"


def _category(facts: Facts, values: tuple[str, ...], may_be_missing: bool) -> DraftColumn:
    num_rare = facts.num_present - sum(facts.counts[value] for value in values)
    note = f"{_plural(num_rare, 'cell')} with rare values, which are not copied and count as missing"
    return DraftColumn(
        facts.name,
        "category",
        values=values,
        missing_words=tuple(sorted(facts.words)),
        may_be_missing=may_be_missing,
        is_guessed=True,
        note=note if num_rare else "",
    )


def _plural(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _number(facts: Facts, may_be_missing: bool) -> DraftColumn | LeftOut:
    found = public_range(facts.numbers)
    if found is None:
        return LeftOut(facts.name, "has numbers that are too large, or too close together, to be scaled")
    num_outside = int(np.sum((facts.numbers < found[0]) | (facts.numbers > found[1])))
    num_words = facts.num_present - len(facts.numbers)
    notes = [f"{_plural(num_outside, 'cell')} outside"] if num_outside else []
    notes += [f"{_plural(num_words, 'cell')} that no site could read as a number"] if num_words else []
    return DraftColumn(
        facts.name, "number", found, may_be_missing=may_be_missing, is_guessed=True, note=", ".join(notes)
    )


def public_range(numbers: np.ndarray, *, with_all: bool = False) -> tuple[float, float] | None:
    """A range of round numbers, wider than that of the numbers by a quarter on each side, and not below 0 if none is.

    Its ends are never those of the numbers, except for 0. The hundredth part on each side may be errors, and does not
    count unless `with_all`. None where floating-point numbers cannot say it.
    """
    smallest, largest = float(np.min(numbers)), float(np.max(numbers))
    low, high = (smallest, largest) if with_all else (float(end) for end in np.quantile(numbers, (0.01, 0.99)))
    low, high = (low, high) if low < high else (smallest, largest)
    with np.errstate(all="ignore"):
        step = _round_step((high - low) / 8)
    if not 0 < step < math.inf or not abs(low) + abs(high) < 1e11 * step:
        return None
    first, last = math.floor((low - 2 * step) / step), math.ceil((high + 2 * step) / step)
    first, last = max(first, 0) if smallest >= 0 else first, min(last, 0) if largest <= 0 else last
    while first and _multiple(first, step) in (smallest, largest):
        first -= 1
    while last and _multiple(last, step) in (smallest, largest):
        last += 1
    return _multiple(first, step), _multiple(last, step)


def _round_step(size: float) -> float:
    """1, 2 or 5 times a power of ten: the first that is not below `size`."""
    if not 0 < size < math.inf:
        return math.nan
    power = math.floor(math.log10(size))
    return next(float(f"{digit}e{power}") for digit in (1, 2, 5, 10) if float(f"{digit}e{power}") >= size * 0.999)


def _multiple(count: int, step: float) -> float:
    """Without the rounding error of count * step, so that the number looks round."""
    return float(f"{count * step:.12g}")
