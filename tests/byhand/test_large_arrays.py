"""Arrays in files: sorted as in memory, bit for bit, and gone from the process's memory when they are forgotten."""

import subprocess
import sys

import numpy as np
import pytest

from coreshot.data import large_arrays
from coreshot.data.large_arrays import empty_array, forget_pages, in_parts, sort_rows, take
from coreshot.glm.records import prepare, sort_records
from coreshot.privacy.release_ledger import ReleaseLedger
from coreshot.types import Points


@pytest.fixture(params=[10, 400, 7001])
def rows(request):
    """With a column of few values, both zeros, and rows that are equal."""
    draws = np.random.default_rng(0)
    found = draws.normal(size=(request.param, 4)).astype(np.float32)
    found[:, 0] = draws.integers(0, 2, request.param)
    found[::3] = found[0]
    found[::5, 1] = 0.0
    found[1::5, 1] = -0.0
    return found


@pytest.fixture
def small(monkeypatch):
    """Everything is large, in parts of a few rows."""
    monkeypatch.setattr(large_arrays, "LARGE", 4000)
    monkeypatch.setattr(large_arrays, "AT_ONCE", 1000)


def by_columns(rows):
    return np.lexsort(rows.T)


def test_the_order_is_that_of_memory(rows, small):
    found = sort_rows(lambda part: rows[part], *rows.shape, by_columns)
    assert np.array_equal(found, rows[by_columns(rows)])
    assert np.array_equal(np.signbit(found), np.signbit(rows[by_columns(rows)])), "equal rows keep their order"


def test_arrays_are_files_and_can_be_forgotten(small):
    array = empty_array((500, 7))
    assert isinstance(array, np.memmap)
    assert not isinstance(empty_array((5, 7)), np.memmap)
    wanted = np.random.default_rng(0).normal(size=array.shape).astype(np.float32)
    for part, some in in_parts(array):
        some[...] = wanted[part]
    forget_pages(array[:, 1:].T)
    assert np.array_equal(array, wanted)
    for rows in (slice(None), slice(None, None, 13), slice(3, 300, 7), slice(400, 900), slice(0, 0)):
        assert np.array_equal(take(array, rows), wanted[rows])


def test_without_room_arrays_are_in_memory(rows, small, monkeypatch):
    def full(*_, **__):
        raise OSError("no space left on device")

    monkeypatch.setattr(large_arrays.tempfile, "TemporaryFile", full)
    assert not isinstance(empty_array((500, 7)), np.memmap)
    assert np.array_equal(sort_rows(lambda part: rows[part], *rows.shape, by_columns), rows[by_columns(rows)])


def test_records_and_their_hash_are_those_of_memory(rows, tmp_path, monkeypatch):
    y = np.eye(2, dtype=np.float32)[(rows[:, 2] > 0).astype(int)]
    points, ledger = Points(rows, y, np.ones(len(rows), np.float32)), ReleaseLedger(tmp_path / "ledger.sqlite")

    def everything():
        prepared, labels, limits = prepare(points, (1, 2), ((3, 0),))
        center, scale = prepared.center_and_scale()
        arrays = (*sort_records(points), prepared.whole, prepared[slice(None, None, 9)], labels, center, scale)
        return [array.tobytes() for array in (*arrays, limits.lowest, limits.highest)] + [ledger.hash_records(points)]

    whole = everything()
    monkeypatch.setattr(large_arrays, "LARGE", 4000)
    monkeypatch.setattr(large_arrays, "AT_ONCE", 1000)
    assert everything() == whole


@pytest.mark.skipif(sys.platform != "linux", reason="memory of a process is counted in another way")
def test_memory_is_that_of_the_parts():
    """200 MB are written, sorted and read; a process that keeps them in memory is the negative control."""
    program = (
        "import re, numpy as np\n"
        "from pathlib import Path\n"
        "from coreshot.data import large_arrays as a\n"
        "a.LARGE = {}\n"
        "peak = lambda: int(re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1])\n"
        "before = peak()\n"
        "rows = a.empty_array((1_250_000, 40))\n"
        "for part, some in a.in_parts(rows):\n"
        "    some[...] = np.random.default_rng(part.start).random(some.shape, np.float32)\n"
        "found = a.sort_rows(lambda part: a.take(rows, part), *rows.shape, lambda some: np.argsort(some[:, 0]))\n"
        "assert all(np.all(np.diff(some[:, 0]) >= 0) for _, some in a.in_parts(found))\n"
        "print(peak() - before)\n"
    )
    used = [
        int(subprocess.run([sys.executable, "-c", program.format(limit)], check=True, capture_output=True).stdout)
        for limit in (16 << 20, 1 << 40)
    ]
    assert 1024 * used[0] < 100e6
    assert 1024 * used[1] > 350e6, "negative control"
