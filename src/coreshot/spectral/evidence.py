"""Ridge regression as a Bayesian posterior, from second moments alone: mean, covariance, evidence, and the ridge that the evidence prefers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.optimize
from jaxtyping import Float

from coreshot.spectral.coreset import Moments

RIDGES = (
    1e-7,
    1e2,
)  # between which the ridge is looked for, times the features' mean square and the number of observations
RIDGE_TOLERANCE = 0.1  # of its logarithm
MAX_EVALUATIONS = 20


@dataclass(frozen=True)
class Solution:
    """The head's posterior for one ridge: mean W, noise variance (where the evidence is largest), log evidence; float64."""

    mean: Float[np.ndarray, "d outputs"]
    factor: Float[
        np.ndarray, "d d"
    ]  # lower Cholesky factor of the gram matrix + ridge: the posterior covariance is noise_variance times its inverse
    ridge: float
    noise_variance: float
    log_evidence: float


def solve(moments: Moments, ridge: float) -> Solution:
    """Closed form. The evidence is profiled over the noise: sigma^2 = (|Y|^2 - tr W^T B) / (N outputs)."""
    factor = scipy.linalg.cholesky(
        moments.gram + ridge * np.eye(moments.dimension), lower=True, overwrite_a=True, check_finite=False
    )
    mean = scipy.linalg.cho_solve((factor, True), moments.cross, check_finite=False)
    count = moments.num_examples * moments.num_outputs
    # Rounding, or rows that leave more of the labels out than of the features, may bring the residual to 0 or below.
    noise_variance = (
        max(moments.label_energy - float(np.sum(mean * moments.cross)), 1e-9 * moments.label_energy + 1e-300) / count
    )
    log_det = 2 * np.sum(np.log(np.diag(factor)))
    complexity = moments.num_outputs * (log_det - moments.dimension * np.log(ridge))
    return Solution(
        mean, factor, ridge, noise_variance, -0.5 * (complexity + count * (np.log(2 * np.pi * noise_variance) + 1))
    )


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
