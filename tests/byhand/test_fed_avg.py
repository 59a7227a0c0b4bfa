"""FedAvg on one weight: client a (two points) has the gradient 2.5 w - 3, client b (one point) w - 4, all three
points 2 w - 10/3.
"""

import jax
import numpy as np
import pytest

from coreshot.methods import FedAvg
from coreshot.methods.rounds import plan_batches
from coreshot.models.training import Optimizer


def fed_avg(local_steps=1, client=0.0, server=0.0):
    """Client step 0.1 and server step 1, with these momenta; batches of all points."""
    return FedAvg(
        num_rounds=5,
        local_steps=local_steps,
        batch_size=8,
        client_optimizer=Optimizer(name="sgd", step_size=0.1, momentum=client),
        server_optimizer=Optimizer(name="sgd", step_size=1.0, momentum=server),
    )


def test_one_local_step_is_a_step_of_gradient_descent_on_the_pooled_data(play, clients, weight_of):
    """At w = 1 the pooled gradient is 2 - 10/3 = -4/3: w = 1 + 0.4/3. The clients' are -0.5 and -3, of mean (2 *
    -0.5 - 3) / 3 = -4/3.
    """
    found = weight_of(play(fed_avg(), clients))
    assert found == pytest.approx(1 + 0.4 / 3, rel=1e-6)
    assert found != pytest.approx(1 + 0.1 * (0.5 + 3) / 2, rel=1e-3)  # clients that count alike


def test_a_client_alone(play, clients, weight_of):
    assert weight_of(play(fed_avg(), {"a": clients["a"]})) == pytest.approx(1 + 0.05, rel=1e-6)
    assert weight_of(play(fed_avg(), {"b": clients["b"]})) == pytest.approx(1 + 0.3, rel=1e-6)


def test_two_local_steps(play, clients, weight_of):
    """a: 1, 1.05, 1.05 + 0.1 * (3 - 2.625) = 1.0875. b: 1, 1.3, 1.3 + 0.1 * 2.7 = 1.57. Moved: (2 * 0.0875 +
    0.57) / 3.
    """
    found = weight_of(play(fed_avg(local_steps=2), clients))
    assert found == pytest.approx(1 + (2 * 0.0875 + 0.57) / 3, rel=1e-6)
    assert found != pytest.approx(1.24, rel=1e-3)  # two steps on the pooled data: 1 + 0.4/3 + 0.1 * (10/3 - 2 - 0.8/3)


def test_server_momentum_over_two_rounds(play, clients, weight_of):
    """Round 1 moves by 0.4/3; round 2 by 0.1 * (10/3 - 2 - 0.8/3) = 0.32/3 and by 0.9 of what round 1 did: 1 +
    0.4/3 + 0.32/3 + 0.36/3.
    """
    assert weight_of(play(fed_avg(server=0.9), clients, 2)) == pytest.approx(1.36, rel=1e-6)
    assert weight_of(play(fed_avg(), clients, 2)) == pytest.approx(1.24, rel=1e-6)  # without it


def test_a_clients_momentum_starts_anew_each_round(play, clients, weight_of):
    """One local step a round: there is never anything to carry, so two rounds are those without momentum. Two
    local steps carry.
    """
    assert weight_of(play(fed_avg(client=0.9), clients, 2)) == pytest.approx(1.24, rel=1e-6)
    # a: 1.05, then 0.0375 + 0.9 * 0.05 more; b: 1.3, then 0.27 + 0.9 * 0.3 more.
    assert weight_of(play(fed_avg(2, client=0.9), clients)) == pytest.approx(1 + (2 * 0.1325 + 0.84) / 3, rel=1e-6)


def test_batches_are_shuffled_passes_one_after_the_other():
    """5 examples, 5 batches of 2: the first five draws are a pass, the next five another."""
    plan = plan_batches(jax.random.key(0), 5, 2, 5)
    assert plan.shape == (5, 2)
    first, second = plan.reshape(2, 5)
    assert sorted(first) == sorted(second) == [0, 1, 2, 3, 4]
    assert not np.array_equal(first, second)
    assert not np.array_equal(plan, plan_batches(jax.random.key(1), 5, 2, 5))


def test_a_client_smaller_than_a_batch_uses_all_it_has():
    assert np.sort(plan_batches(jax.random.key(0), 3, 50, 2)).tolist() == [[0, 1, 2], [0, 1, 2]]
