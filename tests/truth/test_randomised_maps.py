"""Randomise, then optimise: the MAP estimates of randomised data are draws from the posterior of a linear-Gaussian
model.
"""

import jax
import numpy as np
import pytest

from coreshot.learners.randomised_map import randomised

NUM_DRAWS = 4000


@pytest.fixture(scope="module")
def flat(make_linear):
    return make_linear(prior_precision=1e-6)


def moments(flat, points, keys, randomise):
    draws = jax.vmap(lambda key: flat.posterior(randomise(key, flat.model, points)).mean)(keys)
    return np.mean(np.asarray(draws, np.float64), axis=0), np.cov(np.asarray(draws, np.float64).T)


def test_maps_of_randomised_data_have_the_posterior_moments(flat, linear_points):
    """A covariance from n draws has relative errors of about sqrt(2 / n) on its diagonal: 4 of them are 9 %."""
    exact, keys = flat.posterior(linear_points), jax.random.split(jax.random.key(0), NUM_DRAWS)
    mean, covariance = moments(flat, linear_points, keys, randomised)
    scale = np.sqrt(np.diag(exact.covariance))
    assert np.max(np.abs(mean - exact.mean) / scale) < 4 / np.sqrt(NUM_DRAWS)
    assert np.max(np.abs(covariance - exact.covariance) / np.outer(scale, scale)) < 4 * np.sqrt(2 / NUM_DRAWS)
    # Control: without it all maps are the same, and say nothing of how sure the data are.
    _, none = moments(flat, linear_points, keys, lambda key, model, points: points)
    assert np.max(np.abs(none - exact.covariance) / np.outer(scale, scale)) > 0.5
