"""Arrays of many records outside of the process's memory: in a file without a name, which ends with the process.

An array above LARGE bytes is such a file on Linux, mapped into memory. The system keeps as much of it there as it has
room for, and takes that back for others; `forget_pages` says that what was read or written so far is not needed now, so
that the memory of the process is that of the parts it works on. The file is in the folder for temporary files (TMPDIR):
what it holds stays on this machine, and nobody can open it by a name. Where that folder has no room, or is itself kept
in memory, nothing is gained and nothing is lost.
"""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress

import numpy as np
from jaxtyping import Float, Int

LARGE = 64 << 20  # bytes
AT_ONCE = 4 << 20  # the same of a part
NUM_SAMPLED = 1024  # rows that tell how a sorted array is cut
Order = Callable[[Float[np.ndarray, "n columns"]], Int[np.ndarray, " n"]]  # equal rows keep their order


def empty_array(shape: Sequence[int], dtype: np.dtype | type = np.float32) -> np.ndarray:
    """Not filled. One of many numbers is in a file, if there is room for it."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if size > LARGE and sys.platform == "linux":
        with suppress(OSError), tempfile.TemporaryFile(prefix="coreshot-") as file:
            # Without this, a disk that is full would end the process at some later line.
            os.posix_fallocate(file.fileno(), 0, size)
            return np.memmap(file, dtype, "r+", shape=tuple(shape))
    return np.empty(shape, dtype)


def forget_pages(array: np.ndarray) -> None:
    """Nothing happens to an array in memory."""
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, mmap.mmap) and sys.platform == "linux":
        base.madvise(mmap.MADV_DONTNEED)


def parts_of(num_rows: int, row_bytes: int) -> Iterator[slice]:
    step = max(1, AT_ONCE // max(row_bytes, 1))
    return (slice(first, min(first + step, num_rows)) for first in range(0, num_rows, step))


def in_parts(array: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Parts of the first axis; pages of a part are forgotten before the next one."""
    for part in parts_of(len(array), array.nbytes // max(len(array), 1)):
        yield part, array[part]
        forget_pages(array)


def take(array: np.ndarray, rows: slice) -> np.ndarray:
    """A copy of these rows, which may be far from each other."""
    if array.nbytes <= LARGE:
        return array[rows]
    first, last, step = rows.indices(len(array))
    block = -(-max(AT_ONCE // max(array.nbytes // len(array), 1), 1) // step) * step
    found = []
    for start in range(first, last, block):
        found.append(array[start : min(start + block, last) : step].copy())
        forget_pages(array)
    return np.concatenate(found) if found else array[:0].copy()


def sort_rows(
    read: Callable[[slice], Float[np.ndarray, "_ columns"]], num_rows: int, num_columns: int, order: Order
) -> Float[np.ndarray, "n columns"]:
    """The rows in this order, float32. `read` gives any of them.

    Many are distributed to files by splitters, which are rows of a sample, and then each file is sorted in memory
    (samplesort; Frazer and McKellar 1970). Columns of the result lie together.
    """
    if 4 * num_rows * num_columns > LARGE:
        with suppress(OSError):  # no room
            return _sort_in_files(read, num_rows, num_columns, order)
    rows = read(slice(0, num_rows))
    return rows[order(rows)]


def _sort_in_files(
    read: Callable[[slice], Float[np.ndarray, "_ columns"]], num_rows: int, num_columns: int, order: Order
) -> Float[np.ndarray, "n columns"]:
    num_files = -(-4 * num_rows * num_columns // LARGE)
    sample = np.concatenate([read(slice(at, at + 1)) for at in np.linspace(0, num_rows - 1, NUM_SAMPLED).astype(int)])
    splitters = sample[order(sample)][:: -(-NUM_SAMPLED // num_files)][1:]
    sizes = np.zeros(len(splitters) + 1, np.int64)
    found = empty_array((num_columns, num_rows))
    with ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile(prefix="coreshot-")) for _ in sizes]
        for part in parts_of(num_rows, 4 * num_columns):
            rows = read(part)
            # A splitter comes before the rows that equal it, so all of these come into one file.
            places = order(np.concatenate([splitters, rows]))
            which = np.empty(len(places), np.int64)
            which[places] = np.cumsum(places < len(splitters))
            which = which[len(splitters) :]
            for number in np.unique(which):
                own = rows[which == number]
                sizes[number] += len(own)
                files[number].write(own.astype(np.float32).tobytes())
        first = 0
        for file, size in zip(files, sizes.tolist(), strict=True):
            file.seek(0)
            rows = np.frombuffer(file.read(), np.float32).reshape(size, num_columns)
            found[:, first : first + size] = rows[order(rows)].T
            forget_pages(found)
            first += size
    return found.T
