"""A positive semidefinite matrix in few bytes: its triangular factor, each column rounded relative to its last entry.

Column k of the factor R (R^T R is the matrix) is feature k written in terms of the features before it. Its last entry,
R[k, k], is what is new in feature k. Errors are small relative to that, so that what is new survives in features that
almost follow from others, whatever their units are. Steps are powers of 2. A rounded entry is coded as its number of
bits, by a range coder with one short histogram for each group of rows, and then its lower bits and its sign as they
are. So there is no table of levels, and a large matrix of precise entries costs what its digits cost.

    bytes (little-endian)
    uint16, uint8        the number of columns, the number of groups
    int8 each            the exponent of each column's step
    for each group       uint8 the number of lengths, uint16 count of each length
    uint32               the number of words of the range coder
    uint32 each          these words
    uint8 each           lower bits and signs
"""

from __future__ import annotations

import itertools
import struct
from functools import lru_cache
from typing import Any

import constriction
import numpy as np
import scipy.linalg
from jaxtyping import Float, Int

from coreshot.errors import CoreshotError

MAX_COLUMNS = 4096
NUM_GROUPS = 8
MAX_LENGTH = 40  # bits of a rounded entry
MAX_COUNT = 65_535
SMALLEST_NEW = 1e-5  # of a column's norm: what is new in it is taken to be at least this share


def triangular_factor(matrix: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
    """R, upper triangular with a diagonal that is not negative; the matrix may be singular."""
    scales = np.sqrt(np.maximum(np.diag(matrix), 0))  # columns of small units keep their digits
    inverse = np.where(scales > 0, 1 / np.where(scales > 0, scales, 1.0), 0.0)
    values, vectors = np.linalg.eigh(inverse[:, None] * matrix * inverse)
    root = np.sqrt(np.maximum(values, 0))[:, None] * vectors.T * scales
    factor = scipy.linalg.qr(root, mode="r", check_finite=False)[0]
    return np.triu(factor * np.where(np.diag(factor) < 0, -1.0, 1.0)[:, None])


def encode_factor(factor: Float[np.ndarray, "n n"], fineness: Float[np.ndarray, " n"]) -> bytes:
    """`fineness` of a column is the largest step, as a share of what is new in it."""
    new = np.maximum(np.diag(factor), SMALLEST_NEW * np.linalg.norm(factor, axis=0))
    exponents = np.floor(np.log2(np.maximum(new * fineness, 2.0**-120))).clip(-120, 120).astype(np.int64)
    rows, columns = np.triu_indices(len(factor))
    levels = np.rint(factor[rows, columns] / 2.0 ** exponents[columns])
    if np.max(np.abs(levels), initial=0) >= 2.0**MAX_LENGTH:
        raise CoreshotError(f"coding: an entry needs more than {MAX_LENGTH} bits; scale the columns.")
    levels = levels.astype(np.int64)
    lengths = _bit_lengths(np.abs(levels))
    groups = _group_borders(len(levels))
    coder, head = constriction.stream.queue.RangeEncoder(), b""
    for first, last in groups:
        counts = _count(lengths[first:last])
        head += struct.pack("<B", len(counts)) + counts.astype("<u2").tobytes()
        if len(counts) > 1:
            coder.encode(lengths[first:last].astype(np.int32), _model(counts))
    words = coder.get_compressed().astype("<u4")
    start = struct.pack("<HB", len(factor), len(groups)) + exponents.astype(np.int8).tobytes()
    return start + head + struct.pack("<I", len(words)) + words.tobytes() + _pack_bits(levels, lengths)


def decode_factor(data: bytes, num_columns: int, where: str) -> Float[np.ndarray, "n n"]:
    """The inverse; a CoreshotError if encode_factor could not have made these bytes."""
    try:
        return _decode(data, num_columns)
    except (struct.error, ValueError, AssertionError, IndexError) as error:
        raise CoreshotError(f"{where}: the coded matrix is damaged ({error}); distill it again.") from None


def coded_columns(data: bytes) -> int:
    """The number of columns that the code says; 0 of no code."""
    return int.from_bytes(data[:2], "little")


def _decode(data: bytes, num_columns: int) -> Float[np.ndarray, "n n"]:
    found, num_groups = struct.unpack_from("<HB", data)
    if found != num_columns or found > MAX_COLUMNS:
        raise ValueError(f"it has {found} columns, where {num_columns} are expected")
    exponents, offset = np.frombuffer(data, np.int8, found, 3).astype(np.int64), 3 + found
    places, columns = _upper_places(found)
    groups = _group_borders(len(places))
    if num_groups != len(groups):
        raise ValueError(f"it has {num_groups} groups, where {len(groups)} are expected")
    histograms = []
    for _ in groups:
        (size,) = struct.unpack_from("<B", data, offset)
        counts = np.frombuffer(data, "<u2", size, offset + 1).astype(np.int64)
        if not 0 < size <= MAX_LENGTH + 1 or counts.min() < 1:
            raise ValueError("a histogram is empty, or too long, or has a length that never occurs")
        histograms.append(counts)
        offset += 1 + 2 * size
    (num_words,) = struct.unpack_from("<I", data, offset)
    words = np.frombuffer(data, "<u4", num_words, offset + 4).astype(np.uint32)
    coder = constriction.stream.queue.RangeDecoder(words) if num_words else None
    lengths = np.zeros(len(places), np.int64)
    for (first, last), counts in zip(groups, histograms, strict=True):
        if len(counts) > 1:  # a single length needs no code
            if coder is None:
                raise ValueError("there is a histogram and no code")
            lengths[first:last] = coder.decode(_model(counts), last - first)
    levels = _unpack_bits(np.frombuffer(data, np.uint8, offset=offset + 4 + 4 * num_words), lengths)
    factor = np.zeros(found * found)
    factor[places] = levels * (2.0**exponents)[columns]
    return factor.reshape(found, found)


@lru_cache(maxsize=8)
def _upper_places(size: int) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
    """Of an upper triangle: places in the whole matrix, row after row, and columns."""
    rows, columns = np.triu_indices(size)
    return rows * size + columns, columns


def _group_borders(size: int) -> list[tuple[int, int]]:
    """Entries of neighbouring rows are alike."""
    borders = np.linspace(0, size, min(NUM_GROUPS, size) + 1).astype(int)
    return [(int(first), int(last)) for first, last in itertools.pairwise(borders)]


def _bit_lengths(sizes: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    return np.frexp(sizes.astype(np.float64))[1].astype(np.int64)


def _count(lengths: Int[np.ndarray, " n"]) -> Int[np.ndarray, " lengths"]:
    """Halved until all fit two bytes; at least 1, so that every length can be coded."""
    counts = np.bincount(lengths)
    while counts.max() > MAX_COUNT:
        counts = counts >> 1
    return np.maximum(counts, 1)


def _model(counts: Int[np.ndarray, " lengths"]) -> Any:
    # Quotients of integers are the same on every machine, which the decoder needs.
    return constriction.stream.model.Categorical(counts.astype(np.float64) / float(counts.sum()), perfect=False)


def _bit_places(lengths: Int[np.ndarray, " n"]) -> tuple[Int[np.ndarray, " n"], int]:
    """Where each entry's lower bits begin, and the number of all: the highest bit of a number is known to be 1, and
    the sign takes its place."""
    ends = np.cumsum(lengths)
    return ends - lengths, int(ends[-1]) if len(ends) else 0


def _pack_bits(levels: Int[np.ndarray, " n"], lengths: Int[np.ndarray, " n"]) -> bytes:
    places, total = _bit_places(lengths)
    bits, sizes = np.zeros(total, np.uint8), np.abs(levels)
    for bit in range(int(lengths.max(initial=0))):
        used = lengths > bit
        is_sign = lengths[used] == bit + 1
        bits[places[used] + bit] = np.where(is_sign, levels[used] < 0, sizes[used] >> bit & 1)
    return np.packbits(bits).tobytes()


def _unpack_bits(data: np.ndarray, lengths: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    places, total = _bit_places(lengths)
    if len(data) != -(-total // 8):
        raise ValueError(f"it has {len(data)} bytes of lower bits, where {-(-total // 8)} are expected")
    used = lengths > 0
    if not np.any(used):
        return np.zeros(len(lengths), np.int64)
    # The lowest bit of an entry comes first, and bytes begin with their highest: turned round, an entry is some bits of
    # the eight bytes from its first one on.
    turned = np.concatenate([np.packbits(np.unpackbits(data), bitorder="little"), np.zeros(8, np.uint8)])
    eight = np.ndarray((len(turned) - 7,), "<u8", buffer=turned.data, strides=(1,))
    first = places[used]
    found = (eight[first >> 3] >> (first & 7).astype(np.uint64)).astype(np.int64)
    found &= (np.int64(1) << lengths[used]) - 1
    highest = np.int64(1) << (lengths[used] - 1)
    levels = np.zeros(len(lengths), np.int64)
    levels[used] = (found | highest) * np.where(found & highest, -1, 1)
    return levels
