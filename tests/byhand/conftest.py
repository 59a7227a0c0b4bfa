"""A model with one weight, output = w x, so that every method's round can be worked out on paper."""

from dataclasses import dataclass

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest

from coreshot.models import Model
from coreshot.privacy.guarded_records import guard_records
from coreshot.types import make_points


class SlopeModule(nn.Module):
    @nn.compact
    def __call__(self, x):
        return self.param("w", nn.initializers.ones, (1,)) * x


@dataclass(frozen=True)
class Slope:
    def fills_cache(self, input_shape):
        return False

    def build(self, num_outputs):
        return SlopeModule()


@pytest.fixture(scope="session")
def slope():
    """With noise 1 the gradient of minus the mean log-likelihood is mean((w x - y) x). The weight begins at 1."""
    return Model(Slope(), "regression", (1,), 1, prior_precision=0.0, noise_scale=1.0)


@pytest.fixture(scope="session")
def clients():
    """a: x = 1, 2 and y = 2, 2, so its gradient is 2.5 w - 3; b: x = 1 and y = 4, so its gradient is w - 4."""
    return {"a": make_points([[1.0], [2.0]], [[2.0], [2.0]]), "b": make_points([[1.0]], [[4.0]])}


@pytest.fixture(scope="session")
def weight_of():
    return lambda state: float(state.params["w"][0])


@pytest.fixture(scope="session")
def play(slope):
    """The state after so many rounds, from w = 1."""

    def run(method, clients, num_rounds=1):
        key, state, inbox = jax.random.key(0), method.begin({"w": jnp.ones(1)}), []
        while state.round < num_rounds:
            message = method.send(key, slope, state, tuple(clients)).message
            inbox = [*(old for old in inbox if old.round == message.round), message]
            answers = method.reply(
                key, slope, guard_records(clients, method.releases(slope)), inbox, key, lambda clients: None
            )
            state = method.receive(
                key, slope, state, {name: method.read(slope, name, answer) for name, (answer, _) in answers.items()}
            )
        return state

    return run
