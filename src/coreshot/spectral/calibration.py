"""From a linear head's scores to class probabilities, calibrated on held-out clients from their moments alone.

Scores of least squares are not logits. They estimate class probabilities minus 1 / classes. The logits have two parts:
- asinh of each score, a logarithm with a floor, because a logit is the logarithm of a probability;
- Fisher's linear discriminant (Fisher 1936) in the space of scores, because a class changes the scores of other classes
  too (an O has a high score for 0). It needs the scores' class means and their covariance within classes. For a group
  of clients, under the head that is fitted to all other groups, both follow exactly from the group's moments.

One number remains, the scale of the logits. It maximises the likelihood of clients' class means: the mean score of the
n records of a class plus Gaussian noise of (1 - 1/n) times the covariance within classes, which gives a class mean the
spread of single records. Two classes have one score and a closed form: see `_two_class_link`.

| here                 | meaning                                                        |
|----------------------|----------------------------------------------------------------|
| HeldOutScores        | moments of all clients' scores, each under the others' head    |
| Link                 | logits = scale * (logarithm asinh(score / floor) + discriminant) |
| GroupedClassMeans    | (group, class means of one client in it)                       |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.special
from jaxtyping import Float, Int

from coreshot.models.parallel import map_in_threads
from coreshot.spectral.blocked import factorise_alone
from coreshot.spectral.coreset import Moments, sum_of
from coreshot.spectral.evidence import System, solve_ridge, solve_system
from coreshot.spectral.received import ReceivedRows

# Weights of the two parts, each in its own unit (the floor; the discriminants' deviation). Chosen on clients and
# writers of no table by benchmarks/spectral_constants.py, which varies the second: the scale makes up for the first.
LOGARITHM, DISCRIMINANT = 0.8, 1.5
CAUTION = 0.5  # of a scale above 1, this power is used where class means are of many records
NUM_PROBES = 32  # random signs, for a trace
SHRINKAGE = 0.1  # of the covariance within classes, towards a multiple of the identity
PRIOR_RECORDS = 2.0  # weight, in records, of the typical class mean in each class mean; a rare class is close to it
MAX_CLASS_MEANS = 1000  # used to fit the scale; those of the fewest records, which are most similar to single records
NUM_DRAWS = 4000  # of noise on these class means, at least
MIN_CLASS_SHARE = 1e-6  # of the largest class; a smaller class counts as absent
SCALES = (0.02, 50.0)  # the range of the search


@dataclass(frozen=True)
class Link:
    """logits = scale * (logarithm asinh(score / floor) + discriminant).

    Where the head's variance is large, the floor is larger and the logits are smaller.
    """

    scale: float
    floor: float
    directions: Float[np.ndarray, "outputs outputs"]
    offsets: Float[np.ndarray, " outputs"]
    logarithm: float = LOGARITHM

    def logits(
        self, scores: Float[np.ndarray, "n outputs"], variance: Float[np.ndarray, " n"]
    ) -> Float[np.ndarray, "n outputs"]:
        floor = np.sqrt(self.floor**2 + variance)[:, None]
        parts = self.logarithm * np.arcsinh(scores / floor) + scores @ self.directions + self.offsets
        return self.scale * self.floor / floor * parts

    def slopes(
        self, scores: Float[np.ndarray, "n outputs"], variance: Float[np.ndarray, " n"]
    ) -> Float[np.ndarray, "n logits scores"]:
        floor = np.sqrt(self.floor**2 + variance)[:, None]
        own = self.logarithm / np.sqrt(scores**2 + floor**2)
        slopes = own[:, :, None] * np.eye(scores.shape[1]) + self.directions.T
        return (self.scale * self.floor / floor)[:, :, None] * slopes


@dataclass(frozen=True)
class ClassMeans:
    """Mean features of a client's classes, and the number of records of each."""

    means: Float[np.ndarray, "classes d"]
    labels: Int[np.ndarray, " classes"]
    sizes: Float[np.ndarray, " classes"]

    @classmethod
    def from_moments(cls, moments: Moments) -> ClassMeans:
        return cls._from_sums(label_products(moments), class_sums(moments))

    @classmethod
    def from_rows(cls, received: ReceivedRows) -> ClassMeans:
        """The same; of the moments, only the constant's and the labels' columns are made."""
        rows, constant, outputs = received.rows, received.dimension - 1, received.num_outputs
        last = rows.T @ rows[:, constant:]
        features, labels = last[: constant + 1], last[constant + 1 :, 1:]
        shift = last[constant + 1 :, 0] / outputs
        products = labels + shift[:, None] + shift + last[constant, 0] / outputs**2
        return cls._from_sums(products, features[:, 1:] + features[:, :1] / outputs)

    @classmethod
    def _from_sums(
        cls, products: Float[np.ndarray, "outputs outputs"], sums: Float[np.ndarray, "d outputs"]
    ) -> ClassMeans:
        present = np.flatnonzero(np.diag(products) > 0.5)
        inverse = np.linalg.pinv(products[np.ix_(present, present)], MIN_CLASS_SHARE, hermitian=True)
        means = inverse @ sums.T[present]
        return cls(means.astype(np.float32), present, np.maximum(np.diag(products)[present], 1.0))


GroupedClassMeans = tuple[int, ClassMeans]  # (group, class means): scored under the head of the other groups


def class_sums(moments: Moments) -> Float[np.ndarray, "d outputs"]:
    """Sums of features by class. The last row belongs to the constant feature: it is the classes' sizes.

    The moments' labels are one-hot vectors minus 1 / classes.
    """
    return moments.cross + moments.gram[:, -1:] / moments.num_outputs


def label_products(moments: Moments) -> Float[np.ndarray, "outputs outputs"]:
    """Y^T Y of one-hot labels: diagonal, with the classes' sizes, if the client sent all rows.

    If some rows were left out, labels are not one-hot. Class means are then the regression of features on these labels,
    not sums divided by sizes, so that the covariance within classes stays positive semidefinite.
    """
    size, constant = moments.dimension, moments.dimension - 1
    shift = moments.joint[constant, size:] / moments.num_outputs
    return (
        moments.joint[size:, size:]
        + shift[:, None]
        + shift
        + moments.joint[constant, constant] / moments.num_outputs**2
    )


@dataclass(frozen=True)
class HeldOutScores:
    """Class sizes, class means and second moments of all clients' scores, each under the head of the other groups."""

    sizes: Float[np.ndarray, " outputs"]
    means: Float[np.ndarray, "classes outputs"]
    second: Float[np.ndarray, "outputs outputs"]  # mean of s s^T
    products: Float[np.ndarray, "classes classes"]  # mean of y y^T, labels y
    heads: dict[int, Float[np.ndarray, "d outputs"]]
    # The heads' mean variance at records of clients that they have not seen; 0: not known. A new client differs from
    # those that were seen, so that its features lie where the head's variance is larger than at the others' records.
    variance: float = 0.0

    @property
    def within(self) -> Float[np.ndarray, "outputs outputs"]:
        return self.second - self.means.T @ self.products @ self.means

    @property
    def floor(self) -> float:
        """The root mean square of the scores of other classes; the own class's scores are taken at their means."""
        own = float(np.sum(self.sizes * np.diag(self.means) ** 2) / np.sum(self.sizes))
        return float(np.sqrt(max(float(np.trace(self.second)) - own, 1e-12) / max(len(self.sizes) - 1, 1)))


def score_held_out(groups: Sequence[Moments], ridge: float, total: Moments | None = None) -> HeldOutScores:
    """A single group is scored under its own head, which makes it overconfident: there is no other data. `total` is the
    sum of the groups, where it is known."""
    total = sum_of(groups) if total is None else total
    present = [index for index, group in enumerate(groups) if group.num_examples > 0.5]

    def scored(index: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
        own = groups[index]
        if len(present) > 1:
            solution = solve_system(System.without(total, own), ridge, factorise_alone)
        else:
            solution = solve_ridge(total, ridge)
        head, products = solution.mean, own.gram @ solution.mean
        variance = solution.noise_variance * _sum_leverage(solution.factor, own.gram)
        return head, head.T @ products, class_sums(own).T @ head, variance

    found = map_in_threads(scored, present)
    heads = {index: head for index, (head, *_) in zip(present, found, strict=True)}
    second, sums = np.sum([one[1] for one in found], axis=0), np.sum([one[2] for one in found], axis=0)
    products = np.sum([label_products(groups[index]) for index in present], axis=0)
    variance = sum(one[3] for one in found)
    means = np.linalg.pinv(products, MIN_CLASS_SHARE, hermitian=True) @ sums
    return HeldOutScores(
        np.maximum(np.diag(products), 0.0),
        means,
        second / total.num_examples,
        products / total.num_examples,
        heads,
        variance / total.num_examples,
    )


def _sum_leverage(factor: Float[np.ndarray, "d d"], gram: Float[np.ndarray, "d d"]) -> float:
    """The sum of phi^T (L L^T)^-1 phi over the records of a Gram matrix: a trace, by random signs (Hutchinson 1990)."""
    signs = np.random.default_rng(0).choice((-1.0, 1.0), size=(len(factor), NUM_PROBES))
    seen = scipy.linalg.solve_triangular(factor, signs, lower=True, trans="T", check_finite=False)
    return float(np.sum(seen * (gram @ seen))) / NUM_PROBES


def fit_link(
    groups: Sequence[Moments], means: Sequence[GroupedClassMeans], ridge: float, total: Moments | None = None
) -> Link:
    seen = score_held_out(groups, ridge, total)
    link = link_from_scores(seen)
    return link if len(seen.sizes) == 2 else replace(link, scale=_fit_scale(link, seen, means))


def link_from_scores(seen: HeldOutScores, discriminant: float = DISCRIMINANT) -> Link:
    """Scale 1; a closed-form logistic link for two classes."""
    if len(seen.sizes) == 2:
        return _two_class_link(seen)
    return Link(1.0, seen.floor, *_discriminants(seen, discriminant))


def _two_class_link(seen: HeldOutScores) -> Link:
    """The scores of two classes are one number s, about Gaussian in each class.

    So log p(1|s) / p(0|s) = (s - middle) gap / variance + log n_1 / n_0, and no scale is left to fit.
    """
    low, high = seen.means[:, 1]
    variance = max(float(seen.within[1, 1]), 1e-12)
    slope = (high - low) / variance
    shares = np.maximum(seen.sizes, 0.5)
    offset = float(-slope * (low + high) / 2 + np.log(shares[1] / shares[0]))
    return Link(
        1.0, float(np.sqrt(variance)), np.asarray([[0.0, 0.0], [0.0, slope]]), np.asarray([0.0, offset]), logarithm=0.0
    )


def _discriminants(
    seen: HeldOutScores, weight: float
) -> tuple[Float[np.ndarray, "outputs outputs"], Float[np.ndarray, " outputs"]]:
    """Directions and offsets of Fisher's discriminants s P m_c - m_c P m_c / 2, P = inverse covariance within classes.

    They are scaled to root mean square `weight` over held-out scores and classes.
    """
    outputs = len(seen.sizes)
    typical = float(np.sum(seen.sizes * np.diag(seen.means)) / np.sum(seen.sizes)) * np.eye(outputs)
    means = (seen.sizes[:, None] * seen.means + PRIOR_RECORDS * typical) / (seen.sizes + PRIOR_RECORDS)[:, None]
    within = (1 - SHRINKAGE) * seen.within + (SHRINKAGE * np.trace(seen.within) / outputs + 1e-12) * np.eye(outputs)
    directions = np.linalg.solve(within, means.T)
    offsets = -0.5 * np.sum(means * directions.T, axis=1)
    # A constant that all classes share does not change probabilities. Without it, the mean square over held-out scores
    # follows from their moments.
    directions, offsets = directions - directions.mean(axis=1, keepdims=True), offsets - offsets.mean()
    center = seen.sizes @ seen.means / np.sum(seen.sizes)
    squares = np.sum(directions * (seen.second @ directions), axis=0) + 2 * offsets * (center @ directions) + offsets**2
    unit = weight / np.sqrt(max(float(np.mean(squares)), 1e-12))
    return unit * directions, unit * offsets


def _fit_scale(link: Link, seen: HeldOutScores, means: Sequence[GroupedClassMeans]) -> float:
    """The scale under which class means, with noise that makes them as spread as single records, are most likely.

    Under the variance that the heads have at records of clients they have not seen, as the link will meet it.
    """
    known = [(group, one) for group, one in means if group in seen.heads]
    if not known:
        return 1.0
    scores = np.concatenate([one.means @ seen.heads[group] for group, one in known])
    labels = np.concatenate([one.labels for _, one in known])
    sizes = np.concatenate([one.sizes for _, one in known])
    first = np.argsort(sizes, kind="stable")[:MAX_CLASS_MEANS]
    first = np.tile(first, -(-NUM_DRAWS // len(first)))  # each equally often, with different noise
    scores, labels, sizes = scores[first], labels[first], sizes[first]
    values, vectors = np.linalg.eigh(seen.within)
    noise = np.random.default_rng(0).normal(size=scores.shape) @ (vectors * np.sqrt(np.maximum(values, 0))).T
    scores = scores + np.sqrt(1 - 1 / sizes)[:, None] * noise
    parts = link.logits(scores, np.full(len(scores), seen.variance))

    def nll(log_scale: float) -> float:
        logits = np.exp(log_scale) * parts
        return float(-np.mean(logits[np.arange(len(labels)), labels] - scipy.special.logsumexp(logits, axis=1)))

    log_scale = float(scipy.optimize.minimize_scalar(nll, bounds=np.log(SCALES), method="bounded").x)
    # Halve log_scale > 0: Gaussian noise understates outliers. The more class means are single records, the less.
    trust = 1.0 if log_scale < 0 else CAUTION + (1 - CAUTION) * float(np.mean(1 / sizes))
    return float(np.exp(trust * log_scale))
