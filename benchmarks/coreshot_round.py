"""coreshot's side: the same round, through the wire and the ledger as in every simulation."""

import jax
import numpy as np
from compilations import compiled_once
from turns import serve

from coreshot.methods import FedAvg
from coreshot.models.networks import ConvNet
from coreshot.models.training import Optimizer
from coreshot.runtime.simulate import simulate
from coreshot.study import Agreement, Study
from coreshot.types import make_points
from coreshot.wire.ledger import Ledger

NUM_CLIENTS, LOCAL_STEPS, BATCH_SIZE, NUM_EXAMPLES = 10, 10, 25, 250


def main() -> None:
    method = FedAvg(
        num_rounds=1,
        local_steps=LOCAL_STEPS,
        batch_size=BATCH_SIZE,
        client_optimizer=Optimizer(name="sgd", step_size=0.1),
        server_optimizer=Optimizer(name="sgd", step_size=1.0),
    )
    agreement = Agreement(
        task="bench", kind="classification", input_shape=(28, 28, 1), num_outputs=62, prior_precision=0.0
    )
    study = Study(agreement, ConvNet(channels=(32, 64), dense=(128,)), method=method)
    assert study.model.num_params() == 1_206_590
    draws = np.random.default_rng(0)
    clients = {}
    for index in range(NUM_CLIENTS):
        x, label = draws.random((NUM_EXAMPLES, 28, 28, 1), np.float32), draws.integers(62, size=NUM_EXAMPLES)
        clients[str(index)] = make_points(x, np.eye(62, dtype=np.float32)[label])
    state = method.init(jax.random.key(0), study.model, study.shared_key)

    def one_round() -> None:
        nonlocal state
        state = simulate(jax.random.key(0), study, clients, Ledger(), state=method.begin(state.params))
        jax.block_until_ready(state.params)

    serve(compiled_once(one_round))


if __name__ == "__main__":
    main()
