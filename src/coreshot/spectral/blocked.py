"""Gram sums, Cholesky factors and inverses of large matrices in blocks, on all cores.

Each block is one call of BLAS in one thread, and the blocks do not depend on the number of cores: the same matrices
give the same bits however many threads there are. A matrix of at most one block is LAPACK's own.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TypeVar

import numpy as np
import scipy.linalg
from jaxtyping import Float

from coreshot.models.parallel import num_cores, one_blas_thread

BLOCK = 512
Item = TypeVar("Item")

Matrix = Float[np.ndarray, "n n"]


def add_gram(total: Matrix, rows: Float[np.ndarray, "rows n"]) -> None:
    """total += rows^T rows, in place, of the blocks on and below the diagonal: `mirror` makes the others."""
    parts = parts_of(len(total))

    def add(pair: tuple[int, int]) -> None:
        own, other = parts[pair[0]], parts[pair[1]]
        total[own, other] += rows[:, own].T @ rows[:, other]

    each(add, [(i, j) for i in range(len(parts)) for j in range(i + 1)])


def mirror(total: Matrix) -> None:
    """Copy the blocks below the diagonal to their places above it."""
    parts = parts_of(len(total))

    def copy(pair: tuple[int, int]) -> None:
        own, other = parts[pair[0]], parts[pair[1]]
        total[other, own] = total[own, other].T

    each(copy, [(i, j) for i in range(len(parts)) for j in range(i)])


def factorise(matrix: Matrix) -> Matrix:
    """The lower Cholesky factor. The matrix may be overwritten."""
    if len(matrix) <= BLOCK:
        return scipy.linalg.cholesky(matrix, lower=True, overwrite_a=True, check_finite=False)
    parts = parts_of(len(matrix))
    for k, own in enumerate(parts):
        matrix[own, own] = scipy.linalg.cholesky(matrix[own, own], lower=True, check_finite=False)
        inverse = _invert(matrix[own, own])

        def solve(i: int, own: slice = own, inverse: Matrix = inverse) -> None:
            matrix[parts[i], own] = matrix[parts[i], own] @ inverse.T

        def update(pair: tuple[int, int], own: slice = own) -> None:
            matrix[parts[pair[0]], parts[pair[1]]] -= matrix[parts[pair[0]], own] @ matrix[parts[pair[1]], own].T

        below = range(k + 1, len(parts))
        for i in range(k):
            matrix[parts[i], own] = 0.0
        each(solve, below)
        each(update, [(i, j) for i in below for j in range(k + 1, i + 1)])
    return matrix


def factorise_alone(matrix: Matrix) -> Matrix:
    """The same by LAPACK in one thread, for several that are made side by side."""
    turned = np.ascontiguousarray(matrix).T  # a symmetric matrix; LAPACK wants columns that lie together
    return scipy.linalg.cholesky(turned, lower=False, overwrite_a=True, check_finite=False).T


def invert_factor(factor: Matrix) -> Matrix:
    """The inverse of a lower triangular matrix."""
    if len(factor) <= BLOCK:
        return _invert(factor)
    parts, found = parts_of(len(factor)), np.zeros_like(factor)
    diagonal = [_invert(factor[own, own]) for own in parts]

    def column(j: int) -> None:
        own = parts[j]
        found[own, own] = diagonal[j]
        for i in range(j + 1, len(parts)):
            between = slice(own.start, parts[i].start)
            found[parts[i], own] = -diagonal[i] @ (factor[parts[i], between] @ found[between, own])

    each(column, range(len(parts)))
    return found


def _invert(factor: Matrix) -> Matrix:
    return scipy.linalg.solve_triangular(factor, np.eye(len(factor)), lower=True, check_finite=False)


def parts_of(size: int) -> list[slice]:
    return [slice(first, min(first + BLOCK, size)) for first in range(0, size, BLOCK)]


def each(function: Callable[[Item], None], items: Iterable[Item]) -> None:
    """As `map_in_threads`, of work that waits for no other: so all callers share one pool, and it is not made again
    for every panel of a matrix."""
    every = list(items)
    with one_blas_thread():
        if len(every) > 1 and num_cores() > 1:
            deque(_pool(num_cores()).map(function, every), maxlen=0)
        else:
            for item in every:
                function(item)


@lru_cache(maxsize=1)
def _pool(num_threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(num_threads, "blocked")


os.register_at_fork(after_in_child=_pool.cache_clear)  # a copy of this process has none of the threads
