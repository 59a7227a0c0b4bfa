"""Leave one client out: does what all others say hold at this one? A broken or a hostile coreset shows, from the coresets alone.

The head of the others gives scores to a client's records; its moments say how those go with its labels, each less the client's own mean, so that
base rates may differ. In classification that is the gap between the classes' mean scores, in regression the slope of targets on scores. It is
divided by the same number of the other clients, each under the head of its own others: 1 is full agreement, 0 is none, as of labels that were
shuffled. A client that is found out is taken from the others, and all are looked at again, the worst one first. docs/for-sites.md states the rule.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from coreshot.spectral.coreset import Moments
from coreshot.spectral.evidence import most_evident, solve
from coreshot.types import Kind

Verdict = Literal["as the others", "cannot be told", "suspect"]
FEWEST = 3  # clients: two who disagree do not say who is right
MAX_SIZE = (
    10.0  # features of a mean square so many times the typical client's, or so many times smaller, are in other units
)
MANY = 12  # clients: with more, one of them hardly changes what is usual, and pairs of clients would take long
DEVIATIONS = 1.645  # standard errors to either side: a limit of 95 %
HALF = 0.5  # agreement that is surely below this, and not surely above 0, is none


@dataclass(frozen=True)
class Standing:
    """How one client stands to the others."""

    verdict: Verdict
    words: str
    agreement: float | None = (
        None  # of its labels with what the others make of its features: 1 as theirs, 0 none, below 0 the opposite
    )
    error: float | None = None  # standard error of the agreement
    size: float | None = None  # mean square of its features, over the typical client's


@dataclass(frozen=True)
class Relation:
    """Of labels and scores at one client, or summed over some: slope = together / against."""

    together: float
    against: float
    variance: float  # of together

    def __add__(self, other: Relation) -> Relation:
        return Relation(self.together + other.together, self.against + other.against, self.variance + other.variance)

    @property
    def slope(self) -> float:
        return self.together / self.against

    @property
    def error(self) -> float:
        return float(np.sqrt(self.variance)) / self.against


def leave_one_out(kind: Kind, clients: Sequence[str], moments_of: Callable[[str], Moments]) -> dict[str, Standing]:
    """Moments are asked for again and again, one client's at a time: those of a thousand clients would not fit into memory."""
    if len(clients) < FEWEST:
        return {
            client: Standing("cannot be told", f"of {len(clients)} clients nobody can tell which one is right")
            for client in clients
        }
    moments_of = lru_cache(MANY)(moments_of)
    found = _other_units(clients, moments_of)
    trusted = [client for client in clients if found[client].verdict != "suspect"]
    while len(trusted) > 1:
        look = _Look(kind, trusted, moments_of)
        standings = {client: look.standing(client, found[client].size) for client in trusted}
        suspects = [client for client in trusted if standings[client].verdict == "suspect"]
        if not suspects:
            return {**found, **standings}
        worst = max(suspects, key=lambda client: _surprise(standings[client]))
        found[worst] = standings[worst]
        trusted.remove(worst)
    return found


def _other_units(clients: Sequence[str], moments_of: Callable[[str], Moments]) -> dict[str, Standing]:
    squares = {client: _mean_square(moments_of(client)) for client in clients}
    typical = statistics.median_low(squares.values())
    found = {}
    for client, square in squares.items():
        size = square / typical if typical > 0 else 1.0
        if 1 / MAX_SIZE <= size <= MAX_SIZE:
            found[client] = Standing("cannot be told", "there is no other client to compare it with", size=size)
        else:
            words = f"its features are {'larger' if size > 1 else 'smaller'} than the others' by a factor of {max(size, 1 / max(size, 1e-9)) ** 0.5:.3g}"
            found[client] = Standing("suspect", f"{words}: other units, or not made by this study", size=size)
    return found


def _mean_square(moments: Moments) -> float:
    """Of features without the constant, which is the last."""
    return float(np.trace(moments.gram[:-1, :-1])) / moments.num_examples


class _Look:
    """At all clients that are trusted so far, with the sums of their moments."""

    def __init__(self, kind: Kind, trusted: Sequence[str], moments_of: Callable[[str], Moments]) -> None:
        self.kind, self.trusted, self.moments_of = kind, trusted, moments_of
        self.total = sum((moments_of(client) for client in trusted[1:]), moments_of(trusted[0]))
        # By evidence and without the method's factor: scores that are as large as they should be, not as useful.
        self.ridge = most_evident(self.total).ridge
        self.relations = {client: self._relation(client, self.total) for client in trusted}

    def _relation(self, client: str, total: Moments) -> Relation | None:
        """Under the head of all but this client of those whose sum is given."""
        own = self.moments_of(client)
        others = total - own
        return _relation(self.kind, own, solve(others, self.ridge).mean) if others.num_examples > 0.5 else None

    def standing(self, client: str, size: float | None) -> Standing:
        own, without = self.relations[client], self.total - self.moments_of(client)
        # The client that is judged has no part in what is usual, except among so many that it hardly matters.
        each = (
            self._relation(name, without) if len(self.trusted) <= MANY else self.relations[name]
            for name in self.trusted
            if name != client
        )
        others = [relation for relation in each if relation is not None]
        if own is None or not others:
            words = "its labels are all alike" if own is None else "the other clients have nothing to compare it with"
            return Standing("cannot be told", words, size=size)
        usual = sum(others[1:], others[0])
        if usual.slope < DEVIATIONS * usual.error:
            return Standing(
                "cannot be told", "at the other clients, too, labels hardly follow from features", size=size
            )
        agreement, error = own.slope / usual.slope, own.error / usual.slope
        verdict, words = _verdict(agreement, error, len(others))
        return Standing(verdict, words, agreement, error, size)


def _relation(kind: Kind, moments: Moments, head: np.ndarray) -> Relation | None:
    constant = moments.dimension - 1
    sums = moments.joint[:, constant]
    joint = moments.joint - np.outer(sums, sums) / max(sums[constant], 1e-9)
    features, labels = slice(0, moments.dimension), slice(moments.dimension, None)
    scores = float(np.sum(head * (joint[features, features] @ head)))
    energy = float(np.trace(joint[labels, labels]))
    if min(scores, energy) < 1e-6 * max(moments.num_examples, 1.0) * np.finfo(np.float32).eps:
        return None
    together = float(np.sum(head * joint[features, labels]))
    against, other = (energy, scores) if kind == "classification" else (scores, energy)
    freedom = moments.num_examples * (moments.num_outputs - (kind == "classification"))  # one-hot labels sum to 1
    left = max(other - together**2 / against, 1e-9 * other) / freedom
    return Relation(together, against, left * against)


def _verdict(agreement: float, error: float, num_others: int) -> tuple[Verdict, str]:
    low, high = agreement - DEVIATIONS * error, agreement + DEVIATIONS * error
    if high < HALF and low < 0:
        if num_others < FEWEST - 1:
            return (
                "cannot be told",
                "it and the one client that is left disagree, and nobody can tell which one is right",
            )
        if high < 0:
            return (
                "suspect",
                "its labels say the opposite of what the others' do: classes exchanged, or signs of columns",
            )
        return (
            "suspect",
            "its labels do not follow from its features as the others' do: shuffled labels, columns exchanged, or people of another kind",
        )
    if low > 0:
        return "as the others", "its labels follow from its features" + (
            " as the others' do" if high > HALF else ", by less than half as much as the others' do"
        )
    return "cannot be told", "it has too few records, or too few of one class"


def _surprise(standing: Standing) -> float:
    assert standing.agreement is not None
    assert standing.error is not None
    return (HALF - standing.agreement) / standing.error
