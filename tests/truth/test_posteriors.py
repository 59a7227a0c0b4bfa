"""Posteriors whose answer is known: clients' densities multiply to the joint, and MAP, HMC and NUTS find the
linear-Gaussian posterior.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coreshot.inference.registry import CollapsedHmc, Hmc, MapEstimate, Nuts
from coreshot.methods.one_shot import pool_coresets
from coreshot.models import LogDensity
from coreshot.types import Coreset, Points, concatenate_points, pad_points

NUM_CHAINS = 4
NUM_BATCHES = 40  # of draws, for the standard error of a mean
MAX_Z = 4.5  # standard errors: with 39 degrees of freedom and 9 moments a right sampler fails about once in 2,000

# The posterior's deviations are 0.07 to 0.15: trajectories of length 0.15 go about a quarter of a turn.
SAMPLERS = {
    "hmc": Hmc(
        step_size=0.03,
        inverse_mass=1.0,
        num_integration_steps=5,
        num_warmup=100,
        num_samples=2000,
        num_chains=NUM_CHAINS,
    ),
    "hmc, from the MAP, adapted": Hmc(
        step_size=0.001,
        inverse_mass=1.0,
        num_integration_steps=2,
        num_warmup=300,
        num_samples=2000,
        num_chains=NUM_CHAINS,
        target_acceptance=0.8,
        map_steps=100,
    ),
    "collapsed, all of it drawn exactly": CollapsedHmc(
        num_integration_steps=1, num_warmup=10, num_samples=1000, num_chains=NUM_CHAINS
    ),
    "nuts": Nuts(num_warmup=200, num_samples=1000, num_chains=NUM_CHAINS, max_doublings=4),
}


@pytest.fixture(scope="module")
def halves(linear_points):
    """Two clients of unequal size."""
    return [jax.tree.map(lambda array, part=part: array[part], linear_points) for part in (slice(0, 9), slice(9, None))]


def test_clients_log_likelihoods_and_one_prior_add_to_the_joint(linear, linear_points, halves):
    params = linear.unravel(jnp.array([0.2, -0.4, 0.7]))
    parts = sum(float(linear.model.log_prob(params, points)) for points in halves)
    joint, prior = float(LogDensity(linear.model, linear_points)(params)), float(linear.model.log_prior(params))
    assert parts + prior == pytest.approx(joint, rel=1e-5)
    assert parts + 2 * prior != pytest.approx(joint, rel=1e-5)  # the product of two posteriors counts the prior twice


def test_pooled_posterior_is_the_product_of_the_clients(linear, linear_points, halves):
    """Precisions add, once the prior that both contain is taken out of one."""
    one, two = (linear.posterior(points) for points in halves)
    prior = linear.model.prior_precision * np.eye(3)
    precisions = [np.linalg.inv(np.asarray(part.covariance, np.float64)) for part in (one, two)]
    precision = precisions[0] + precisions[1] - prior
    mean = np.linalg.solve(precision, precisions[0] @ np.asarray(one.mean) + precisions[1] @ np.asarray(two.mean))
    joint = linear.posterior(linear_points)
    np.testing.assert_allclose(np.linalg.inv(precision), joint.covariance, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(mean, joint.mean, rtol=1e-3)


def test_server_density_of_two_whole_clients_is_the_joint(linear, linear_points, halves):
    """Through the method's own pooling: under `mass` a client that sends all it has counts for exactly that."""
    coresets = {
        name: Coreset(points, jnp.asarray(float(points.num_points))) for name, points in zip("ab", halves, strict=True)
    }
    pooled = LogDensity(linear.model, pool_coresets(coresets, "mass"))
    params = linear.unravel(jnp.array([0.2, -0.4, 0.7]))
    assert float(pooled(params)) == pytest.approx(float(LogDensity(linear.model, linear_points)(params)), rel=1e-6)
    assert float(pooled.num_observations) == linear_points.num_points


def test_closed_form_is_the_top_and_the_curvature_of_the_log_density(linear, linear_points):
    """The truth that the samplers are held against is itself that of LogDensity."""
    posterior = linear.posterior(linear_points)
    density = LogDensity(linear.model, linear_points)

    def of_flat(flat):
        return density(linear.unravel(flat))

    np.testing.assert_allclose(jax.jit(jax.grad(of_flat))(posterior.mean), np.zeros(3), atol=1e-3)
    np.testing.assert_allclose(
        -jax.jit(jax.hessian(of_flat))(posterior.mean), np.linalg.inv(posterior.covariance), rtol=1e-4, atol=1e-3
    )


def test_weight_counts_as_repetition_and_padding_as_nothing(linear, linear_points):
    params = linear.unravel(jnp.array([0.2, -0.4, 0.7]))
    twice = concatenate_points([linear_points, linear_points])
    doubled = linear_points.reweighted(2 * linear_points.weight)
    assert float(linear.model.log_prob(params, doubled)) == pytest.approx(
        float(linear.model.log_prob(params, twice)), rel=1e-5
    )
    infinite = Points(jnp.full((1, 2), jnp.inf), jnp.zeros((1, 1)), jnp.zeros(1))
    padded = concatenate_points([linear_points, infinite])
    assert float(linear.model.log_prob(params, padded)) == pytest.approx(
        float(linear.model.log_prob(params, linear_points)), rel=1e-6
    )


def starts(model, num=NUM_CHAINS):
    return jax.vmap(model.init)(jax.random.split(jax.random.key(5), num))


def largest_z(linear, posterior, truth):
    """The worst first or second moment, in standard errors from the means of batches that are long against the
    chains' memory.
    """
    draws = linear.ravel_all(posterior.params)
    centred = draws - np.asarray(truth.mean, np.float64)
    products = np.einsum("si,sj->sij", centred, centred) - np.asarray(truth.covariance, np.float64)
    moments = np.concatenate([centred, products.reshape(len(draws), -1)], axis=1)  # all of them 0 in expectation
    batches = moments.reshape(NUM_BATCHES, -1, moments.shape[1]).mean(axis=1)
    return np.max(np.abs(batches.mean(axis=0)) / (batches.std(axis=0, ddof=1) / np.sqrt(NUM_BATCHES)))


@pytest.fixture(scope="module", params=SAMPLERS)
def sampled(request, linear, linear_points):
    return SAMPLERS[request.param](jax.random.key(1), LogDensity(linear.model, linear_points), starts(linear.model))


def test_sampler_recovers_mean_and_covariance(sampled, linear, linear_points):
    assert largest_z(linear, sampled[0], linear.posterior(linear_points)) < MAX_Z


def test_sampler_fails_against_a_model_with_another_noise(sampled, make_linear, linear, linear_points):
    """Negative control: the posterior under 1.3 times the noise, whose deviations are 1.3 times as large, is told
    apart.
    """
    wrong = make_linear(noise_scale=1.3 * linear.model.noise_scale)
    assert largest_z(linear, sampled[0], wrong.posterior(linear_points)) > MAX_Z


def test_sampler_reports_acceptance_and_no_divergence(sampled):
    info = sampled[1]
    assert info["acceptance"].shape[0] == NUM_CHAINS
    assert 0.5 < float(np.mean(info["acceptance"])) <= 1
    assert int(np.sum(info["divergent"])) == 0
    assert np.all(info["step_size"] > 0.01)  # adaptation leaves its first guess of 0.001


@pytest.mark.parametrize(("optimizer", "step_size"), [("adam", 0.02), ("sgd", 0.1)])
def test_map_estimate_reaches_the_closed_form_mean(linear, linear_points, optimizer, step_size):
    """From two starts: in a Gaussian posterior the mode is the mean, wherever one begins."""
    inference = MapEstimate(optimizer=optimizer, step_size=step_size, num_steps=800, num_chains=2)
    init = starts(linear.model, 2)
    posterior, info = inference(jax.random.key(0), LogDensity(linear.model, linear_points), init)
    truth = linear.posterior(linear_points).mean
    assert np.max(np.abs(linear.ravel_all(posterior.params) - truth)) < 1e-3
    assert np.max(np.abs(linear.ravel_all(init) - truth)) > 1e-3  # the start does not pass
    assert np.max(info["gradient_norm"]) < 1e-3


def test_map_estimate_is_the_same_with_padding(linear, linear_points):
    inference = MapEstimate(optimizer="adam", step_size=0.02, num_steps=800, num_chains=2)
    plain, padded = (
        inference(jax.random.key(0), LogDensity(linear.model, points), starts(linear.model, 2))[0]
        for points in (linear_points, pad_points(linear_points, 30))
    )
    np.testing.assert_allclose(linear.ravel_all(plain.params), linear.ravel_all(padded.params), atol=1e-5)


def test_decaying_steps_end_at_the_map_where_constant_ones_wander(linear, linear_points):
    """Batches of four of 24 points: constant steps stay as far from the MAP as the batches' noise throws them."""
    truth = linear.posterior(linear_points).mean

    def distance(decay):
        inference = MapEstimate(
            optimizer="sgd", step_size=0.1, num_steps=2000, batch_size=4, num_chains=16, decay=decay
        )
        found, _ = inference(jax.random.key(0), LogDensity(linear.model, linear_points), starts(linear.model, 16))
        return np.sqrt(np.mean((linear.ravel_all(found.params) - truth) ** 2))

    assert distance("cosine") < 0.4 * distance("none")
