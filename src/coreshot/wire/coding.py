"""Rows of numbers as few bytes: integers of one step for all rows, then an arithmetic code. Decoded, they are the same floats everywhere.

One step for all rows is what rate-distortion theory asks for (reverse water-filling): small rows get few bits, the smallest none. Rows come in order
of size, so neighbours share a histogram, which is sent; the range coder (constriction) then takes 3 to 5 % more than the rows' entropy, where zlib
takes 40 and lzma 20.

    bytes: number of rows (uint32), of groups (uint8); of each group the lowest level (int16), the number of levels (uint16), their counts (uint16);
    then the range coder's words (uint32). All little-endian.
"""

from __future__ import annotations

import struct
from typing import Any

import constriction
import numpy as np
from jaxtyping import Float, Int

from coreshot.errors import CoreshotError

MAX_LEVEL = 32_767  # either side of 0
MAX_COUNT = 65_535
LARGEST = 1e18  # so that a square, and a sum of many, is still a float32
MAX_NUMBERS = (
    2**25
)  # of one code, so that a few bytes that claim to be much are refused before room is made for it: 128 MB
MAX_GROUPS = 16  # of rows that share a histogram: with 32 the histograms cost what they gain
NUMBERS_PER_LEVEL = 64  # at least so many of a group for each level of its histogram, or groups are fewer
SEARCH_STEPS = 12  # halvings in search of the finest step that fits: to about 0.2 % of it


def encode_rows(rows: Float[np.ndarray, "rows columns"], step: float, keep_zeros: bool = False) -> bytes:
    """Nearest multiples of the float32 step; rows that come to zeros are left out, or kept where it matters which row is which."""
    levels = np.rint(rows / np.float32(step))
    if np.max(np.abs(levels), initial=0) > MAX_LEVEL:
        raise CoreshotError(
            f"coding: a step of {step:g} needs more than {MAX_LEVEL} levels either side of 0; take a larger one."
        )
    levels = (levels if keep_zeros else levels[np.any(levels != 0, axis=1)]).astype(np.int32)
    groups = _groups(levels)
    coder, head = constriction.stream.queue.RangeEncoder(), struct.pack("<IB", len(levels), len(groups))
    for group in groups:
        lowest = int(group.min())
        counts = _counts(group - lowest)
        head += struct.pack("<hH", lowest, len(counts)) + counts.astype("<u2").tobytes()
        if len(counts) > 1:
            coder.encode((group - lowest).ravel().astype(np.int32), _model(counts))
    return head + coder.get_compressed().astype("<u4").tobytes()


def _groups(levels: Int[np.ndarray, "rows columns"]) -> list[np.ndarray]:
    if not len(levels):
        return []
    affordable = levels.size // (NUMBERS_PER_LEVEL * int(np.ptp(levels) + 1))
    return np.array_split(levels, max(1, min(MAX_GROUPS, len(levels), affordable)))


def _counts(shifted: Int[np.ndarray, "rows columns"]) -> Int[np.ndarray, " levels"]:
    """How often each level occurs, halved until it fits two bytes; at least once, so that it can be coded."""
    counts = np.bincount(shifted.ravel())
    while counts.max() > MAX_COUNT:
        counts = counts >> 1
    return np.maximum(counts, 1)


def _model(counts: Int[np.ndarray, " levels"]) -> Any:
    # Quotients of integers: the same on every machine, as the decoder needs them.
    return constriction.stream.model.Categorical(counts.astype(np.float64) / float(counts.sum()), perfect=False)


def decode_rows(
    data: bytes, step: float, num_columns: int, max_rows: int, where: str
) -> Float[np.ndarray, "rows columns"]:
    """Multiples of the float32 step, in float32; a CoreshotError where the bytes are not what encode_rows makes."""
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
    offset, models = 5, []
    for _ in range(num_groups):
        lowest, num_levels = struct.unpack_from("<hH", data, offset)
        counts = np.frombuffer(data, "<u2", num_levels, offset + 4).astype(np.int64)
        if num_levels == 0 or counts.min() < 1:
            raise ValueError("a histogram is empty or has a level that never occurs")
        models.append((lowest, counts))
        offset += 4 + 2 * num_levels
    if (len(data) - offset) % 4:
        raise ValueError("the code is not whole words")
    coder = (
        constriction.stream.queue.RangeDecoder(np.frombuffer(data, "<u4", offset=offset).astype(np.uint32))
        if len(data) > offset
        else None
    )
    sizes = [len(part) for part in np.array_split(np.zeros(num_rows), num_groups)] if num_groups else []
    found = [np.zeros((0, num_columns), np.int32)]
    for (lowest, counts), size in zip(models, sizes, strict=True):
        if len(counts) > 1 and coder is None:
            raise ValueError("there is a histogram and no code")
        levels = (
            coder.decode(_model(counts), size * num_columns)
            if len(counts) > 1 and coder
            else np.zeros(size * num_columns, np.int32)
        )
        found.append(levels.reshape(size, num_columns) + lowest)
    return np.concatenate(found)


def finest_step(rows: Float[np.ndarray, "rows columns"], finest: float, max_bytes: int) -> tuple[float, bytes]:
    """The smallest step, from `finest` on, with which the coded rows take at most so many bytes; and their code."""
    code = encode_rows(rows, finest)
    if len(code) <= max_bytes:
        return finest, code
    low, high = np.log(finest), np.log(2 * float(np.max(np.abs(rows))))
    best = None
    for _ in range(SEARCH_STEPS):
        middle = (low + high) / 2
        step = float(np.float32(np.exp(middle)))
        code = encode_rows(rows, step)
        if len(code) <= max_bytes and len(code) > 5:
            best, high = (step, code), middle
        else:
            low, high = (middle, high) if len(code) > max_bytes else (low, middle)
    if best is None:
        raise CoreshotError(f"coding: no row of {rows.shape[1]} numbers fits {max_bytes} bytes; raise max_bytes.")
    return best
