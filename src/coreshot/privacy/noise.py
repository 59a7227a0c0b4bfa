"""Gaussian noise for private releases: whole numbers, drawn from the operating system's generator, and never from a seed that anyone has.

Released sums are whole numbers that are computed exactly, and the noise is a Gaussian rounded to whole numbers, so x + round(g) = round(x + g):
what leaves is a rounding, that is a post-processing, of the real-valued Gaussian mechanism, whose accounting therefore holds. No bit of what
leaves depends on how floating-point numbers of different size add up (Mironov 2012), since none are added.

What is not covered: g itself is float64, the inverse of the normal distribution function at 128 random bits, with a relative error of about 1e-15
(in the tails, too, because it is made from the small side). And nobody who can time the computation or read its memory is kept out.
"""

from __future__ import annotations

import os

import numpy as np
import scipy.special
from jaxtyping import Float, Int


def standard_normal(shape: tuple[int, ...]) -> Float[np.ndarray, ...]:
    size = int(np.prod(shape))
    words = np.frombuffer(os.urandom(16 * size), np.uint64).reshape(2, size)
    # A number in (0, 1/2): 63 bits, and 64 more below them, which matter where the first are few. The bit that is left is the sign.
    upper, is_negative = words[0] >> np.uint64(1), (words[0] & np.uint64(1)).astype(bool)
    tail = np.ldexp(upper.astype(np.float64), -64) + np.ldexp(words[1].astype(np.float64) + 0.5, -128)
    draws = -scipy.special.ndtri(tail)
    return np.where(is_negative, -draws, draws).reshape(shape)


def rounded_gaussian(deviation: float, shape: tuple[int, ...]) -> Int[np.ndarray, ...]:
    """The deviation is in units of the whole numbers, and at least a few of them, or rounding would add noise of its own."""
    return np.rint(deviation * standard_normal(shape)).astype(np.int64)
