"""The target of a study, guessed from the records of a file: classes or a quantity, and the question which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coreshot.data.cells import NO_WORDS, YES_WORDS, Cells
from coreshot.errors import CoreshotError
from coreshot.study.draft import DraftTarget
from coreshot.study.guess import (
    DATE,
    MAX_CODES,
    MAX_VALUES,
    MIN_RECORDS,
    NAMES_OF_NOTHING,
    Facts,
    find_facts,
    is_common,
    public_range,
    sort_values,
    why_left_out,
)
from coreshot.study.looks import looks_like_date


@dataclass(frozen=True)
class TargetChoice:
    """What a person has decided about the target; nothing: the records decide, as far as they can."""

    classes: Sequence[str] = ()
    positive: Sequence[str] = ()  # these values against the rest
    is_quantity: bool = False


def guess_target(name: str, cells: Cells, choice: TargetChoice) -> DraftTarget:
    facts = find_facts(name, cells)
    where = f"study new --guess, target {name!r}"
    if len(facts.counts) < 2:
        raise CoreshotError(f"{where}: has {len(facts.counts)} different values; give a file with at least two.")
    if choice.classes:
        return DraftTarget(name, classes=tuple(choice.classes), questions=_others(facts, choice.classes))
    if choice.positive:
        return _against_the_rest(facts, choice.positive, where)
    if choice.is_quantity or _is_quantity(facts):
        return _quantity(facts, where)
    reason = why_left_out(facts)
    if reason is not None and not _is_public(facts):
        raise CoreshotError(f"{where}: it {reason}; name another column, or name its classes with --classes A,B.")
    values = _class_values(facts, where)
    if len(values) < 3 or not facts.are_numbers or not facts.are_whole:
        return DraftTarget(name, classes=values, is_guessed=True, questions=_others(facts, values))
    alternatives = (_quantity(facts, where), _against_the_rest(facts, values[1:], where))
    questions = (*_which_is_meant(values), *_others(facts, values))
    return DraftTarget(name, classes=values, is_guessed=True, questions=questions, alternatives=alternatives)


def _is_quantity(facts: Facts) -> bool:
    return facts.are_numbers and len(facts.counts) > (MAX_CODES if facts.are_whole else 2)


def _quantity(facts: Facts, where: str) -> DraftTarget:
    if len(facts.numbers) < facts.num_present:
        count = facts.num_present - len(facts.numbers)
        raise CoreshotError(f"{where}: {count} of its cells are not numbers, so it is no quantity; mend or drop them.")
    if facts.share(_is_compact_date) >= 0.8:
        raise CoreshotError(f"{where}: it {DATE}; name another column.")
    found = public_range(facts.numbers, with_all=True)
    if found is None:
        raise CoreshotError(f"{where}: its numbers cannot be scaled; write the study without --guess.")
    return DraftTarget(facts.name, "regression", range=found, is_guessed=True, questions=_missing(facts))


def _is_compact_date(text: str) -> bool:
    return len(text) >= 8 and looks_like_date(text)


def _is_public(facts: Facts) -> bool:
    return all(_names_nobody(text) for text in facts.counts)


def _names_nobody(text: str) -> bool:
    """Words for yes and no, and numbers of at most two digits: a class may be so rare that few records have it."""
    return text.casefold() in (*YES_WORDS, *NO_WORDS, *NAMES_OF_NOTHING) or (text.isdecimal() and len(text) <= 2)


def _class_values(facts: Facts, where: str) -> tuple[str, ...]:
    values = [text for text, count in facts.counts.items() if _names_nobody(text) or is_common(text, count)]
    if not 2 <= len(values) <= MAX_VALUES:
        raise CoreshotError(
            f"{where}: {len(values)} of its {len(facts.counts)} values are of at least {MIN_RECORDS} records and could "
            f"be classes, which must be 2 to {MAX_VALUES}; name the classes with --classes A,B."
        )
    no, yes = ([value for value in values if value.casefold() in words] for words in (NO_WORDS, YES_WORDS))
    return (no[0], yes[0]) if len(values) == 2 and no and yes else tuple(sort_values(values))


def _against_the_rest(facts: Facts, positive: Sequence[str], where: str) -> DraftTarget:
    unknown = [value for value in positive if value not in facts.counts]
    rest = sort_values(
        text
        for text, count in facts.counts.items()
        if text not in positive and (_names_nobody(text) or is_common(text, count))
    )
    if unknown or not rest:
        what = (
            f"--positive {','.join(unknown)}: no record has that" if unknown else "--positive: there is no other value"
        )
        raise CoreshotError(f"{where}: {what}; name values of this column, with commas between.")
    names = (rest[0] if len(rest) == 1 else "other", positive[0] if len(positive) == 1 else "positive")
    names = names if names[0] != names[1] else ("other values", names[1])
    values = None if names == (rest[0], positive[0]) else {names[0]: rest, names[1]: list(positive)}
    return DraftTarget(facts.name, classes=names, values=values, questions=_others(facts, [*rest, *positive]))


def _which_is_meant(values: Sequence[str]) -> tuple[str, ...]:
    """Few whole numbers may be classes, a number of something, or degrees of one thing that is there or not."""
    first, *rest = values
    return (
        f"The values of the target are whole numbers, {first} to {values[-1]}. Which is meant?",
        f"- {len(values)} classes, which the study says now (--classes {','.join(values)} does not ask)",
        "- a quantity, such as a count (--regression)",
        f"- {first} against the rest (--positive {','.join(rest)})",
    )


def _others(facts: Facts, named: Sequence[str]) -> tuple[str, ...]:
    known = {value.casefold() for value in named}
    other = {text: count for text, count in facts.counts.items() if text.casefold() not in known}
    said = []
    if other:
        said.append(
            f"{sum(other.values()):,} of {facts.num_records:,} records have other values, which are not named here, "
            "and a site that has them is refused: name them if they are classes, otherwise drop these records."
        )
    return (*said, *_missing(facts))


def _missing(facts: Facts) -> tuple[str, ...]:
    count = facts.num_records - facts.num_present
    if not count:
        return ()
    return (
        f"{count:,} of {facts.num_records:,} records have no {facts.name!r}, "
        "and a site that has such records is refused: drop them.",
    )
