"""kl_gradient is the gradient of KL(p_D || q_C): against the closed form of a conjugate model, with the flipped sign
failing every check.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coreshot.learners.bpc_fkl import kl_gradient as eager_kl_gradient
from coreshot.types import Points

NUM_SAMPLES = 20_000
MAX_Z = 4.5  # standard errors: 16 components, so a right estimate fails about once in 10,000


kl_gradient = jax.jit(eager_kl_gradient, static_argnums=0)


def closed_form_kl(p, q):
    """KL(p || q) of two Gaussians."""
    difference, precision = q.mean - p.mean, jnp.linalg.inv(q.covariance)
    log_dets = jnp.linalg.slogdet(q.covariance)[1] - jnp.linalg.slogdet(p.covariance)[1]
    return 0.5 * (jnp.trace(precision @ p.covariance) + difference @ precision @ difference - len(p.mean) + log_dets)


@jax.jit
def sigma_points_of(mean, covariance):
    columns = jnp.sqrt(3.0) * jnp.linalg.cholesky(covariance).T
    return jnp.concatenate([mean + columns, mean - columns])


def sigma_points(gaussian):
    """Six weights with exactly the Gaussian's mean and covariance: kl_gradient is quadratic in theta, so its
    expectation over them is exact.
    """
    return sigma_points_of(gaussian.mean, gaussian.covariance)


def normal_draws(key, gaussian, num):
    return gaussian.mean + jax.random.normal(key, (num, 3)) @ jnp.linalg.cholesky(gaussian.covariance).T


def flat(gradient):
    return np.concatenate([np.asarray(gradient.x, np.float64).ravel(), np.asarray(gradient.y, np.float64).ravel()])


@pytest.fixture(scope="module")
def start(linear_points):
    """Four pseudo-points that stand for the 24 observations, far from any optimum."""
    draws = np.random.default_rng(3)
    x, y = draws.normal(size=(4, 2)), draws.normal(size=(4, 1))
    return Points(jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32), jnp.full(4, linear_points.num_points / 4))


@pytest.fixture(scope="module")
def forward_kl(linear, linear_points):
    target = linear.posterior(linear_points)
    return lambda points: closed_form_kl(target, linear.posterior(points))


@pytest.fixture(scope="module")
def truth(start, forward_kl):
    gradient = jax.jit(jax.grad(lambda x, y: forward_kl(Points(x, y, start.weight)), argnums=(0, 1)))(start.x, start.y)
    return flat(Points(*gradient, None))


def agrees(estimate, truth):
    return np.linalg.norm(estimate - truth) < 1e-3 * np.linalg.norm(truth)


@pytest.fixture(scope="module")
def exact(linear, linear_points, start):
    p, q = linear.posterior(linear_points), linear.posterior(start)
    return flat(
        kl_gradient(linear.model, start, linear.unravel_all(sigma_points(p)), linear.unravel_all(sigma_points(q)))
    )


def test_equals_the_gradient_of_the_closed_form(exact, truth):
    assert agrees(exact, truth)


def test_flipped_sign_fails_the_same_check(exact, truth):
    assert not agrees(-exact, truth)


def test_swapped_posteriors_fail_the_same_check(linear, linear_points, start, truth):
    p, q = linear.posterior(linear_points), linear.posterior(start)
    swapped = kl_gradient(linear.model, start, linear.unravel_all(sigma_points(q)), linear.unravel_all(sigma_points(p)))
    assert not agrees(flat(swapped), truth)


def test_the_reverse_kl_has_another_gradient(linear, linear_points, start, exact):
    target = linear.posterior(linear_points)

    def reverse(x, y):
        return closed_form_kl(linear.posterior(Points(x, y, start.weight)), target)

    assert not agrees(exact, flat(Points(*jax.jit(jax.grad(reverse, argnums=(0, 1)))(start.x, start.y), None)))


@pytest.fixture(scope="module")
def monte_carlo(linear, linear_points, start):
    """The estimate from random weights, and the standard error of each component: that of a mean over pairs of
    draws.
    """
    p, q = linear.posterior(linear_points), linear.posterior(start)
    keys = jax.random.split(jax.random.key(0))
    draws_p, draws_q = (
        linear.unravel_all(normal_draws(key, gaussian, NUM_SAMPLES)) for key, gaussian in zip(keys, (p, q), strict=True)
    )

    def of_one_pair(data_params, coreset_params):
        one = jax.tree.map(lambda leaf: leaf[None], (data_params, coreset_params))
        gradient = kl_gradient(linear.model, start, *one)
        return jnp.concatenate([gradient.x.ravel(), gradient.y.ravel()])

    error = np.asarray(jax.jit(jax.vmap(of_one_pair))(draws_p, draws_q), np.float64).std(axis=0) / np.sqrt(NUM_SAMPLES)
    return flat(kl_gradient(linear.model, start, draws_p, draws_q)), error


def largest_z(estimate, truth, error):
    return np.max(np.abs(estimate - truth) / error)


def test_random_weights_agree_within_their_standard_error(monte_carlo, truth):
    estimate, error = monte_carlo
    assert largest_z(estimate, truth, error) < MAX_Z


def test_random_weights_with_the_flipped_sign_do_not(monte_carlo, truth):
    estimate, error = monte_carlo
    assert largest_z(-estimate, truth, error) > MAX_Z


@pytest.fixture(scope="module")
def follow(linear, linear_points, forward_kl):
    """The closed-form KL after each of many steps along sign * kl_gradient from the start."""
    target = linear.unravel_all(sigma_points(linear.posterior(linear_points)))

    @jax.jit
    def run(points, sign):
        def step(points, _):
            gradient = kl_gradient(
                linear.model, points, target, linear.unravel_all(sigma_points(linear.posterior(points)))
            )
            return Points(
                points.x + 0.003 * sign * gradient.x, points.y + 0.003 * sign * gradient.y, points.weight
            ), forward_kl(points)

        return jax.lax.scan(step, points, length=4000)[1]

    return run


def test_descending_it_leads_to_zero_kl(follow, start):
    kl = follow(start, -1.0)
    assert kl[300] < 0.1 * kl[0]
    assert kl[-1] < 1e-2  # four points in three dimensions can match the posterior exactly


def test_ascending_it_raises_the_kl(follow, start):
    kl = follow(start, 1.0)[:5]  # soon after it is beyond float32
    assert np.all(np.diff(kl) > 0)


def test_padding_has_no_gradient(linear, start, linear_points):
    p, q = linear.posterior(linear_points), linear.posterior(start)
    last_is_padding = start.reweighted(start.weight.at[-1].set(0.0))
    gradient = kl_gradient(
        linear.model, last_is_padding, linear.unravel_all(sigma_points(p)), linear.unravel_all(sigma_points(q))
    )
    assert np.all(gradient.x[-1] == 0)
    assert np.all(gradient.y[-1] == 0)
    assert np.all(gradient.x[:-1] != 0)
