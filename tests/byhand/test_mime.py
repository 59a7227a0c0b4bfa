"""MIME on one weight: gradients 2.5 w - 3 (client a, two points) and w - 4 (client b, one), so c = 2 w - 10/3; base
step 0.1, momentum 0.9.
"""

import jax.numpy as jnp
import pytest

from coreshot.methods import Mime
from coreshot.methods.rounds import full_gradient
from coreshot.models.training import Optimizer
from coreshot.types import make_points


def mime(local_steps=1, server_step_size=1.0, is_lite=False, optimizer=None):
    return Mime(
        num_rounds=5,
        local_steps=local_steps,
        batch_size=8,
        base_optimizer=optimizer or Optimizer(name="sgd", step_size=0.1, momentum=0.9),
        server_step_size=server_step_size,
        gradient_batch_size=1,
        is_lite=is_lite,
    )


def momentum_of(state):
    return float(state.optimizer_state[0].trace["w"][0])


def test_one_local_step_is_the_base_optimiser_on_the_pooled_data(play, clients, weight_of):
    """Round 1: g = c = -4/3 at both clients, w = 1 + 0.4/3, and the momentum becomes c."""
    state = play(mime(), clients)
    assert weight_of(state) == pytest.approx(1 + 0.4 / 3, rel=1e-6)
    assert momentum_of(state) == pytest.approx(-4 / 3, rel=1e-6)
    assert (state.round, state.control, state.cohort) == (1, None, ())
    # Round 2: c = 2 + 0.8/3 - 10/3 = -3.2/3; with momentum -3.2/3 - 0.9 * 4/3 = -6.8/3.
    state = play(mime(), clients, 2)
    assert weight_of(state) == pytest.approx(1 + 0.4 / 3 + 0.68 / 3, rel=1e-6)
    assert momentum_of(state) == pytest.approx(-6.8 / 3, rel=1e-6)


def test_two_local_steps_with_a_frozen_state(play, clients, weight_of):
    """Round 1: both go to 1 + 0.4/3; then g is 2.5 * 0.4/3 - 4/3 = -1 at a and 0.4/3 - 4/3 = -1.2 at b, and the
    momentum is still 0.

    a moved by 0.4/3 + 0.1, b by 0.4/3 + 0.12: together 0.4/3 + (2 * 0.1 + 0.12) / 3 = 0.24.
    """
    state = play(mime(2), clients)
    assert weight_of(state) == pytest.approx(1.24, rel=1e-6)
    assert weight_of(state) != pytest.approx(
        1.24 + 0.9 * 0.4 / 3, rel=1e-3
    )  # with a momentum that the first step had moved
    assert momentum_of(state) == pytest.approx(-4 / 3, rel=1e-6)  # once a round, with c


def test_two_local_steps_in_the_second_round(play, clients, weight_of):
    """c = 2.48 - 10/3 = -2.56/3 and 0.9 s = -1.2: both go up by 0.1 * (1.2 + 2.56/3) = 0.616/3.

    Then g is 2.5 * 0.616/3 - 2.56/3 = -0.34 at a, which goes 0.154 further, and 0.616/3 - 2.56/3 = -0.648 at b,
    which goes 0.1848 further.
    """
    state = play(mime(2), clients, 2)
    assert weight_of(state) == pytest.approx(1.24 + 0.616 / 3 + (2 * 0.154 + 0.1848) / 3, rel=1e-6)
    assert momentum_of(state) == pytest.approx(-2.56 / 3 - 1.2, rel=1e-6)


def test_mime_lite_steps_along_its_own_gradient(play, clients, weight_of):
    """Round 1 is FedAvg's two steps, a to 1.0875 and b to 1.57: 1 + 0.745/3 in place of MIME's 1.24; the momentum
    moves with c all the same.
    """
    state = play(mime(2, is_lite=True), clients)
    assert weight_of(state) == pytest.approx(1 + 0.745 / 3, rel=1e-6)
    assert weight_of(state) != pytest.approx(1.24, rel=1e-3)
    assert momentum_of(state) == pytest.approx(-4 / 3, rel=1e-6)
    # Round 2, w = 1.248333, 0.9 s = -1.2: a 1.35625, 1.4371875 (gradients 0.1208333, 0.390625); b 1.6435, 1.99915
    # (-2.7516667, -2.3565).
    found = weight_of(play(mime(2, is_lite=True), clients, 2))
    assert found == pytest.approx((2 * 1.4371875 + 1.99915) / 3, rel=1e-6)


def test_the_server_goes_so_much_of_the_way(play, clients, weight_of):
    assert weight_of(play(mime(2, server_step_size=0.5), clients)) == pytest.approx(1.12, rel=1e-6)


@pytest.mark.parametrize("is_lite", [False, True])
def test_adam_counts_rounds_and_not_local_steps(play, clients, is_lite):
    adam = Optimizer(name="adam", step_size=0.1)
    for num_rounds in (1, 2):
        state = play(mime(3, is_lite=is_lite, optimizer=adam), clients, num_rounds)
        assert int(state.optimizer_state[0].count) == num_rounds
    first = play(mime(3, is_lite=is_lite, optimizer=adam), clients).optimizer_state[0]
    assert float(first.mu["w"][0]) == pytest.approx(0.1 * -4 / 3, rel=1e-6)
    assert float(first.nu["w"][0]) == pytest.approx(0.001 * 16 / 9, rel=1e-5)


@pytest.mark.parametrize("batch_size", [1, 2, 3, 7])
def test_full_gradient_does_not_depend_on_its_batches(slope, batch_size):
    """x = 1, 2, 3 and y = 1: (w 14 - 6) / 3 = 8/3 at w = 1."""
    points = make_points([[1.0], [2.0], [3.0]], [[1.0], [1.0], [1.0]])
    assert float(full_gradient(slope, {"w": jnp.ones(1)}, points, batch_size)["w"][0]) == pytest.approx(8 / 3, rel=1e-6)
