"""The checks of `outlier_clients` for thousands of clients: matrices of many at once, and suspects in groups.

The others' head is always fitted to all trusted clients but the one that is judged: with so many, one more or less
among them hardly matters, as for more than MANY_CLIENTS clients there. Where many are suspect, the worst hundredth
of the trusted leaves at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from jaxtyping import Bool, Float

from coreshot.models.parallel import map_in_threads
from coreshot.spectral.coreset import Moments
from coreshot.spectral.evidence import best_ridge, solve_ridge
from coreshot.spectral.outlier_clients import (
    MAX_SIZE,
    Relation,
    Standing,
    judge,
    relation_of,
    surprise,
    units_standing,
)
from coreshot.spectral.received import ReceivedRows, sum_moments
from coreshot.types import Kind

LEAVE_AT_ONCE = 0.01  # of the trusted clients

Joints = Float[np.ndarray, "clients n n"]
Parts = Callable[[], Iterable[tuple[Joints, Float[np.ndarray, " clients"]]]]  # moments and numbers of records


@dataclass(frozen=True)
class Relations:
    """Of each client; not known where labels or scores are all alike."""

    together: Float[np.ndarray, " clients"]
    against: Float[np.ndarray, " clients"]
    variance: Float[np.ndarray, " clients"]
    is_known: Bool[np.ndarray, " clients"]

    def total(self, chosen: Bool[np.ndarray, " clients"]) -> Relation:
        some = chosen & self.is_known
        return Relation(*(float(np.sum(one[some])) for one in (self.together, self.against, self.variance)))

    def one(self, place: int) -> Relation:
        return Relation(float(self.together[place]), float(self.against[place]), float(self.variance[place]))


def compare_many(kind: Kind, names: Sequence[str], parts: Parts, num_outputs: int) -> dict[str, Standing]:
    """Parts are read again for each comparison, so that memory does not grow with the number of clients."""
    sizes = np.concatenate([_mean_squares(joints, num_outputs) / counts for joints, counts in parts()])
    return _compare(names, sizes, lambda trusted: _relations(kind, parts, trusted, num_outputs))


def compare_rows(kind: Kind, clients: Mapping[str, ReceivedRows]) -> dict[str, Standing]:
    """Of clients with fewer rows than columns: one factorisation of the sum of all, and for each a low-rank change."""
    names = sorted(clients)
    every = [clients[name] for name in names]
    sizes = np.asarray([float(np.sum(one.rows[:, : one.dimension - 1] ** 2)) / one.num_examples for one in every])

    def relations(trusted: Bool[np.ndarray, " clients"]) -> Relations:
        total = sum_moments(one for one, is_trusted in zip(every, trusted, strict=True) if is_trusted)
        solution = solve_ridge(total, best_ridge(total))
        first = scipy.linalg.solve_triangular(solution.factor, total.cross, lower=True, check_finite=False)
        found = map_in_threads(lambda one: _of_rows(kind, one, total, solution.factor, first), every)
        return Relations(*(np.asarray(column) for column in zip(*found, strict=True)))

    return _compare(names, sizes, relations)


def _of_rows(
    kind: Kind, one: ReceivedRows, total: Moments, factor: np.ndarray, first: Float[np.ndarray, "d outputs"]
) -> tuple[float, float, float, bool]:
    """With A = L L^T the sum of all plus the ridge, Z the client's rows, V = L^-1 Z^T and S = I - V^T V, the inverse of
    A - Z^T Z is L^-T (I + V S^-1 V^T) L^-1 (Woodbury)."""
    rows, labels = one.rows[:, : one.dimension], one.rows[:, one.dimension :]
    v = scipy.linalg.solve_triangular(factor, rows.T, lower=True, check_finite=False)
    left = first - v @ labels
    inner = np.eye(len(rows)) - v.T @ v
    left = left + v @ np.linalg.solve(inner, v.T @ left)
    head = scipy.linalg.solve_triangular(factor, left, lower=True, trans=1, check_finite=False)
    scores, constant = rows @ head, rows[:, -1]
    count = max(float(constant @ constant), 1e-9)
    score_sum, label_sum = constant @ scores, constant @ labels
    squares = float(np.sum(scores**2) - score_sum @ score_sum / count)
    energy = float(np.sum(labels**2) - label_sum @ label_sum / count)
    together = float(np.sum(scores * labels) - score_sum @ label_sum / count)
    relation = relation_of(kind, together, squares, energy, one.num_examples, one.num_outputs)
    if relation is None or total.num_examples - one.num_examples <= 0.5:
        return 0.0, 1.0, 0.0, False
    return relation.together, relation.against, relation.variance, True


def _compare(
    names: Sequence[str],
    sizes: Float[np.ndarray, " clients"],
    relations_of: Callable[[Bool[np.ndarray, " clients"]], Relations],
) -> dict[str, Standing]:
    typical = float(np.sort(sizes)[(len(sizes) - 1) // 2])
    ratios = sizes / typical if typical > 0 else np.ones(len(sizes))
    found = {name: units_standing(float(ratio)) for name, ratio in zip(names, ratios, strict=True)}
    trusted = (ratios >= 1 / MAX_SIZE) & (ratios <= MAX_SIZE)
    while np.sum(trusted) > 1:
        relations = relations_of(trusted)
        usual = relations.total(trusted)
        num_known = int(np.sum(trusted & relations.is_known))
        standings = {
            place: _standing(relations, place, usual, num_known, float(ratios[place]))
            for place in np.flatnonzero(trusted).tolist()
        }
        suspects = [place for place, standing in standings.items() if standing.verdict == "suspect"]
        suspects.sort(key=lambda place: -surprise(standings[place]))
        leaving = suspects[: max(1, int(LEAVE_AT_ONCE * np.sum(trusted)))]
        found |= {names[place]: standings[place] for place in (leaving or standings)}
        if not suspects:
            break
        trusted[leaving] = False
    return found


def _mean_squares(joints: Joints, num_outputs: int) -> Float[np.ndarray, " clients"]:
    """Of features without the constant, which is the last."""
    last = -num_outputs - 1
    return np.trace(joints[:, :last, :last], axis1=1, axis2=2)


def _standing(relations: Relations, place: int, usual: Relation, num_known: int, size: float) -> Standing:
    own = relations.one(place) if relations.is_known[place] else None
    others = usual if own is None else usual - own
    return judge(own, others if num_known > (own is not None) else None, num_known - 1, size)


def _relations(kind: Kind, parts: Parts, trusted: Bool[np.ndarray, " clients"], num_outputs: int) -> Relations:
    total, first = None, 0
    for joints, counts in parts():
        chosen = trusted[first : first + len(counts)]
        first += len(counts)
        one = Moments(np.sum(joints[chosen], axis=0), float(np.sum(counts[chosen])), num_outputs)
        total = one if total is None else total + one
    assert total is not None
    ridge = best_ridge(total)
    found = [_of_part(kind, joints, counts, total, ridge) for joints, counts in parts()]
    return Relations(*(np.concatenate(column) for column in zip(*found, strict=True)))


def _of_part(
    kind: Kind, joints: Joints, counts: Float[np.ndarray, " clients"], total: Moments, ridge: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """As `outlier_clients.relation`, of many clients."""
    size = total.dimension
    features, labels = slice(0, size), slice(size, None)
    others = total.joint - joints
    heads = np.linalg.solve(others[:, features, features] + ridge * np.eye(size), others[:, features, labels])
    sums = joints[:, :, size - 1]
    scaled = sums / np.maximum(sums[:, size - 1], 1e-9)[:, None]
    centred = joints - sums[:, :, None] * scaled[:, None, :]
    scores = np.sum(heads * (centred[:, features, features] @ heads), axis=(1, 2))
    energy = np.trace(centred[:, labels, labels], axis1=1, axis2=2)
    is_known = np.minimum(scores, energy) >= 1e-6 * np.maximum(counts, 1.0) * np.finfo(np.float32).eps
    together = np.sum(heads * centred[:, features, labels], axis=(1, 2))
    against, other = (energy, scores) if kind == "classification" else (scores, energy)
    against = np.where(is_known, against, 1.0)
    freedom = counts * (total.num_outputs - (kind == "classification"))
    left = np.maximum(other - together**2 / against, 1e-9 * other) / freedom
    return together, against, left * against, is_known & (total.num_examples - counts > 0.5)
