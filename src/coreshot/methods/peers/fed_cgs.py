"""FedCGS and GH-LDA: linear discriminants of class means and one covariance, from sums.

Guan, Zhou and Gu, "Capture Global Feature Statistics for One-Shot Federated Learning", AAAI 2025 (FedCGS); the LDA head
of "GH-OFL" (ICLR 2026).

| FedCGS          | here                                                             |
|-----------------|------------------------------------------------------------------|
| A_k, N_k, B_k   | sums, counts, gram                                               |
| mu_j            | class_means                                                      |
| Sigma           | covariance: "total", as in FedCGS's code; "within" classes: LDA  |
| gamma           | shrinkage, here as a share of the mean variance                  |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import numpy as np
import scipy.linalg
from jaxtyping import Float
from pydantic import Field

from coreshot.config import settings
from coreshot.methods.peers.statistics import (
    PeerMethod,
    Shapes,
    Statistics,
    class_means,
    class_statistics,
    triangle_size,
    upper_triangle,
)
from coreshot.privacy.gaussian_moments import symmetric


@settings
class FedCgs(PeerMethod):
    kind: ClassVar[str] = "fed_cgs"
    content: ClassVar[str] = "second moments of the records' features, and their sums by class"

    covariance: Literal["total", "within"] = "within"
    shrinkage: Annotated[float, Field(ge=0, le=1)] = 0.001  # towards a multiple of the identity

    def statistics(self, features: Float[np.ndarray, "n d"], y: Float[np.ndarray, "n outputs"]) -> Statistics:
        inner = features[:, :-1]
        return {**class_statistics(inner, y), "gram": upper_triangle(inner.T @ inner)}

    def shapes(self, dimension: int, num_outputs: int) -> Shapes:
        return {
            "sums": (num_outputs, dimension - 1),
            "counts": (num_outputs,),
            "gram": (triangle_size(dimension - 1),),
        }

    def weights(self, kept: Sequence[Statistics]) -> Float[np.ndarray, "d outputs"]:
        total = kept[0]
        counts, sums = total["counts"], total["sums"]
        number, means = float(np.sum(counts)), class_means(sums, counts)
        between = (
            sums.T @ means if self.covariance == "within" else np.outer(sums.sum(axis=0), sums.sum(axis=0)) / number
        )
        covariance = (symmetric(total["gram"], sums.shape[1]) - between) / max(number - 1, 1.0)
        level = float(np.trace(covariance)) / len(covariance)
        covariance = (1 - self.shrinkage) * covariance
        np.fill_diagonal(covariance, np.diag(covariance) + (self.shrinkage + 1e-9) * level + 1e-12)
        found = scipy.linalg.solve(covariance, means.T, assume_a="sym")
        offsets = np.log(np.maximum(counts, 1e-6) / number) - 0.5 * np.sum(means.T * found, axis=0)
        return np.concatenate([found, offsets[None]])
