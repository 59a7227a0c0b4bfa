"""Gaussian noise for private releases: whole numbers from the operating system's generator, never from a known seed.

Released sums are whole numbers that are computed exactly, and the noise is a Gaussian rounded to whole numbers, so x +
round(g) = round(x + g). What is released is therefore a rounding, that is post-processing, of the real-valued Gaussian
mechanism, and its accounting holds. No floating-point numbers are added, so attacks on their rounding (Mironov, "On
Significance of the Least Significant Bits for Differential Privacy", CCS 2012) do not apply.

What is not covered: g itself is float64, the inverse of the normal distribution function at 128 random bits, with a
relative error of about 1e-15 (also in the tails, because it is computed from the small side). There is no protection
against somebody who can time the computation or read its memory.
"""

from __future__ import annotations

import os

import numpy as np
import scipy.special
from jaxtyping import Float, Int


def standard_normal(shape: tuple[int, ...]) -> Float[np.ndarray, ...]:
    size = int(np.prod(shape))
    words = np.frombuffer(os.urandom(16 * size), np.uint64).reshape(2, size)
    # A number in (0, 1/2): 63 bits, and below them 64 more, which matter where the first are small. One bit is the
    # sign.
    upper, is_negative = words[0] >> np.uint64(1), (words[0] & np.uint64(1)).astype(bool)
    tail = np.ldexp(upper.astype(np.float64), -64) + np.ldexp(words[1].astype(np.float64) + 0.5, -128)
    draws = -scipy.special.ndtri(tail)
    return np.where(is_negative, -draws, draws).reshape(shape)


def rounded_gaussian(deviation: float, shape: tuple[int, ...]) -> Int[np.ndarray, ...]:
    """The standard deviation is in whole numbers, and at least a few, because rounding adds noise of its own."""
    return np.rint(deviation * standard_normal(shape)).astype(np.int64)
