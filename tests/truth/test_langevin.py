"""Langevin steps give draws from a Gaussian posterior: its variance within Monte-Carlo error, over many chains at
once.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from coreshot.learners.randomised_map import langevin_noise_scale
from coreshot.models.training import ascend

MEAN, PRECISION = np.array([1.0, -2.0]), np.array([4.0, 10.0])  # of the posterior
NUM_OBSERVATIONS = 8.0
STEP_SIZE = 0.04  # on the log density over n: a step of 0.005 on the log density
NUM_CHAINS, NUM_STEPS = 5000, 400  # a chain forgets by 2 % and by 5 % a step
# A step e leaves the variance 1 / (lambda (1 - e lambda / 2)) in place of 1 / lambda: 1.0 % and 2.6 % more.
VARIANCE = 1 / (PRECISION * (1 - STEP_SIZE / NUM_OBSERVATIONS * PRECISION / 2))
MAX_Z = 4.5  # standard errors; the variance of N draws of a Gaussian has a relative error of sqrt(2 / N), here 2 %


def log_density(key, params):
    return -0.5 * jnp.sum(PRECISION * (params["theta"] - MEAN) ** 2) / NUM_OBSERVATIONS


def draw(scale):
    """The last weights of each chain, all of which began at 0."""
    solver, params = optax.sgd(STEP_SIZE), {"theta": jnp.zeros(2)}

    @jax.jit
    @jax.vmap
    def chain(key):
        return ascend(solver, log_density, params, solver.init(params), jax.random.split(key, NUM_STEPS), scale)[0][
            "theta"
        ]

    return np.asarray(chain(jax.random.split(jax.random.key(0), NUM_CHAINS)), np.float64)


def largest_z(draws):
    of_mean = (draws.mean(axis=0) - MEAN) / np.sqrt(VARIANCE / NUM_CHAINS)
    of_variance = (draws.var(axis=0, ddof=1) / VARIANCE - 1) / np.sqrt(2 / NUM_CHAINS)
    correlation = np.corrcoef(draws.T)[0, 1] * np.sqrt(NUM_CHAINS)
    return np.max(np.abs([*of_mean, *of_variance, correlation]))


def test_noise_scale_by_hand():
    """Two steps of 0.04 over 8 observations: a variance of 0.01."""
    assert float(langevin_noise_scale(0.04, jnp.asarray(8.0))) == pytest.approx(0.1, rel=1e-6)


def test_chains_have_the_posteriors_mean_and_variance():
    assert largest_z(draw(langevin_noise_scale(STEP_SIZE, jnp.asarray(NUM_OBSERVATIONS)))) < MAX_Z


@pytest.mark.parametrize("factor", [0.5, 0.9, np.sqrt(NUM_OBSERVATIONS)])
def test_another_noise_is_told_apart(factor):
    """Negative control: half the noise, a tenth less, or that of a step that forgot the division by n."""
    assert largest_z(draw(factor * langevin_noise_scale(STEP_SIZE, jnp.asarray(NUM_OBSERVATIONS)))) > MAX_Z


def test_without_noise_all_chains_end_in_the_mode():
    """Negative control, and what the scale None means."""
    draws = draw(None)
    assert np.max(draws.var(axis=0)) == 0
    np.testing.assert_allclose(draws[0], MEAN, atol=2e-3)
    assert np.min(VARIANCE) > 0.09
