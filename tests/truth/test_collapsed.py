"""HMC with the last layer integrated out: the evidence is the Gaussian's, and a posterior with two modes of known
weights is found by quadrature and by the sampler.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from coreshot.errors import CoreshotError
from coreshot.inference.collapsed_hmc import CollapsedHmc, log_evidence
from coreshot.inference.diagnostics import diagnose
from coreshot.models import LogDensity, Model
from coreshot.models.networks import Mlp
from coreshot.types import make_points, pad_points

NUM_CHAINS, NUM_SAMPLES = 8, 400
SAMPLER = CollapsedHmc(num_integration_steps=6, num_warmup=100, num_samples=NUM_SAMPLES, num_chains=NUM_CHAINS)
# One hidden unit: f(x) = w tanh(a x + b) + c. Turning the signs of a, b and w changes nothing, so that half of the
# posterior has a > 0.
ONE_UNIT = Model(Mlp(hidden=(1,), activation="tanh"), "regression", (1,), 1, 0.5, 0.4)
GRID = np.linspace(-9.0, 9.0, 181)


def evidence_terms(features, targets, precision):
    """The determinant's term and the quadratic one, of the dense covariance of the targets."""
    covariance = np.eye(len(features)) + features @ features.T / precision
    quadratic = np.sum(targets * np.linalg.solve(covariance, targets))
    return -0.5 * targets.shape[1] * np.linalg.slogdet(covariance)[1], -0.5 * quadratic


@pytest.mark.parametrize("shape", [(5, 9), (9, 5), (4, 4)])
def test_the_evidence_is_the_density_of_the_targets(shape):
    draws = np.random.default_rng(0)
    features, targets, precision = draws.normal(size=shape), draws.normal(size=(shape[0], 2)), 0.7
    with jax.enable_x64(True):
        found = float(log_evidence(jnp.asarray(features), jnp.asarray(targets), precision))
    covariance = np.eye(shape[0]) + features @ features.T / precision
    density = scipy.stats.multivariate_normal(np.zeros(shape[0]), covariance)
    constant = 0.5 * targets.size * np.log(2 * np.pi)
    assert found == pytest.approx(sum(density.logpdf(column) for column in targets.T) + constant, rel=1e-9)
    determinant, quadratic = evidence_terms(features, targets, precision)
    assert found == pytest.approx(determinant + quadratic, rel=1e-9)
    assert found != pytest.approx(quadratic - determinant, rel=1e-2)  # the determinant's sign turned


@pytest.fixture(scope="module")
def points():
    draws = np.random.default_rng(3)
    x = np.linspace(-1.5, 1.5, 7)
    points = make_points(x[:, None], (0.8 * np.tanh(x) + 0.4 * draws.normal(size=7))[:, None])
    return points.reweighted(jnp.asarray([1.0, 2.0, 1.0, 1.0, 0.5, 1.0, 1.0]))


def by_quadrature(model, points, sign=1.0):
    """Moments of a, and the mean of f(1), on a grid of a and b; with sign = -1 of the evidence turned over."""
    a, b = (axis.ravel() for axis in np.meshgrid(GRID, GRID))
    x, y = np.asarray(points.x, float)[:, 0], np.asarray(points.y, float)
    root = np.sqrt(np.asarray(points.weight, float))[:, None] / model.noise_scale
    units = np.tanh(a[:, None] * x + b[:, None])
    features = root * np.stack([units, np.ones_like(units)], axis=-1)
    targets = root * y
    gram = model.prior_precision * np.eye(2) + np.einsum("gni,gnj->gij", features, features)
    with_targets = np.einsum("gni,no->gio", features, targets)
    layer = np.linalg.solve(gram, with_targets)
    log_evidence = -0.5 * np.linalg.slogdet(gram)[1] + 0.5 * np.sum(layer * with_targets, axis=(1, 2))
    log_weight = sign * log_evidence - 0.5 * model.prior_precision * (a**2 + b**2)
    weight = np.exp(log_weight - log_weight.max())
    at_one = layer[:, 0, 0] * np.tanh(a + b) + layer[:, 1, 0]
    return np.array([np.sum(weight * value) / np.sum(weight) for value in (a > 0, np.abs(a), a**2, at_one, at_one**2)])


@pytest.fixture(scope="module")
def sampled(points):
    init = jax.vmap(ONE_UNIT.init)(jax.random.split(jax.random.key(5), NUM_CHAINS))
    return SAMPLER(jax.random.key(1), LogDensity(ONE_UNIT, pad_points(points, 10)), init)


def measured(posterior):
    """By chain, with f(1) as its conditional mean would be noisier than its draws only by the layer's spread."""
    a = np.asarray(posterior.params["Dense_0"]["kernel"], float)[:, 0, 0].reshape(NUM_CHAINS, -1)
    at_one = np.asarray(posterior.sample_outputs(np.ones((1, 1), np.float32)), float).reshape(NUM_CHAINS, -1)
    return np.stack([value.mean(axis=1) for value in (a > 0, np.abs(a), a**2, at_one)])


def test_two_modes_have_their_weights(sampled, points):
    """Within four standard errors, which the eight chains tell; each chain has been in both modes."""
    means = measured(sampled[0])
    error = means.std(axis=1, ddof=1) / np.sqrt(NUM_CHAINS)
    truth = by_quadrature(ONE_UNIT, points)[:4]
    assert truth[0] == pytest.approx(0.5, abs=0.01)
    assert np.all(np.abs(means.mean(axis=1) - truth) < 4 * error)
    assert np.all((means[0] > 0) & (means[0] < 1))
    wrong = {
        "another noise": by_quadrature(replace(ONE_UNIT, noise_scale=0.8), points)[:4],
        "the sign of the evidence": by_quadrature(ONE_UNIT, points, sign=-1.0)[:4],
    }
    for name, other in wrong.items():
        assert np.any(np.abs(means.mean(axis=1) - other) > 4 * error), name


def test_chains_from_the_prior_agree_and_start_apart(sampled, points):
    report = diagnose(ONE_UNIT, *sampled, points.x)
    assert report.r_hat < 1.05
    assert report.warnings == []
    first = np.asarray(sampled[0].params["Dense_0"]["kernel"])[::NUM_SAMPLES, 0, 0]
    assert len(np.unique(first)) == NUM_CHAINS


def test_a_server_may_use_a_prior_of_its_own(sampled, points):
    init = jax.vmap(ONE_UNIT.init)(jax.random.split(jax.random.key(5), NUM_CHAINS))
    other = replace(ONE_UNIT, prior_precision=7.0)
    density = LogDensity(other, pad_points(points, 10))
    posterior, _ = replace(SAMPLER, prior_precision=0.5)(jax.random.key(1), density, init)
    assert posterior.model == other
    np.testing.assert_array_equal(posterior.params["Dense_0"]["kernel"], sampled[0].params["Dense_0"]["kernel"])


@pytest.mark.parametrize(("kind", "precision"), [("classification", 1.0), ("regression", 0.0)])
def test_what_has_no_closed_form_is_refused(points, kind, precision):
    model = replace(ONE_UNIT, kind=kind, prior_precision=precision)
    with pytest.raises(CoreshotError, match="use hmc or nuts"):
        SAMPLER(
            jax.random.key(0), LogDensity(model, points), jax.vmap(model.init)(jax.random.split(jax.random.key(0), 8))
        )
