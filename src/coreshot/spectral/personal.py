"""A linear head on fixed features fitted to one site: the federation's posterior is the prior, in closed form.

| symbol | here                                                                                       |
|--------|--------------------------------------------------------------------------------------------|
| W0, A  | the federation's mean and precision over the noise's variance: `root`^T `root` = A^-1      |
| S      | width A^-1 + freedom I / |phi|^2: how a site's weights may differ, in units of the noise   |
| W      | W0 + S Phi^T (Phi S Phi^T + I)^-1 (Y - Phi W0), after the site's records Phi, Y            |

Width 1 and freedom 0 are the federation's posterior with these records added; without W0 it is the site's own model.
Candidates are weighted by their predictions of each record from all others, which need no further fit: the residual of
a record that is left out is [(K + I)^-1 R]_i / [(K + I)^-1]_ii (Rasmussen and Williams, 2006, equation 5.12). Weights
are pseudo-BMA+ (Yao, Vehtari, Simpson and Gelman, 2018), as in `glm.personal`.

The features' part of the link and the variance stay those of the federation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg
import scipy.special
from jaxtyping import Float

if TYPE_CHECKING:
    from coreshot.spectral.posterior import LinearPosterior

MAX_RECORDS = 2_000  # of the site, evenly chosen: a fit costs their cube
NUM_RESAMPLES = 500
LEAST_WEIGHT = 1e-3


@dataclass(frozen=True)
class Candidate:
    trust: float  # 1: around the federation's weights; 0: around 0
    width: float
    freedom: float


# Of UNIPEN-62's extra writers, each with 20 images, one candidate alone: freedom 3 gains most, 0.03 a third of
# that (`benchmarks/adapt_writers.py --writers extra --each`).
CANDIDATES = (
    Candidate(1.0, 1.0, 0.0),
    *(Candidate(1.0, width, freedom) for width in (1.0, 10.0, 100.0) for freedom in (0.03, 0.3, 1.0, 3.0, 10.0)),
    *(Candidate(0.0, 0.0, freedom) for freedom in (0.3, 1.0, 10.0)),
)


@dataclass(frozen=True)
class Personal:
    posterior: LinearPosterior
    weights: tuple[tuple[Candidate, float], ...]

    @property
    def own_share(self) -> float:
        """Of the models that know nothing of the federation's weights."""
        return sum(weight for candidate, weight in self.weights if candidate.trust == 0)


def personalise(
    posterior: LinearPosterior,
    x: Float[np.ndarray, "n ..."],
    y: Float[np.ndarray, "n outputs"],
    candidates: Sequence[Candidate] = CANDIDATES,
) -> Personal:
    """`y`: one-hot labels, or quantities."""
    rows = np.arange(0, len(y), -(-len(y) // MAX_RECORDS))
    site = _Site(posterior, np.asarray(posterior.feature_map(x[rows]), np.float64), np.asarray(y[rows], np.float64))
    log_probs = np.stack([site.leave_one_out(one) for one in candidates], axis=1)
    resamples = np.random.default_rng(0).dirichlet(np.ones(len(rows)), NUM_RESAMPLES)
    weights = scipy.special.softmax(len(rows) * resamples @ log_probs, axis=1).mean(axis=0)
    kept = np.where(weights > LEAST_WEIGHT, weights, 0.0)
    kept /= np.sum(kept)
    mean = sum(weight * site.fit(one) for one, weight in zip(candidates, kept, strict=True) if weight > 0)
    return Personal(replace(posterior, mean=np.asarray(mean)), tuple(zip(candidates, weights.tolist(), strict=True)))


class _Site:
    def __init__(self, posterior: LinearPosterior, features: Float[np.ndarray, "n d"], y: np.ndarray) -> None:
        self.posterior, self.features, self.y = posterior, features, y
        self.targets = y - 1 / y.shape[1] if posterior.link is not None else y
        self.rooted = features @ posterior.root.T.astype(np.float64)
        self.unit = 1 / max(float(np.mean(np.sum(features**2, axis=1))), 1e-12)
        self.near, self.plain = self.rooted @ self.rooted.T, self.unit * features @ features.T
        self.said = features @ posterior.mean
        self.variance = posterior.noise_variance * np.diag(self.near)

    def _inverse(self, candidate: Candidate) -> Float[np.ndarray, "n n"]:
        kernel = candidate.width * self.near + candidate.freedom * self.plain
        return np.linalg.inv(kernel + np.eye(len(kernel)))

    def leave_one_out(self, candidate: Candidate) -> Float[np.ndarray, " n"]:
        """The log probability of each record from all others."""
        inverse = self._inverse(candidate)
        residual = inverse @ (self.targets - candidate.trust * self.said) / np.diag(inverse)[:, None]
        link = self.posterior.link
        if link is None:
            return -0.5 * np.sum(residual**2, axis=1) / self.posterior.noise_variance
        logits = link.logits(self.targets - residual, self.variance)
        return np.sum(self.y * scipy.special.log_softmax(logits, axis=1), axis=1)

    def fit(self, candidate: Candidate) -> Float[np.ndarray, "d outputs"]:
        around = candidate.trust * self.posterior.mean
        step = self._inverse(candidate) @ (self.targets - candidate.trust * self.said)
        moved = candidate.width * self.posterior.root.T.astype(np.float64) @ (self.rooted.T @ step)
        return around + moved + candidate.freedom * self.unit * self.features.T @ step
