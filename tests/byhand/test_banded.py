"""A matrix as a band: determinant and solutions are those of the matrix, whatever the width, the blocks and the
cores."""

from functools import partial

import jax
import numpy as np
import pytest
import scipy.linalg
from threadpoolctl import threadpool_limits

from coreshot.spectral import banded, blocked
from coreshot.spectral.banded import to_band
from coreshot.spectral.calibration import ClassMeans
from coreshot.spectral.coreset import Moments
from coreshot.spectral.evidence import best_ridge
from coreshot.spectral.features import RandomVector, feature_map
from coreshot.spectral.posterior import fit_posterior


@pytest.fixture(scope="module")
def moments():
    """Of 60 records, so of low rank, in columns of very different sizes."""
    draws = np.random.default_rng(0)
    features = np.c_[draws.normal(size=(60, 73)) * np.logspace(1, -3, 73), np.ones(60)]
    labels = features @ draws.normal(size=(74, 3)) + draws.normal(size=(60, 3))
    return Moments.from_rows(features, labels, 60)


@pytest.mark.parametrize(("width", "block"), [(5, 512), (8, 16), (7, 10), (73, 20), (200, 512), (1, 30)])
def test_what_a_cholesky_factor_says(moments, width, block, monkeypatch):
    monkeypatch.setattr(banded, "BAND", width)
    monkeypatch.setattr(blocked, "BLOCK", block)
    before = moments.gram.copy()
    found = to_band(moments.gram, moments.cross)
    assert np.array_equal(moments.gram, before)
    assert len(found.diagonals) == min(width, 73) + 1
    for ridge in (1e-3, 1.0, 1e4):
        matrix = before + ridge * np.eye(74)
        log_det, explained = found.solve(ridge)
        assert log_det == pytest.approx(np.linalg.slogdet(matrix)[1], rel=1e-9)
        assert explained == pytest.approx(np.sum(moments.cross * np.linalg.solve(matrix, moments.cross)), rel=1e-9)


def test_a_matrix_that_is_a_band_already(monkeypatch):
    """Nothing to reflect; a diagonal one, and one of zeros, are bands as well."""
    monkeypatch.setattr(banded, "BAND", 2)
    second = np.diag(np.full(7, 0.3), 2)
    for matrix in (np.diag(np.arange(1.0, 10)), np.zeros((9, 9)), np.eye(9) + second + second.T):
        log_det, explained = to_band(matrix, np.ones((9, 2))).solve(0.5)
        assert log_det == pytest.approx(np.linalg.slogdet(matrix + 0.5 * np.eye(9))[1])
        assert explained == pytest.approx(np.sum(np.linalg.solve(matrix + 0.5 * np.eye(9), np.ones((9, 2)))))


class ByFactor:
    """A Cholesky factor for each ridge, as it was before."""

    def __init__(self, gram, cross):
        self.gram, self.cross = gram, cross

    def solve(self, ridge):
        factor = scipy.linalg.cholesky(self.gram + ridge * np.eye(len(self.gram)), lower=True)
        solution = scipy.linalg.cho_solve((factor, True), self.cross)
        return float(2 * np.sum(np.log(np.diag(factor)))), float(np.sum(solution * self.cross))


def test_the_ridge_is_the_one_that_factors_would_find(moments, monkeypatch):
    monkeypatch.setattr(banded, "BAND", 8)
    by_band = best_ridge(moments)
    other = best_ridge(moments - Moments(0.5 * moments.joint, 0.0, 3))
    monkeypatch.setattr("coreshot.spectral.evidence.to_band", ByFactor)
    assert by_band == pytest.approx(best_ridge(moments), rel=1e-6)
    assert other != pytest.approx(by_band, rel=1e-2), "negative control"


def test_probabilities_are_those_of_a_fit_by_factors(monkeypatch):
    """Four clients, three classes: ridge, heads of left-out groups, link and posterior."""
    monkeypatch.setattr(banded, "BAND", 8)
    monkeypatch.setattr(blocked, "BLOCK", 16)
    drawn, draws = feature_map(RandomVector(dimension=90), jax.random.key(0), (5,)), np.random.default_rng(0)
    x = draws.normal(size=(400, 5)).astype(np.float32)
    labels = np.argmax(x[:, :3] + 0.5 * draws.normal(size=(400, 3)), axis=1)
    features, y = drawn(x), np.eye(3)[labels] - 1 / 3
    groups = [Moments.from_rows(features[part::4], y[part::4], 100) for part in range(4)]
    means = [(index, ClassMeans.from_moments(group)) for index, group in enumerate(groups)]

    def fitted(factor=1.0):
        found = fit_posterior(drawn, "classification", groups, means, ridge=None, ridge_factor=factor)
        return np.asarray(found.predict(judged).mean)

    judged = draws.normal(size=(300, 5)).astype(np.float32)
    now, other = fitted(), fitted(0.5)
    monkeypatch.setattr("coreshot.spectral.evidence.to_band", ByFactor)
    monkeypatch.setattr("coreshot.spectral.evidence.factorise", partial(scipy.linalg.cholesky, lower=True))
    monkeypatch.setattr("coreshot.spectral.calibration.factorise_alone", partial(scipy.linalg.cholesky, lower=True))
    np.testing.assert_allclose(now, fitted(), atol=1e-6)
    assert np.max(np.abs(other - fitted())) > 1e-4, "negative control"


def test_the_same_bits_on_any_number_of_cores(moments, monkeypatch):
    monkeypatch.setattr(banded, "BAND", 8)
    monkeypatch.setattr(blocked, "BLOCK", 16)
    found = []
    for num_cores, num_threads in ((1, 1), (3, 2)):
        monkeypatch.setattr(blocked, "num_cores", lambda count=num_cores: count)
        with threadpool_limits(num_threads):
            one = to_band(moments.gram, moments.cross)
            found.append((one.diagonals.tobytes(), one.turned.tobytes(), best_ridge(moments)))
    assert found[0] == found[1]
