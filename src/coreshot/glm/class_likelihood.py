"""The log likelihood of softmax(phi W) over all sites, for any weights W, from sums of each site and class.

A site says, for each class, how many records it has, and the mean and the covariance of their features; of two classes,
the means of groups of records with similar scores (`score_groups`), and the covariance within them. If these features
were Gaussian, the scores phi W of a group would be Gaussian for every W, and the expected log likelihood of its records
would follow. At W = 0 it is exact in value, gradient and curvature, whatever the distribution is.
Each site also measures the exact gradient at its own fit and sends it; a term that is linear in W makes the gradient
exact there, too. So neither a site whose own fit is far from the common one, nor a site with a single class, says
anything wrong, as a quadratic around its own fit would.

| symbol                | here                                                                              |
|-----------------------|-----------------------------------------------------------------------------------|
| n_c, mu_c, Sigma_c    | sizes, means of a site's groups, covariances; Sigma may be common to all classes  |
| p_c, Q_c              | expected probabilities of a record of a group, and expected diag(p) - p p^T       |
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

from coreshot.glm.score_groups import MAX_GROUPS

NUM_NODES = 121  # of the trapezoidal rule, for two classes: a logistic curve is seen also in scores of deviation 20
LARGEST_NODE = 6.0  # deviations
SMALLEST_DEVIATION = 1e-3  # of scores; below it, they are taken as constant
NUM_DRAWS = 800  # of the scores of a class, for more than two: with few, large scores have noisy gradients
MIN_CLASS_SHARE = 1e-6  # of the largest class; a smaller class counts as absent

Weights = Float[np.ndarray, "d logits"]


@dataclass(frozen=True)
class SiteClasses:
    """Features include the constant. Two classes have one logit. A cell is a group of records of one class."""

    labels: Int[np.ndarray, " cells"]
    places: Int[np.ndarray, " cells"]  # among the groups of the class, by their scores, from 0 to MAX_GROUPS
    sizes: Float[np.ndarray, " cells"]
    means: Float[np.ndarray, "cells d"]
    covariances: Float[np.ndarray, "matrices d d"]  # within the groups of each class, or one for all classes
    correction: Weights

    @classmethod
    def from_class_moments(cls, class_moments: Sequence[np.ndarray], size: int) -> SiteClasses:
        """Each matrix is the sum of products of [g, phi] over a class's records, or of [1, phi], which is one group."""
        parts = [_split_groups(moments, size) for moments in class_moments]
        labels = np.repeat(np.arange(len(parts)), [len(sizes) for sizes, _, _ in parts])
        places = np.concatenate([_places(len(sizes)) for sizes, _, _ in parts])
        sizes, means = (np.concatenate([part[entry] for part in parts]) for entry in (0, 1))
        covariances = np.stack([covariance for _, _, covariance in parts])
        return cls(labels, places, sizes, means, covariances, _no_correction(covariances))

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
        none = _no_correction(np.broadcast_to(covariance, (num_outputs, size, size)))
        labels = np.arange(num_outputs)
        return cls(labels, 0 * labels, sizes, means, covariance[None], none)

    def corrected(self, weights: Weights, gradient: Weights) -> SiteClasses:
        """With the exact gradient at these weights."""
        return replace(self, correction=gradient - stack([self]).at(weights).gradient)

    def in_basis(self, basis: Float[np.ndarray, "d d"]) -> SiteClasses:
        """For features @ basis."""
        covariances = basis.T @ self.covariances @ basis
        return replace(self, means=self.means @ basis, covariances=covariances, correction=basis.T @ self.correction)

    def linear_part(self, num_inputs: int) -> SiteClasses:
        """Of the constant and the inputs, which are the first features."""
        kept = slice(num_inputs + 1)
        covariances = self.covariances[:, kept, kept]
        return replace(self, means=self.means[:, kept], covariances=covariances, correction=self.correction[kept])

    @property
    def num_classes(self) -> int:
        return max(self.correction.shape[1], 2)

    @property
    def class_sizes(self) -> Float[np.ndarray, " classes"]:
        return np.bincount(self.labels, self.sizes, self.num_classes)

    def at_keys(self, keys: Int[np.ndarray, " keys"]) -> tuple[np.ndarray, np.ndarray]:
        """Sizes and means of the cells of these labels and places; a cell that is not there has no records."""
        sizes, means = np.zeros(len(keys)), np.zeros((len(keys), self.means.shape[1]))
        found = np.searchsorted(keys, self.keys)
        sizes[found], means[found] = self.sizes, self.means
        return sizes, means

    @property
    def keys(self) -> Int[np.ndarray, " cells"]:
        return self.labels * MAX_GROUPS + self.places


def _split_groups(
    moments: Float[np.ndarray, "entries entries"], size: int
) -> tuple[Float[np.ndarray, " groups"], Float[np.ndarray, "groups {size}"], Float[np.ndarray, "{size} {size}"]]:
    """Sizes and means of the groups of a class, and the covariance within them; all with the constant."""
    num_groups = len(moments) - size + 1
    sizes = np.diag(moments)[:num_groups]
    known = np.where(sizes > 0, sizes, 1.0)[:, None]
    means = np.ones((num_groups, size))
    means[:, 1:] = moments[:num_groups, num_groups:] / known
    covariance = np.zeros((size, size))
    within = moments[num_groups:, num_groups:] - (means[:, 1:].T * sizes) @ means[:, 1:]
    covariance[1:, 1:] = within / max(np.sum(sizes), 1e-300)
    return sizes, means, covariance


def _places(num_groups: int) -> Int[np.ndarray, " groups"]:
    """Fewer groups are spread over all places, so that those of other sites with similar scores have the same ones."""
    return ((np.arange(num_groups) + 0.5) * MAX_GROUPS / num_groups).astype(np.int64)


def pool(one: SiteClasses, other: SiteClasses) -> SiteClasses:
    """Of the records of both together, as one site. Means are subtracted before they are multiplied, so that no digits
    are lost where they are far from 0."""
    keys = np.union1d(one.keys, other.keys)
    (size, mean), (other_size, other_mean) = one.at_keys(keys), other.at_keys(keys)
    sizes = size + other_size
    known = np.where(sizes > 0, sizes, 1.0)
    difference = other_mean - mean
    means = mean + (other_size / known)[:, None] * difference
    spread = size * other_size / known
    labels = keys // MAX_GROUPS
    weights = [site.class_sizes if len(site.covariances) > 1 else np.sum(site.sizes)[None] for site in (one, other)]
    scatter = weights[0][:, None, None] * one.covariances + weights[1][:, None, None] * other.covariances
    for matrix in range(len(scatter)):
        own = labels == matrix if len(scatter) > 1 else slice(None)
        scatter[matrix] += (difference[own].T * spread[own]) @ difference[own]
    total = weights[0] + weights[1]
    covariances = scatter / np.where(total > 0, total, 1.0)[:, None, None]
    return SiteClasses(labels, keys % MAX_GROUPS, sizes, means, covariances, one.correction + other.correction)


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
    """A cell is a group of records of one class at a site. `which` is the covariance of a cell."""

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
    parts = list[tuple[np.ndarray, ...]]()
    num_matrices = 0
    for site in sites:
        targets = np.eye(site.num_classes)[:, -site.correction.shape[1] :]
        kept = np.flatnonzero(site.sizes > MIN_CLASS_SHARE * np.max(site.sizes))
        labels = site.labels[kept]
        which = num_matrices + (labels if len(site.covariances) > 1 else 0 * labels)
        parts.append((site.sizes[kept], targets[labels], site.means[kept], which))
        num_matrices += len(site.covariances)
    sizes, targets, means, which = (np.concatenate(part) for part in zip(*parts, strict=True))
    correction = np.sum([site.correction for site in sites], axis=0)
    covariances = np.concatenate([site.covariances for site in sites])
    return ClassLikelihood(sizes, targets, means, which, covariances, correction)


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
