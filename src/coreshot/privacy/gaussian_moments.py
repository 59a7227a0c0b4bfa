"""A client's second moments with Gaussian noise: the private form of the spectral statistics, in one release.

Dwork et al., "Analyze Gauss", STOC 2014, with the norm of a symmetric matrix.

A record is a row a of norm at most 1 (its features) and a label row y of norm at most 1. It adds a a^T to the Gram
matrix and a y^T to the cross moments. With w the share of the privacy budget that the cross moments get, one record
moves

    ( sqrt(1 - w) Gram (as a vector, off-diagonal entries counted twice), sqrt(w) cross )

by at most sqrt((1 - w) |a|^4 + w |a|^2 |y|^2) <= 1 in Euclidean norm. So noise of standard deviation z / sqrt(1 - w)
on the diagonal, z / sqrt(2 (1 - w)) off the diagonal, and z / sqrt(w) on the cross moments is one Gaussian mechanism
of multiplier z. All of it is computed in whole numbers: see `coreshot.privacy.noise`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float, Int

from coreshot.errors import CoreshotError
from coreshot.privacy.guarded_records import Records
from coreshot.privacy.noise import rounded_gaussian
from coreshot.privacy.releases import noise_share
from coreshot.types import Points

UNIT = 2**14  # a row of norm 1 in whole numbers
LABEL_UNIT = 2**10
CROSS_UNIT = UNIT * LABEL_UNIT
LARGEST = 1e150  # of a row's numbers, whose squares are then finite
MAX_RECORDS = 2**24  # so that float64 adds whole numbers exactly

Rows = Callable[[Points], tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "n outputs"]]]


@dataclass(frozen=True)
class Noisy:
    """Upper triangle of the Gram matrix (row by row) and cross moments, as whole numbers of UNIT^2 and CROSS_UNIT."""

    gram: Int[np.ndarray, " triangle"]
    cross: Int[np.ndarray, "d outputs"]


@dataclass(frozen=True)
class Deviations:
    """Standard deviations of the noise in a sum of clients' moments, in units of the records."""

    diagonal: float
    cross: float

    @property
    def off_diagonal(self) -> float:
        """For entries of the Gram matrix that are not on its diagonal."""
        return self.diagonal / float(np.sqrt(2))


def deviations(multiplier: float, cross_share: float, num_noises: float = 1.0) -> Deviations:
    """Standard deviations in the sum of num_noises clients' noises."""
    total = multiplier * np.sqrt(num_noises)
    return Deviations(float(total / np.sqrt(1 - cross_share)), float(total / np.sqrt(cross_share)))


def whole(rows: Float[np.ndarray, "n columns"], unit: int) -> Float[np.ndarray, "n columns"]:
    """Rows clipped to norm 1, in whole numbers of norm at most `unit`: rounded towards zero, so that no row gets
    longer.

    A row that is not finite (features of extreme records) becomes zero, because it would dominate all others.
    """
    rows = np.asarray(rows, np.float64)
    rows = np.where(np.all(np.abs(rows) < LARGEST, axis=1, keepdims=True), rows, 0.0)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    cut = np.trunc(unit * rows / np.maximum(norms, 1.0))
    # If a norm was rounded down, a row can be longer than the unit by some last bits; squares of whole numbers are
    # exact.
    too_long = np.sum(cut**2, axis=1, keepdims=True) > unit**2
    return np.where(too_long, np.trunc(cut * (1 - 2.0**-20)), cut)


def exact_moments(
    rows: Float[np.ndarray, "n d"], labels: Float[np.ndarray, "n outputs"]
) -> tuple[Int[np.ndarray, "d d"], Int[np.ndarray, "d outputs"]]:
    """In whole numbers: float64 products and sums are exact, because all of them are whole numbers below 2^53."""
    if len(rows) > MAX_RECORDS:
        raise CoreshotError(
            f"privacy: {len(rows)} records are more than the {MAX_RECORDS} whose moments are exact; use a part of them."
        )
    features, targets = whole(rows, UNIT), whole(labels, LABEL_UNIT)
    return (features.T @ features).astype(np.int64), (features.T @ targets).astype(np.int64)


@lru_cache(maxsize=4)
def upper_triangle(size: int) -> tuple[Int[np.ndarray, " triangle"], Int[np.ndarray, " triangle"]]:
    """Rows and columns of the entries that are released, row by row; an audit asks for them thousands of times."""
    return np.triu_indices(size)


def noisy_moments(records: Records, name: str, rows_of: Rows, cross_share: float) -> Noisy:
    """The only way from records to private moments. With secure summation, the noise is this client's share."""
    points, multiplier = _take_records(records, name)
    gram, cross = exact_moments(*rows_of(points))
    noise = deviations(multiplier, cross_share)
    upper = upper_triangle(len(gram))
    is_diagonal = upper[0] == upper[1]
    of_gram = np.where(
        is_diagonal,
        rounded_gaussian(noise.diagonal * UNIT**2, is_diagonal.shape),
        rounded_gaussian(noise.off_diagonal * UNIT**2, is_diagonal.shape),
    )
    return Noisy(gram[upper] + of_gram, cross + rounded_gaussian(noise.cross * CROSS_UNIT, cross.shape))


def noisy_cross(records: Records, name: str, rows_of: Rows) -> Int[np.ndarray, "d outputs"]:
    """The cross moments alone, as whole numbers of CROSS_UNIT.

    One record moves them by at most 1, so the multiplier is the noise's standard deviation.
    """
    points, multiplier = _take_records(records, name)
    _, cross = exact_moments(*rows_of(points))
    return cross + rounded_gaussian(multiplier * CROSS_UNIT, cross.shape)


def _take_records(records: Records, name: str) -> tuple[Points, float]:
    """The records, and the standard deviation of this client's noise for a release of sensitivity 1."""
    points, release = records.for_mechanism(name, "gaussian")
    if release.noise_multiplier is None or release.sensitivity != 1:
        raise CoreshotError(
            f"privacy: release {name!r} declares a sensitivity of {release.sensitivity}, not 1, or no noise; "
            "correct `releases`."
        )
    return points, release.noise_multiplier * float(np.sqrt(noise_share(release.num_sharers)))


def symmetric(triangle: Float[np.ndarray, " triangle"], size: int) -> Float[np.ndarray, "d d"]:
    """The inverse of taking the upper triangle."""
    matrix = np.zeros((size, size))
    matrix[upper_triangle(size)] = triangle
    return matrix + np.triu(matrix, 1).T
