"""Rows and points on the wire: what comes back, how many bytes it took, and what damaged code does."""

import numpy as np
import pytest

from coreshot.errors import CoreshotError
from coreshot.wire.coding import decode_rows, encode_rows, find_finest_step
from coreshot.wire.point_coding import PointCoding


@pytest.fixture(scope="module")
def rows():
    """As a spectral coreset's: each row a little smaller than the one before."""
    draws = np.random.default_rng(0)
    return (draws.normal(size=(60, 300)) * np.geomspace(8, 0.1, 60)[:, None]).astype(np.float32)


def entropy_bytes(levels):
    total = 0.0
    for row in levels:
        share = np.unique(row, return_counts=True)[1] / len(row)
        total -= len(row) * np.sum(share * np.log2(share)) / 8
    return total


@pytest.mark.parametrize("step", [0.01, 0.5, 3.0])
def test_what_comes_back_is_the_nearest_multiple_of_the_step(rows, step):
    code = encode_rows(rows, step)
    found = decode_rows(code, step, 300, 60, "here")
    wanted = np.rint(rows / np.float32(step)) * np.float32(step)
    np.testing.assert_array_equal(found, wanted[np.any(wanted != 0, axis=1)])
    assert found.dtype == np.float32


def test_it_takes_little_more_than_the_entropy(rows):
    levels = np.rint(rows / np.float32(1.0))
    entropy, found = entropy_bytes(levels), len(encode_rows(rows, 1.0))
    assert entropy < found < 1.15 * entropy + 600  # of a small block: histograms are 16 times some 30 bytes


def test_rows_of_zeros_are_kept_where_asked():
    rows = np.asarray([[0.0, 0.0], [1.0, 2.0], [0.0, 0.0]], np.float32)
    assert decode_rows(encode_rows(rows, 1.0), 1.0, 2, 9, "here").tolist() == [[1.0, 2.0]]
    np.testing.assert_array_equal(decode_rows(encode_rows(rows, 1.0, keep_zeros=True), 1.0, 2, 9, "here"), rows)
    zeros = np.zeros((2, 2), np.float32)
    np.testing.assert_array_equal(decode_rows(encode_rows(zeros, 1.0, keep_zeros=True), 1.0, 2, 9, "here"), zeros)


@pytest.mark.parametrize("max_bytes", [1500, 4000, 10_000])
def test_the_finest_step_that_fits(rows, max_bytes):
    step, code = find_finest_step(rows, 1e-3, max_bytes)
    assert len(code) <= max_bytes
    assert len(encode_rows(rows, 0.98 * step)) > max_bytes
    np.testing.assert_array_equal(
        decode_rows(code, step, 300, 60, "here"), decode_rows(encode_rows(rows, step), step, 300, 60, "here")
    )


def test_enough_room_keeps_the_finest(rows):
    assert find_finest_step(rows, 0.1, 10**6)[0] == 0.1


def test_no_room_at_all_is_an_error(rows):
    with pytest.raises(CoreshotError, match=r"no row of 300 numbers fits 8 bytes; raise max_bytes"):
        find_finest_step(rows, 0.1, 8)


def test_too_fine_a_step_is_an_error(rows):
    with pytest.raises(CoreshotError, match=r"needs more than 32767 levels"):
        encode_rows(rows, 1e-6)


def test_more_rows_than_can_be_are_refused(rows):
    with pytest.raises(
        CoreshotError, match=r"here: the coded rows are damaged \(60 rows in \d+ groups, where at most 59 can be\)"
    ):
        decode_rows(encode_rows(rows, 0.01), 0.01, 300, 59, "here")


@pytest.mark.parametrize("length", [0, 3, 5, 20, 200])
def test_truncated_code_is_refused_or_finite(rows, length):
    """A range coder cannot tell that words are missing, but never gives anything but levels of its histograms."""
    code = encode_rows(rows, 0.5)[:length]
    with pytest.raises(CoreshotError, match=r"here: the coded rows are damaged"):
        decode_rows(code, 0.5, 300, 60, "here")


@pytest.mark.parametrize("bits", [1, 4, 8])
def test_points_come_back_to_half_a_level(bits):
    x = np.random.default_rng(1).uniform(0, 1, size=(5, 4, 4, 1)).astype(np.float32)
    coding = PointCoding(bits=bits)
    code, step = coding.encode(x)
    found = coding.decode(code, step, 5, (4, 4, 1), "here")
    assert found.shape == x.shape
    assert np.max(np.abs(found - x)) <= 0.5001 / (2**bits - 1)


def test_half_resolution_by_hand():
    """Blocks of 2 x 2 travel as their means and come back by linear interpolation between their centres."""
    x = np.zeros((1, 4, 4, 1), np.float32)
    x[0, :2, :2] = 1.0
    coding = PointCoding(bits=8, factor=2)
    code, step = coding.encode(x)
    found = coding.decode(code, step, 1, (4, 4, 1), "here")[0, :, :, 0]
    line = np.asarray([1.0, 0.75, 0.25, 0.0])
    np.testing.assert_allclose(found, np.outer(line, line), atol=1e-6)


def test_half_resolution_takes_a_quarter_of_the_bytes():
    x = np.random.default_rng(1).uniform(0, 1, size=(50, 28, 28, 1)).astype(np.float32)
    whole, half = (len(PointCoding(factor=factor).encode(x)[0]) for factor in (1, 2))
    assert half < 0.3 * whole


def test_blocks_that_do_not_fit_are_refused():
    with pytest.raises(CoreshotError, match=r"no blocks of 3 x 3 pixels"):
        PointCoding(factor=3).encode(np.zeros((1, 4, 4, 1)))


def test_as_many_points_as_labels():
    coding = PointCoding()
    code, step = coding.encode(np.ones((3, 2)))
    with pytest.raises(CoreshotError, match=r"here: 3 coded points, but 4 labels"):
        coding.decode(code, step, 4, (2,), "here")
