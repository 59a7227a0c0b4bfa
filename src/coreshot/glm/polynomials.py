"""Polynomials of a table's inputs: the inputs themselves, then squares, products and higher powers, as many as fit.

The terms follow from the study alone. Their span does not change if a column is shifted or scaled, because each term
comes with all terms of lower degree that it needs. So a public range that is far too wide costs nothing:
`standard_basis` rewrites any sums of these features as sums of products of standardised columns.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, combinations_with_replacement

import numpy as np
from jaxtyping import Float, Int

Term = tuple[int, ...]  # the inputs of a product, an input once for each power

MAX_DEGREE = 5
CUBES = 4  # where not all products of two inputs fit, one in so many of the additional features is a cube
SMALLEST_DEVIATION = 2e-5  # of an input, whose range is -1 to 1; below it, the input counts as constant
SMALLEST_SQUARE = 1e-6  # of a product of standardised inputs; below it, the product counts as constant
ROUNDING = 1e-13  # the share of a sum that rounding may change, with room to spare


@dataclass(frozen=True)
class Polynomials:
    """Features [1, terms...] of records; the terms are sorted by degree."""

    terms: tuple[Term, ...]

    @property
    def dimension(self) -> int:
        """Of a record's features, the constant included."""
        return len(self.terms) + 1

    @property
    def groups(self) -> Int[np.ndarray, " terms"]:
        """0 for inputs, 1 for products of two, 2 for higher degrees: each group has a prior variance of its own."""
        return np.asarray([min(len(term), 3) - 1 for term in self.terms])

    def __call__(self, x: Float[np.ndarray, "n inputs"]) -> Float[np.ndarray, "n d"]:
        x = np.asarray(x, np.float64).reshape(len(x), -1)
        features = np.ones((len(x), self.dimension))
        for column, term in enumerate(self.terms, 1):
            for entry in term:
                features[:, column] *= x[:, entry]
        return features

    def shifted_basis(
        self, center: Float[np.ndarray, " inputs"], scale: Float[np.ndarray, " inputs"]
    ) -> Float[np.ndarray, "d d"]:
        """A, such that features(x) @ A = features((x - center) / scale)."""
        rows, columns, factors, left = _expansion(self.terms)
        basis = np.zeros((self.dimension, self.dimension))
        basis[0, 0] = 1.0
        # Multiplied one after the other; the last number is 1, which fills up short terms.
        inverse, negative = np.append(1 / scale, 1.0), np.append(-center, 1.0)
        size, offset = np.ones(len(rows)), np.ones(len(rows))
        for entries, others in zip(factors, left, strict=True):
            size, offset = size * inverse[entries], offset * negative[others]
        np.add.at(basis, (rows, columns), size * offset)
        return basis

    def standard_basis(self, moments: Float[np.ndarray, "d d"]) -> Float[np.ndarray, "d d"]:
        """A, such that features @ A are 1 and products of standardised inputs, with mean 0 and variance 1.

        `moments` is the sum of products of features, whose first entry is the number of records. A feature that is
        constant in these records becomes 0.
        """
        singles = [column for column, term in enumerate(self.terms, 1) if len(term) == 1]
        mean = moments[0, singles] / moments[0, 0]
        basis = self.shifted_basis(mean, deviations(np.diag(moments)[singles] / moments[0, 0] - mean**2))
        basis[0, 1:] -= moments[0] @ basis[:, 1:] / moments[0, 0]
        squares = np.einsum("ij,ij->j", basis[:, 1:], moments @ basis[:, 1:]) / moments[0, 0]
        # What differences of large sums lose to rounding. A feature that is not well above it would be noise.
        rounding = ROUNDING * (np.sqrt(np.abs(np.diag(moments)) / moments[0, 0]) @ np.abs(basis[:, 1:])) ** 2
        is_known = squares > np.maximum(rounding, SMALLEST_SQUARE)
        basis[:, 1:] *= np.where(is_known, 1 / np.sqrt(np.where(is_known, squares, 1.0)), 0.0)
        return basis


def deviations(variances: Float[np.ndarray, " inputs"]) -> Float[np.ndarray, " inputs"]:
    """1 for an input that does not vary."""
    is_constant = variances <= SMALLEST_DEVIATION**2
    return np.where(is_constant, 1.0, np.sqrt(np.where(is_constant, 1.0, variances)))


@lru_cache(maxsize=4096)
def _splits(term: Term) -> tuple[tuple[Term, Term], ...]:
    """All ways to divide the factors of a term into two products."""
    return tuple(
        (
            tuple(entry for place, entry in enumerate(term) if mask >> place & 1),
            tuple(entry for place, entry in enumerate(term) if not mask >> place & 1),
        )
        for mask in range(2 ** len(term))
    )


@lru_cache(maxsize=16)
def _expansion(terms: tuple[Term, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Of all ways to divide all terms: the place of the factors that are kept, that of the term, the term's factors and
    those that are left, filled up with -1, the last number."""
    place = {(): 0, **{term: column for column, term in enumerate(terms, 1)}}
    ways = [(term, kept, left) for term in terms for kept, left in _splits(term)]
    longest = max((len(term) for term in terms), default=0)

    def filled(entries: Sequence[Term]) -> np.ndarray:
        full = [[*one, *[-1] * (longest - len(one))] for one in entries]
        return np.asarray(full, np.int64).reshape(len(full), longest).T

    rows = np.asarray([place[kept] for _, kept, _ in ways], np.int64)
    columns = np.asarray([place[term] for term, _, _ in ways], np.int64)
    return rows, columns, filled([term for term, _, _ in ways]), filled([left for _, _, left in ways])


@lru_cache(maxsize=16)
def choose_terms(
    num_inputs: int, powers: tuple[int, ...], products: tuple[int, ...], dimension: int
) -> tuple[Term, ...]:
    """All inputs, then at most `dimension` terms in all, sorted by degree.

    `powers` are the inputs that are numbers: a power of an input that is 0 or 1 is the input itself. `products` are the
    inputs that enter products with others. Which products are there, if not all fit, is drawn by a hash of each.
    """
    chosen: list[Term] = [(entry,) for entry in range(num_inputs)]
    room = max(dimension - num_inputs, 0)

    def take(terms: Sequence[Term], limit: int) -> int:
        chosen.extend(terms[:limit])
        return len(terms[:limit])

    room -= take([(entry, entry) for entry in powers], room)
    pairs = list(combinations(products, 2))
    if len(pairs) > room:
        cubes = take([(entry,) * 3 for entry in powers], room // CUBES)
        take(_shuffled(pairs), room - cubes)
        return tuple(sorted(chosen, key=len))
    room -= take(pairs, room)
    for degree in range(3, MAX_DEGREE + 1):
        terms = [term for term in combinations_with_replacement(products, degree) if _is_new(term, powers)]
        if len(terms) > room:
            # Cubes first; mixed terms of degree 3 need only terms of degree 2, which are all there.
            if degree == 3:
                room -= take([(entry,) * degree for entry in powers], room)
                take(_shuffled([term for term in terms if len(set(term)) > 1]), room)
            break
        room -= take(terms, room)
    return tuple(sorted(chosen, key=len))


def _is_new(term: Term, powers: Sequence[int]) -> bool:
    return all(entry in powers for entry in term if term.count(entry) > 1)


def _shuffled(terms: Sequence[Term]) -> list[Term]:
    """In an order that is the same on every machine and in every version."""
    return sorted(terms, key=lambda term: hashlib.sha256(str(term).encode()).digest())
