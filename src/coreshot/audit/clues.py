"""What an attacker who knows all other records looks at in what the server got: a few numbers about one record.

Of noisy moments and of noisy class sums one number is all there is to know. In the mechanism's own units a record moves them by a known vector v of
norm one, and the noise is the same in all directions, so their product with v says as much as they do (Neyman and Pearson 1933): it is N(c, z^2)
without the record and N(c + 1, z^2) with it, z the noise multiplier.

Of pseudo-points nobody knows what is best. The clues are how near they come to the record, how much of its class is around it, how their mean
leans to it, and what a model that was fitted to them says of it. The count of records, which the message also holds, is left out: to someone who
knows all other records it is the answer, and it says nothing about a learner.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.spatial.distance import cdist

from coreshot.audit.subject import Subject
from coreshot.errors import CoreshotError
from coreshot.learners.class_features import feature_rows
from coreshot.methods.dosfl import DosflState
from coreshot.methods.one_shot import OneShotState
from coreshot.methods.private_pooled_dm import PooledState
from coreshot.methods.private_spectral import CROSS_SHARE, PrivateState
from coreshot.methods.spectral import SpectralState, center_labels
from coreshot.types import Points, points_of

CLOSEST = 1e-6  # of the records' distance; nearer makes no difference to the attacker
RIDGE = 0.1  # of the model that is fitted to pseudo-points; kernels are at most 1


def moment_clue(
    gram: Float[np.ndarray, "*trials d d"],
    cross: Float[np.ndarray, "*trials d outputs"],
    row: Float[np.ndarray, " d"],
    label: Float[np.ndarray, " outputs"],
) -> Float[np.ndarray, "*trials"]:
    """Noisy moments along the record's own contribution, in units of the contribution."""
    return (1 - CROSS_SHARE) * row @ gram @ row + CROSS_SHARE * row @ cross @ label


def _of_private(subject: Subject, state: PrivateState, target: Points) -> list[float]:
    return [float(moment_clue(state.gram, state.cross, state.map(target.x)[0], np.asarray(target.y)[0]))]


def class_sum_clue(
    sums: Float[np.ndarray, "*trials d classes"], row: Float[np.ndarray, " d"], label: Float[np.ndarray, " classes"]
) -> Float[np.ndarray, "*trials"]:
    """Noisy class sums along the record's own contribution, whose norm is one unless a network is silent about it."""
    return row @ sums @ label / np.linalg.norm(row) / np.linalg.norm(label)


def _of_pooled(subject: Subject, state: PooledState, target: Points) -> list[float]:
    row = feature_rows(subject.study.model, state.networks, np.asarray(target.x))[0]
    return [float(class_sum_clue(state.sums, row, np.asarray(target.y)[0]))]


def _of_spectral(subject: Subject, state: SpectralState, target: Points) -> list[float]:
    joint = reduce(np.add, (group.joint for group in state.groups.values()))
    row, label, size = (
        state.map(target.x)[0].astype(np.float64),
        center_labels(subject.study.model, np.asarray(target.y))[0],
        state.map.dimension,
    )
    return [float(row @ joint[:size, :size] @ row), float(row @ joint[:size, size:] @ label)]


def _of_points(subject: Subject, points: Points, target: Points) -> list[float]:
    x, record, others = (
        np.asarray(part.x, np.float64).reshape(part.num_points, -1)
        for part in (points, target, subject.sets["without"])
    )
    y, label = np.asarray(points.y, np.float64), np.asarray(target.y, np.float64)[0]
    is_class = subject.study.agreement.kind == "classification"
    shares = y @ label if is_class else np.ones(len(y))  # how much each point is of the record's class
    far = cdist(x, record)[:, 0] / (subject.spacing + 1e-12)
    lean = record[0] - np.mean(others, axis=0)
    mean = np.sum(shares[:, None] * x, axis=0) / np.sum(shares) if np.sum(shares) > 0 else np.mean(others, axis=0)
    belief = _belief(x, y - (1 / y.shape[1] if is_class else 0.0), record)
    return [
        -float(np.log(np.min(far) + CLOSEST)),
        float(np.sum(shares * np.exp(-0.5 * far**2))),
        float(np.mean(shares) if is_class else np.mean(y)),
        float((mean - np.mean(others, axis=0)) @ lean / (lean @ lean + 1e-12)),
        float(belief @ label if is_class else -np.sum((belief - label) ** 2)),
    ]


def _belief(
    x: Float[np.ndarray, "k numbers"], y: Float[np.ndarray, "k outputs"], record: Float[np.ndarray, "1 numbers"]
) -> np.ndarray:
    """Kernel ridge regression at the record, as wide as the points lie apart."""
    squares = cdist(x, x, "sqeuclidean")
    width = np.mean(squares) + 1e-12
    kernel, at_record = np.exp(-0.5 * squares / width), np.exp(-0.5 * cdist(record, x, "sqeuclidean") / width)
    return (at_record @ np.linalg.solve(kernel + RIDGE * np.eye(len(x)), y))[0]


def received_points(subject: Subject, state: Any) -> Points | None:
    """The client's pseudo-points in input space, where it sent any."""
    if isinstance(state, OneShotState):
        return state.coresets[subject.client].points
    if isinstance(state, DosflState):
        sent = state.distilled[subject.client]
        return points_of(
            sent.x.reshape(-1, *subject.study.agreement.input_shape),
            sent.y.reshape(-1, subject.study.agreement.num_outputs),
        )
    return None


OF_STATE: dict[type[Any], Callable[[Subject, Any, Points], list[float]]] = {
    PooledState: _of_pooled,
    PrivateState: _of_private,
    SpectralState: _of_spectral,
}


def clues(subject: Subject, state: Any, target: Points) -> list[float]:
    """Of one record, in what the server has after the exchange."""
    points = received_points(subject, state)
    if points is not None:
        return _of_points(subject, points, target)
    if type(state) not in OF_STATE:
        raise CoreshotError(
            f"audit: nothing says what to look at in a {type(state).__name__}; add a line to coreshot.audit.clues."
        )
    return OF_STATE[type(state)](subject, state, target)
