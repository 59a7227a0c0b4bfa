"""A study before it is written: what is known of each column and of the target, by a guess or by a person's answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["number", "category", "yes_no", "date"]
Task: TypeAlias = Literal["classification", "regression"]


@dataclass(frozen=True)
class DraftColumn:
    """Without a kind, a person has to fill it in."""

    name: str
    kind: Kind | None = None
    range: tuple[float, float] | tuple[str, str] | None = None  # of a number, or of a date
    values: tuple[str, ...] = ()
    missing_words: tuple[str, ...] = ()
    may_be_missing: bool = False
    is_guessed: bool = False
    note: str = ""  # for the screen: what a guess did not take over; counts, never cells


@dataclass(frozen=True)
class LeftOut:
    """A column that is not in the study, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class DraftTarget:
    """Without classes and without a range, a person has to fill it in."""

    name: str
    task: Task = "classification"
    classes: tuple[str, ...] = ()
    values: Mapping[str, Sequence[str]] | None = None  # of the classes, where they are not their names
    range: tuple[float, float] | None = None
    is_guessed: bool = False
    questions: tuple[str, ...] = ()  # what the records cannot decide, for the file and the screen
    alternatives: tuple[DraftTarget, ...] = ()  # other answers, for comments in the file


@dataclass(frozen=True)
class Draft:
    name: str
    target: DraftTarget
    columns: tuple[DraftColumn | LeftOut, ...]  # in the order of the file

    @property
    def kept(self) -> list[DraftColumn]:
        return [column for column in self.columns if isinstance(column, DraftColumn)]

    @property
    def left_out(self) -> list[LeftOut]:
        return [column for column in self.columns if isinstance(column, LeftOut)]
