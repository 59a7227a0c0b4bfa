"""Leave-one-client-out checks: does the head of all other clients predict this client's labels? From moments alone.

The others' head gives scores to a client's records. The client's moments give the relation of these scores to its
labels, both minus the client's own means, so that base rates may differ. In classification the relation is the gap
between the classes' mean scores; in regression it is the slope of targets on scores. The agreement is this number
divided by the same number of the other clients, each under the head of its own others: 1 is full agreement, 0 is none,
as for shuffled labels. The worst suspect is removed from the others, and all remaining clients are compared again.
docs/fitting.md states the rule.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from coreshot.spectral.coreset import Moments
from coreshot.spectral.evidence import best_ridge, solve_ridge
from coreshot.types import Kind

Verdict = Literal["as the others", "cannot be told", "suspect"]
MIN_CLIENTS = 3  # with two clients that disagree, nothing says which one is right
MAX_SIZE = 10.0  # the largest ratio, up or down, of a client's mean square feature to the median client's
MANY_CLIENTS = 12  # with more clients, one of them hardly changes the others' relation, and pairs would take too long
DEVIATIONS = 1.645  # standard errors to either side: one-sided limits of 95 %
MIN_AGREEMENT = 0.5  # a client is suspect if its upper limit is below this and its lower limit is below 0


@dataclass(frozen=True)
class Standing:
    """How one client compares with the others."""

    verdict: Verdict
    words: str
    agreement: float | None = None  # of its labels with the others' head: 1 as theirs, 0 none, below 0 the opposite
    error: float | None = None  # standard error of the agreement
    size: float | None = None  # mean square of its features, over the typical client's


@dataclass(frozen=True)
class Relation:
    """Of labels and scores at one client, or summed over several: slope = together / against."""

    together: float
    against: float
    variance: float  # of together

    def __add__(self, other: Relation) -> Relation:
        return Relation(self.together + other.together, self.against + other.against, self.variance + other.variance)

    def __sub__(self, other: Relation) -> Relation:
        return Relation(self.together - other.together, self.against - other.against, self.variance - other.variance)

    @property
    def slope(self) -> float:
        return self.together / self.against

    @property
    def error(self) -> float:
        return float(np.sqrt(self.variance)) / self.against


def leave_one_out(kind: Kind, clients: Sequence[str], read_moments: Callable[[str], Moments]) -> dict[str, Standing]:
    """Moments are read again for each comparison, because those of a thousand clients would not fit into memory."""
    if len(clients) < MIN_CLIENTS:
        return {
            client: Standing("cannot be told", f"of {len(clients)} clients nobody can tell which one is right")
            for client in clients
        }
    read_moments = lru_cache(MANY_CLIENTS)(read_moments)
    found = _other_units(clients, read_moments)
    trusted = [client for client in clients if found[client].verdict != "suspect"]
    while len(trusted) > 1:
        comparison = _Comparison(kind, trusted, read_moments)
        standings = {client: comparison.standing(client, found[client].size) for client in trusted}
        suspects = [client for client in trusted if standings[client].verdict == "suspect"]
        if not suspects:
            return {**found, **standings}
        worst = max(suspects, key=lambda client: surprise(standings[client]))
        found[worst] = standings[worst]
        trusted.remove(worst)
    return found


def _other_units(clients: Sequence[str], read_moments: Callable[[str], Moments]) -> dict[str, Standing]:
    squares = {client: _mean_square(read_moments(client)) for client in clients}
    typical = statistics.median_low(squares.values())
    found = {}
    for client, square in squares.items():
        found[client] = units_standing(square / typical if typical > 0 else 1.0)
    return found


def units_standing(size: float) -> Standing:
    if 1 / MAX_SIZE <= size <= MAX_SIZE:
        return Standing("cannot be told", "there is no other client to compare it with", size=size)
    factor, word = max(size, 1 / max(size, 1e-9)) ** 0.5, "larger" if size > 1 else "smaller"
    words = f"its features are {word} than the others' by a factor of {factor:.3g}"
    return Standing("suspect", f"{words}: other units, or not made by this study", size=size)


def _mean_square(moments: Moments) -> float:
    """Of features without the constant, which is the last."""
    return float(np.trace(moments.gram[:-1, :-1])) / moments.num_examples


class _Comparison:
    """Relations of all clients that are trusted so far, and the sum of their moments."""

    def __init__(self, kind: Kind, trusted: Sequence[str], read_moments: Callable[[str], Moments]) -> None:
        self.kind, self.trusted, self.read_moments = kind, trusted, read_moments
        self.total = sum((read_moments(client) for client in trusted[1:]), read_moments(trusted[0]))
        # Without the method's ridge_factor, which is chosen for accuracy: here the size of the scores matters.
        self.ridge = best_ridge(self.total)
        self.relations = {client: self._relation(client, self.total) for client in trusted}

    def _relation(self, client: str, total: Moments) -> Relation | None:
        """Of this client under the head that is fitted to `total` minus its own moments."""
        own = self.read_moments(client)
        others = total - own
        return _relation(self.kind, own, solve_ridge(others, self.ridge).mean) if others.num_examples > 0.5 else None

    def standing(self, client: str, size: float | None) -> Standing:
        own, without = self.relations[client], self.total - self.read_moments(client)
        # The heads of the others are fitted without the judged client, unless there are so many that it hardly matters.
        each = (
            self._relation(name, without) if len(self.trusted) <= MANY_CLIENTS else self.relations[name]
            for name in self.trusted
            if name != client
        )
        others = [relation for relation in each if relation is not None]
        return judge(own, sum(others[1:], others[0]) if others else None, len(others), size)


def judge(own: Relation | None, usual: Relation | None, num_others: int, size: float | None) -> Standing:
    """A client beside the sum of the relations of the others."""
    if own is None or usual is None:
        words = "its labels are all alike" if own is None else "the other clients have nothing to compare it with"
        return Standing("cannot be told", words, size=size)
    if usual.slope < DEVIATIONS * usual.error:
        return Standing("cannot be told", "at the other clients, too, labels hardly follow from features", size=size)
    agreement, error = own.slope / usual.slope, own.error / usual.slope
    verdict, words = _verdict(agreement, error, num_others)
    return Standing(verdict, words, agreement, error, size)


def _relation(kind: Kind, moments: Moments, head: np.ndarray) -> Relation | None:
    constant = moments.dimension - 1
    sums = moments.joint[:, constant]
    joint = moments.joint - np.outer(sums, sums) / max(sums[constant], 1e-9)
    features, labels = slice(0, moments.dimension), slice(moments.dimension, None)
    scores = float(np.sum(head * (joint[features, features] @ head)))
    energy = float(np.trace(joint[labels, labels]))
    together = float(np.sum(head * joint[features, labels]))
    return relation_of(kind, together, scores, energy, moments.num_examples, moments.num_outputs)


def relation_of(
    kind: Kind, together: float, scores: float, energy: float, num_examples: float, num_outputs: int
) -> Relation | None:
    """From sums of products of scores and labels, of squares of scores, and of squares of labels, minus means."""
    if min(scores, energy) < 1e-6 * max(num_examples, 1.0) * np.finfo(np.float32).eps:
        return None
    against, other = (energy, scores) if kind == "classification" else (scores, energy)
    freedom = num_examples * (num_outputs - (kind == "classification"))  # one-hot labels sum to 1
    left = max(other - together**2 / against, 1e-9 * other) / freedom
    return Relation(together, against, left * against)


def _verdict(agreement: float, error: float, num_others: int) -> tuple[Verdict, str]:
    low, high = agreement - DEVIATIONS * error, agreement + DEVIATIONS * error
    if high < MIN_AGREEMENT and low < 0:
        if num_others < MIN_CLIENTS - 1:
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
            "its labels do not follow from its features as the others' do: shuffled labels, columns exchanged, "
            "or people of another kind",
        )
    if low > 0:
        return "as the others", "its labels follow from its features" + (
            " as the others' do" if high > MIN_AGREEMENT else ", by less than half as much as the others' do"
        )
    return "cannot be told", "it has too few records, or too few of one class"


def surprise(standing: Standing) -> float:
    assert standing.agreement is not None
    assert standing.error is not None
    return (MIN_AGREEMENT - standing.agreement) / standing.error
