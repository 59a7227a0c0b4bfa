"""The log likelihood of counts under a log-linear model, from sums of each site: Poisson regression.

A site's records have features phi and counts c; their rate is exp(phi w). The log likelihood is w^T t - sum exp(phi w)
with t = sum c phi, up to a constant. If the features of a site were Gaussian, with mean mu and covariance Sigma, the
sum would be n exp(mu w + w^T Sigma w / 2), whatever w is: that is the approximation. As of classes
(`class_likelihood`), the site sends its own fit and the exact gradient there, and a term that is linear in w makes the
gradient exact at that point. The function is concave.

| symbol         | here                                                                                     |
|----------------|------------------------------------------------------------------------------------------|
| n, mu, Sigma   | sizes, means, covariances of `SiteClasses`, with one cell                                |
| t and the term | correction: all that is linear in w                                                      |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.optimize
from jaxtyping import Float

from coreshot.glm.class_likelihood import ClassLikelihood, SiteClasses, Slope, Weights, stack
from coreshot.glm.local_fit import INTERCEPT_PRECISION, LOCAL_PRECISIONS, MAX_RECORDS, MAX_STEPS, LocalFit
from coreshot.glm.polynomials import Polynomials
from coreshot.glm.records import Prepared

LARGEST_LOG_RATE = 30.0


@dataclass(frozen=True)
class CountLikelihood(ClassLikelihood):
    """One cell and one covariance for each site; targets are not used."""

    def at(self, weights: Weights) -> Slope:
        spread = self.covariances @ weights
        logs = self.means @ weights + 0.5 * (weights.T @ spread)[:, 0]
        rates = self.sizes[:, None] * np.exp(np.minimum(logs, LARGEST_LOG_RATE))
        moved = self.means + spread[:, :, 0]  # the mean of the features where each weighs by its rate
        gradient = self.correction - moved.T @ rates
        return CountSlope(gradient, rates, rates[:, :, None], rates[:, :, None], moved)

    def curvature_blocks(self, slope: Slope) -> Float[np.ndarray, "1 d d"]:
        assert isinstance(slope, CountSlope)
        rates = slope.probabilities[:, 0]
        return (np.tensordot(rates, self.covariances, axes=1) + (slope.moved.T * rates) @ slope.moved)[None]


@dataclass(frozen=True)
class CountSlope(Slope):
    """Of which `probabilities` are the expected counts of each site."""

    moved: Float[np.ndarray, "cells d"]


def join_sites(num_outputs: int, sites: Sequence[SiteClasses]) -> ClassLikelihood:
    """Of classes, or, with one output, of counts."""
    if num_outputs > 1:
        return stack(sites)
    cells = [site for site in sites if np.sum(site.sizes) > 0]
    sizes = np.concatenate([site.sizes for site in cells])
    means = np.concatenate([site.means for site in cells])
    covariances = np.concatenate([site.covariances for site in cells])
    correction = np.sum([site.correction for site in sites], axis=0)
    return CountLikelihood(sizes, np.zeros((len(sizes), 1)), means, np.arange(len(sizes)), covariances, correction)


def site_of_counts(moments: Float[np.ndarray, "entries entries"]) -> SiteClasses:
    """From sums of products of features and of the label."""
    size = len(moments) - 1
    mean = moments[:size, 0] / moments[0, 0]
    covariance = moments[:size, :size] / moments[0, 0] - np.outer(mean, mean)
    covariance[0], covariance[:, 0] = 0.0, 0.0
    one = np.zeros(1, np.int64)
    return SiteClasses(one, one, moments[:1, 0], mean[None], covariance[None], np.zeros((size, 1)))


@dataclass(frozen=True)
class CountFit(LocalFit):
    """A site's own Poisson regression, for raw features."""

    largest_count: float = 1.0

    @property
    def largest_label(self) -> float:
        return max(self.largest_count, 1.0)

    def correct(self, site: SiteClasses) -> SiteClasses:
        nothing = replace(site, correction=np.zeros_like(site.correction))
        return replace(site, correction=self.gradient - join_sites(1, [nothing]).at(self.weights).gradient)


def to_counts(y: Float[np.ndarray, "n 1"], largest_count: float) -> Float[np.ndarray, "n 1"]:
    """From the study's scale, -1 to 1."""
    return np.rint((y + 1) * largest_count / 2)


def fit_counts_locally(
    polynomials: Polynomials,
    x: Float[np.ndarray, "n inputs"] | Prepared,
    counts: Float[np.ndarray, "n 1"],
    largest_count: float,
) -> CountFit:
    """x and counts must be in an order that does not depend on the file's."""
    some = slice(None, None, -(-len(x) // MAX_RECORDS))
    features, chosen = polynomials(x[some]), counts[some, 0]
    basis = polynomials.standard_basis(features.T @ features)
    precisions = np.append(INTERCEPT_PRECISION, LOCAL_PRECISIONS[polynomials.groups])
    standard = features @ basis

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        logs = np.minimum(standard @ weights, LARGEST_LOG_RATE)
        rates = np.exp(logs)
        value = float(np.sum(rates) - chosen @ logs) + 0.5 * float(precisions @ weights**2)
        return value, standard.T @ (rates - chosen) + precisions * weights

    start = np.zeros(standard.shape[1])
    start[0] = np.log(max(float(np.mean(chosen)), 0.5 / len(chosen)))
    found = scipy.optimize.minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": MAX_STEPS})
    weights = (basis @ np.asarray(found.x))[:, None].astype(np.float32).astype(np.float64)
    return CountFit(weights, _gradient(polynomials, x, counts, weights), largest_count)


def _gradient(polynomials: Polynomials, x: np.ndarray | Prepared, counts: np.ndarray, weights: Weights) -> Weights:
    """Of all records at these weights, as they are sent, and rounded as it is sent."""
    found = np.zeros_like(weights)
    for first in range(0, len(x), MAX_RECORDS):
        features = polynomials(x[first : first + MAX_RECORDS])
        rates = np.exp(np.minimum(features @ weights, LARGEST_LOG_RATE))
        found += features.T @ (counts[first : first + MAX_RECORDS] - rates)
    return found.astype(np.float32).astype(np.float64)
