"""`coreshot study new --interactive`: the questions of a study, one by one, for a person who does not know TOML."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from coreshot.cli.output import ask, print_now
from coreshot.errors import CoreshotError
from coreshot.study.draft import Draft, DraftColumn, DraftTarget, LeftOut
from coreshot.study.guess_target import TargetChoice
from coreshot.study.new import Source
from coreshot.study.template import check_column, check_target

Answer = TypeVar("Answer")
KINDS = ("number", "category", "yes_no", "date")
LEAVE = "leave out"

WELCOME = """A study is public: every site reads it. Answer with what is publicly known, never with values of single
records. An empty answer takes what is in [brackets]. Lists have commas between; "a, b" in quotation marks is one
entry. Nothing is written before the last answer; Ctrl-C stops."""
COLUMN_HELP = f"""Each column is one of
  number: with the smallest and the largest value that can be expected anywhere
  category: one of a few values
  yes_no: yes/no, true/false, 1/0, in any spelling
  date: with the first and the last day that can be expected
  {LEAVE}: not used; for identifiers, names, free text, and what a prediction will not know"""


@dataclass(frozen=True)
class Interview:
    as_json: bool

    def say(self, text: str) -> None:
        print_now(text, self.as_json)

    def until_right(self, question: str, default: str, read: Callable[[str], Answer]) -> Answer:
        """Ask until `read`, which raises a CoreshotError with a sentence for the person, takes the answer."""
        shown = f"{question} [{default}]:" if default else f"{question}:"
        while True:
            try:
                return read(ask(shown, self.as_json) or default)
            except _AskAgainError as error:
                self.say(f"  {error}")

    def text(self, question: str, default: str) -> str:
        return self.until_right(question, default, _read_text)

    def choice(self, question: str, choices: Sequence[str], default: str) -> str:
        return self.until_right(f"{question} ({', '.join(choices)})", default, lambda text: _read_choice(text, choices))

    def list(self, question: str, default: Sequence[str], at_least: int) -> list[str]:
        return self.until_right(question, _join(default), lambda text: _read_list(text, at_least))

    def number(self, question: str, default: float | None) -> float:
        return self.until_right(question, "" if default is None else f"{default:.12g}", _read_number)


class _AskAgainError(Exception):
    pass


def _read_text(text: str) -> str:
    if not text:
        raise _AskAgainError("Please type something.")
    return text


def _read_choice(text: str, choices: Sequence[str]) -> str:
    """The beginning of a choice will do."""
    wanted = text.lower().replace("/", "_")
    found = [choice for choice in choices if choice == wanted] or [
        choice for choice in choices if wanted and choice.startswith(wanted)
    ]
    if len(found) != 1:
        raise _AskAgainError(f"Please type one of: {', '.join(choices)}.")
    return found[0]


def _read_list(text: str, at_least: int) -> list[str]:
    entries = [entry.strip() for entry in next(csv.reader([text], skipinitialspace=True), [])]
    found = [entry for entry in entries if entry]
    if len(found) < at_least or len(set(found)) < len(found):
        raise _AskAgainError(f"Please type at least {at_least} different entries, with commas between.")
    return found


def _read_number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise _AskAgainError("Please type a number, such as 120 or 0.5.")
    return value


def _join(entries: Sequence[str]) -> str:
    """A list as one can type it."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(entries)
    return line.getvalue()


def interview(name: str, source: Source | None, target: str | None, choice: TargetChoice, as_json: bool) -> Draft:
    """A draft of a person's answers. What is known of a source's columns is what an empty answer takes."""
    asks = Interview(as_json)
    asks.say(WELCOME)
    name = asks.text("Name of the study", name)
    if source is None:
        question = "Names of the columns in the sites' files, the one to predict included"
        source = Source(asks.list(question, (), 2), None)
    header = source.header
    wanted = asks.until_right("Column to predict", target or header[-1], lambda text: _read_column(text, header))
    answered = _ask_target(asks, _known_target(asks, source, wanted, choice))
    asks.say(COLUMN_HELP)
    found = tuple(_ask_column(asks, source.column(column)) for column in header if column != wanted)
    if all(isinstance(column, LeftOut) for column in found):
        raise CoreshotError("study new: all columns are left out, so nothing can be predicted; start again.")
    return Draft(name, answered, found)


def _known_target(asks: Interview, source: Source, name: str, choice: TargetChoice) -> DraftTarget:
    try:
        return source.target(name, choice)
    except CoreshotError as error:  # a person can still say what the records do not
        asks.say(str(error))
        return DraftTarget(name)


def _read_column(text: str, columns: Sequence[str]) -> str:
    if text not in columns:
        raise _AskAgainError(f"Please type one of the columns: {', '.join(columns)}.")
    return text


def _ask_target(asks: Interview, guess: DraftTarget) -> DraftTarget:
    for question in guess.questions:
        asks.say(question.split(" (--")[0])  # options are for those who are not asked
    while True:
        kinds = ("classes", "quantity")
        kind = asks.choice(f"What is {guess.name!r}?", kinds, kinds[guess.task == "regression"])
        if kind == "quantity":
            found = DraftTarget(guess.name, "regression", range=_ask_range(asks, guess.name, guess.range))
        else:
            found = _ask_classes(asks, guess)
        try:
            check_target(found)
            return found
        except CoreshotError as error:
            asks.say(f"  {error}")


def _ask_classes(asks: Interview, guess: DraftTarget) -> DraftTarget:
    classes = asks.list(f"Classes of {guess.name!r}, in the order you want", guess.classes or ("no", "yes"), 2)
    if (
        set(classes) == set(guess.classes)
        or asks.choice("Are these the very words in the sites' files?", ("yes", "no"), "yes") == "yes"
    ):
        return DraftTarget(guess.name, classes=tuple(classes), values=guess.values if guess.classes else None)
    values = {name: asks.list(f"Which words in the files mean {name!r}?", (name,), 1) for name in classes}
    return DraftTarget(guess.name, classes=tuple(classes), values=values)


def _ask_range(asks: Interview, name: str, guess: tuple[float, float] | None) -> tuple[float, float]:
    while True:
        low = asks.number(f"Smallest value of {name!r} that can be expected", guess[0] if guess else None)
        high = asks.number(f"Largest value of {name!r} that can be expected", guess[1] if guess else None)
        if low < high:
            return low, high
        asks.say("  The smallest must be below the largest.")


def _ask_column(asks: Interview, guess: DraftColumn | LeftOut) -> DraftColumn | LeftOut:
    name = guess.name
    is_left = isinstance(guess, LeftOut)
    remark = f" ({guess.reason})" if isinstance(guess, LeftOut) else ""
    before = DraftColumn(name) if isinstance(guess, LeftOut) else guess
    while True:
        default = LEAVE if is_left else before.kind or "number"
        kind = asks.choice(f"Kind of {name!r}{remark}", (*KINDS, LEAVE), default)
        if kind == LEAVE:
            return LeftOut(name, guess.reason if isinstance(guess, LeftOut) else "by the coordinator's answer")
        found = _ask_details(asks, before, kind)
        often = asks.choice(f"May most cells of {name!r} be empty at a site?", ("yes", "no"), _word(before))
        found = replace(found, may_be_missing=often == "yes")
        try:
            check_column(found)
            return found
        except CoreshotError as error:
            asks.say(f"  {error}")


def _word(guess: DraftColumn) -> str:
    return "yes" if guess.may_be_missing else "no"


def _ask_details(asks: Interview, guess: DraftColumn, kind: str) -> DraftColumn:
    name = guess.name
    if kind == "number":
        low, high = guess.range or (None, None)
        ends = (float(low), float(high)) if isinstance(low, int | float) and isinstance(high, int | float) else None
        return DraftColumn(name, "number", _ask_range(asks, name, ends))
    if kind == "category":
        values = asks.list(f"Values of {name!r}", guess.values, 2)
        words = asks.list(f"Words in {name!r} that mean: not known", guess.missing_words, 0)
        return DraftColumn(name, "category", values=tuple(values), missing_words=tuple(words))
    if kind == "date":
        first = asks.text(f"First day of {name!r} that can be expected", "1930-01-01")
        last = asks.text(f"Last day of {name!r} that can be expected", "2030-12-31")
        return DraftColumn(name, "date", (first, last))
    return DraftColumn(name, "yes_no")
