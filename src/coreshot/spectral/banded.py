"""A symmetric matrix turned into a band: then it is factorised with any ridge in a fraction of the time.

Grimes and Simon, "Solution of large, dense symmetric generalized eigenvalue problems using secondary storage", ACM
TOMS 1988; Bischof, Lang and Sun, "A framework for symmetric band reduction", ACM TOMS 2000 (the first step of it).

| symbol    | here                                                                                           |
|-----------|------------------------------------------------------------------------------------------------|
| A = Q B Q^T | the matrix; Q a product of Householder reflections, B a band of BAND diagonals below the main one |
| V, T      | Q = I - V T V^T of one panel of columns                                                        |

All but a panel's own factorisation are products of matrices: 4/3 n^3 operations in all, as much as four Cholesky
factors, whereas a factor of B + ridge takes n BAND^2. As in `blocked`, blocks do not depend on the number of cores.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from jaxtyping import Float

from coreshot.models.parallel import one_blas_thread
from coreshot.spectral.blocked import each, parts_of

BAND = 96


@dataclass(frozen=True)
class Banded:
    """B by its diagonals, and Q^T C of the right-hand sides C."""

    diagonals: Float[np.ndarray, "diagonals n"]  # the k-th below the main one is diagonals[k, : n - k]
    turned: Float[np.ndarray, "n outputs"]

    def solve(self, ridge: float) -> tuple[float, float]:
        """log det (A + ridge) and trace C^T (A + ridge)^-1 C."""
        shifted = self.diagonals.copy()
        shifted[0] += ridge
        factor = scipy.linalg.cholesky_banded(shifted, lower=True, overwrite_ab=True, check_finite=False)
        found = scipy.linalg.cho_solve_banded((factor, True), self.turned, check_finite=False)
        return 2 * float(np.sum(np.log(factor[0]))), float(np.sum(found * self.turned))


@one_blas_thread()
def to_band(matrix: Float[np.ndarray, "n n"], cross: Float[np.ndarray, "n outputs"]) -> Banded:
    """Of a symmetric matrix, which is left as it is."""
    size, left, turned = len(matrix), matrix.copy(), cross.copy()
    diagonals = np.zeros((min(BAND, size - 1) + 1, size))
    for first in range(0, size, BAND):
        own = slice(first, min(first + BAND, size))
        below = slice(own.stop, size)
        reflected = _reflect(left[below, own]) if own.stop < size else None
        if reflected is not None:
            v, t, triangle = reflected
            left[below, own] = 0.0
            left[own.stop : own.stop + len(triangle), own] = triangle
            _turn(left, own.stop, v, t)
            turned[below] -= v @ (t.T @ (v.T @ turned[below]))
        for k in range(len(diagonals)):
            columns = np.arange(own.start, min(own.stop, size - k))
            diagonals[k, columns] = left[columns + k, columns]
    return Banded(diagonals, turned)


def _reflect(
    panel: Float[np.ndarray, "m b"],
) -> tuple[Float[np.ndarray, "m k"], Float[np.ndarray, "k k"], Float[np.ndarray, "k b"]]:
    """V, T and R with (I - V T V^T)^T panel = [R; 0]."""
    (packed, scales), triangle = scipy.linalg.qr(panel, mode="raw", check_finite=False)
    rank = len(scales)
    v = np.tril(packed[:, :rank], -1)
    v[np.arange(rank), np.arange(rank)] = 1.0
    idle = scales == 0  # no reflection: a column that had nothing below its diagonal
    v[:, idle] = 0.0
    # T^-1 + T^-T = V^T V (Puglisi 1992).
    inverse = np.triu(v.T @ v, 1) + np.diag(1 / np.where(idle, 1.0, scales))
    return v, scipy.linalg.solve_triangular(inverse, np.eye(rank), check_finite=False), triangle[:rank]


def _turn(matrix: Float[np.ndarray, "n n"], first: int, v: Float[np.ndarray, "m k"], t: np.ndarray) -> None:
    """Q^T matrix Q in place, from `first` on, of the blocks on and below the diagonal: matrix - V Z^T - Z V^T with
    Z = W - V T^T V^T W / 2 and W = matrix V T."""
    # The same blocks for every panel, and the rest of one: above the diagonal a block is whole, or never read.
    parts = [slice(max(part.start, first), part.stop) for part in parts_of(len(matrix)) if part.stop > first]
    inner = [slice(part.start - first, part.stop - first) for part in parts]
    w = np.empty_like(v)

    def multiply(i: int) -> None:
        found = matrix[parts[i], first : parts[i].stop] @ v[: inner[i].stop]
        for j in range(i + 1, len(parts)):
            found += matrix[parts[j], parts[i]].T @ v[inner[j]]
        w[inner[i]] = found @ t

    each(multiply, range(len(parts)))
    z = w - 0.5 * v @ (t.T @ (v.T @ w))
    left, right = np.concatenate([v, z], axis=1), np.concatenate([z, v], axis=1)

    def subtract(pair: tuple[int, int]) -> None:
        i, j = pair
        matrix[parts[i], parts[j]] -= left[inner[i]] @ right[inner[j]].T

    each(subtract, [(i, j) for i in range(len(parts)) for j in range(i + 1)])
