"""Coded triangular factors: sizes by hand, errors within a step, damage refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coreshot.errors import CoreshotError
from coreshot.wire.factor_coding import decode_factor, encode_factor, triangular_factor


def gram(seed, num_records, num_columns, scales=1.0):
    x = np.random.default_rng(seed).normal(size=(num_records, num_columns)) * scales
    return x.T @ x


@pytest.mark.parametrize("num_records", [3, 50])
def test_the_factor_is_that_of_the_matrix_also_where_it_is_singular(num_records):
    matrix = gram(0, num_records, 6)
    factor = triangular_factor(matrix)
    np.testing.assert_allclose(factor.T @ factor, matrix, atol=1e-9)
    np.testing.assert_array_equal(factor, np.triu(factor))
    assert np.all(np.diag(factor) >= 0)


@given(seed=st.integers(0, 1000), size=st.integers(1, 12), bits=st.integers(2, 14), num_records=st.integers(1, 40))
def test_every_entry_is_within_half_a_step_of_what_is_new_in_its_column(seed, size, bits, num_records):
    scales = 10.0 ** np.random.default_rng(seed).integers(-6, 7, size)
    factor = triangular_factor(gram(seed, num_records, size, scales))
    found = decode_factor(encode_factor(factor, np.full(size, 2.0**-bits)), size, "test")
    new = np.maximum(np.diag(factor), 1e-5 * np.linalg.norm(factor, axis=0))
    assert np.all(np.abs(found - factor) <= 0.5 * 2.0**-bits * new + 1e-30)


def test_units_do_not_change_how_many_bytes_it_takes():
    matrix = gram(1, 100, 30)
    units = np.diag(2.0 ** (np.arange(30) % 20))
    lengths = [
        len(encode_factor(triangular_factor(one), np.full(30, 2.0**-8))) for one in (matrix, units @ matrix @ units)
    ]
    assert abs(lengths[0] - lengths[1]) < 0.02 * lengths[0]


def test_one_column_by_hand():
    # 5 = 101 in units of 2^-1: two columns' head, one exponent, one histogram of one length, no words, 3 bits.
    data = encode_factor(np.asarray([[2.5]]), np.asarray([0.2]))
    assert decode_factor(data, 1, "test")[0, 0] == 2.5
    assert len(data) == 3 + 1 + (1 + 2 * 4) + 4 + 4 * (len(data) - 18) // 4 + 1


def test_a_wrong_number_of_columns_and_damage_are_one_sentence():
    data = encode_factor(triangular_factor(gram(0, 9, 5)), np.full(5, 0.01))
    with pytest.raises(CoreshotError, match="5 columns, where 6"):
        decode_factor(data, 6, "site-1")
    for cut in range(len(data)):
        with pytest.raises(CoreshotError, match=r"site-1: the coded matrix is damaged"):
            decode_factor(data[:cut], 5, "site-1")


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_or_finite(data):
    try:
        found = decode_factor(b"\x03\x00\x06" + data, 3, "test")
    except CoreshotError:
        return
    assert np.all(np.isfinite(found))
