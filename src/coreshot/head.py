"""A Bayesian linear head on fixed features: prior N(0, sigma^2 / ridge), likelihood N(W^T phi(x), sigma^2) of targets or centred one-hot labels.

Everything about it is exact and comes from second moments alone: mean, variance, evidence, the scores of clients left out. Class probabilities
need a link on top, since scores of least squares are not logits: see `Link`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.special
from jaxtyping import Float

from coreshot.features import FeatureMap
from coreshot.moments import Moments
from coreshot.types import Points, Predictive

Kind = Literal["classification", "regression"]
RIDGES = (1e-7, 1e2)  # between which the ridge is looked for, times the features' mean square and the number of observations
RIDGE_TOLERANCE = 0.1  # of its logarithm
MAX_EVALUATIONS = 20
SHARPNESS = (0.1, 20.0)  # between which the link's exponent is looked for
DEFAULT_SHARPNESS = 2.0  # where no client could say: between the 2.1 of single clients of EMNIST-62 and the 1.5 of two classes
MAX_LOCAL = 2000  # records from which a client finds its sharpness: the cost is cubic
LOCAL_RIDGES = tuple(10.0**power for power in range(-5, 2))


@dataclass(frozen=True)
class Solution:
    """The head's posterior for one ridge: mean W, noise variance (where the evidence is largest), log evidence; float64."""

    mean: Float[np.ndarray, "d outputs"]
    factor: Float[np.ndarray, "d d"]  # lower Cholesky factor of the gram matrix + ridge: the posterior covariance is noise_variance times its inverse
    ridge: float
    noise_variance: float
    log_evidence: float


def solve(moments: Moments, ridge: float) -> Solution:
    """Closed form. The evidence is profiled over the noise: sigma^2 = (|Y|^2 - tr W^T B) / (N outputs)."""
    factor = scipy.linalg.cholesky(moments.gram + ridge * np.eye(moments.dimension), lower=True, overwrite_a=True, check_finite=False)
    mean = scipy.linalg.cho_solve((factor, True), moments.cross, check_finite=False)
    count = moments.num_examples * moments.num_outputs
    # Rounding, or rows that leave more of the labels out than of the features, may bring the residual to 0 or below.
    noise_variance = max(moments.label_energy - float(np.sum(mean * moments.cross)), 1e-9 * moments.label_energy + 1e-300) / count
    log_det = 2 * np.sum(np.log(np.diag(factor)))
    complexity = moments.num_outputs * (log_det - moments.dimension * np.log(ridge))
    return Solution(mean, factor, ridge, noise_variance, -0.5 * (complexity + count * (np.log(2 * np.pi * noise_variance) + 1)))


def most_evident(moments: Moments) -> Solution:
    """The ridge, which is prior precision times noise variance, by evidence: one number, by Brent's method on its logarithm."""
    scale = float(np.trace(moments.gram)) / moments.dimension
    low, high = np.log(scale * RIDGES[0]), np.log(scale * RIDGES[1])
    found = scipy.optimize.minimize_scalar(
        lambda log_ridge: -solve(moments, float(np.exp(log_ridge))).log_evidence,
        bounds=(low, high),
        method="bounded",
        options={"xatol": RIDGE_TOLERANCE, "maxiter": MAX_EVALUATIONS},
    )
    return solve(moments, float(np.exp(found.x)))


@dataclass(frozen=True)
class Link:
    """From scores to class probabilities: softmax of sharpness * asinh(score / floor), where the floor grows with a point's own variance.

    A score of least squares is an estimate of its class's probability, less 1 / classes, so its logarithm, not itself, is the logit: the other
    classes' scores scatter around 0 by `floor`; above that asinh is a logarithm, below it is linear. The floor comes from clients left out, and is
    exact. The sharpness, which hardly depends on how many clients there are, is the mean of what they found by leaving out single records.
    """

    sharpness: float
    floor: float

    def logits(self, scores: Float[np.ndarray, "n outputs"], variance: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n outputs"]:
        return self.sharpness * np.arcsinh(scores / np.sqrt(self.floor**2 + variance)[:, None])

    def slopes(self, scores: Float[np.ndarray, "n outputs"], variance: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n outputs"]:
        return self.sharpness / np.sqrt(scores**2 + (self.floor**2 + variance)[:, None])


def held_out_floor(groups: Sequence[Moments], ridge: float, offset: float) -> float:
    """The root mean square of scores of classes that a point is not of, for each group of clients under the head of all the others.

    tr W^T G W is the sum of all squared scores of a group, exactly. Those of the points' own classes are left out at their means, W^T of the sums
    of features by class, which the moments know too.
    """
    total = sum(groups[1:], groups[0])
    squares, count = 0.0, 0.0
    for group in groups:
        others = total - group
        if group.num_examples <= 0 or others.num_examples <= 0:
            continue
        mean = solve(others, ridge).mean
        class_sums = group.cross + offset * group.gram[:, -1:]  # of the features; the last is the constant one
        sizes = np.maximum(class_sums[-1], 1e-9)
        own = np.sum(mean * class_sums, axis=0)  # sums of the own class's scores
        squares += float(np.sum(mean * (group.gram @ mean)) - np.sum(own**2 / sizes))
        count += group.num_examples * (group.num_outputs - 1)
    if not count:
        return 1.0 / total.num_outputs  # one group: nothing was left out, and chance has to do
    return float(np.sqrt(max(squares / count, 1e-12)))


def local_sharpness(features: Float[np.ndarray, "n d"], labels: Float[np.ndarray, "n outputs"]) -> float | None:
    """The exponent with which a client's own records, each left out in turn, are most likely under its own head; None where it has too few to say.

    Leaving one out is exact and needs no second fit: with H the hat matrix, its score is (H y - h y) / (1 - h).
    """
    features, labels = features[:MAX_LOCAL].astype(np.float64), labels[:MAX_LOCAL].astype(np.float64)
    classes = labels.argmax(axis=1)
    if len(features) < 4 or len(np.unique(classes)) < 2:
        return None
    values, vectors = np.linalg.eigh(features @ features.T)
    values, projected = np.maximum(values, 0), vectors.T @ labels
    best = None
    for ridge in values.mean() * np.asarray(LOCAL_RIDGES):
        shrunk = values / (values + ridge)
        leverage = ((vectors**2) @ shrunk)[:, None]
        scores = (vectors @ (shrunk[:, None] * projected) - leverage * labels) / (1 - leverage)
        error = float(np.sum((scores - labels) ** 2))
        if best is None or error < best[0]:
            best = error, scores
    assert best is not None
    return _sharpest(best[1], classes)


def _sharpest(scores: Float[np.ndarray, "n outputs"], classes: np.ndarray) -> float:
    own = scores[np.arange(len(scores)), classes]
    sums, sizes = np.bincount(classes, own), np.bincount(classes)
    squares = np.sum(scores**2) - np.sum(sums**2 / np.maximum(sizes, 1))  # as `held_out_floor` does it, which cannot tell single records
    shape = np.arcsinh(scores / (np.sqrt(squares / (scores.size - len(scores))) + 1e-12))

    def nll(log_sharpness: float) -> float:
        logits = np.exp(log_sharpness) * shape
        return float(-np.mean(logits[np.arange(len(scores)), classes] - scipy.special.logsumexp(logits, axis=1)))

    return float(np.exp(scipy.optimize.minimize_scalar(nll, bounds=np.log(SHARPNESS), method="bounded").x))


@dataclass(frozen=True)
class HeadPosterior:
    """The exact posterior of the head, over a feature map."""

    feature_map: FeatureMap
    kind: Kind
    mean: Float[np.ndarray, "d outputs"]
    root: Float[np.ndarray, "d d"]  # inverse of the Cholesky factor: a point's variance is noise_variance * |root phi|^2
    ridge: float
    noise_variance: float
    link: Link | None  # None: regression

    def arrays(self) -> dict[str, np.ndarray]:
        """All but the feature map, which the study draws again; the inverse is `head_of`."""
        link = [self.link.sharpness, self.link.floor] if self.link else []
        return {"mean": self.mean, "root": self.root.astype(np.float32), "numbers": np.asarray([self.ridge, self.noise_variance, *link])}

    def scores(self, x: Float[np.ndarray, "n ..."]) -> tuple[Float[np.ndarray, "n outputs"], Float[np.ndarray, " n"]]:
        """Mean and variance of W^T phi(x); the variance is the same for all outputs."""
        features = self.feature_map(x)
        leverage = np.sum((features @ self.root.T.astype(np.float32)) ** 2, axis=1)
        return (features @ self.mean.astype(np.float32)).astype(np.float64), self.noise_variance * leverage.astype(np.float64)

    def novelty(self, x: Float[np.ndarray, "n ..."]) -> Float[np.ndarray, " n"]:
        """How far an input is from all that the clients saw: the head's deviation there over the noise's."""
        return np.sqrt(self.scores(x)[1] / self.noise_variance)

    def predict(self, x: Float[np.ndarray, "n ..."]) -> Predictive:
        scores, variance = self.scores(x)
        deviation = np.sqrt(variance)[:, None]
        if self.link is None:
            return Predictive(scores, np.broadcast_to(deviation, scores.shape), np.full_like(scores, np.sqrt(self.noise_variance)))
        probabilities = scipy.special.softmax(self.link.logits(scores, variance), axis=1)
        slopes = self.link.slopes(scores, variance)
        # Of softmax to first order: d p_c = p_c (d l_c - sum_j p_j d l_j), with independent d l_j = slope_j * deviation.
        common = np.sum((probabilities * slopes) ** 2, axis=1, keepdims=True)
        epistemic = deviation * probabilities * np.sqrt(np.maximum(slopes**2 * (1 - 2 * probabilities) + common, 0))
        return Predictive(probabilities, epistemic, np.sqrt(probabilities * (1 - probabilities)))

    def log_predictive(self, points: Points) -> Float[np.ndarray, " n"]:
        scores, variance = self.scores(np.asarray(points.x))
        y = np.asarray(points.y, np.float64)
        if self.link is not None:
            return np.sum(y * scipy.special.log_softmax(self.link.logits(scores, variance), axis=1), axis=1)
        total = (variance + self.noise_variance)[:, None]
        return np.sum(-0.5 * (np.log(2 * np.pi * total) + (y - scores) ** 2 / total), axis=1)


def head_of(feature_map: FeatureMap, arrays: Mapping[str, np.ndarray]) -> HeadPosterior:
    ridge, noise_variance, *link = arrays["numbers"].tolist()
    kind: Kind = "classification" if link else "regression"
    return HeadPosterior(feature_map, kind, arrays["mean"], arrays["root"], ridge, noise_variance, Link(*link) if link else None)


def fit_head(feature_map: FeatureMap, kind: Kind, groups: Sequence[Moments], sharpness: float | None, ridge: float | None) -> HeadPosterior:
    """From the moments of groups of clients; ridge None: by evidence."""
    total = sum(groups[1:], groups[0])
    solution = most_evident(total) if ridge is None else solve(total, ridge)
    link = None
    if kind == "classification":
        link = Link(sharpness or DEFAULT_SHARPNESS, held_out_floor(groups, solution.ridge, 1 / total.num_outputs))
    root = scipy.linalg.solve_triangular(solution.factor, np.eye(total.dimension), lower=True, check_finite=False)
    return HeadPosterior(feature_map, kind, solution.mean, root, solution.ridge, solution.noise_variance, link)
