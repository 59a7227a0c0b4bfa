"""Ridge regression as a Bayesian posterior, from second moments alone: mean, covariance and evidence.

MacKay, "Bayesian Interpolation", Neural Computation 1992.

| paper            | here                                                            |
|------------------|-----------------------------------------------------------------|
| alpha / beta     | ridge: prior precision times noise variance                     |
| 1 / beta         | noise_variance, at the maximum of the evidence                  |
| A / beta         | Gram matrix + ridge, as its Cholesky factor                     |
| log evidence     | log_evidence, maximised over the ridge by `maximize_evidence`   |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg
import scipy.optimize
from jaxtyping import Float

from coreshot.models.parallel import one_blas_thread
from coreshot.spectral.banded import to_band
from coreshot.spectral.blocked import factorise
from coreshot.spectral.coreset import Moments

RIDGES = (1e-7, 1e2)  # the range of the search, in units of the Gram matrix's mean diagonal entry
RIDGE_TOLERANCE = 0.1  # of the ridge's logarithm
MAX_EVALUATIONS = 20


@dataclass(frozen=True)
class Solution:
    """The head's posterior for one ridge, in float64. Its covariance is noise_variance (gram + ridge)^-1."""

    mean: Float[np.ndarray, "d outputs"]
    factor: Float[np.ndarray, "d d"]  # lower Cholesky factor of gram + ridge
    ridge: float
    noise_variance: float
    log_evidence: float


@dataclass(frozen=True)
class System:
    """What a regression is made of."""

    gram: Float[np.ndarray, "d d"]
    cross: Float[np.ndarray, "d outputs"]
    label_energy: float
    num_examples: float

    @classmethod
    def of(cls, moments: Moments) -> System:
        return cls(moments.gram, moments.cross, moments.label_energy, moments.num_examples)

    @classmethod
    def without(cls, moments: Moments, others: Moments) -> System:
        """Of these moments minus those of others: without the matrices that are not wanted."""
        return cls(
            moments.gram - others.gram,
            moments.cross - others.cross,
            moments.label_energy - others.label_energy,
            moments.num_examples - others.num_examples,
        )

    def noise_and_evidence(self, ridge: float, log_det: float, explained: float) -> tuple[float, float]:
        """sigma^2 and the log evidence, from log det A and tr W^T B. The evidence is maximised over the noise: sigma^2
        = (|Y|^2 - tr W^T B) / (N outputs)."""
        num_outputs = self.cross.shape[1]
        count = self.num_examples * num_outputs
        # The residual may be 0 or negative: by rounding, or if rows leave out more of the labels than of the features.
        noise_variance = max(self.label_energy - explained, 1e-9 * self.label_energy + 1e-300) / count
        complexity = num_outputs * (log_det - len(self.gram) * np.log(ridge))
        return noise_variance, -0.5 * (complexity + count * (np.log(2 * np.pi * noise_variance) + 1))


def solve_ridge(moments: Moments, ridge: float) -> Solution:
    """In closed form."""
    system = System.of(moments)
    return solve_system(replace(system, gram=system.gram.copy()), ridge, factorise)


@one_blas_thread()
def solve_system(system: System, ridge: float, factor_of: Callable[[np.ndarray], np.ndarray]) -> Solution:
    """The Gram matrix is overwritten."""
    np.fill_diagonal(system.gram, np.diag(system.gram) + ridge)
    factor = factor_of(system.gram)
    mean = solve_factored(factor, system.cross)
    log_det, explained = 2 * float(np.sum(np.log(np.diag(factor)))), float(np.sum(mean * system.cross))
    return Solution(mean, factor, ridge, *system.noise_and_evidence(ridge, log_det, explained))


def solve_factored(factor: Float[np.ndarray, "d d"], cross: Float[np.ndarray, "d outputs"]) -> np.ndarray:
    """(factor factor^T)^-1 cross. LAPACK wants columns that lie together: turned round, rows do; no copy is made."""
    turned = factor.flags.c_contiguous
    return np.asarray(scipy.linalg.cho_solve((factor.T if turned else factor, not turned), cross, check_finite=False))


def maximize_evidence(moments: Moments) -> Solution:
    """The solution whose ridge has the largest evidence."""
    return solve_ridge(moments, best_ridge(moments))


@one_blas_thread()
def best_ridge(moments: Moments) -> float:
    """By Brent's method on the ridge's logarithm; the matrix is turned into a band once, for all steps."""
    system = System.of(moments)
    banded = to_band(system.gram, system.cross)

    def loss(log_ridge: float) -> float:
        ridge = float(np.exp(log_ridge))
        return -system.noise_and_evidence(ridge, *banded.solve(ridge))[1]

    scale = float(np.trace(moments.gram)) / moments.dimension
    low, high = np.log(scale * RIDGES[0]), np.log(scale * RIDGES[1])
    found = scipy.optimize.minimize_scalar(
        loss,
        bounds=(low, high),
        method="bounded",
        options={"xatol": RIDGE_TOLERANCE, "maxiter": MAX_EVALUATIONS},
    )
    return float(np.exp(found.x))
