"""Randomised data: noise of the stated size, drawn by position, so that padding changes nothing and stays padding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coreshot.learners.randomised_map import randomised
from coreshot.types import Points, pad_points

NUM_POINTS = 4000


def points_of_weight(weight, num_outputs):
    return Points(jnp.zeros((NUM_POINTS, 2)), jnp.ones((NUM_POINTS, num_outputs)), jnp.full(NUM_POINTS, weight))


@pytest.mark.parametrize("weight", [1.0, 4.0])
def test_targets_get_the_noise_of_a_mean_of_so_many_observations(make_model, weight):
    """noise_scale / sqrt(weight), within 4 standard errors of a deviation from 4,000 draws."""
    model = make_model("regression")
    found = randomised(jax.random.key(0), model, points_of_weight(weight, 1))
    scale = model.noise_scale / np.sqrt(weight)
    assert np.std(np.asarray(found.y, np.float64)) == pytest.approx(scale, rel=4 / np.sqrt(2 * NUM_POINTS))
    assert np.mean(np.asarray(found.y, np.float64)) == pytest.approx(1.0, abs=4 * scale / np.sqrt(NUM_POINTS))
    assert np.all(found.weight == weight)


@pytest.mark.parametrize("weight", [1.0, 4.0])
def test_weights_become_gamma_draws(make_model, weight):
    """Gamma(w) has mean w and variance w; the variance of its variance is (2 w^2 + 6 w) / n."""
    found = randomised(jax.random.key(0), make_model("classification"), points_of_weight(weight, 2))
    drawn = np.asarray(found.weight, np.float64)
    assert drawn.mean() == pytest.approx(weight, abs=4 * np.sqrt(weight / NUM_POINTS))
    assert drawn.var() == pytest.approx(weight, abs=4 * np.sqrt((2 * weight**2 + 6 * weight) / NUM_POINTS))
    assert np.all(found.y == 1)


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_padding_stays_padding_and_changes_no_draw(make_model, sample_points, same, kind):
    model, points = make_model(kind), sample_points(kind, 0, 5)
    plain, padded = (randomised(jax.random.key(0), model, some) for some in (points, pad_points(points, 8)))
    assert same(plain, jax.tree.map(lambda array: array[:5], padded))
    assert np.all(padded.weight[5:] == 0)
    assert not same(plain, points)
