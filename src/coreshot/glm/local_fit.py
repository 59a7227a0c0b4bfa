"""A site's own logistic regression, and the quadratic that stands for its likelihood near this fit.

The likelihood of softmax(phi W) at the site is replaced by exp(sum_k shift_k w_k - w_k precision_k w_k / 2). Value,
gradient and curvature belong to the site's own fit, as in Laplace's approximation. Two things differ from it:
- The curvature of a record is the mean of p (1 - p), which is exact at the fit, and of tanh(l/2) / (2 l), which is that
  of the bound of Jaakkola and Jordan ("Bayesian parameter estimation via variational methods", 2000): p (1 - p) alone
  vanishes where a small site separates its classes, and the site would then say nothing.
- The site's intercepts are maximised out, so that the quadratic speaks about slopes alone. A site with other base rates
  than the rest has other intercepts and the same slopes. With them, its quadratic would be far from the common fit.
A class that the site does not have gets no curvature and no shift: the site knows nothing about it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.optimize
import scipy.special
from jaxtyping import Float, Int

from coreshot.glm.polynomials import Polynomials

# Prior precisions of standardised weights in the site's own fit: inputs, products of two, higher degrees. They matter
# little, because the quadratic has the likelihood's gradient at the fit, wherever that is.
LOCAL_PRECISIONS = np.asarray([1.0, 10.0, 10.0])
INTERCEPT_PRECISION = 1e-3
MAX_RECORDS = 20_000  # for the fit; gradient and curvature are those of all records
MAX_STEPS = 80
CHUNK = 8192  # records at once, so that memory does not grow with their number


@dataclass(frozen=True)
class LocalFit:
    """The site's weights, gradient and curvature, all for raw features. Two classes have one logit."""

    weights: Float[np.ndarray, "d logits"]
    gradient: Float[np.ndarray, "d logits"]  # of the site's log likelihood at these weights
    curvature: Float[np.ndarray, "d d"]  # summed over logits
    shares: Float[np.ndarray, " logits"]  # of each logit in the curvature; 0 where the site lacks a class


def fit_locally(
    polynomials: Polynomials, x: Float[np.ndarray, "n inputs"], labels: Int[np.ndarray, " n"], num_classes: int
) -> LocalFit:
    """x and labels must be in an order that does not depend on the file's, so that the result does not either."""
    some = slice(None, None, -(-len(x) // MAX_RECORDS))
    features = polynomials(x[some])
    basis = polynomials.standard_basis(features.T @ features)
    precisions = np.append(INTERCEPT_PRECISION, LOCAL_PRECISIONS[polynomials.groups])
    weights = basis @ _fit_softmax(features @ basis, labels[some], num_classes, precisions)
    if num_classes == 2:
        weights = weights[:, 1:] - weights[:, :1]
    return _expand(polynomials, x, labels, weights, num_classes)


def _fit_softmax(
    features: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"], num_classes: int, precisions: np.ndarray
) -> Float[np.ndarray, "d classes"]:
    one_hot = np.eye(num_classes)[labels]

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights = flat.reshape(features.shape[1], num_classes)
        scores = features @ weights
        logs = scipy.special.log_softmax(scores, axis=1)
        gradient = features.T @ (np.exp(logs) - one_hot) + precisions[:, None] * weights
        return 0.5 * float(np.sum(precisions[:, None] * weights**2)) - float(np.sum(one_hot * logs)), gradient.ravel()

    start = np.zeros(features.shape[1] * num_classes)
    found = scipy.optimize.minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": MAX_STEPS})
    return np.asarray(found.x).reshape(features.shape[1], num_classes)


def _expand(
    polynomials: Polynomials,
    x: Float[np.ndarray, "n inputs"],
    labels: Int[np.ndarray, " n"],
    weights: Float[np.ndarray, "d logits"],
    num_classes: int,
) -> LocalFit:
    """Gradient and curvature of all records at these weights."""
    counts = np.bincount(labels, minlength=num_classes)
    known = (counts > 0) if num_classes > 2 else np.asarray([np.all(counts > 0)])
    gradient, total = np.zeros_like(weights), np.zeros(weights.shape[1])
    curvature = np.zeros((polynomials.dimension, polynomials.dimension))
    for first in range(0, len(x), CHUNK):
        features = polynomials(x[first : first + CHUNK])
        one_hot = np.eye(num_classes)[labels[first : first + CHUNK]]
        probabilities, logits = _probabilities(features @ weights)
        gradient += features.T @ (one_hot[:, -weights.shape[1] :] - probabilities)
        curvatures = known * _curvatures(probabilities, logits)
        total += np.sum(curvatures, axis=0)
        curvature += features.T @ (features * np.sum(curvatures, axis=1, keepdims=True))
    shares = total / np.sum(total) if np.any(known) else total
    return LocalFit(weights * known, gradient * known, curvature, shares)


def _probabilities(scores: Float[np.ndarray, "n logits"]) -> tuple[np.ndarray, np.ndarray]:
    """Of each class (of two classes, the second), and its logit against all others."""
    if scores.shape[1] == 1:
        return scipy.special.expit(scores), scores
    probabilities = scipy.special.softmax(scores, axis=1)
    return probabilities, scipy.special.logit(np.clip(probabilities, 1e-12, 1 - 1e-12))


def _curvatures(
    probabilities: Float[np.ndarray, "n logits"], logits: Float[np.ndarray, "n logits"]
) -> Float[np.ndarray, "n logits"]:
    size = np.maximum(np.abs(logits), 1e-6)
    return 0.5 * (probabilities * (1 - probabilities) + np.tanh(size / 2) / (2 * size))
