"""The federation's model fitted to one site: its posterior is the prior, the site's own records are the likelihood.

A site's slopes are those of the others plus a deviation. How large deviations are, nobody knows beforehand: they may be
0, so that the site's records count as everybody's do, or so large that the others say nothing. Each candidate is a
prior of the site's slopes, for standardised features:

| trust | slopes are drawn from                                   | the model                                        |
|-------|---------------------------------------------------------|--------------------------------------------------|
| 1     | N(the federation's, its covariance + freedom / ridge)   | freedom 0: the federation's, with these records  |
| 0     | N(0, freedom / ridge)                                   | the site's own                                   |

Ridges are the prior precisions that the federation has found for inputs, products and higher degrees. The intercept is
nearly free, because base rates differ most between sites. Candidates are weighted by their predictions of records that
they were not fitted to (cross-validation), by pseudo-BMA+ (Yao, Vehtari, Simpson and Gelman, "Using Stacking to Average
Bayesian Predictive Distributions", 2018). Their mixture is replaced by the Gaussian of its mean and covariance, so that
what comes out is a head like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.special
from jaxtyping import Float, Int

from coreshot.glm.counts import LARGEST_LOG_RATE
from coreshot.glm.head import Head
from coreshot.types import Kind

Outcome = Kind | Literal["count"]

Slopes = Float[np.ndarray, "slopes logits"]
Features = Float[np.ndarray, "n slopes"]

INTERCEPT_VARIANCE = 4.0  # between sites; of a quantity, in units of its noise
NUM_FOLDS = 10
MAX_CHECKED = 4_000  # records of the cross-validation
MAX_STEPS = 100
NUM_RESAMPLES = 500


@dataclass(frozen=True)
class Candidate:
    trust: float
    freedom: float
    intercept_variance: float | None = None  # None: INTERCEPT_VARIANCE


STEADY = Candidate(1.0, 0.0, 0.01)  # the site is as all others are
CANDIDATES = (
    STEADY,
    *(Candidate(1.0, freedom) for freedom in (0.0, 0.03, 0.1, 0.3, 1.0)),
    *(Candidate(0.0, freedom) for freedom in (0.1, 0.3, 1.0)),
)


@dataclass(frozen=True)
class Weighted:
    """A candidate's weight, and its mean log probability of records that it was not fitted to."""

    candidate: Candidate
    weight: float
    log_prob: float


@dataclass(frozen=True)
class Personal:
    head: Head
    candidates: tuple[Weighted, ...]

    @property
    def own_share(self) -> float:
        """Of the models that know nothing of the federation's slopes."""
        return sum(one.weight for one in self.candidates if one.candidate.trust == 0)


@dataclass(frozen=True)
class _Prior:
    slopes: Slopes
    intercepts: Float[np.ndarray, " logits"]
    factors: Float[np.ndarray, "logits slopes slopes"]  # lower triangular, of the slopes' covariance
    intercept_variance: float


@dataclass(frozen=True)
class _Fit:
    slopes: Slopes
    intercepts: Float[np.ndarray, " logits"]

    def scores(self, features: Features) -> Float[np.ndarray, "n logits"]:
        return features @ self.slopes + self.intercepts


def personalise(
    kind: Outcome,
    head: Head,
    groups: Int[np.ndarray, " slopes"],
    features: Features,
    y: Float[np.ndarray, "n outputs"],
    candidates: Sequence[Candidate] = CANDIDATES,
) -> Personal:
    """`head` is that of the other sites. Records must be in an order that does not depend on the file's."""
    site = _Site(kind, head, groups, features, y)
    log_probs = np.stack([site.cross_validate(one) for one in candidates], axis=1)
    weights = _weigh(log_probs)
    found = site.mix(candidates, weights)
    means = log_probs.mean(axis=0)
    return Personal(found, tuple(map(Weighted, candidates, weights.tolist(), means.tolist())))


def _weigh(log_probs: Float[np.ndarray, "n candidates"]) -> Float[np.ndarray, " candidates"]:
    """By the total log probability, averaged over resamples of the records: few records tell little."""
    size = len(log_probs)
    resamples = np.random.default_rng(0).dirichlet(np.ones(size), NUM_RESAMPLES)
    return scipy.special.softmax(size * resamples @ log_probs, axis=1).mean(axis=0)


@dataclass(frozen=True)
class _Site:
    kind: Outcome
    head: Head
    groups: Int[np.ndarray, " slopes"]
    features: Features
    y: Float[np.ndarray, "n outputs"]

    def cross_validate(self, candidate: Candidate) -> Float[np.ndarray, " checked"]:
        chosen = np.arange(0, len(self.y), -(-len(self.y) // MAX_CHECKED))
        prior, found = self._prior(candidate), np.zeros(len(chosen))
        num_folds = min(NUM_FOLDS, len(chosen))
        for fold in range(num_folds):
            is_out = np.arange(len(chosen)) % num_folds == fold
            fitted = self._fit(prior, chosen[~is_out])
            found[is_out] = self._log_prob(fitted, chosen[is_out])
        return found

    def _log_prob(self, fitted: _Fit, rows: np.ndarray) -> Float[np.ndarray, " rows"]:
        scores = fitted.scores(self.features[rows])
        if self.kind == "regression":
            return -0.5 * np.sum((self.y[rows] - scores) ** 2, axis=1) / self.head.noise_variance
        if self.kind == "count":
            return np.sum(self.y[rows] * scores - _rates(scores), axis=1)
        return np.sum(self.y[rows] * log_probabilities(scores), axis=1)

    def _prior(self, candidate: Candidate) -> _Prior:
        head, trust = self.head, candidate.trust
        own = np.diag(candidate.freedom * np.exp(-head.log_ridges)[self.groups] * self._unit)
        covariances = [trust * root.T @ root + own for root in head.roots]
        if len(covariances) < head.slopes.shape[1]:  # all quantities have the same
            covariances = covariances * head.slopes.shape[1]
        factors = np.stack([_factor(covariance) for covariance in covariances])
        variance = INTERCEPT_VARIANCE if candidate.intercept_variance is None else candidate.intercept_variance
        return _Prior(trust * head.slopes, trust * head.intercepts, factors, variance * self._unit)

    @property
    def _unit(self) -> float:
        """Of variances: the noise of a quantity. Logits have none."""
        return self.head.noise_variance if self.kind == "regression" else 1.0

    def _fit(self, prior: _Prior, rows: np.ndarray) -> _Fit:
        features, y = self.features[rows], self.y[rows]
        white = np.einsum("ns,lst->lnt", features, prior.factors)
        offset = features @ prior.slopes + prior.intercepts
        deviation = np.sqrt(prior.intercept_variance)
        num_logits = offset.shape[1]

        def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
            z = flat.reshape(-1, num_logits)
            scores = offset + deviation * z[0] + np.einsum("lnt,tl->nl", white, z[1:])
            loss, error = self._loss(scores, y)
            gradient = np.concatenate([deviation * error.sum(axis=0)[None], np.einsum("lnt,nl->tl", white, error)])
            return loss + 0.5 * float(flat @ flat), gradient.ravel() + flat

        start = np.zeros((features.shape[1] + 1) * num_logits)
        options = {"maxiter": MAX_STEPS, "ftol": 1e-10, "gtol": 1e-6}
        found = scipy.optimize.minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
        z = np.asarray(found.x).reshape(-1, num_logits)
        slopes = prior.slopes + np.einsum("lst,tl->sl", prior.factors, z[1:])
        return _Fit(slopes, prior.intercepts + deviation * z[0])

    def _loss(self, scores: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
        """The negative log likelihood and its derivative by scores."""
        if self.kind == "regression":
            error = (scores - y) / self.head.noise_variance
            return 0.5 * float(np.sum((scores - y) * error)), error
        if self.kind == "count":
            rates = _rates(scores)
            return float(np.sum(rates - y * scores)), rates - y
        logs = log_probabilities(scores)
        return -float(np.sum(y * logs)), (np.exp(logs) - y)[:, -scores.shape[1] :]

    def mix(self, candidates: Sequence[Candidate], weights: Float[np.ndarray, " candidates"]) -> Head:
        kept = np.flatnonzero(weights > 1e-3).tolist()
        shares = weights[kept] / np.sum(weights[kept])
        rows = np.arange(len(self.y))
        priors = [self._prior(candidates[index]) for index in kept]
        fits = [self._fit(prior, rows) for prior in priors]
        slopes = np.einsum("k,ksl->sl", shares, np.stack([one.slopes for one in fits]))
        intercepts = shares @ np.stack([one.intercepts for one in fits])
        covariances = np.zeros((slopes.shape[1], len(slopes), len(slopes)))
        for share, prior, fitted in zip(shares, priors, fits, strict=True):
            covariances += share * self._covariances(prior, fitted)
            difference = fitted.slopes - slopes
            covariances += share * np.einsum("sl,tl->lst", difference, difference)
        roots = np.stack([_factor(covariance).T for covariance in covariances])
        usual = np.asarray([np.mean(np.sum((self.features @ root.T) ** 2, axis=1)) for root in roots])
        return replace(self.head, slopes=slopes, intercepts=intercepts, roots=roots, usual_variances=usual)

    def _covariances(self, prior: _Prior, fitted: _Fit) -> Float[np.ndarray, "logits slopes slopes"]:
        """Laplace's, of each logit with the others held fixed: the prior's factor L (I + L^T H L)^-1 L^T."""
        curvature = self._curvature(fitted.scores(self.features))
        found = []
        for factor, weight in zip(prior.factors, curvature.T, strict=True):
            white = self.features @ factor
            inner = np.eye(len(factor)) + (white.T * weight) @ white
            root = scipy.linalg.solve_triangular(_factor(inner), factor.T, lower=True, check_finite=False)
            found.append(root.T @ root)
        return np.stack(found)

    def _curvature(self, scores: Float[np.ndarray, "n logits"]) -> Float[np.ndarray, "n logits"]:
        if self.kind == "regression":
            return np.full_like(scores, 1 / self.head.noise_variance)
        if self.kind == "count":
            return _rates(scores)
        probabilities = np.exp(log_probabilities(scores))[:, -scores.shape[1] :]
        return probabilities * (1 - probabilities)


def _rates(scores: Float[np.ndarray, "n logits"]) -> Float[np.ndarray, "n logits"]:
    return np.exp(np.minimum(scores, LARGEST_LOG_RATE))


def log_probabilities(scores: Float[np.ndarray, "n logits"]) -> Float[np.ndarray, "n classes"]:
    """Two classes have one logit."""
    if scores.shape[1] == 1:
        return -np.logaddexp(0, np.concatenate([scores, -scores], axis=1))
    return scipy.special.log_softmax(scores, axis=1)


def _factor(covariance: Float[np.ndarray, "slopes slopes"]) -> Float[np.ndarray, "slopes slopes"]:
    """Lower triangular; a direction that is fixed keeps a variance of rounding's size."""
    jitter = 1e-12 * max(float(np.trace(covariance)) / len(covariance), 1e-12)
    return scipy.linalg.cholesky(covariance + jitter * np.eye(len(covariance)), lower=True, check_finite=False)
