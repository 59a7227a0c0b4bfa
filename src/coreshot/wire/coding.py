"""Rows of numbers in few bytes: uniform quantisation with one step for all rows, then arithmetic coding.

Decoding gives the same float32 numbers on every machine.

One step for all rows is optimal in rate-distortion theory (reverse water-filling; Cover and Thomas 2006, section
10.3.3): small rows get few bits, the smallest none. Callers sort the rows by size, so that neighbouring rows share a
histogram, which is part of the code. The range coder (constriction) then needs 3 to 5 % more bytes than the entropy of
the rows; zlib needs 40 % more, lzma 20 %.

    bytes (little-endian)
    uint32, uint8        the number of rows, the number of groups
    for each group       int16 lowest level, uint16 number of levels, uint16 count of each level
    uint32 each          the words of the range coder
"""

from __future__ import annotations

import struct
from typing import Any

import constriction
import numpy as np
from jaxtyping import Float, Int

from coreshot.errors import CoreshotError

MAX_LEVEL = 32_767  # the largest absolute level
MAX_COUNT = 65_535
LARGEST = 1e18  # so that squares, and sums of many of them, are finite in float32
MAX_NUMBERS = 2**25  # of one code: a short code that claims to hold more is refused before memory is allocated (128 MB)
MAX_GROUPS = 16  # of rows that share a histogram: with 32, the additional histograms cost what they save
NUMBERS_PER_LEVEL = 64  # at least, in each group, for each level of its histogram; otherwise there are fewer groups
SEARCH_STEPS = 14  # codes at most that are made for the finest step that fits
MODEL_STEPS = 5  # of them by the model, the others by bisection
TARGET, CLOSE_ENOUGH = 0.9995, 0.9985  # of the bytes that are allowed: what is aimed at, and what ends the search
BITS_OF_ONE = 17.1  # 2 pi e: a Gaussian of deviation s has the entropy log2(2 pi e s^2) / 2
FINEST_TOLERANCE = 1e-4  # of a step's logarithm: so close to the finest, the finest itself is tried
EMPTY = 5  # bytes of a code without rows


def encode_rows(rows: Float[np.ndarray, "rows columns"], step: float, keep_zeros: bool = False) -> bytes:
    """Round to multiples of the float32 step and code them; rows that round to zeros are dropped unless keep_zeros."""
    levels = np.rint(rows / np.float32(step))
    if np.max(np.abs(levels), initial=0) > MAX_LEVEL:
        raise CoreshotError(
            f"coding: a step of {step:g} needs more than {MAX_LEVEL} levels either side of 0; take a larger one."
        )
    levels = (levels if keep_zeros else levels[np.any(levels != 0, axis=1)]).astype(np.int32)
    groups = _split_groups(levels)
    coder, head = constriction.stream.queue.RangeEncoder(), struct.pack("<IB", len(levels), len(groups))
    for group in groups:
        lowest = int(group.min())
        counts = _count_levels(group - lowest)
        head += struct.pack("<hH", lowest, len(counts)) + counts.astype("<u2").tobytes()
        if len(counts) > 1:
            coder.encode((group - lowest).ravel().astype(np.int32), _make_model(counts))
    return head + coder.get_compressed().astype("<u4").tobytes()


def _split_groups(levels: Int[np.ndarray, "rows columns"]) -> list[np.ndarray]:
    if not len(levels):
        return []
    affordable = levels.size // (NUMBERS_PER_LEVEL * int(np.ptp(levels) + 1))
    return np.array_split(levels, max(1, min(MAX_GROUPS, len(levels), affordable)))


def _count_levels(shifted: Int[np.ndarray, "rows columns"]) -> Int[np.ndarray, " levels"]:
    """The count of each level, halved until all fit two bytes; at least 1, so that every level can be coded."""
    counts = np.bincount(shifted.ravel())
    while counts.max() > MAX_COUNT:
        counts = counts >> 1
    return np.maximum(counts, 1)


def _make_model(counts: Int[np.ndarray, " levels"]) -> Any:
    # Quotients of integers are the same on every machine, which the decoder needs.
    return constriction.stream.model.Categorical(counts.astype(np.float64) / float(counts.sum()), perfect=False)


def decode_rows(
    data: bytes, step: float, num_columns: int, max_rows: int, where: str
) -> Float[np.ndarray, "rows columns"]:
    """The inverse of encode_rows; a CoreshotError if encode_rows could not have made these bytes."""
    try:
        levels = _decode_levels(data, num_columns, max_rows)
        if not step * float(np.max(np.abs(levels), initial=0)) < LARGEST:
            raise ValueError(f"a step of {step:g} makes its numbers too large")
    except (struct.error, ValueError, AssertionError, IndexError) as error:
        raise CoreshotError(f"{where}: the coded rows are damaged ({error}); distill it again.") from None
    return levels.astype(np.float32) * np.float32(step)


def _decode_levels(data: bytes, num_columns: int, max_rows: int) -> Int[np.ndarray, "rows columns"]:
    num_rows, num_groups = struct.unpack_from("<IB", data)
    if num_rows * num_columns > MAX_NUMBERS:
        raise ValueError(f"{num_rows} rows of {num_columns} numbers are more than the {MAX_NUMBERS:,} that are read")
    if num_rows > max_rows or not (num_rows > 0) <= num_groups <= min(MAX_GROUPS, num_rows):
        raise ValueError(f"{num_rows} rows in {num_groups} groups, where at most {max_rows} can be")
    histograms, offset = _read_histograms(data, num_groups)
    if (len(data) - offset) % 4:
        raise ValueError("the code is not whole words")
    words = np.frombuffer(data, "<u4", offset=offset).astype(np.uint32)
    coder = constriction.stream.queue.RangeDecoder(words) if len(words) else None
    sizes = [len(part) for part in np.array_split(np.zeros(num_rows), num_groups)] if num_groups else []
    found = [np.zeros((0, num_columns), np.int32)]
    for (lowest, counts), size in zip(histograms, sizes, strict=True):
        levels = np.zeros(size * num_columns, np.int32)
        if len(counts) > 1:  # a single level needs no code
            if coder is None:
                raise ValueError("there is a histogram and no code")
            levels = coder.decode(_make_model(counts), size * num_columns)
        found.append(levels.reshape(size, num_columns) + lowest)
    return np.concatenate(found)


def _read_histograms(data: bytes, num_groups: int) -> tuple[list[tuple[int, np.ndarray]], int]:
    """The lowest level and the counts of each group, and where the range coder's words begin."""
    histograms, offset = [], 5
    for _ in range(num_groups):
        lowest, num_levels = struct.unpack_from("<hH", data, offset)
        counts = np.frombuffer(data, "<u2", num_levels, offset + 4).astype(np.int64)
        if num_levels == 0 or counts.min() < 1:
            raise ValueError("a histogram is empty or has a level that never occurs")
        histograms.append((lowest, counts))
        offset += 4 + 2 * num_levels
    return histograms, offset


def find_finest_step(rows: Float[np.ndarray, "rows columns"], finest: float, max_bytes: int) -> tuple[float, bytes]:
    """The smallest step, not below `finest`, with which the code has at most max_bytes; and the code.

    `_model_bytes` says how many bytes a step would take. What one code takes in truth corrects it for the next step, so
    two or three codes are made where a bisection makes twelve. The step is within about 0.2 % of the smallest.
    """
    sizes = np.sqrt(np.mean(np.square(rows, dtype=np.float64), axis=1))
    low, high = np.log(finest), np.log(2 * float(np.max(np.abs(rows))))
    best: tuple[float, bytes] | None = None
    place = _place_of(sizes, rows.shape[1], TARGET * max_bytes, low, high)
    for attempt in range(SEARCH_STEPS):
        is_finest = place - np.log(finest) < FINEST_TOLERANCE
        step = finest if is_finest else float(np.float32(np.exp(place)))
        code = encode_rows(rows, step)
        if is_finest and len(code) <= max_bytes:
            return step, code
        if len(code) <= max_bytes and len(code) > EMPTY:
            best, high = (step, code), place
            if len(code) >= CLOSE_ENOUGH * max_bytes:
                break
        else:
            low, high = (place, high) if len(code) > max_bytes else (low, place)
        correction = len(code) / _model_bytes(sizes, rows.shape[1], place)
        place = _place_of(sizes, rows.shape[1], TARGET * max_bytes / correction, low, high)
        # Where the model leads nowhere new, or does not settle, the middle.
        if attempt >= MODEL_STEPS or not low < place < high:
            place = (low + high) / 2
    if best is None:
        raise CoreshotError(f"coding: no row of {rows.shape[1]} numbers fits {max_bytes} bytes; raise max_bytes.")
    return best


def _model_bytes(sizes: Float[np.ndarray, " rows"], num_columns: int, log_step: float) -> float:
    """Of Gaussian rows of these root mean squares: the entropy of a rounded Gaussian, about."""
    ratios = sizes / np.exp(log_step)
    return float(np.sum(0.5 * np.log2(1 + BITS_OF_ONE * ratios**2))) * num_columns / 8 + 1.0


def _place_of(sizes: Float[np.ndarray, " rows"], num_columns: int, size: float, low: float, high: float) -> float:
    """The logarithm of the step that takes so many bytes by the model: it falls with the step."""
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if _model_bytes(sizes, num_columns, middle) > size else (low, middle)
    return (low + high) / 2
