"""Missing numbers are the mean of those that are there: by hand, undone, and whatever the public range is."""

import numpy as np
import pytest

from coreshot.api import distill
from coreshot.data.schema import Column, Table
from coreshot.estimator import SpectralClassifier, choose_method
from coreshot.fitted.model import fit
from coreshot.glm.filling import Filling, without_filling
from coreshot.methods.glm import Glm
from coreshot.models.networks import Mlp
from coreshot.study import Agreement, Study

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


def test_a_site_without_any_cell_of_a_column_has_the_mean_of_the_others():
    """As if it had known that mean: the same model as where it fills it in itself."""
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.normal(0.5, 0.2, size=(240, 2)), np.zeros((240, 1))], axis=1)
    y = (x[:, 0] + 2 * x[:, 1] * x[:, 0] + 0.2 * rng.normal(size=240) > 1).astype(int)
    lacking = np.arange(240) >= 160
    x[lacking, 0], x[lacking, 2] = 0.0, 1.0
    mean = float(np.mean(x[~lacking, 0]))
    known = x.copy()
    known[lacking, 0] = mean
    agreement = Agreement(task="t", kind="classification", input_shape=(3,), num_outputs=2, prior_precision=1.0)
    found = []
    for fills, records in ((((0, 2),), x), ((), known), ((), x)):
        method = Glm(dimension=12, powers=(0, 1), products=(0, 1), fills=fills, tolerance=1e-4)
        study = Study(agreement, Mlp(hidden=(), activation="relu"), method)
        sites = {"a": ~lacking, "b": lacking}
        model = fit(study, [distill(study, records[own], y[own], client=name) for name, own in sites.items()])
        found.append(np.asarray(model.predict(records).mean))
    np.testing.assert_allclose(found[0], found[1], atol=2e-3)
    assert np.max(np.abs(found[0] - found[2])) > 0.01, "negative control: the middle of the range"


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
