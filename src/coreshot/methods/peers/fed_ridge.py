"""Fed3R and AFL: ridge regression on one-hot labels, from the sums of all clients' second moments.

Fani, Camoriano, Caputo and Ciccone, "Accelerating Heterogeneous Federated Learning with Closed-form Classifiers", ICML
2024 (Fed3R). He, Tong, Fang, Sun, Zeng, Li, Chen and Zhuang, "AFL: A Single-Round Analytic Approach for Federated
Learning with Pre-trained Models", CVPR 2025.

| Fed3R   | AFL                  | here              |
|---------|----------------------|-------------------|
| A_k     | C_k - gamma I        | gram              |
| b_k     | C_k W_k              | sums              |
| lambda  | 0: gamma is taken away again | ridge     |

AFL sends each client's own solution W_k and C_k, and adds them by pairwise inverses. The result is that of the sums
(tests/truth/test_peers.py computes both), so one arm stands for both methods. Fed3R divides each class's weights by
their norm afterwards (`normalize`); AFL has no constant feature, Fed3R has one, and so has this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import scipy.linalg
from jaxtyping import Float

from coreshot.config import Positive, settings
from coreshot.methods.peers.statistics import (
    PeerMethod,
    Shapes,
    Statistics,
    class_statistics,
    triangle_size,
    upper_triangle,
)
from coreshot.privacy.gaussian_moments import symmetric

LEAST_RIDGE = 1e-12  # of the largest entry of the Gram matrix: fewer records than features must not divide by zero


@settings
class FedRidge(PeerMethod):
    kind: ClassVar[str] = "fed_ridge"
    content: ClassVar[str] = "second moments of the records' features, and their sums by class"

    ridge: Positive = 0.01  # Fed3R's
    normalize: bool = False  # Fed3R: True

    def statistics(self, features: Float[np.ndarray, "n d"], y: Float[np.ndarray, "n outputs"]) -> Statistics:
        return {**class_statistics(features, y), "gram": upper_triangle(features.T @ features)}

    def shapes(self, dimension: int, num_outputs: int) -> Shapes:
        return {
            "sums": (num_outputs, dimension),
            "counts": (num_outputs,),
            "gram": (triangle_size(dimension),),
        }

    def weights(self, kept: Sequence[Statistics]) -> Float[np.ndarray, "d outputs"]:
        total = kept[0]
        gram = symmetric(total["gram"], total["sums"].shape[1])
        np.fill_diagonal(gram, np.diag(gram) + self.ridge + LEAST_RIDGE * np.max(gram))
        found = scipy.linalg.solve(gram, total["sums"].T, assume_a="sym")
        return found / np.maximum(np.linalg.norm(found[:-1], axis=0), 1e-12) if self.normalize else found
