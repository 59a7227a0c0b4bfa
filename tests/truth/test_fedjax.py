"""FedAvg, MIME and MimeLite agree with FedJAX 0.0.17 after five rounds on the same data, batches and weights
(tests/golden/make_fedjax.py).
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

from coreshot.methods import FedAvg, Mime
from coreshot.methods import rounds as _rounds
from coreshot.models.networks import Mlp
from coreshot.models.training import Optimizer
from coreshot.runtime.simulate import simulate
from coreshot.study import Agreement, Study
from coreshot.types import make_points
from coreshot.wire.ledger import Ledger

GOLDEN = load_file(Path(__file__).parents[1] / "golden" / "fedjax.safetensors")
AGREEMENT = Agreement(task="golden", kind="classification", input_shape=(2,), num_outputs=3, prior_precision=0.1)
NETWORK = Mlp(hidden=(8,), activation="tanh")
LOCAL = {"num_rounds": 5, "local_steps": 4, "batch_size": 5}
ADAM, MOMENTUM = Optimizer(name="adam", step_size=0.05), Optimizer(name="sgd", step_size=0.1, momentum=0.9)
METHODS = {
    "fed_avg": FedAvg(
        **LOCAL, client_optimizer=ADAM, server_optimizer=Optimizer(name="sgd", step_size=0.7, momentum=0.9)
    ),
    "mime": Mime(**LOCAL, base_optimizer=ADAM, server_step_size=0.8, gradient_batch_size=8),
    "mime_momentum": Mime(**LOCAL, base_optimizer=MOMENTUM, server_step_size=1.0, gradient_batch_size=8),
    "mime_lite": Mime(**LOCAL, base_optimizer=ADAM, server_step_size=0.8, gradient_batch_size=8, is_lite=True),
}


def tree(prefix: str) -> dict:
    names = [name.split("/") for name in GOLDEN if name.startswith(f"{prefix}/")]
    layers = {layer: {} for _, layer, _ in names}
    for _, layer, leaf in names:
        layers[layer][leaf] = jnp.asarray(GOLDEN[f"{prefix}/{layer}/{leaf}"])
    return layers


def flat(params) -> np.ndarray:
    return np.concatenate([np.ravel(params[layer][leaf]) for layer in sorted(params) for leaf in sorted(params[layer])])


def final_weights(method, monkeypatch) -> np.ndarray:
    clients = {name: make_points(GOLDEN[f"data/{name}/x"], np.eye(3)[GOLDEN[f"data/{name}/label"]]) for name in "abc"}
    by_size = {points.num_points: GOLDEN[f"plan/{name}"] for name, points in clients.items()}
    monkeypatch.setattr(_rounds, "plan_batches", lambda key, num_examples, batch_size, num_steps: by_size[num_examples])
    study = Study(AGREEMENT, NETWORK, method=method)
    state = simulate(jax.random.key(0), study, clients, Ledger(), state=method.begin(tree("start")))
    return flat(state.params)


def relative_error(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


@pytest.mark.parametrize("name", METHODS)
def test_agrees_with_fedjax(name, monkeypatch):
    assert relative_error(final_weights(METHODS[name], monkeypatch), flat(tree(name))) < 1e-5


def test_negative_control_the_numbers_tell_the_methods_apart(monkeypatch):
    assert relative_error(final_weights(METHODS["mime_lite"], monkeypatch), flat(tree("mime"))) > 1e-3
    assert relative_error(flat(tree("start")), flat(tree("fed_avg"))) > 1e-1
