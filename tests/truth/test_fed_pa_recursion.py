"""FedPA's recursion, which never forms the covariance, is the dense solve Sigma^-1 (theta - mean) to the last digits
of float64.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coreshot.methods.fed_pa import posterior_delta

CASES = [
    (6, 5, 0.1),
    (6, 5, 1.0),
    (3, 20, 0.01),
    (40, 10, 0.4),
    (1, 2, 1.0),
    (5, 2, 0.3),
    (6, 1, 0.5),
    (6, 8, 0.0),
    (50, 30, 10.0),
]  # d, l, rho


def draws(dimension, num_samples):
    """Server weights, and correlated samples around a mean that is not theirs."""
    random = np.random.default_rng([dimension, num_samples])
    samples = 2.0 + random.normal(size=(num_samples, dimension)) @ random.normal(size=(dimension, dimension))
    return random.normal(size=dimension), samples


def dense(server, samples, shrinkage):
    num_samples, dimension = samples.shape
    s = 1 / (1 + (num_samples - 1) * shrinkage)
    covariance = np.zeros((dimension, dimension)) if num_samples == 1 else np.atleast_2d(np.cov(samples.T))
    return np.linalg.solve(s * np.eye(dimension) + (1 - s) * covariance, server - samples.mean(axis=0))


def distance(found, truth):
    return np.linalg.norm(found - truth) / np.linalg.norm(truth)


def recursion(server, samples, shrinkage):
    with jax.enable_x64(True):
        found = posterior_delta(jnp.asarray(server), jnp.asarray(samples), shrinkage)
        assert found.dtype == jnp.float64
        return np.asarray(found)


@pytest.mark.parametrize(("dimension", "num_samples", "shrinkage"), CASES)
def test_recursion_is_the_dense_solve(dimension, num_samples, shrinkage):
    server, samples = draws(dimension, num_samples)
    assert distance(recursion(server, samples, shrinkage), dense(server, samples, shrinkage)) < 1e-10


@pytest.mark.parametrize(
    ("dimension", "num_samples", "shrinkage"), [case for case in CASES if case[1] > 1 and case[2] > 0]
)
def test_a_hundredth_more_shrinkage_is_told_apart(dimension, num_samples, shrinkage):
    """Negative control."""
    server, samples = draws(dimension, num_samples)
    assert distance(recursion(server, samples, 1.01 * shrinkage), dense(server, samples, shrinkage)) > 1e-5


@pytest.mark.parametrize(("num_samples", "shrinkage"), [(1, 0.7), (8, 0.0)])
def test_one_sample_or_no_shrinkage_leaves_the_way_to_the_mean(num_samples, shrinkage):
    server, samples = draws(6, num_samples)
    assert distance(recursion(server, samples, shrinkage), server - samples.mean(axis=0)) < 1e-12


def test_samples_in_any_order_give_the_same():
    server, samples = draws(6, 5)
    assert distance(recursion(server, samples[::-1], 0.4), recursion(server, samples, 0.4)) < 1e-12


def test_the_working_precision_is_good_enough():
    """In float32, as clients run it, to 1e-4; the server's weights far away, as in the first rounds."""
    server, samples = draws(40, 10)
    found = np.asarray(posterior_delta(jnp.asarray(100 + server, jnp.float32), jnp.asarray(samples, jnp.float32), 0.4))
    assert distance(found, dense(100 + server, samples, 0.4)) < 1e-4
