"""What the experts say about points: the label is their mean, the weight what of the data's observations a point can
carry.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coreshot.keys import client_key
from coreshot.learners.informative_start import select_informative_inputs, stationary_labels_and_weights
from coreshot.learners.loop import distill
from coreshot.privacy.guarded_records import guard_records
from coreshot.types import Points

# Experts of one Dense layer, flat as (bias, slope 0, slope 1): three that differ in the slopes only.
EXPERTS = jnp.asarray([[1.0, 0.2, 0.0], [1.0, 0.0, 0.3], [1.0, -0.2, -0.3]])[None]
# Lines a + b t at (1, t): the four experts vary as much in a as in b, independently; inputs are (1, t), the bias is 0.
LINES = jnp.asarray([[0.0, 0.1, 0.1], [0.0, 0.1, -0.1], [0.0, -0.1, 0.1], [0.0, -0.1, -0.1]])[None]


def as_points(inputs):
    inputs = jnp.asarray(inputs, jnp.float32)
    return Points(inputs, jnp.zeros((len(inputs), 1)), jnp.ones(len(inputs)))


def opinion(model, inputs, data, experts=EXPERTS):
    points, data = (jax.tree.map(lambda array: array[None], as_points(places)) for places in (inputs, data))
    labels, weights = stationary_labels_and_weights(model, points, data, experts)
    return np.asarray(labels)[0, :, 0], np.asarray(weights)[0]


def test_label_is_the_mean_of_the_experts(linear):
    """At (1, 0) they say 1.2, 1.0, 0.8."""
    assert opinion(linear.model, [[1.0, 0.0]], [[1.0, 0.0]])[0] == pytest.approx([1.0])


def test_a_point_on_the_data_carries_all_of_them(linear):
    assert opinion(linear.model, [[1.0, 0.0]], [[1.0, 0.0]] * 7)[1] == pytest.approx([7.0], rel=1e-4)


def test_points_that_say_the_same_share_their_weight(linear):
    assert opinion(linear.model, [[1.0, 0.0]] * 2, [[1.0, 0.0]] * 7)[1] == pytest.approx([3.5, 3.5], rel=1e-4)


def test_a_point_where_the_experts_differ_more_carries_less(linear):
    """An observation at (2, 0) says as much as four at (1, 0): deviations are twice, the information four times as
    large.
    """
    assert opinion(linear.model, [[2.0, 0.0]], [[1.0, 0.0]] * 8)[1] == pytest.approx([2.0], rel=1e-4)


def test_together_they_are_at_most_the_number_of_examples(linear):
    """A point at (0.5, 0) would have to be 16 observations to say what four at (1, 0) do."""
    assert opinion(linear.model, [[0.5, 0.0]], [[1.0, 0.0]] * 4)[1] == pytest.approx([4.0], rel=1e-4)


def test_two_points_carry_a_straight_line_exactly(linear):
    """Inputs t uniform on [-1, 1] have the second moment 1/3: two points at +- 1 / sqrt(3) with half of the mass each
    have the same.
    """
    data = [[1.0, t] for t in np.linspace(-1, 1, 201)]
    gauss = 1 / np.sqrt(3)
    assert opinion(linear.model, [[1.0, -gauss], [1.0, gauss]], data, LINES)[1] == pytest.approx(
        [100.5, 100.5], rel=0.01
    )


def test_places_are_chosen_for_what_the_others_do_not_yet_carry(linear):
    """The middle carries the mean best; then the ends, which carry the slope, one after the other; the twin of the
    middle comes last.
    """
    data = as_points([[1.0, t] for t in np.linspace(-1, 1, 41)])
    candidates = jnp.asarray([[1.0, 0.01], [1.0, -0.7], [1.0, 0.0], [1.0, 0.7]])
    places = np.asarray(select_informative_inputs(linear.model, candidates, 3, data, LINES[0]))[:, 1]
    assert places[0] == pytest.approx(0.0)
    assert sorted(places[1:]) == pytest.approx([-0.7, 0.7])


def test_a_learned_coreset_carries_them_and_draws_more_experts(make_bpc, make_model, sample_points):
    clients = {"a": sample_points("regression", 0, 12)}
    keys = {"a": client_key(jax.random.key(0), 0, "a")}
    learner = make_bpc(start="informative", sampling="randomised", num_data_draws=7, point_mass="data", step_size_y=0.1)
    model = make_model("regression")
    coreset = distill(model, learner, guard_records(clients, learner.releases(model)), keys, jax.random.key(9))[
        "a"
    ].coreset
    weight = np.asarray(coreset.points.weight)
    assert np.all(weight > 0)
    assert weight.mean() <= 1 + 1e-5
    assert len(set(weight.tolist())) == len(weight)
