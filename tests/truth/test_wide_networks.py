"""A network that fills the cache runs one set of weights, and a part of the points, after the other: the same values
and gradients.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coreshot.fitted.metrics import metrics, sums
from coreshot.inference.posterior import SamplePosterior
from coreshot.learners.bpc_fkl import kl_gradient
from coreshot.models import LogDensity, Model
from coreshot.models import model as models
from coreshot.models.networks import ConvNet, Mlp
from coreshot.types import make_points


@pytest.fixture(scope="module")
def model():
    return Model(ConvNet(channels=(2, 3), dense=(4,)), "classification", (8, 8, 1), 3, 0.1, 1.0)


@pytest.fixture(scope="module")
def points():
    draws = np.random.default_rng(0)
    return make_points(draws.random((7, 8, 8, 1)), np.eye(3)[draws.integers(3, size=7)])


@pytest.fixture(scope="module")
def params(model):
    return jax.vmap(model.init)(jax.random.split(jax.random.key(0), 3))


@pytest.fixture
def as_if_wide(monkeypatch):
    monkeypatch.setattr(ConvNet, "fills_cache", lambda self, input_shape: True)


def test_what_is_wide():
    """The paper's network is, on 28 x 28; a small one on 8 x 8 and a dense one are not."""
    paper = Model(ConvNet(channels=(32, 64), dense=(128,)), "classification", (28, 28, 1), 62, 0.1, 1.0)
    small = Model(ConvNet(channels=(8, 16), dense=(32,)), "classification", (8, 8, 1), 10, 0.1, 1.0)
    dense = Model(Mlp(hidden=(50,), activation="relu"), "classification", (2,), 2, 0.1, 1.0)
    assert [one.is_wide for one in (paper, small, dense)] == [True, False, False]


def gradients(model, params, points):
    return model.each(jax.grad(LogDensity(model, points)))(params)


def test_each_is_vmap(model, params, points, as_if_wide):
    assert model.is_wide
    expected = jax.vmap(jax.grad(LogDensity(model, points)))(params)
    for one, other in zip(jax.tree.leaves(gradients(model, params, points)), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_the_kl_gradient_is_the_same(model, params, points, as_if_wide, monkeypatch):
    wide = kl_gradient(model, points, params, jax.tree.map(lambda leaf: leaf + 0.1, params))
    monkeypatch.setattr(ConvNet, "fills_cache", lambda self, input_shape: False)
    whole = kl_gradient(model, points, params, jax.tree.map(lambda leaf: leaf + 0.1, params))
    np.testing.assert_allclose(wide.x, whole.x, atol=1e-5)
    assert float(jnp.max(jnp.abs(whole.x))) > 1e-3


@pytest.mark.parametrize("at_once", [2, 7, 100])
def test_a_log_density_in_parts_is_the_whole(model, params, points, as_if_wide, monkeypatch, at_once):
    """7 points, 2 at a time: the last part has one of padding."""
    whole = Model.log_prob(model, jax.tree.map(lambda leaf: leaf[0], params), points)
    monkeypatch.setattr(models, "POINTS_AT_ONCE", at_once)
    one = jax.tree.map(lambda leaf: leaf[0], params)
    assert float(LogDensity(model, points)(one)) == pytest.approx(float(whole + model.log_prior(one)), rel=1e-5)
    expected = jax.grad(lambda params: model.log_prior(params) + model.log_prob(params, points))(one)
    for left, right in zip(
        jax.tree.leaves(jax.grad(LogDensity(model, points))(one)), jax.tree.leaves(expected), strict=True
    ):
        np.testing.assert_allclose(left, right, atol=1e-5)


def test_metrics_in_parts_are_those_of_the_whole(model, params, points, monkeypatch):
    posterior = SamplePosterior(model, params)
    whole = metrics(model, sums(model, posterior, points))
    monkeypatch.setattr("coreshot.fitted.metrics.POINTS_AT_ONCE", 3)
    parts = metrics(model, sums(model, posterior, points))
    assert parts.accuracy == whole.accuracy
    assert (parts.nll, parts.brier, parts.ece) == pytest.approx((whole.nll, whole.brier, whole.ece), rel=1e-5)
