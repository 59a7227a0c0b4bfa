"""The posterior of a logistic head: its mode, the prior precision of each group of features, and its intercepts.

The mode is found by Newton's method; with more than two classes each step is solved by conjugate gradients. A prior
precision is the fixed point of the evidence (MacKay, "Bayesian Interpolation", 1992): the number of well-determined
weights of a group over the sum of their squares. Laplace's approximation makes that too large where classes are nearly
separable, so it is multiplied by PRIOR_FACTORS. Predictions damp a logit by its variance, so that a record unlike those
of the sites has an uncertain prediction. The variance of usual records, up to SPARED times their mean, does not count:
damped by it, mean probabilities of a rare class would not be its share. Both are the best of the grid of
benchmarks/table_constants.py, on the development tables.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from jaxtyping import Float, Int

from coreshot.glm.class_likelihood import ClassLikelihood, Slope, Weights

INTERCEPT_PRECISION = 1e-3
FIRST_PRECISION = 10.0
SMALLEST_PRECISION, LARGEST_PRECISION = 0.1, 1e6
PRIOR_FACTORS = (0.5, 0.5, 0.5)  # of inputs, products of two, higher degrees
SPARED = 2.0
MAX_UPDATES = 12  # of prior precisions
UPDATED = 0.1  # a smaller change of their logarithms ends the search
STEPS_BETWEEN_UPDATES = 6
MAX_STEPS = 40
DECREMENT = 1e-4  # of the log posterior, below which Newton's method stops
SHORTEST_STEP = 2.0**-12
MAX_CONJUGATE_STEPS = 30
CONJUGATE_ACCURACY = 1e-4
BALANCE_STEPS = 100
BALANCED = 1e-7  # of a class's share

Blocks = list[Float[np.ndarray, "d d"]]


@dataclass(frozen=True)
class Mode:
    weights: Weights
    precisions: Blocks  # of the posterior, for each logit


def find_precisions(
    likelihood: ClassLikelihood, groups: Int[np.ndarray, " slopes"], factors: tuple[float, ...] | None = None
) -> tuple[Float[np.ndarray, " groups"], Weights]:
    """Prior precisions of the slopes of each group, and weights to start from. factors None: PRIOR_FACTORS."""
    found = np.full(int(groups.max()) + 1, FIRST_PRECISION)
    weights = np.zeros_like(likelihood.correction)
    for _ in range(MAX_UPDATES):
        mode = find_mode(likelihood, found[groups], weights, STEPS_BETWEEN_UPDATES)
        weights = mode.weights
        variances = np.stack([np.diag(np.linalg.inv(block)) for block in mode.precisions], axis=1)[1:]
        before = found
        found = np.asarray(
            [
                _update(before[group], weights[1:][groups == group], variances[groups == group])
                for group in range(len(before))
            ]
        )
        if np.max(np.abs(np.log(found / before))) < UPDATED:
            break
    return np.asarray(factors or PRIOR_FACTORS)[: len(found)] * found, weights


def _update(precision: float, slopes: Weights, variances: Weights) -> float:
    num_logits = slopes.shape[1]
    free = (
        1.0 if num_logits == 1 else (num_logits - 1) / num_logits
    )  # the same slope added to all logits changes nothing
    determined = max(free * (slopes.size - precision * float(np.sum(variances))), 1e-3)
    new = determined / max(float(np.sum(slopes**2)), 1e-9)
    return float(np.clip(new, SMALLEST_PRECISION, LARGEST_PRECISION))


def find_mode(
    likelihood: ClassLikelihood,
    slope_precisions: Float[np.ndarray, " slopes"],
    weights: Weights,
    max_steps: int = MAX_STEPS,
) -> Mode:
    """Newton's method from these weights."""
    prior = np.append(INTERCEPT_PRECISION, slope_precisions)[:, None]
    slope = likelihood.at(weights)
    for _ in range(max_steps):
        gradient = slope.gradient - prior * weights
        step = _newton_step(likelihood, slope, prior, gradient)
        gain = float(np.sum(gradient * step))
        length = 1.0
        while True:
            moved = weights + length * step
            slope = likelihood.at(moved)
            # Concave: a derivative along the step that is far below 0 means that the step went too far.
            is_too_far = np.sum((slope.gradient - prior * moved) * step) < -0.5 * gain
            if not is_too_far or length <= SHORTEST_STEP or gain < DECREMENT:
                break
            length /= 2
        weights = moved
        if gain < DECREMENT:
            break
    return Mode(weights, _precisions(likelihood, slope, prior))


def _precisions(likelihood: ClassLikelihood, slope: Slope, prior: Float[np.ndarray, "d 1"]) -> Blocks:
    return [block + np.diag(prior[:, 0]) for block in likelihood.curvature_blocks(slope)]


def _newton_step(
    likelihood: ClassLikelihood, slope: Slope, prior: Float[np.ndarray, "d 1"], gradient: Weights
) -> Weights:
    blocks = _precisions(likelihood, slope, prior)
    factors = [scipy.linalg.cho_factor(block, lower=True, check_finite=False) for block in blocks]

    def precondition(residual: Weights) -> Weights:
        parts = zip(factors, residual.T, strict=True)
        return np.stack([scipy.linalg.cho_solve(factor, part, check_finite=False) for factor, part in parts], axis=1)

    if len(factors) == 1:
        return precondition(gradient)
    step, residual = np.zeros_like(gradient), gradient
    scaled = direction = precondition(residual)
    size = first = float(np.sum(residual * scaled))
    for _ in range(MAX_CONJUGATE_STEPS):
        if size <= CONJUGATE_ACCURACY * first:
            break
        product = likelihood.curvature_times(slope, direction) + prior * direction
        length = size / float(np.sum(direction * product))
        step, residual = step + length * direction, residual - length * product
        scaled = precondition(residual)
        previous, size = size, float(np.sum(residual * scaled))
        direction = scaled + size / previous * direction
    return step


def damp(
    variance: Float[np.ndarray, "n logits"], usual: Float[np.ndarray, " logits"], of_site: float = 0.0
) -> Float[np.ndarray, "n logits"]:
    """The factor of a logit whose variance, beyond that of usual records, is averaged over (MacKay, "The evidence
    framework applied to classification networks", 1992). The part of a new site is never usual."""
    return 1 / np.sqrt(1 + np.pi / 8 * (np.maximum(variance - of_site - SPARED * usual, 0.0) + of_site))


def balance(likelihood: ClassLikelihood, weights: Weights) -> Float[np.ndarray, " logits"]:
    """Intercepts, for these slopes, with which the mean probability of each class is its share of the records."""
    weights, total = weights.copy(), float(np.sum(likelihood.sizes))
    for _ in range(BALANCE_STEPS):
        slope = likelihood.at(weights)
        excess = slope.gradient[0] - INTERCEPT_PRECISION * weights[0]
        if np.max(np.abs(excess)) < BALANCED * total:
            break
        curvature = np.sum(slope.curvatures, axis=0) + INTERCEPT_PRECISION * np.eye(len(excess))
        weights[0] += np.clip(np.linalg.solve(curvature, excess), -1.0, 1.0)
    return weights[0]
