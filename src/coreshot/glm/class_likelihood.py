"""The log likelihood of softmax(phi W) over all sites, for any weights W, from sums of each site and class.

A site says, for each class, how many records it has, and the mean and the covariance of their features. If these
features were Gaussian, the scores phi W of a class would be Gaussian for every W, and the expected log likelihood of
its records would follow. At W = 0 it is exact in value, gradient and curvature, whatever the distribution is.
Each site also measures the exact gradient at its own fit and sends it; a term that is linear in W makes the gradient
exact there, too. So neither a site whose own fit is far from the common one, nor a site with a single class, says
anything wrong, as a quadratic around its own fit would.

| symbol                | here                                                                              |
|-----------------------|-----------------------------------------------------------------------------------|
| n_c, mu_c, Sigma_c    | sizes, means, covariances of a site's classes; Sigma may be common to all classes |
| p_c, Q_c              | expected probabilities of a record of class c, and expected diag(p) - p p^T       |
| gradient              | sum of n_c (mu_c (e_c - p_c)^T - Sigma_c W Q_c), by Price's theorem (1958)        |
| correction            | the exact gradient at a site's own fit minus this one                             |

The function is concave: it is a mean of concave functions, plus a linear one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.special
from jaxtyping import Float, Int

NUM_NODES = 121  # of the trapezoidal rule, for two classes: a logistic curve is seen also in scores of deviation 20
LARGEST_NODE = 6.0  # deviations
SMALLEST_DEVIATION = 1e-3  # of scores; below it, they are taken as constant
NUM_DRAWS = 800  # of the scores of a class, for more than two: with few, large scores have noisy gradients
MIN_CLASS_SHARE = 1e-6  # of the largest class; a smaller class counts as absent

Weights = Float[np.ndarray, "d logits"]


@dataclass(frozen=True)
class SiteClasses:
    """Features include the constant. Two classes have one logit."""

    sizes: Float[np.ndarray, " classes"]
    means: Float[np.ndarray, "classes d"]
    covariances: Float[np.ndarray, "matrices d d"]  # of each class, or one for all of them
    correction: Weights

    @classmethod
    def from_class_moments(cls, class_moments: Float[np.ndarray, "classes d d"]) -> SiteClasses:
        """Each matrix is the sum of products of the features of a class's records; the first entry is their number."""
        sizes = class_moments[:, 0, 0]
        known = np.where(sizes > 0, sizes, 1.0)[:, None]
        means = class_moments[:, 0] / known
        covariances = class_moments / known[..., None] - means[:, :, None] * means[:, None]
        return cls(sizes, means, covariances, _no_correction(class_moments))

    @classmethod
    def from_moments(cls, moments: Float[np.ndarray, "entries entries"], num_outputs: int) -> SiteClasses:
        """From sums of products of features and labels: one covariance for all classes.

        Rounded labels are not quite one-hot. The regression on them, instead of sums over sizes, keeps the covariance
        positive."""
        size = len(moments) - num_outputs
        inverse = np.linalg.pinv(moments[size:, size:], MIN_CLASS_SHARE, hermitian=True)
        means = inverse @ moments[size:, :size]
        within = moments[:size, :size] - means.T @ moments[size:, size:] @ means
        sizes = np.maximum(moments[0, size:], 0.0)
        covariance = within / moments[0, 0]
        return cls(
            sizes, means, covariance[None], _no_correction(np.broadcast_to(covariance, (num_outputs, size, size)))
        )

    def corrected(self, weights: Weights, gradient: Weights) -> SiteClasses:
        """With the exact gradient at these weights."""
        return replace(self, correction=gradient - stack([self]).at(weights).gradient)

    def in_basis(self, basis: Float[np.ndarray, "d d"]) -> SiteClasses:
        """For features @ basis."""
        return SiteClasses(
            self.sizes, self.means @ basis, basis.T @ self.covariances @ basis, basis.T @ self.correction
        )

    def linear_part(self, num_inputs: int) -> SiteClasses:
        """Of the constant and the inputs, which are the first features."""
        kept = slice(num_inputs + 1)
        return SiteClasses(self.sizes, self.means[:, kept], self.covariances[:, kept, kept], self.correction[kept])


def pool(one: SiteClasses, other: SiteClasses) -> SiteClasses:
    """Of the records of both together, as one site. Means are subtracted before they are multiplied, so that no digits
    are lost where they are far from 0."""
    sizes = one.sizes + other.sizes
    known = np.where(sizes > 0, sizes, 1.0)
    difference = other.means - one.means
    means = one.means + (other.sizes / known)[:, None] * difference
    between = (one.sizes * other.sizes / known)[:, None, None] * difference[:, :, None] * difference[:, None]
    if len(one.covariances) == 1:  # common to all classes
        within = np.sum(one.sizes) * one.covariances + np.sum(other.sizes) * other.covariances
        covariances = (within + np.sum(between, axis=0)) / np.sum(sizes)
    else:
        within = one.sizes[:, None, None] * one.covariances + other.sizes[:, None, None] * other.covariances
        covariances = (within + between) / known[:, None, None]
    return SiteClasses(sizes, means, covariances, one.correction + other.correction)


def _no_correction(of_classes: Float[np.ndarray, "classes d d"]) -> Weights:
    num_classes, size = of_classes.shape[:2]
    return np.zeros((size, 1 if num_classes == 2 else num_classes))


@dataclass(frozen=True)
class Slope:
    """At some weights: the gradient, and what the curvature is made of."""

    gradient: Weights
    probabilities: Float[np.ndarray, "cells logits"]  # expected, of a record of each cell
    curvatures: Float[np.ndarray, "cells logits logits"]  # n_c Q_c
    summed: Float[np.ndarray, "matrices logits logits"]  # the same, summed over the cells of each covariance


@dataclass(frozen=True)
class ClassLikelihood:
    """A cell is a class at a site. `which` is the covariance of a cell."""

    sizes: Float[np.ndarray, " cells"]
    targets: Float[np.ndarray, "cells logits"]
    means: Float[np.ndarray, "cells d"]
    which: Int[np.ndarray, " cells"]
    covariances: Float[np.ndarray, "matrices d d"]
    correction: Weights

    def at(self, weights: Weights) -> Slope:
        spread = self.covariances @ weights
        expected, squares = _expect(self.means @ weights, (weights.T @ spread)[self.which])
        curvatures = self.sizes[:, None, None] * squares
        summed = np.zeros((len(self.covariances), *squares.shape[1:]))
        np.add.at(summed, self.which, curvatures)
        gradient = self.means.T @ (self.sizes[:, None] * (self.targets - expected))
        gradient = gradient - np.sum(spread @ summed, axis=0) + self.correction
        return Slope(gradient, expected, curvatures, summed)

    def curvature_times(self, slope: Slope, direction: Weights) -> Weights:
        of_means = np.einsum("cl,clk->ck", self.means @ direction, slope.curvatures)
        return np.sum(self.covariances @ (direction @ slope.summed), axis=0) + self.means.T @ of_means

    def curvature_blocks(self, slope: Slope) -> Float[np.ndarray, "logits d d"]:
        """Of each logit, the others held fixed."""
        diagonal = np.einsum("mkk->km", slope.summed)
        of_means = np.einsum("ckk->kc", slope.curvatures)
        blocks = np.tensordot(diagonal, self.covariances, axes=1)
        return blocks + np.stack([(self.means.T * row) @ self.means for row in of_means])


def stack(sites: Sequence[SiteClasses]) -> ClassLikelihood:
    cells, matrices = [], []
    num_matrices = 0
    for site in sites:
        num_classes, num_logits = len(site.sizes), site.correction.shape[1]
        targets = np.eye(num_classes)[:, num_classes - num_logits :]
        common = len(site.covariances) == 1
        for label in np.flatnonzero(site.sizes > MIN_CLASS_SHARE * np.max(site.sizes)):
            cells.append(
                (site.sizes[label], targets[label], site.means[label], num_matrices + (0 if common else label))
            )
        matrices.append(site.covariances)
        num_matrices += len(site.covariances)
    sizes, targets, means, which = (np.asarray(part) for part in zip(*cells, strict=True))
    correction = np.sum([site.correction for site in sites], axis=0)
    return ClassLikelihood(sizes, targets, means, which, np.concatenate(matrices), correction)


def _expect(
    mean: Float[np.ndarray, "cells logits"], covariance: Float[np.ndarray, "cells logits logits"]
) -> tuple[Float[np.ndarray, "cells logits"], Float[np.ndarray, "cells logits logits"]]:
    """Expected probabilities, and expected diag(p) - p p^T, of Gaussian scores."""
    nodes, node_weights = _nodes(mean.shape[1])
    if mean.shape[1] == 1:
        deviation = np.sqrt(np.maximum(covariance[:, 0], 0.0))
        probabilities = scipy.special.expit(mean + deviation * nodes[:, 0])
        expected = probabilities @ node_weights
        # E[p (1 - p)] is E[z p] / deviation (Stein). In this form the gradient is that of the quadrature's own value.
        squares = (probabilities * nodes[:, 0]) @ node_weights / np.maximum(deviation[:, 0], SMALLEST_DEVIATION)
        squares = np.where(deviation[:, 0] > SMALLEST_DEVIATION, squares, expected * (1 - expected))
        return expected[:, None], squares[:, None, None]
    values, vectors = np.linalg.eigh(covariance)
    roots = (vectors * np.sqrt(np.maximum(values, 0.0))[:, None]) @ np.swapaxes(vectors, 1, 2)
    probabilities = scipy.special.softmax(mean[:, None] + nodes @ roots, axis=2)
    expected = node_weights @ probabilities
    products = np.swapaxes(probabilities, 1, 2) @ (probabilities * node_weights[:, None])
    return expected, expected[:, :, None] * np.eye(mean.shape[1]) - products


def _nodes(num_logits: int) -> tuple[Float[np.ndarray, "nodes logits"], Float[np.ndarray, " nodes"]]:
    """Of a standard normal distribution: quadrature, or draws that are the same on every machine."""
    if num_logits == 1:
        nodes = np.linspace(-LARGEST_NODE, LARGEST_NODE, NUM_NODES)
        density = np.exp(-0.5 * nodes**2)
        return nodes[:, None], density / np.sum(density)
    draws = np.random.default_rng(0).normal(size=(NUM_DRAWS // 2, num_logits))
    return np.concatenate([draws, -draws]), np.full(NUM_DRAWS, 1 / NUM_DRAWS)
