"""FedCOF: the covariance of the features, which is not sent, estimated from how clients' class means differ.

Goswami, Magistri, Wang, Liu, Twardowski and van de Weijer, "Covariances for Free: Exploiting Mean Distributions for
Federated Learning with Pre-Trained Models", NeurIPS 2025.

| paper           | here                                                                       |
|-----------------|----------------------------------------------------------------------------|
| mu_kc, n_kc     | sums / counts, counts                                                      |
| Sigma_c         | the scatter of mu_kc over clients, each times n_kc, over (clients - 1)     |
| gamma           | shrinkage, added to the diagonal of each Sigma_c                           |

A mean of n records varies n times less than a record, so n_kc times its scatter is the covariance, if clients differ by
chance alone. The Gram matrix is then that of the covariances and of the mean of all records, and the head is the ridge
regression's with columns of norm one, as in the authors' code.
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
    class_means,
    class_statistics,
    unit_columns,
)


@settings
class FedCof(PeerMethod):
    kind: ClassVar[str] = "fed_cof"
    content: ClassVar[str] = "sums of the records' features by class, and the number of records of each class"
    is_sum: ClassVar[bool] = False

    shrinkage: Positive = 1.0  # the authors'
    normalize: bool = True

    def statistics(self, features: Float[np.ndarray, "n d"], y: Float[np.ndarray, "n outputs"]) -> Statistics:
        return class_statistics(features[:, :-1], y)

    def shapes(self, dimension: int, num_outputs: int) -> Shapes:
        return {"sums": (num_outputs, dimension - 1), "counts": (num_outputs,)}

    def weights(self, kept: Sequence[Statistics]) -> Float[np.ndarray, "d outputs"]:
        counts, sums = (np.sum([one[name] for one in kept], axis=0) for name in ("counts", "sums"))
        means, size = class_means(sums, counts), sums.shape[1]
        holders = np.sum([one["counts"] > 0 for one in kept], axis=0)
        # Of each class: (records - 1) / (clients - 1), so that the sum below is that of (N_c - 1) Sigma_c.
        factors = np.maximum(counts - 1, 0) / np.maximum(holders - 1, 1)
        mean = sums.sum(axis=0) / np.sum(counts)
        gram = np.sum(counts) * np.outer(mean, mean)
        for one in kept:
            apart = (class_means(one["sums"], one["counts"]) - means) * (one["counts"] > 0)[:, None]
            rows = np.sqrt(one["counts"] * factors)[:, None] * apart
            gram += rows.T @ rows
        gram += self.shrinkage * float(np.sum(np.maximum(counts - 1, 0))) * np.eye(size) + 1e-9 * np.eye(size)
        found = scipy.linalg.solve(gram, sums.T, assume_a="pos")
        found = unit_columns(found) if self.normalize else found
        return np.concatenate([found, np.zeros((1, found.shape[1]))])
