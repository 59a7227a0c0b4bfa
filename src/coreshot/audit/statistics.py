"""The statistics that an attacker who knows all other records computes about one record from what the server received.

For noisy moments and noisy class sums, one statistic is sufficient (Neyman and Pearson 1933). In the mechanism's own
units, a record adds a known vector v of norm one, and the noise is the same in all directions. The inner product with v
is N(c, z^2) without the record and N(c + 1, z^2) with it, where z is the noise multiplier.

For pseudo-points, no best statistic is known. We use the distance of the nearest point to the record, the amount of its
class near it, how far the mean of its class moves towards it, and the prediction of a model that is fitted to the
points. The message's count of records is not used: to an attacker who knows all other records it is the answer, and it
says nothing about a learner.
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
from coreshot.types import Points, make_points

CLOSEST = 1e-6  # in units of the distance between records; smaller distances count as this
KERNEL_RIDGE = 0.1  # of the model that is fitted to pseudo-points; its kernel is at most 1


def moment_statistic(
    gram: Float[np.ndarray, "*trials d d"],
    cross: Float[np.ndarray, "*trials d outputs"],
    row: Float[np.ndarray, " d"],
    label: Float[np.ndarray, " outputs"],
) -> Float[np.ndarray, "*trials"]:
    """The noisy moments in the direction of the record's contribution, in units of the contribution."""
    return np.asarray((1 - CROSS_SHARE) * row @ gram @ row + CROSS_SHARE * row @ cross @ label)


def class_sum_statistic(
    sums: Float[np.ndarray, "*trials d classes"], row: Float[np.ndarray, " d"], label: Float[np.ndarray, " classes"]
) -> Float[np.ndarray, "*trials"]:
    """The noisy class sums in the direction of the record's contribution."""
    return np.asarray(row @ sums @ label / np.linalg.norm(row) / np.linalg.norm(label))


def _private_spectral_statistics(subject: Subject, state: PrivateState, target: Points) -> list[float]:
    return [float(moment_statistic(state.gram, state.cross, state.map(target.x)[0], np.asarray(target.y)[0]))]


def _private_pooled_statistics(subject: Subject, state: PooledState, target: Points) -> list[float]:
    row = feature_rows(subject.study.model, state.networks, np.asarray(target.x))[0]
    return [float(class_sum_statistic(state.sums, row, np.asarray(target.y)[0]))]


def _spectral_statistics(subject: Subject, state: SpectralState, target: Points) -> list[float]:
    joint = reduce(np.add, (group.joint for group in state.groups.values()))
    row = state.map(target.x)[0].astype(np.float64)
    label = center_labels(subject.study.model, np.asarray(target.y))[0]
    size = state.map.dimension
    return [float(row @ joint[:size, :size] @ row), float(row @ joint[:size, size:] @ label)]


def _point_statistics(subject: Subject, points: Points, target: Points) -> list[float]:
    x, record, others = (
        np.asarray(part.x, np.float64).reshape(part.num_points, -1)
        for part in (points, target, subject.sets["without"])
    )
    y, label = np.asarray(points.y, np.float64), np.asarray(target.y, np.float64)[0]
    is_class = subject.study.agreement.kind == "classification"
    shares = y @ label if is_class else np.ones(len(y))  # how much each point belongs to the record's class
    distance = cdist(x, record)[:, 0] / (subject.spacing + 1e-12)
    centre = np.mean(others, axis=0)
    towards_record = record[0] - centre
    mean = np.sum(shares[:, None] * x, axis=0) / np.sum(shares) if np.sum(shares) > 0 else centre
    predicted = _ridge_prediction(x, y - (1 / y.shape[1] if is_class else 0.0), record)
    return [
        -float(np.log(np.min(distance) + CLOSEST)),
        float(np.sum(shares * np.exp(-0.5 * distance**2))),
        float(np.mean(shares) if is_class else np.mean(y)),
        float((mean - centre) @ towards_record / (towards_record @ towards_record + 1e-12)),
        float(predicted @ label if is_class else -np.sum((predicted - label) ** 2)),
    ]


def _ridge_prediction(
    x: Float[np.ndarray, "k numbers"], y: Float[np.ndarray, "k outputs"], record: Float[np.ndarray, "1 numbers"]
) -> Float[np.ndarray, " outputs"]:
    """Kernel ridge regression at the record. The kernel's squared width is the mean squared distance of the points."""
    squares = cdist(x, x, "sqeuclidean")
    width = np.mean(squares) + 1e-12
    kernel, at_record = np.exp(-0.5 * squares / width), np.exp(-0.5 * cdist(record, x, "sqeuclidean") / width)
    return (at_record @ np.linalg.solve(kernel + KERNEL_RIDGE * np.eye(len(x)), y))[0]


def received_points(subject: Subject, state: Any) -> Points | None:
    """The client's pseudo-points in input space; None where its message has none."""
    if isinstance(state, OneShotState):
        return state.coresets[subject.client].points
    if isinstance(state, DosflState):
        sent = state.distilled[subject.client]
        agreement = subject.study.agreement
        return make_points(
            sent.x.reshape(-1, *agreement.input_shape),
            sent.y.reshape(-1, agreement.num_outputs),
        )
    return None


STATE_STATISTICS: dict[type[Any], Callable[[Subject, Any, Points], list[float]]] = {
    PooledState: _private_pooled_statistics,
    PrivateState: _private_spectral_statistics,
    SpectralState: _spectral_statistics,
}


def record_statistics(subject: Subject, state: Any, target: Points) -> list[float]:
    """Statistics about one record, computed from the server's state after the exchange."""
    points = received_points(subject, state)
    if points is not None:
        return _point_statistics(subject, points, target)
    if type(state) not in STATE_STATISTICS:
        raise CoreshotError(
            f"audit: there are no statistics for a {type(state).__name__}; add a line to coreshot.audit.statistics."
        )
    return STATE_STATISTICS[type(state)](subject, state, target)
