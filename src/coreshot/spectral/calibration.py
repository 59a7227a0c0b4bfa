"""From a head's scores to class probabilities, calibrated on clients that were left out, without a record of anyone.

Scores of least squares are not logits. They estimate class probabilities, less 1 / classes, so their logarithm is one part of a logit: asinh,
which is a logarithm with a floor. And a class shows in all scores, not in its own alone (an O has a high score for 0, too): the other part is
Fisher's linear discriminant in the space of scores. It needs the scores' class means and their covariance within classes; of a group of clients,
under the head of all the others, both follow exactly from the group's moments. What is left is one number, how sure to be. It is the one under
which other clients' class means are most likely: mean scores of the n records of a class, made as noisy as single ones by Gaussian noise of
1 - 1/n of the covariance. Two classes have one score, and need none of this: see `_of_two_classes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.optimize
import scipy.special
from jaxtyping import Float, Int

from coreshot.spectral.coreset import Moments
from coreshot.spectral.evidence import solve

# The two parts, each in its own unit (the floor; the discriminants' deviation): alike on EMNIST-62 (0.96, 2.2) and UNIPEN-62 (0.65, 2.0).
LOGARITHM, DISCRIMINANT = 0.8, 2.1
SHRINKAGE = 0.1  # of the covariance within classes, towards a multiple of the identity
TYPICAL = 2.0  # records' worth of the typical class mean in that of each class, so that a rare or absent one has some
MAX_SPOKEN = 1000  # class means that decide how sure to be: those of the fewest records first, which are the most like single ones
NUM_DRAWS = 4000  # at least so many noisy ones are made of them
PRESENT = 1e-6  # of the largest class, below which another is not there
SCALES = (0.02, 50.0)  # between which it is looked for


@dataclass(frozen=True)
class Link:
    """logits = scale * (logarithm asinh(score / floor) + discriminants), less sure where the head itself is uncertain."""

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
    """Mean features of a client's classes, and of how many records each is the mean."""

    means: Float[np.ndarray, "classes d"]
    labels: Int[np.ndarray, " classes"]
    sizes: Float[np.ndarray, " classes"]

    @classmethod
    def of(cls, moments: Moments) -> ClassMeans:
        products = label_products(moments)
        present = np.flatnonzero(np.diag(products) > 0.5)
        means = (
            np.linalg.pinv(products[np.ix_(present, present)], PRESENT, hermitian=True) @ class_sums(moments).T[present]
        )
        return cls(means.astype(np.float32), present, np.maximum(np.diag(products)[present], 1.0))


Spoken = tuple[int, ClassMeans]  # and of which group: they are seen under the head of the others


def class_sums(moments: Moments) -> Float[np.ndarray, "d outputs"]:
    """Of features; the last line, of the constant one, is the classes' sizes. Labels are centred by 1 / classes."""
    return moments.cross + moments.gram[:, -1:] / moments.num_outputs


def label_products(moments: Moments) -> Float[np.ndarray, "outputs outputs"]:
    """Of one-hot labels with each other: the classes' sizes on the diagonal, and nothing beside it where all rows were sent.

    Where some were left out, labels are no longer one-hot. Class means are then the regression of features on these labels, not sums over sizes:
    what they explain can never be more than there is, and the covariance within classes stays one.
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
class HeldOut:
    """The scores of all clients, each under the head of the other groups: how many of each class, their means, and their second moments."""

    sizes: Float[np.ndarray, " outputs"]
    means: Float[np.ndarray, "classes outputs"]
    second: Float[np.ndarray, "outputs outputs"]  # mean of s s^T
    products: Float[np.ndarray, "classes classes"]  # mean of y y^T, labels y
    heads: dict[int, Float[np.ndarray, "d outputs"]]

    @property
    def within(self) -> Float[np.ndarray, "outputs outputs"]:
        return self.second - self.means.T @ self.products @ self.means

    @property
    def floor(self) -> float:
        """The root mean square of other classes' scores; own ones are left out at their means."""
        own = float(np.sum(self.sizes * np.diag(self.means) ** 2) / np.sum(self.sizes))
        return float(np.sqrt(max(float(np.trace(self.second)) - own, 1e-12) / max(len(self.sizes) - 1, 1)))


def held_out(groups: Sequence[Moments], ridge: float) -> HeldOut:
    """With one group only, nothing can be left out, and it is seen under its own head: too sure of itself, but then nobody knows better."""
    total = sum(groups[1:], groups[0])
    present = [index for index, group in enumerate(groups) if group.num_examples > 0.5]
    outputs, heads = total.num_outputs, {}
    second, sums, products = (np.zeros((outputs, outputs)) for _ in range(3))
    for index in present:
        head = solve(total - groups[index] if len(present) > 1 else total, ridge).mean
        heads[index] = head
        second += head.T @ groups[index].gram @ head
        sums += class_sums(groups[index]).T @ head
        products += label_products(groups[index])
    means = np.linalg.pinv(products, PRESENT, hermitian=True) @ sums
    return HeldOut(
        np.maximum(np.diag(products), 0.0), means, second / total.num_examples, products / total.num_examples, heads
    )


def fit_link(groups: Sequence[Moments], means: Sequence[Spoken], ridge: float) -> Link:
    seen = held_out(groups, ridge)
    link = link_of(seen)
    return link if len(seen.sizes) == 2 else replace(link, scale=_how_sure(link, seen, means))


def link_of(seen: HeldOut) -> Link:
    """As sure as is usual; of two classes, as sure as is right."""
    return _of_two_classes(seen) if len(seen.sizes) == 2 else Link(1.0, seen.floor, *_discriminants(seen))


def _of_two_classes(seen: HeldOut) -> Link:
    """Scores of two classes are one number s, about Gaussian in each: log p(1|s) / p(0|s) = (s - middle) gap / variance + log n_1 / n_0.

    There is nothing left to choose: how sure to be follows from how well clients left out are told apart.
    """
    low, high = seen.means[:, 1]
    variance = max(float(seen.within[1, 1]), 1e-12)
    slope = (high - low) / variance
    shares = np.maximum(seen.sizes, 0.5)
    offset = float(-slope * (low + high) / 2 + np.log(shares[1] / shares[0]))
    return Link(
        1.0, float(np.sqrt(variance)), np.asarray([[0.0, 0.0], [0.0, slope]]), np.asarray([0.0, offset]), logarithm=0.0
    )


def _discriminants(seen: HeldOut) -> tuple[Float[np.ndarray, "outputs outputs"], Float[np.ndarray, " outputs"]]:
    """Fisher's: s P m_c - m_c P m_c / 2, P the inverse covariance within classes; in units of their deviation between classes and records."""
    outputs = len(seen.sizes)
    typical = float(np.sum(seen.sizes * np.diag(seen.means)) / np.sum(seen.sizes)) * np.eye(outputs)
    means = (seen.sizes[:, None] * seen.means + TYPICAL * typical) / (seen.sizes + TYPICAL)[:, None]
    within = (1 - SHRINKAGE) * seen.within + (SHRINKAGE * np.trace(seen.within) / outputs + 1e-12) * np.eye(outputs)
    directions = np.linalg.solve(within, means.T)
    offsets = -0.5 * np.sum(means * directions.T, axis=1)
    # A constant in all classes changes nothing: without it, the mean square over held-out scores follows from their moments.
    directions, offsets = directions - directions.mean(axis=1, keepdims=True), offsets - offsets.mean()
    center = seen.sizes @ seen.means / np.sum(seen.sizes)
    squares = np.sum(directions * (seen.second @ directions), axis=0) + 2 * offsets * (center @ directions) + offsets**2
    unit = DISCRIMINANT / np.sqrt(max(float(np.mean(squares)), 1e-12))
    return unit * directions, unit * offsets


def _how_sure(link: Link, seen: HeldOut, means: Sequence[Spoken]) -> float:
    known = [(group, one) for group, one in means if group in seen.heads]
    if not known:
        return 1.0
    scores = np.concatenate([one.means @ seen.heads[group] for group, one in known])
    labels, sizes = (np.concatenate([getattr(one, name) for _, one in known]) for name in ("labels", "sizes"))
    first = np.argsort(sizes, kind="stable")[:MAX_SPOKEN]
    first = np.tile(first, -(-NUM_DRAWS // len(first)))  # each as often, with other noise
    scores, labels, sizes = scores[first], labels[first], sizes[first]
    values, vectors = np.linalg.eigh(seen.within)
    noise = np.random.default_rng(0).normal(size=scores.shape) @ (vectors * np.sqrt(np.maximum(values, 0))).T
    scores = scores + np.sqrt(1 - 1 / sizes)[:, None] * noise
    parts = link.logits(scores, np.zeros(len(scores)))

    def nll(log_scale: float) -> float:
        logits = np.exp(log_scale) * parts
        return float(-np.mean(logits[np.arange(len(labels)), labels] - scipy.special.logsumexp(logits, axis=1)))

    log_scale = float(scipy.optimize.minimize_scalar(nll, bounds=np.log(SCALES), method="bounded").x)
    # Gaussian noise has fewer outliers than records have. Where it says to be surer than usual, that is believed by half; of single records all.
    trust = 1.0 if log_scale < 0 else 0.5 + 0.5 * float(np.mean(1 / sizes))
    return float(np.exp(trust * log_scale))
