"""The jump start: weights of one sample become those of round 1; a posterior of several is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coreshot.errors import CoreshotError
from coreshot.inference.posterior import SamplePosterior
from coreshot.methods import FedAvg, FedPa, Mime
from coreshot.methods.warm_start import warm_start
from coreshot.models.training import Optimizer

ADAM = Optimizer(name="adam", step_size=0.1)
STEPS = {"num_rounds": 4, "local_steps": 2, "batch_size": 8}
METHODS = [
    FedAvg(**STEPS, client_optimizer=ADAM, server_optimizer=ADAM),
    FedPa(**STEPS, client_optimizer=ADAM, server_optimizer=ADAM, num_samples=2, shrinkage=0.1, burn_in_rounds=1),
    Mime(**STEPS, base_optimizer=ADAM, server_step_size=1.0, gradient_batch_size=8),
]


@pytest.fixture(params=METHODS, ids=lambda method: type(method).__name__)
def method(request):
    return request.param


def test_it_begins_at_these_weights_in_round_1(method, slope):
    """Round 0 was the one shot: four rounds are 1, 2, 3 and 4. The optimiser has seen nothing."""
    state = warm_start(method, SamplePosterior(slope, {"w": jnp.array([[7.0]])}))
    assert np.asarray(state.params["w"]).tolist() == [7.0]
    assert (state.round, state.end) == (1, 5)
    assert int(state.optimizer_state[0].count) == 0


def test_its_rounds_are_those_of_a_cold_start_from_the_same_weights(method, slope, clients):
    cold, warm = (
        method.begin({"w": jnp.array([7.0])}),
        warm_start(method, SamplePosterior(slope, {"w": jnp.array([[7.0]])})),
    )
    assert (cold.round, cold.end) == (0, 4)
    one, two = (method.send(jax.random.key(0), slope, state, ("b", "a")) for state in (cold, warm))
    assert (one.clients, one.message.kind, one.message.arrays) == (two.clients, two.message.kind, two.message.arrays)
    assert (one.message.round, two.message.round) == (0, 1)


@pytest.mark.parametrize("num_samples", [2, 17])
def test_a_posterior_of_several_samples_is_refused(method, slope, num_samples):
    with pytest.raises(CoreshotError, match=f"the posterior has {num_samples} samples"):
        warm_start(method, SamplePosterior(slope, {"w": jnp.ones((num_samples, 1))}))
