"""What a client's message says: its rows, from which moments are made when they are needed.

Rows take a fraction of the moments' memory (230 rows of 4,159 numbers: 4 MB, and 138 MB). Sums over many clients are
made of their rows, a few thousand at a time, so that each sum of products is one large one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from coreshot.spectral.blocked import add_gram, mirror
from coreshot.spectral.coreset import Moments

ROWS_AT_ONCE = 2048  # that are multiplied together
NUM_SAMPLED = 1_000  # products that tell whether two clients sent almost the same rows


@dataclass(frozen=True)
class ReceivedRows:
    sent: Float[np.ndarray, "rows columns"]  # [Z, s U], float32
    label_scale: float
    num_examples: float
    num_outputs: int

    @classmethod
    def of_moments(cls, moments: Moments) -> ReceivedRows:
        """Rows with these moments."""
        values, vectors = np.linalg.eigh(moments.joint)
        rows = np.sqrt(np.maximum(values, 0))[:, None] * vectors.T
        return cls(rows, 1.0, moments.num_examples, moments.num_outputs)

    @property
    def dimension(self) -> int:
        return self.sent.shape[1] - self.num_outputs

    @property
    def rows(self) -> Float[np.ndarray, "rows columns"]:
        """[Z, U] in float64."""
        columns = np.arange(self.sent.shape[1])
        return self.sent / np.where(columns >= self.dimension, self.label_scale, 1.0)

    @property
    def moments(self) -> Moments:
        return sum_moments([self])

    @property
    def sample(self) -> Float[np.ndarray, " sampled"]:
        """Some entries of the moments."""
        columns = self.sent.shape[1]
        places = np.arange(0, columns**2, -(-(columns**2) // NUM_SAMPLED))
        rows = self.rows
        return np.sum(rows[:, places // columns] * rows[:, places % columns], axis=0)


def sum_moments(parts: Iterable[ReceivedRows], start: Moments | None = None) -> Moments:
    """Of all these clients, and of `start`, in this order."""
    joint = None if start is None else start.joint.copy()
    count, num_outputs = (0.0, 0) if start is None else (start.num_examples, start.num_outputs)
    waiting, num_waiting = list[np.ndarray](), 0
    for part in parts:
        joint = np.zeros((part.sent.shape[1],) * 2) if joint is None else joint
        count, num_outputs = count + part.num_examples, part.num_outputs
        waiting.append(part.rows)
        num_waiting += len(part.sent)
        if num_waiting >= ROWS_AT_ONCE:
            add_gram(joint, np.concatenate(waiting))
            waiting, num_waiting = [], 0
    assert joint is not None
    if waiting:
        add_gram(joint, np.concatenate(waiting))
    mirror(joint)
    return Moments(joint, count, num_outputs)
