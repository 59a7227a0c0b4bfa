"""What a site computes for its message: sums over its records, its own fit, and the posterior of that alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Float

from coreshot.glm.head import centre, class_scores, fit_head
from coreshot.glm.intercepts import measure_offsets, offsets_shape
from coreshot.glm.local_fit import LocalFit, fit_locally
from coreshot.glm.polynomials import Polynomials, deviations
from coreshot.glm.posterior import GlmPosterior
from coreshot.glm.summary import Summary, collect_moments
from coreshot.models import Model
from coreshot.types import Points

CHUNK = 8192  # records at once


def sums_and_fit(
    model: Model, polynomials: Polynomials, x: Float[np.ndarray, "n inputs"], y: Float[np.ndarray, "n outputs"]
) -> tuple[Float[np.ndarray, "columns columns"], LocalFit]:
    """Of all records, before any rounding."""
    parts = (slice(first, first + CHUNK) for first in range(0, len(x), CHUNK))
    moments = np.asarray(sum(collect_moments(polynomials(x[part]), y[part]) for part in parts))
    if model.kind == "regression":
        return moments, _no_fit(polynomials)
    return moments, fit_locally(polynomials, x, np.argmax(y, axis=1), model.num_outputs)


def _no_fit(polynomials: Polynomials) -> LocalFit:
    none = np.zeros((polynomials.dimension, 0))
    return LocalFit(none, none, np.zeros((0, 0)), np.zeros(0))


def as_sent(fit: LocalFit) -> LocalFit:
    """In float32, as the server will read it; the curvature is coded."""
    sent = {name: array.astype(np.float32).astype(np.float64) for name, array in vars(fit).items()}
    return LocalFit(**{**sent, "curvature": fit.curvature})


def own_posterior(
    model: Model,
    polynomials: Polynomials,
    moments: np.ndarray,
    fit: LocalFit,
    x: Float[np.ndarray, "n inputs"],
    y: Float[np.ndarray, "n outputs"],
) -> tuple[GlmPosterior, Float[np.ndarray, "spreads rates logits"]]:
    """The posterior of this site's exact message alone, and the offset of its intercepts."""
    summary = Summary.from_parts(moments, as_sent(fit), model.num_outputs)
    gaussian = GlmPosterior(polynomials, model.kind, fit_head(polynomials, summary))
    if not np.any(fit.shares):
        return gaussian, np.zeros(offsets_shape(len(fit.shares)))
    slopes = gaussian.head.slopes
    centers, covariance = class_scores(centre(polynomials, summary, gaussian.head.basis), slopes)
    scores = gaussian.scores(x)[0] - gaussian.head.intercepts
    offset = measure_offsets(scores, np.argmax(y, axis=1), centers, covariance) * (fit.shares > 0)
    offset = offset.astype(np.float32).astype(np.float64)
    summary = Summary.from_parts(moments, as_sent(fit), model.num_outputs, offset)
    return replace(gaussian, head=fit_head(polynomials, summary, like=gaussian.head)), offset


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
