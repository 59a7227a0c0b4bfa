"""The jump start: weights of one sample become those of round 1; a posterior of several is refused."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coreshot.errors import CoreshotError
from coreshot.experiments.preset import load_preset
from coreshot.inference.posterior import SamplePosterior
from coreshot.methods import FedAvg, FedPa, Mime
from coreshot.methods.rounds import Update
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


@pytest.mark.parametrize("step_size", [0.1, 0.01])
def test_its_first_round_moves_the_weights_by_the_step_of_its_own_server(slope, step_size):
    """Adam's first step is as long as its step size, whatever the clients' delta: 0.1 throws a good start away."""
    method = FedAvg(**STEPS, client_optimizer=ADAM, server_optimizer=Optimizer(name="adam", step_size=step_size))
    state = warm_start(method, SamplePosterior(slope, {"w": jnp.array([[7.0]])}))
    reply = Update({"delta": {"w": jnp.array([3.0])}}, jnp.asarray(5.0))
    moved = method.receive(jax.random.key(0), slope, state, {"a": reply})
    assert float(moved.params["w"][0]) == pytest.approx(7.0 - step_size, abs=1e-4)


@pytest.mark.parametrize("name", ["moons", "regression"])
def test_the_jump_starts_of_the_tables_differ_from_fed_avg_in_the_servers_step_alone(name):
    preset = load_preset(name)
    methods = {arm.label: preset.methods[arm.method] for arm in preset.arms if arm.method}
    cold, warm = methods["FedAvg"], methods["BPC-FL + SGD -> FedAvg"]
    assert warm.server_optimizer.step_size < cold.server_optimizer.step_size
    assert replace(warm, server_optimizer=cold.server_optimizer) == cold
