"""The spectral coreset: K rows (Z, U) in feature space with the same second moments as a client's data.

Eckart and Young, "The approximation of one matrix by another of lower rank", Psychometrika 1936.

| docs/spectral.md            | here                                                            |
|-----------------------------|-----------------------------------------------------------------|
| Phi, Y, s                   | features, labels (centred one-hot vectors or targets), label_scale |
| S = [Phi, s Y]^T [Phi, s Y] | `Moments.joint`, with s = 1                                     |
| Z, U                        | `Rows.features`, `Rows.labels`                                  |

For a Bayesian linear head with Gaussian noise, a client's likelihood depends on its data only through S. So rows with
the same product are a coreset whose posterior is exactly that of the data. rank(S) rows suffice; with fewer rows, the
truncated SVD of [Phi, s Y] is the best choice in spectral and Frobenius norm.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

RANK_TOLERANCE = 1e-12  # eigenvalues of S below this fraction of the largest are rounding errors


@dataclass(frozen=True)
class Rows:
    """A client's K rows, and the size of what they leave out."""

    features: Float[np.ndarray, "rows d"]
    labels: Float[np.ndarray, "rows outputs"]
    next_eigenvalue: float  # of S, the largest that is left out: the spectral norm of the error; 0 if there is none

    @property
    def num_rows(self) -> int:
        return len(self.features)


def spectral_rows(
    features: Float[np.ndarray, "n d"], labels: Float[np.ndarray, "n outputs"], num_rows: int | None, label_scale: float
) -> Rows:
    """The truncated SVD of [Phi, s Y], by the eigenvectors of the smaller Gram matrix, in float64.

    num_rows None keeps all rows that are not rounding errors.
    """
    joint = np.concatenate([features, label_scale * labels], axis=1).astype(np.float64)
    if len(joint) > joint.shape[1]:
        return rows_of_gram(joint.T @ joint, features.shape[1], num_rows, label_scale)
    values, vectors = np.linalg.eigh(joint @ joint.T)
    kept = _largest(values, num_rows)
    return _finish(vectors[:, kept].T @ joint, values, kept, features.shape[1], label_scale)


def rows_of_gram(
    gram: Float[np.ndarray, "columns columns"], dimension: int, num_rows: int | None, label_scale: float
) -> Rows:
    """The same from S itself, for more records than columns: memory is then that of S, however many there are."""
    values, vectors = np.linalg.eigh(gram)
    kept = _largest(values, num_rows)
    return _finish(np.sqrt(values[kept])[:, None] * vectors[:, kept].T, values, kept, dimension, label_scale)


def sum_of_chunks(
    chunks: Iterable[tuple[Float[np.ndarray, "_ d"], Float[np.ndarray, "_ outputs"]]],
    num_columns: int,
    label_scale: float,
) -> Float[np.ndarray, "{num_columns} {num_columns}"]:
    """S of records that are there in parts: features and labels."""
    gram = np.zeros((num_columns, num_columns))
    for features, labels in chunks:
        joint = np.concatenate([features, label_scale * labels], axis=1).astype(np.float64)
        gram += joint.T @ joint
    return gram


def _finish(
    rows: Float[np.ndarray, "rows columns"],
    values: Float[np.ndarray, " n"],
    kept: np.ndarray,
    dimension: int,
    label_scale: float,
) -> Rows:
    # An eigenvector's sign is arbitrary. A row's largest entry is made positive, so that equal data give equal bytes.
    largest = np.take_along_axis(rows, np.argmax(np.abs(rows), axis=1)[:, None], axis=1)
    rows = rows * np.where(largest < 0, -1.0, 1.0)
    found = rows[:, :dimension], rows[:, dimension:] / label_scale
    left_out = np.sort(values)[: len(values) - len(kept)]
    return Rows(*found, next_eigenvalue=max(0.0, float(left_out[-1])) if len(left_out) else 0.0)


def rows_operations(num_examples: int, num_columns: int) -> float:
    """Of `spectral_rows`: the smaller Gram matrix, its eigenvectors (about ten of its cubes), and the rows."""
    small, large = sorted((num_examples, num_columns))
    return 4 * small**2 * large + 10 * small**3


def _largest(values: Float[np.ndarray, " n"], number: int | None) -> np.ndarray:
    order = np.argsort(values)[::-1]
    order = order[values[order] > RANK_TOLERANCE * values[order[0]]]
    return order[:number]


@dataclass(frozen=True)
class Moments:
    """Sums over observations of products of features (the last is the constant one) and labels.

    Moments of several clients are added, and can be subtracted again.
    """

    joint: Float[np.ndarray, "d+outputs d+outputs"]  # [Phi, Y]^T [Phi, Y]
    num_examples: float
    num_outputs: int

    @classmethod
    def from_rows(
        cls, features: Float[np.ndarray, "rows d"], labels: Float[np.ndarray, "rows outputs"], num_examples: float
    ) -> Moments:
        joint = np.concatenate([features, labels], axis=1).astype(np.float64)
        return cls(joint.T @ joint, float(num_examples), labels.shape[1])

    def __add__(self, other: Moments) -> Moments:
        return Moments(self.joint + other.joint, self.num_examples + other.num_examples, self.num_outputs)

    def __sub__(self, other: Moments) -> Moments:
        return Moments(self.joint - other.joint, self.num_examples - other.num_examples, self.num_outputs)

    @property
    def dimension(self) -> int:
        return len(self.joint) - self.num_outputs

    @property
    def gram(self) -> Float[np.ndarray, "d d"]:
        return self.joint[: self.dimension, : self.dimension]

    @property
    def cross(self) -> Float[np.ndarray, "d outputs"]:
        return self.joint[: self.dimension, self.dimension :]

    @property
    def label_energy(self) -> float:
        return float(np.trace(self.joint[self.dimension :, self.dimension :]))


def sum_of(groups: Sequence[Moments]) -> Moments:
    """One after the other, in one new matrix."""
    joint = groups[0].joint.copy()
    for group in groups[1:]:
        joint += group.joint
    return Moments(joint, sum(group.num_examples for group in groups), groups[0].num_outputs)
