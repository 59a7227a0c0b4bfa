"""The posterior of a linear or logistic head from what the sites say about their records.

Everything is done for standardised features (`Polynomials.standard_basis` of all sites' records). Each group of
features (inputs, products of two, higher degrees) has a prior precision of its own, found by maximal evidence (MacKay,
"Bayesian Interpolation", 1992), so that products count only where they explain something.

A quantity: Bayesian linear regression, exact. Classes and counts: `coreshot.glm.logistic`, with the likelihood of
`coreshot.glm.class_likelihood` or `coreshot.glm.counts`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.special
from jaxtyping import Float, Int

from coreshot.glm.counts import join_sites
from coreshot.glm.logistic import balance, find_mode, find_precisions
from coreshot.glm.polynomials import Polynomials
from coreshot.glm.summary import Summary

LOG_RIDGES = np.log(10.0) * np.arange(-1, 6.1, 0.5)  # the prior precisions that are tried
FIRST_LOG_RIDGE = np.log(10.0)
SWEEPS = 2  # over the groups of features
COVERAGE = 0.95  # the end of a two-sided interval of 90 %

LogRidges = Float[np.ndarray, " groups"]


@dataclass(frozen=True)
class Head:
    """For standardised features without the constant."""

    basis: Float[np.ndarray, "d d"]  # raw features @ basis are standardised
    slopes: Float[np.ndarray, "slopes logits"]
    intercepts: Float[np.ndarray, " logits"]
    roots: Float[np.ndarray, "logits slopes slopes"]  # the variance of a logit is |root features|^2
    usual_variances: Float[np.ndarray, " logits"]  # its mean over the records
    leverage_root: Float[np.ndarray, "slopes slopes"]  # the same for least squares with noise of variance 1
    noise_variance: float  # of a quantity; 1 for classes
    usual_novelty: float  # root mean square of |leverage_root features| over the records
    log_ridges: LogRidges
    num_sites: int = 0  # that were compared; 0: a model of before, which does not know how sites differ
    site_variance: float = 0.0  # of a site's own intercept
    noise_within: float = 1.0  # of a quantity within a site
    class_shares: tuple[float, ...] = ()  # of all records

    @property
    def new_site_variance(self) -> float:
        """Of a new site's deviation, such that the usual normal interval of 90 % is that of Student's t: few sites tell
        the variance badly, and the mean of few deviations is uncertain."""
        if self.num_sites < 2:
            return self.site_variance
        # Of scipy.special: scipy.stats takes half a second to import.
        wider = scipy.special.stdtrit(self.num_sites - 1, COVERAGE) / scipy.special.ndtri(COVERAGE)
        return float(self.site_variance * (1 + 1 / self.num_sites) * wider**2)

    @property
    def weights(self) -> Float[np.ndarray, "d logits"]:
        """Intercepts first."""
        return np.concatenate([self.intercepts[None], self.slopes])


@dataclass(frozen=True)
class Centred:
    """Sums in the standard basis, minus means."""

    count: float
    groups: Int[np.ndarray, " slopes"]
    gram: Float[np.ndarray, "slopes slopes"]
    cross: Float[np.ndarray, "slopes outputs"]  # of features and labels
    label_gram: Float[np.ndarray, "outputs outputs"]
    label_sums: Float[np.ndarray, " outputs"]

    @property
    def label_energy(self) -> float:
        return float(np.trace(self.label_gram) - np.sum(self.label_sums**2) / self.count)


def fit_head(polynomials: Polynomials, sums: Summary, like: Head | None = None, *, same_basis: bool = False) -> Head:
    """`like`: take its ridges instead of searching for them; with same_basis, also its standardised features."""
    basis = like.basis if like is not None and same_basis else polynomials.standard_basis(sums.gram)
    centred = centre(polynomials, sums, basis)
    if not sums.sites:
        return _fit_quantity(centred, basis, like)
    return _fit_classes(centred, sums, basis, like)


def centre(polynomials: Polynomials, sums: Summary, basis: Float[np.ndarray, "d d"]) -> Centred:
    gram, cross = basis.T @ sums.gram @ basis, basis.T @ sums.cross
    label_gram = sums.moments[sums.dimension :, sums.dimension :]
    return Centred(sums.num_examples, polynomials.groups, gram[1:, 1:], cross[1:], label_gram, cross[0])


def _search(evidence: Callable[[LogRidges], float], first: LogRidges, sweeps: int) -> LogRidges:
    """The best ridges on the grid, one group after another."""
    best = first.copy()
    for _ in range(sweeps):
        for group in range(len(best)):
            tried = [np.where(np.arange(len(best)) == group, value, best) for value in LOG_RIDGES]
            best = tried[int(np.argmax([evidence(one) for one in tried]))]
    return best


def _first_ridges(centred: Centred) -> LogRidges:
    return np.full(int(centred.groups.max()) + 1, FIRST_LOG_RIDGE)


def _factor(matrix: Float[np.ndarray, "slopes slopes"], ridges: np.ndarray) -> Float[np.ndarray, "slopes slopes"]:
    return _cholesky(matrix + np.diag(ridges))


def _cholesky(matrix: Float[np.ndarray, "slopes slopes"]) -> Float[np.ndarray, "slopes slopes"]:
    return scipy.linalg.cholesky(matrix, lower=True, check_finite=False)


def _log_determinant(factor: Float[np.ndarray, "slopes slopes"]) -> float:
    return 2 * float(np.sum(np.log(np.diag(factor))))


def _inverse(factor: Float[np.ndarray, "slopes slopes"]) -> Float[np.ndarray, "slopes slopes"]:
    return scipy.linalg.solve_triangular(factor, np.eye(len(factor)), lower=True, check_finite=False)


def inverse_factor(matrix: Float[np.ndarray, "slopes slopes"]) -> Float[np.ndarray, "slopes slopes"]:
    """R, such that R^T R is the inverse."""
    return _inverse(_cholesky(matrix))


def _residual(centred: Centred, mean: np.ndarray) -> float:
    """Rounding, or coarse messages, may make it 0 or negative."""
    return max(centred.label_energy - float(np.sum(mean * centred.cross)), 1e-9 * centred.label_energy + 1e-300)


def _linear_evidence(centred: Centred, num_outputs: int) -> Callable[[LogRidges], float]:
    """Of least squares, maximised over the noise."""

    def evidence(log_ridges: LogRidges) -> float:
        ridges = np.exp(log_ridges)[centred.groups]
        factor = _factor(centred.gram, ridges)
        mean = scipy.linalg.cho_solve((factor, True), centred.cross, check_finite=False)
        complexity = _log_determinant(factor) - float(np.sum(np.log(ridges)))
        return -0.5 * num_outputs * (complexity + centred.count * np.log(_residual(centred, mean)))

    return evidence


def _fit_quantity(centred: Centred, basis: np.ndarray, like: Head | None) -> Head:
    outputs = centred.cross.shape[1]
    log_ridges = (
        like.log_ridges
        if like is not None
        else _search(_linear_evidence(centred, outputs), _first_ridges(centred), SWEEPS)
    )
    factor = _factor(centred.gram, np.exp(log_ridges)[centred.groups])
    slopes = scipy.linalg.cho_solve((factor, True), centred.cross, check_finite=False)
    noise = _residual(centred, slopes) / (centred.count * outputs)
    root = _inverse(factor)
    intercepts = centred.label_sums / centred.count
    roots, usual = np.sqrt(noise) * root[None], _usual(centred, root)
    return Head(basis, slopes, intercepts, roots, np.zeros(outputs), root, noise, usual, log_ridges)


def _usual(centred: Centred, root: Float[np.ndarray, "slopes slopes"]) -> float:
    return float(np.sqrt(np.sum((root @ centred.gram) * root) / centred.count))


def _fit_classes(centred: Centred, sums: Summary, basis: np.ndarray, like: Head | None) -> Head:
    likelihood = join_sites(sums.num_outputs, [site.in_basis(basis) for site in sums.sites])
    if like is None:
        precisions, start = find_precisions(likelihood, centred.groups)
        log_ridges = np.log(precisions)
    else:
        log_ridges, start = like.log_ridges, np.concatenate([like.intercepts[None], like.slopes])
    mode = find_mode(likelihood, np.exp(log_ridges)[centred.groups], start)
    roots = np.stack([inverse_factor(block[1:, 1:]) for block in mode.precisions])
    variances = np.asarray([np.sum((root @ centred.gram) * root) for root in roots]) / centred.count
    intercepts = balance(likelihood, mode.weights)
    leverage_root = _inverse(_factor(centred.gram, np.exp(log_ridges)[centred.groups]))
    usual = _usual(centred, leverage_root)
    shares = () if sums.num_outputs == 1 else tuple((centred.label_sums / np.sum(centred.label_sums)).tolist())
    return Head(
        basis,
        mode.weights[1:],
        intercepts,
        roots,
        variances,
        leverage_root,
        1.0,
        usual,
        log_ridges,
        class_shares=shares,
    )
