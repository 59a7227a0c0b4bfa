"""How good a posterior predicts: metrics as sums, so that batches and clients merge exactly."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial

import jax
import numpy as np

from coreshot.models import Model
from coreshot.types import Points, Posterior

POINTS_AT_ONCE = 1000  # test points, so that the activations of a ConvNet stay below half a GB
NUM_BINS = 15  # of the expected calibration error, equal widths, over the whole test set


@dataclass(frozen=True)
class Sums:
    """Sums over test points; adding two of them is the same as having evaluated all points at once."""

    count: float = 0.0
    log_prob: float = 0.0
    correct: float = 0.0
    brier: float = 0.0
    squared_error: float = 0.0
    bin_count: np.ndarray | float = 0.0
    bin_confidence: np.ndarray | float = 0.0
    bin_correct: np.ndarray | float = 0.0

    def __add__(self, other: Sums) -> Sums:
        return Sums(**{field.name: getattr(self, field.name) + getattr(other, field.name) for field in fields(self)})


@dataclass(frozen=True)
class Metrics:
    """None where a metric has no meaning for the task."""

    accuracy: float | None
    nll: float
    brier: float | None
    ece: float | None
    rmse: float | None


def sums(model: Model, posterior: Posterior, test: Points, truth: Points | None = None) -> Sums:
    """Of test points; RMSE is taken against the noise-free truth where it is known, else against the targets."""
    total = Sums()
    for first in range(0, test.num_points, POINTS_AT_ONCE):
        part, targets = (
            jax.tree.map(lambda array, first=first: array[first : first + POINTS_AT_ONCE], points)
            for points in (test, truth or test)
        )
        total = total + _sums_of_part(model, posterior, part, targets)
    return total


def _sums_of_part(model: Model, posterior: Posterior, test: Points, targets: Points) -> Sums:
    mean = np.asarray(posterior.predict(test.x).mean, np.float64)
    log_prob = float(np.sum(np.asarray(posterior.log_predictive(test), np.float64)))
    if model.kind == "regression":
        target = np.asarray(targets.y, np.float64)
        return Sums(count=len(mean), log_prob=log_prob, squared_error=float(np.sum((mean - target) ** 2)))
    return class_sums(mean, np.asarray(test.y, np.float64), log_prob)


def class_sums(probabilities: np.ndarray, one_hot: np.ndarray, log_prob: float) -> Sums:
    confidence = probabilities.max(axis=1)
    correct = (probabilities.argmax(axis=1) == one_hot.argmax(axis=1)).astype(float)
    count = partial(np.bincount, bin_index(confidence), minlength=NUM_BINS)
    return Sums(
        count=len(probabilities),
        log_prob=log_prob,
        correct=float(correct.sum()),
        brier=float(np.sum((probabilities - one_hot) ** 2)),
        bin_count=count().astype(float),
        bin_confidence=count(weights=confidence),
        bin_correct=count(weights=correct),
    )


def bin_index(confidence: np.ndarray) -> np.ndarray:
    """Bins are (0, 1/15], (1/15, 2/15], ...: a confidence of exactly 1 belongs to the last."""
    return np.clip(np.ceil(confidence * NUM_BINS).astype(int) - 1, 0, NUM_BINS - 1)


def metrics(model: Model, total: Sums) -> Metrics:
    nll = -total.log_prob / total.count
    if model.kind == "regression":
        return Metrics(None, nll, None, None, float(np.sqrt(total.squared_error / total.count / model.num_outputs)))
    gap = np.abs(np.asarray(total.bin_confidence) - np.asarray(total.bin_correct))
    return Metrics(total.correct / total.count, nll, total.brier / total.count, float(np.sum(gap) / total.count), None)
