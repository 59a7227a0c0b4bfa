"""Missing numbers are the mean of those that are there: by hand, undone, and whatever the public range is."""

import numpy as np
import pytest

from coreshot.data.schema import Column, Table
from coreshot.estimator import SpectralClassifier, choose_method
from coreshot.glm.filling import Filling, without_filling

PAIRS = ((0, 2), (1, 3))
X = np.asarray([[1.0, 5.0, 0, 0], [0.0, 7.0, 1, 0], [3.0, 0.0, 0, 1]])


def test_cells_are_the_mean_of_those_that_are_there():
    filling = Filling.of_records(X, PAIRS)
    assert filling.values == (2.0, 6.0)
    np.testing.assert_array_equal(filling(X)[:, :2], [[1, 5], [2, 7], [3, 6]])
    np.testing.assert_array_equal(filling(X)[:, 2:], X[:, 2:])
    assert Filling.of_records(np.asarray([[0.0, 1.0]]), ((0, 1),)).values == (0.0,), "no cell is there"


def test_sums_without_filling_are_those_of_the_cells():
    filled = Filling.of_records(X, PAIRS)(X)
    sums = [np.concatenate([np.ones((3, 1)), x], axis=1) for x in (filled, X)]
    np.testing.assert_allclose(without_filling(sums[0].T @ sums[0], PAIRS), sums[1].T @ sums[1], atol=1e-12)


def test_a_table_pairs_its_numbers_with_their_indicators():
    columns = (
        Column(name="age", kind="number", range=(0.0, 1.0)),
        Column(name="sex", kind="category", values=("f", "m")),
        Column(name="ill", kind="yes_no"),
    )
    filled, plain = Table(columns=columns, missing="mean"), Table(columns=columns, missing="indicator")
    assert filled.filled_inputs == ((0, 4), (3, 6))
    assert filled.input_shape == plain.input_shape == (7,)
    assert plain.filled_inputs == ()


@pytest.mark.parametrize("is_filled", [True, False])
def test_a_range_far_too_wide_changes_nothing_where_cells_are_missing(is_filled, monkeypatch):
    if not is_filled:
        monkeypatch.setattr("coreshot.estimator.choose_method", without_fills)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 3))
    y = (x[:, 0] + x[:, 1] * x[:, 2] + 0.5 * rng.normal(size=300) > 0).astype(int)
    x[rng.random(x.shape) < 0.15] = np.nan
    sites = np.arange(300) % 2
    narrow, wide = (
        SpectralClassifier(ranges=[[-4.0, end]] * 3).fit(x, y, sites=sites).predict_proba(x) for end in (4.0, 28.0)
    )
    change = float(np.mean(np.abs(narrow - wide)))
    assert change < 0.005 if is_filled else change > 0.01, change


def without_fills(may_be_missing, num_features, max_bytes):
    from dataclasses import replace

    return replace(choose_method(may_be_missing, num_features, max_bytes), fills=())
