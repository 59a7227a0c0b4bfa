"""The posterior of a linear or logistic head from sums over sites, in closed form but for a few ridges.

Everything is done for standardised features (`Polynomials.standard_basis` of all sites' records). Each group of
features (inputs, products of two, higher degrees) has a prior precision of its own, found by maximal evidence (MacKay,
"Bayesian Interpolation", 1992), so that products count only where they explain something.

A quantity: Bayesian linear regression, exact.

Classes: the slopes of logit k have the likelihood exp(b_k w - w P_k w / 2), the product of the sites' own quadratics,
and the prior N(t w0_k, 1 / ridge). Its mean w0 is Fisher's linear discriminant ("The use of multiple measurements in
taxonomic problems", 1936) of all records. It depends on sums over records alone, not on which site has which, so it is
right also where every site has one class and the sites' quadratics say nothing. Its trust t between 0 and 1 is found by
evidence too. The intercepts follow from the base rates (`coreshot.glm.intercepts`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import scipy.linalg
from jaxtyping import Float, Int

from coreshot.glm.intercepts import balance_gaussian, offset_at, spread_of
from coreshot.glm.polynomials import Polynomials
from coreshot.glm.summary import MIN_CLASS_SHARE, Summary

LOG_RIDGES = np.log(10.0) * np.arange(-1, 6.1, 0.5)  # the prior precisions that are tried
FIRST_LOG_RIDGE = np.log(10.0)
TRUSTS = (1.0, 0.85, 0.7, 0.5, 0.3, 0.0)  # the first of equals is taken: full trust where the sites say nothing
SWEEPS = 2  # over the groups of features

LogRidges = Float[np.ndarray, " groups"]


@dataclass(frozen=True)
class Head:
    """For standardised features without the constant."""

    basis: Float[np.ndarray, "d d"]  # raw features @ basis are standardised
    slopes: Float[np.ndarray, "slopes logits"]
    intercepts: Float[np.ndarray, " logits"]
    roots: Float[np.ndarray, "logits slopes slopes"]  # the variance of a logit is |root features|^2
    leverage_root: Float[np.ndarray, "slopes slopes"]  # the same for least squares with noise of variance 1
    noise_variance: float  # of a quantity; 1 for classes
    usual_novelty: float  # root mean square of |leverage_root features| over the records
    log_ridges: LogRidges
    trust: float = 0.0
    linear_log_ridges: LogRidges | None = None  # of the discriminant


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


def fit_head(polynomials: Polynomials, sums: Summary, like: Head | None = None) -> Head:
    """`like`: take its ridges and its trust instead of searching for them."""
    basis = polynomials.standard_basis(sums.gram)
    centred = centre(polynomials, sums, basis)
    if sums.shift.shape[1] == 0:
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
    return scipy.linalg.cholesky(matrix + np.diag(ridges), lower=True, check_finite=False)


def _log_determinant(factor: Float[np.ndarray, "slopes slopes"]) -> float:
    return 2 * float(np.sum(np.log(np.diag(factor))))


def _inverse(factor: Float[np.ndarray, "slopes slopes"]) -> Float[np.ndarray, "slopes slopes"]:
    return scipy.linalg.solve_triangular(factor, np.eye(len(factor)), lower=True, check_finite=False)


def _residual(centred: Centred, mean: np.ndarray) -> float:
    """Rounding, or coarse messages, may make it 0 or negative."""
    return max(centred.label_energy - float(np.sum(mean * centred.cross)), 1e-9 * centred.label_energy + 1e-300)


def _linear_evidence(centred: Centred, freedom: int) -> Callable[[LogRidges], float]:
    """Of least squares, maximised over the noise. Labels of K classes have K - 1 outputs that can vary."""

    def evidence(log_ridges: LogRidges) -> float:
        ridges = np.exp(log_ridges)[centred.groups]
        factor = _factor(centred.gram, ridges)
        mean = scipy.linalg.cho_solve((factor, True), centred.cross, check_finite=False)
        complexity = _log_determinant(factor) - float(np.sum(np.log(ridges)))
        return -0.5 * freedom * (complexity + centred.count * np.log(_residual(centred, mean)))

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
    return Head(basis, slopes, intercepts, np.sqrt(noise) * root[None], root, noise, _usual(centred, root), log_ridges)


def _usual(centred: Centred, root: Float[np.ndarray, "slopes slopes"]) -> float:
    return float(np.sqrt(np.sum((root @ centred.gram) * root) / centred.count))


def _fit_classes(centred: Centred, sums: Summary, basis: np.ndarray, like: Head | None) -> Head:
    # The standard basis mixes slopes among themselves and into the intercept, which the quadratics do not have.
    slopes_basis = basis[1:, 1:]
    precisions = slopes_basis.T @ sums.precisions @ slopes_basis
    shift = slopes_basis.T @ sums.shift
    priors = _candidate_priors(centred, sums.num_outputs - 1) if like is None else [_settled(like)]
    found = []
    for linear in priors:
        discriminant = _discriminant(centred, np.exp(linear)[centred.groups])
        logistic = _Logistic(precisions, shift, discriminant, centred.groups)
        log_ridges, trust = logistic.search(_first_ridges(centred)) if like is None else (like.log_ridges, like.trust)
        found.append((logistic.evidence(trust, log_ridges), log_ridges, trust, linear, logistic))
    _, log_ridges, trust, linear, logistic = max(found, key=lambda one: one[0])
    slopes = logistic.solve(log_ridges, trust).slopes
    # A prior around the discriminant is no knowledge of its own: there, the discriminant's ridge bounds the precision.
    # Not for more than two classes: on the development tables that made probabilities too even.
    bounded = np.minimum(log_ridges, linear) if trust > 0 and len(precisions) == 1 else log_ridges
    roots = np.stack([_inverse(factor) for factor in logistic.solve(bounded, trust).factors])
    leverage_root = _inverse(_factor(centred.gram, np.exp(linear)[centred.groups]))
    intercepts = _intercepts(centred, sums, basis, slopes, roots)
    usual = _usual(centred, leverage_root)
    return Head(basis, slopes, intercepts, roots, leverage_root, 1.0, usual, log_ridges, trust, linear)


def _candidate_priors(centred: Centred, freedom: int) -> list[LogRidges]:
    """Ridges of the discriminant: those of maximal evidence, and the same with the inputs alone."""
    full = _search(_linear_evidence(centred, freedom), _first_ridges(centred), SWEEPS)
    if len(full) == 1:
        return [full]
    return [full, np.append(full[0], np.full(len(full) - 1, LOG_RIDGES[-1]))]


def _settled(like: Head) -> LogRidges:
    assert like.linear_log_ridges is not None
    return like.linear_log_ridges


def _class_means(centred: Centred) -> tuple[Float[np.ndarray, "slopes classes"], Float[np.ndarray, " classes"]]:
    """Of features, and the classes' sizes; a class that is absent has the mean of all, 0.

    Rounded labels are not quite one-hot. The regression on them, instead of sums over sizes, keeps the covariance
    within classes positive.
    """
    inverse = np.linalg.pinv(centred.label_gram, MIN_CLASS_SHARE, hermitian=True)
    return centred.cross @ inverse, centred.label_sums


def _within(centred: Centred) -> Float[np.ndarray, "slopes slopes"]:
    means, _ = _class_means(centred)
    return centred.gram - means @ centred.label_gram @ means.T


def _discriminant(centred: Centred, ridges: np.ndarray) -> Float[np.ndarray, "slopes logits"]:
    """Fisher's: the class means, times the inverse covariance within classes. Two classes have one logit."""
    means, _ = _class_means(centred)
    factor = scipy.linalg.cho_factor(_within(centred) + np.diag(ridges), lower=True, check_finite=False)
    directions = centred.count * scipy.linalg.cho_solve(factor, means, check_finite=False)
    if directions.shape[1] == 2:
        return directions[:, 1:] - directions[:, :1]
    return directions - np.mean(directions, axis=1, keepdims=True)


@dataclass(frozen=True)
class _Solved:
    slopes: Float[np.ndarray, "slopes logits"]
    factors: list[Float[np.ndarray, "slopes slopes"]]
    log_evidence: float


@dataclass(frozen=True)
class _Logistic:
    """The quadratics of all logits, and the prior's mean at full trust."""

    precisions: Float[np.ndarray, "logits slopes slopes"]
    shift: Float[np.ndarray, "slopes logits"]
    discriminant: Float[np.ndarray, "slopes logits"]
    groups: Int[np.ndarray, " slopes"]

    def solve(self, log_ridges: LogRidges, trust: float) -> _Solved:
        ridges = np.exp(log_ridges)[self.groups]
        slopes, factors, evidence = [], [], 0.0
        for precision, shift, direction in zip(self.precisions, self.shift.T, self.discriminant.T, strict=True):
            start = trust * direction
            pull = shift - precision @ start
            factor = _factor(precision, ridges)
            move = scipy.linalg.cho_solve((factor, True), pull, check_finite=False)
            at_start = float(start @ shift - 0.5 * start @ precision @ start)
            complexity = _log_determinant(factor) - float(np.sum(np.log(ridges)))
            evidence += at_start + 0.5 * float(move @ pull) - 0.5 * complexity
            slopes.append(start + move)
            factors.append(factor)
        return _Solved(np.stack(slopes, axis=1), factors, evidence)

    def evidence(self, trust: float, log_ridges: LogRidges) -> float:
        return self.solve(log_ridges, trust).log_evidence

    def search(self, first: LogRidges) -> tuple[LogRidges, float]:
        best, trust = first, TRUSTS[0]
        for _ in range(SWEEPS):
            best = _search(partial(self.evidence, trust), best, 1)
            trust = TRUSTS[int(np.argmax([self.evidence(one, best) for one in TRUSTS]))]
        return best, trust


def _intercepts(
    centred: Centred,
    sums: Summary,
    basis: Float[np.ndarray, "d d"],
    slopes: Float[np.ndarray, "slopes logits"],
    roots: Float[np.ndarray, "logits slopes slopes"],
) -> Float[np.ndarray, " logits"]:
    """Predictions damp logits by their variance, so the balance is that of damped slopes."""
    sizes = np.maximum(centred.label_sums, 0.5)
    shares = sizes / np.sum(sizes)
    typical = np.asarray([np.sum((root @ centred.gram) * root) for root in roots]) / centred.count
    damping = damp(typical)
    centers, covariance = class_scores(centred, damping * slopes)
    offsets = sums.offset / np.maximum(sums.offset_weight, 1e-9)
    alike = 1 - _between_share(centred, sums, basis, damping * slopes)
    offset = alike * offset_at(offsets, spread_of(covariance), shares)
    return (balance_gaussian(centers, covariance, shares) + offset) / damping


def _between_share(
    centred: Centred, sums: Summary, basis: Float[np.ndarray, "d d"], slopes: Float[np.ndarray, "slopes logits"]
) -> float:
    """The share of the scores' variance within classes that is between sites.

    What a site finds about the shape of its scores says little about all scores where the sites differ.
    """
    means, _ = _class_means(centred)
    between = (basis.T @ sums.between @ basis)[1:, 1:] - means @ centred.label_gram @ means.T
    total = float(np.sum(slopes * (_within(centred) @ slopes)))
    return float(np.clip(np.sum(slopes * (between @ slopes)) / max(total, 1e-12), 0.0, 1.0))


def class_scores(
    centred: Centred, slopes: Float[np.ndarray, "slopes logits"]
) -> tuple[Float[np.ndarray, "classes logits"], Float[np.ndarray, "logits logits"]]:
    """The mean scores of the classes, and their covariance within classes."""
    means, _ = _class_means(centred)
    return means.T @ slopes, slopes.T @ (_within(centred) / centred.count) @ slopes


def damp(variance: Float[np.ndarray, ...]) -> Float[np.ndarray, ...]:
    """The factor of a logit whose variance is averaged over (MacKay, "The evidence framework applied to classification
    networks", 1992)."""
    return 1 / np.sqrt(1 + np.pi / 8 * variance)
