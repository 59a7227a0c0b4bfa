"""Samplers without an accept step find the linear-Gaussian posterior to within what their steps cost; Laplace, there,
is exact.
"""

import jax
import numpy as np
import pytest

from coreshot.inference.cyclical import Cyclical
from coreshot.inference.laplace import LastLayerLaplace
from coreshot.inference.mclmc import Mclmc
from coreshot.models import LogDensity

MAX_ERROR = 0.2  # of the covariance, relative; and of the mean, in deviations
INFERENCES = {
    "mclmc": Mclmc(num_warmup=3000, num_samples=2000, thinning=5, num_chains=4, map_steps=100),
    "sgld": Cyclical(
        step_size=0.02,
        num_cycles=4,
        cycle_length=5000,
        samples_per_cycle=1000,
        kernel="sgld",
        explore=0.3,
        num_chains=4,
    ),
    "sghmc": Cyclical(
        step_size=0.001,
        num_cycles=4,
        cycle_length=4000,
        samples_per_cycle=1000,
        kernel="sghmc",
        explore=0.3,
        num_chains=4,
        num_integration_steps=20,
    ),
    "laplace": LastLayerLaplace(optimizer="adam", step_size=0.02, num_steps=800, num_samples=4000, num_chains=2),
}


def errors(draws, truth):
    covariance = np.asarray(truth.covariance, np.float64)
    deviations = np.sqrt(np.diag(covariance))
    mean = np.max(np.abs(draws.mean(axis=0) - np.asarray(truth.mean)) / deviations)
    return mean, np.linalg.norm(np.cov(draws.T) - covariance) / np.linalg.norm(covariance)


@pytest.mark.parametrize("name", INFERENCES)
def test_mean_and_covariance(linear, make_linear, linear_points, name):
    inference = INFERENCES[name]
    init = jax.vmap(linear.model.init)(jax.random.split(jax.random.key(5), inference.num_chains))
    posterior, _ = inference(jax.random.key(1), LogDensity(linear.model, linear_points), init)
    draws = linear.ravel_all(posterior.params)
    mean, covariance = errors(draws, linear.posterior(linear_points))
    assert mean < MAX_ERROR
    assert covariance < (0.05 if name == "laplace" else MAX_ERROR)
    wrong = make_linear(noise_scale=1.3 * linear.model.noise_scale).posterior(linear_points)
    assert errors(draws, wrong)[1] > MAX_ERROR  # negative control: 1.3 times the noise is told apart
