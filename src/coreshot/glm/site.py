"""What a site computes for its message: sums over its records, and its own fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from coreshot.glm.local_fit import LocalFit, fit_locally
from coreshot.glm.polynomials import Polynomials, deviations
from coreshot.glm.summary import Summary, collect_class_moments, collect_moments, join_class_moments
from coreshot.models import Model
from coreshot.types import Points

CHUNK = 8192  # records at once


@dataclass(frozen=True)
class SiteSums:
    """Of all records, before any rounding. A regression has no classes and no fit."""

    moments: Float[np.ndarray, "entries entries"]
    class_moments: Float[np.ndarray, "classes d d"]
    fit: LocalFit | None
    num_outputs: int

    def summary(self, by_class: bool) -> Summary:
        if by_class and self.fit is not None:
            return Summary.from_class_moments(self.class_moments, self.fit.correct)
        return Summary.from_moments(self.moments, self.num_outputs, self.fit.correct if self.fit else None)


def sum_records(
    model: Model, polynomials: Polynomials, x: Float[np.ndarray, "n inputs"], y: Float[np.ndarray, "n outputs"]
) -> SiteSums:
    """The fit is in float32, as the server will read it."""
    parts = [slice(first, first + CHUNK) for first in range(0, len(x), CHUNK)]
    if model.kind == "regression":
        moments = np.asarray(sum(collect_moments(polynomials(x[part]), y[part]) for part in parts))
        return SiteSums(moments, np.zeros((0, 0, 0)), None, model.num_outputs)
    class_moments = np.asarray(sum(collect_class_moments(polynomials(x[part]), y[part]) for part in parts))
    fit = fit_locally(polynomials, x, np.argmax(y, axis=1), model.num_outputs)
    sent = LocalFit(*(array.astype(np.float32).astype(np.float64) for array in (fit.weights, fit.gradient)))
    return SiteSums(join_class_moments(class_moments), class_moments, sent, model.num_outputs)


def sorted_records(points: Points) -> tuple[Float[np.ndarray, "n inputs"], Float[np.ndarray, "n outputs"]]:
    """In an order of their own, so that a file with its lines in another order gives the same bytes."""
    present = np.asarray(points.weight) > 0
    x = np.asarray(points.x, np.float64)[present].reshape(int(np.sum(present)), -1)
    y = np.asarray(points.y, np.float64)[present]
    order = np.lexsort(np.concatenate([x, y], axis=1).T)
    return x[order], y[order]


def center_and_scale(x: Float[np.ndarray, "n inputs"]) -> tuple[np.ndarray, np.ndarray]:
    """As float32, as they are sent."""
    center, scale = np.mean(x, axis=0), deviations(np.var(x, axis=0))
    return center.astype(np.float32).astype(np.float64), scale.astype(np.float32).astype(np.float64)
