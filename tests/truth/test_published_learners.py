"""Each published learner's gradient or loss against an answer that is known, with a negative control."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from coreshot.learners.bpc_rkl import reverse_kl_gradient
from coreshot.learners.bpc_w import BpcW
from coreshot.learners.coreset_chains import chain_ends
from coreshot.learners.dm import Dm
from coreshot.learners.fbpc import Fbpc
from coreshot.learners.gradient_matching import GradientMatching, distance
from coreshot.learners.vbpc import last_layer
from coreshot.types import Points

NUM_DRAWS = 40_000


def closed_form_kl(p, q):
    difference, precision = q.mean - p.mean, jnp.linalg.inv(q.covariance)
    log_dets = jnp.linalg.slogdet(q.covariance)[1] - jnp.linalg.slogdet(p.covariance)[1]
    return 0.5 * (jnp.trace(precision @ p.covariance) + difference @ precision @ difference - len(p.mean) + log_dets)


@pytest.fixture(scope="module")
def start(linear_points):
    draws = np.random.default_rng(3)
    x, y = draws.normal(size=(4, 2)), draws.normal(size=(4, 1))
    return Points(jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32), jnp.full(4, linear_points.num_points / 4))


def test_reverse_kl_is_that_of_the_conjugate_model(linear, linear_points, start):
    """By many draws of the coreset's own Gaussian posterior."""
    target, own = linear.posterior(linear_points), linear.posterior(start)

    def kl(x, y):
        return closed_form_kl(linear.posterior(Points(x, y, start.weight)), target)

    truth = np.concatenate([np.ravel(part) for part in jax.jit(jax.grad(kl, argnums=(0, 1)))(start.x, start.y)])
    draws = own.mean + jax.random.normal(jax.random.key(0), (NUM_DRAWS, 3)) @ jnp.linalg.cholesky(own.covariance).T
    found = jax.jit(reverse_kl_gradient, static_argnums=0)(
        linear.model, start, linear_points, linear.unravel_all(draws)
    )
    found = np.concatenate([np.ravel(found.x), np.ravel(found.y)])
    assert np.linalg.norm(found - truth) < 0.06 * np.linalg.norm(truth)
    assert np.linalg.norm(-found - truth) > np.linalg.norm(truth)


def test_last_layer_is_the_gaussian_posterior():
    """VBPC's K x K forms against the h x h ones."""
    draws = np.random.default_rng(0)
    features, labels, at = draws.normal(size=(4, 7)), draws.normal(size=(4, 3)), draws.normal(size=(5, 7))
    rho, a = 0.8, 2.5
    covariance = np.linalg.inv(rho * np.eye(7) + a * features.T @ features)
    weights = a * covariance @ features.T @ labels
    mean, variance, divergence = last_layer(
        *(jnp.asarray(part, jnp.float32) for part in (features, labels, at)), rho, a
    )
    np.testing.assert_allclose(mean, at @ weights, rtol=2e-4, atol=1e-5)
    np.testing.assert_allclose(variance, np.sum(at @ covariance * at, axis=1), rtol=2e-4)
    one = 0.5 * (rho * np.trace(covariance) - 7 - np.linalg.slogdet(rho * covariance)[1])
    assert float(divergence) == pytest.approx(3 * one + 0.5 * rho * np.sum(weights**2), rel=2e-4)


@pytest.fixture(scope="module")
def problem(make_model, sample_points):
    return make_model("classification"), sample_points("classification", 0, 12)


def test_dm_is_zero_where_the_class_means_agree(problem):
    model, data = problem
    learner = Dm(num_points=12, num_updates=1, step_size_x=0.1)
    networks = model.init(jax.random.key(1))
    assert float(learner.loss(jax.random.key(0), model, data, data, networks)) == pytest.approx(0, abs=1e-9)
    assert (
        float(learner.loss(jax.random.key(0), model, Points(data.x + 0.5, data.y, data.weight), data, networks)) > 1e-3
    )
    order = np.argsort(np.asarray(data.y).argmax(1), kind="stable")
    shuffled = Points(data.x[order], data.y[order], data.weight)  # another order of the same points is the same loss
    assert float(learner.loss(jax.random.key(0), model, shuffled, data, networks)) == pytest.approx(0, abs=1e-9)


def test_the_same_shift_moves_both_sides(sample_points):
    learner = Dm(num_points=2, num_updates=1, step_size_x=0.1, max_shift=2)
    x = jax.random.normal(jax.random.key(0), (3, 6, 6, 1))
    np.testing.assert_array_equal(learner._shifted(x, jnp.asarray([1, -2])), np.roll(x, (1, -2), axis=(1, 2)))


def test_gradient_distance():
    one = {"kernel": jnp.asarray([[1.0, 0.0], [0.0, 2.0]]), "bias": jnp.asarray([1.0, 1.0])}
    other = {"kernel": jnp.asarray([[0.0, 0.0], [3.0, 1.0]]), "bias": jnp.asarray([-1.0, 1.0])}
    assert float(distance(one, one)) == pytest.approx(0, abs=1e-6)
    assert float(distance(one, other)) == pytest.approx(
        1.0 + 0.0, abs=1e-6
    )  # first unit orthogonal, second parallel; biases do not count


def test_gradient_matching_is_zero_on_the_data_itself(problem):
    model, data = problem
    learner = GradientMatching(num_points=12, num_updates=1, step_size_x=0.1, batch_size=4000)
    networks = model.init(jax.random.key(1))
    own = float(learner.loss(jax.random.key(0), model, data, data, networks))
    other = float(learner.loss(jax.random.key(0), model, Points(-data.x, data.y, data.weight), data, networks))
    assert own < 0.01 < other / 10


def plain(make_bpc, cls, **changes):
    base = make_bpc(**changes)
    return cls(**{name: getattr(base, name) for name in base.__dataclass_fields__})


def test_matched_trajectories_go_through_the_chain(make_bpc, problem):
    """BPC-W's gradient against finite differences of the distance that it is the gradient of."""
    model, data = problem
    learner = plain(make_bpc, BpcW, coreset_chain_length=3)
    points = Points(data.x[:3], data.y[:3], data.weight[:3])
    starts = jnp.stack([ravel_pytree(model.init(jax.random.key(seed)))[0] for seed in (1, 2)])
    ends = starts + 0.1

    def moved(delta):
        shifted = Points(points.x.at[1, 0].add(delta), points.y, points.weight)
        return learner.gradient(jax.random.key(0), model, shifted, data, (), (starts, ends))

    def loss(delta):
        shifted = Points(points.x.at[1, 0].add(delta), points.y, points.weight)
        reached = jax.vmap(lambda params: ravel_pytree(params)[0])(
            chain_ends(learner, model, shifted, jax.random.key(0), starts)
        )
        return float(jnp.mean(jnp.sum((reached - ends) ** 2, axis=1) / jnp.sum((starts - ends) ** 2, axis=1)))

    difference = (loss(0.05) - loss(-0.05)) / 0.1
    scale = 1 if learner.step_of == "sum" else learner.num_points
    assert float(moved(0.0).x[1, 0]) * scale == pytest.approx(difference, rel=0.05, abs=1e-5)


def test_function_space_contrast_vanishes_where_both_sides_agree(make_bpc, problem):
    """With chains that do not move, and experts' ends that are their starts, and no deviation between trajectories,
    FBPC's gradient is 0.
    """
    model, data = problem
    learner = plain(make_bpc, Fbpc, chain_step_size=1e-12)
    points = Points(data.x[:3], data.y[:3], data.weight[:3])
    starts = jnp.stack([ravel_pytree(model.init(jax.random.key(1)))[0]] * 2)
    same = learner.gradient(jax.random.key(0), model, points, data, (), (starts, starts))
    assert float(jnp.max(jnp.abs(same.x))) < 1e-6
    other = learner.gradient(jax.random.key(0), model, points, data, (), (starts, starts + 0.3))
    assert float(jnp.max(jnp.abs(other.x))) > 1e-3
