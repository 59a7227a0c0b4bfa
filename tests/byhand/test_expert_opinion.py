"""What the experts say about a point: its label is their mean, its weight how far they agree, and twins share a weight."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coreshot.keys import client_key
from coreshot.learners.bpc_fkl import expert_opinion, known_places
from coreshot.learners.distill import distill
from coreshot.types import Points

# Experts of one Dense layer, flat as (bias, slope 0, slope 1): three that differ in the slopes only.
EXPERTS = jnp.asarray([[1.0, 0.2, 0.0], [1.0, 0.0, 0.3], [1.0, -0.2, -0.3]])[None]


def opinion(model, inputs, num_examples=1e6):
    inputs = jnp.asarray(inputs)[None]
    points = Points(inputs, jnp.zeros((*inputs.shape[:2], 1)), jnp.ones(inputs.shape[:2]))
    labels, weights = expert_opinion(model, points, jnp.asarray([num_examples]), EXPERTS)
    return np.asarray(labels)[0, :, 0], np.asarray(weights)[0]


def test_label_is_the_mean_and_weight_the_noise_variance_over_theirs(linear):
    """At (1, 0) the experts say 1.2, 1.0, 0.8: mean 1, variance 0.08 / 3; the noise variance is 0.25."""
    labels, weights = opinion(linear.model, [[1.0, 0.0]])
    assert labels == pytest.approx([1.0])
    assert weights == pytest.approx([0.25 / (0.08 / 3)], rel=1e-5)


def test_points_that_say_the_same_share_their_weight(linear):
    single, twins = opinion(linear.model, [[1.0, 0.0]])[1], opinion(linear.model, [[1.0, 0.0], [1.0, 0.0]])[1]
    assert twins == pytest.approx([single[0] / 2, single[0] / 2], rel=1e-5)


def test_points_that_err_independently_share_nothing(linear):
    """Deviations at (1, 0) are .2, 0, -.2 and at (1, -2 / 1.5) .2, -.4, .2: their product sums to 0."""
    apart = opinion(linear.model, [[1.0, 0.0], [1.0, -4.0 / 3.0]])[1]
    alone = [opinion(linear.model, [point])[1][0] for point in ([1.0, 0.0], [1.0, -4.0 / 3.0])]
    assert apart == pytest.approx(alone, rel=1e-4)


def test_together_they_are_at_most_the_number_of_examples(linear):
    weights = opinion(linear.model, [[1.0, 0.0], [0.0, 1.0]], num_examples=4.0)[1]
    assert weights.sum() == pytest.approx(4.0, rel=1e-5)


def test_a_learned_coreset_carries_them_and_draws_more_experts(make_bpc, make_model, make_points):
    clients = {"a": make_points("regression", 0, 12)}
    keys = {"a": client_key(jax.random.key(0), 0, "a")}
    learner = make_bpc(guidance="client", sampling="randomised", num_data_draws=7, point_mass="data", step_size_y=0.1)
    coreset = distill(make_model("regression"), learner, clients, keys, jax.random.key(9))["a"].coreset
    weight = np.asarray(coreset.points.weight)
    assert np.all(weight > 0)
    assert weight.mean() <= 1 + 1e-5
    assert len(set(weight.tolist())) == len(weight)


def test_points_start_spread_over_what_is_known(linear):
    """With these experts the variance at (a, 0) is 0.08 a^2 / 3: least at the first candidate, within a factor of four up to 2, not at 9."""
    candidates = jnp.asarray([[1.0, 0.0], [1.2, 0.0], [2.0, 0.0], [1.6, 0.0], [9.0, 0.0]])
    places = np.asarray(known_places(linear.model, candidates, jnp.zeros((3, 1)), EXPERTS[0]))[:, 0]
    assert places == pytest.approx([1.0, 2.0, 1.6])
    assert (
        np.asarray(known_places(linear.model, candidates, jnp.zeros((5, 1)), EXPERTS[0]))[-1, 0] == 9.0
    )  # too few are known: the next best, and none twice
