"""FedNCM: the head's weights are the classes' mean features, divided by their norms.

Legate, Bernier, Caccia, Oyallon and Belilovsky, "Guiding The Last Layer in Federated Learning with Pre-Trained Models",
NeurIPS 2023.

| paper        | here                                  |
|--------------|---------------------------------------|
| m_c^k, n_c^k | sums and counts of a client           |
| l_c          | a column of `weights`                 |

The paper fine-tunes the network from this head; here the features are fixed, so the head is the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from coreshot.config import settings
from coreshot.methods.peers.statistics import (
    PeerMethod,
    Shapes,
    Statistics,
    class_means,
    class_statistics,
    unit_columns,
)


@settings
class FedNcm(PeerMethod):
    kind: ClassVar[str] = "fed_ncm"
    content: ClassVar[str] = "sums of the records' features by class, and the number of records of each class"

    def statistics(self, features: Float[np.ndarray, "n d"], y: Float[np.ndarray, "n outputs"]) -> Statistics:
        return class_statistics(features[:, :-1], y)

    def shapes(self, dimension: int, num_outputs: int) -> Shapes:
        return {"sums": (num_outputs, dimension - 1), "counts": (num_outputs,)}

    def weights(self, kept: Sequence[Statistics]) -> Float[np.ndarray, "d outputs"]:
        found = unit_columns(class_means(kept[0]["sums"], kept[0]["counts"]).T)
        return np.concatenate([found, np.zeros((1, found.shape[1]))])
