"""A site's own logistic regression, and the exact gradient of its log likelihood there.

`coreshot.glm.class_likelihood` makes the gradient of its approximation exact at this point. How strong the prior of
this fit is matters little: the gradient is that of the likelihood, wherever the fit is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.optimize
import scipy.special
from jaxtyping import Float, Int

from coreshot.glm.class_likelihood import SiteClasses
from coreshot.glm.polynomials import Polynomials
from coreshot.glm.records import Prepared

# Prior precisions of standardised weights: inputs, products of two, higher degrees.
LOCAL_PRECISIONS = np.asarray([1.0, 10.0, 10.0])
INTERCEPT_PRECISION = 1e-3
MAX_RECORDS = 20_000  # for the fit; gradient and curvature are those of all records
MAX_STEPS = 80
CHUNK = 8192  # records at once, so that memory does not grow with their number


@dataclass(frozen=True)
class LocalFit:
    """For raw features. Two classes have one logit."""

    weights: Float[np.ndarray, "d logits"]
    gradient: Float[np.ndarray, "d logits"]  # of the site's log likelihood at these weights

    @property
    def largest_label(self) -> float:
        return 1.0

    def correct(self, site: SiteClasses) -> SiteClasses:
        return site.corrected(self.weights, self.gradient)


def fit_locally(
    polynomials: Polynomials,
    x: Float[np.ndarray, "n inputs"] | Prepared,
    labels: Int[np.ndarray, " n"],
    num_classes: int,
) -> LocalFit:
    """x and labels must be in an order that does not depend on the file's, so that the result does not either."""
    some = slice(None, None, -(-len(x) // MAX_RECORDS))
    features = polynomials(x[some])
    basis = polynomials.standard_basis(features.T @ features)
    precisions = np.append(INTERCEPT_PRECISION, LOCAL_PRECISIONS[polynomials.groups])
    weights = basis @ _fit_softmax(features @ basis, labels[some], num_classes, precisions)
    if num_classes == 2:
        weights = weights[:, 1:] - weights[:, :1]
    return LocalFit(weights, _gradient(polynomials, x, labels, weights, num_classes))


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


def _gradient(
    polynomials: Polynomials,
    x: Float[np.ndarray, "n inputs"] | Prepared,
    labels: Int[np.ndarray, " n"],
    weights: Float[np.ndarray, "d logits"],
    num_classes: int,
) -> Float[np.ndarray, "d logits"]:
    """Of all records at these weights."""
    gradient = np.zeros_like(weights)
    for first in range(0, len(x), CHUNK):
        features = polynomials(x[first : first + CHUNK])
        one_hot = np.eye(num_classes)[labels[first : first + CHUNK]]
        scores = features @ weights
        probabilities = scipy.special.expit(scores) if weights.shape[1] == 1 else scipy.special.softmax(scores, axis=1)
        gradient += features.T @ (one_hot[:, -weights.shape[1] :] - probabilities)
    return gradient
