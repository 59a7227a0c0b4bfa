"""What a site computes for its message: sums over its records, and its own fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from coreshot.glm.counts import fit_counts_locally, to_counts
from coreshot.glm.local_fit import LocalFit, fit_locally
from coreshot.glm.polynomials import Polynomials
from coreshot.glm.records import CHUNK, Prepared, sort_records
from coreshot.glm.score_groups import group_by_score, join_all, num_groups_of
from coreshot.glm.summary import Summary, collect_class_moments, collect_moments, join_class_moments
from coreshot.models import Model
from coreshot.types import Points

Detail = Literal["groups", "classes", "moments"]  # of classes: their groups, each as a whole, or one matrix for all


@dataclass(frozen=True)
class SiteSums:
    """Of all records, before any rounding. A regression has no classes and no fit."""

    moments: Float[np.ndarray, "entries entries"]
    grouped_moments: tuple[np.ndarray, ...]  # of each class, with its groups
    class_moments: Float[np.ndarray, "classes d d"]
    fit: LocalFit | None
    num_outputs: int

    def matrices(self, detail: Detail) -> dict[str, np.ndarray]:
        """What is sent, by name."""
        if detail == "moments":
            return {"moments": self.moments}
        chosen = self.grouped_moments if detail == "groups" else self.class_moments
        return {f"class_{label}": moments for label, moments in enumerate(chosen)}

    def summary(self, detail: Detail) -> Summary:
        if detail == "moments" or self.fit is None:
            return Summary.from_moments(self.moments, self.num_outputs, self.fit.correct if self.fit else None)
        matrices = list(self.matrices(detail).values())
        return Summary.from_class_moments(matrices, self.class_moments.shape[1], self.fit.correct)


def sum_records(
    model: Model,
    polynomials: Polynomials,
    x: Float[np.ndarray, "n inputs"] | Prepared,
    y: Float[np.ndarray, "n outputs"],
    largest_count: float | None = None,
) -> SiteSums:
    """The fit is in float32, as the server will read it. largest_count: y are counts, at most so large."""
    parts = [slice(first, first + CHUNK) for first in range(0, len(x), CHUNK)]
    if model.kind == "regression":
        exact = y.astype(np.float64)
        moments = np.asarray(sum(collect_moments(polynomials(x[part]), exact[part]) for part in parts))
        own = largest_count and fit_counts_locally(polynomials, x, to_counts(exact, largest_count), largest_count)
        return SiteSums(moments, (), np.zeros((0, 0, 0)), own or None, model.num_outputs)
    labels = np.argmax(y, axis=1)
    fit = fit_locally(polynomials, x, labels, model.num_outputs)
    sent = LocalFit(*(array.astype(np.float32).astype(np.float64) for array in (fit.weights, fit.gradient)))
    groups = _groups(polynomials, x, labels, sent, parts)
    num_groups = num_groups_of(groups, labels, model.num_outputs)
    grouped = [np.zeros((count + polynomials.dimension - 1,) * 2) for count in num_groups]
    for part in parts:
        more = collect_class_moments(polynomials(x[part]), labels[part], groups[part], num_groups)
        grouped = [one + other for one, other in zip(grouped, more, strict=True)]
    class_moments = join_all(grouped, polynomials.dimension)
    return SiteSums(join_class_moments(class_moments), tuple(grouped), class_moments, sent, model.num_outputs)


def _groups(
    polynomials: Polynomials,
    x: Float[np.ndarray, "n inputs"] | Prepared,
    labels: Int[np.ndarray, " n"],
    fit: LocalFit,
    parts: Sequence[slice],
) -> Int[np.ndarray, " n"]:
    """Of two classes. More have no single score, and gained little."""
    if fit.weights.shape[1] > 1:
        return np.zeros(len(x), np.int64)
    scores = np.concatenate([(polynomials(x[part]) @ fit.weights)[:, 0] for part in parts])
    return group_by_score(scores, labels, 2)


def sorted_records(points: Points) -> tuple[Float[np.ndarray, "n inputs"], Float[np.ndarray, "n outputs"]]:
    """In an order of their own, in float64."""
    x, y = sort_records(points)
    return x.astype(np.float64), y.astype(np.float64)
