"""FedJAX's side of the benchmark: one FedAvg round of the paper's ConvNet each time a line arrives; the seconds it
took go back.
"""

import fedjax
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from turns import serve

NUM_CLIENTS, LOCAL_STEPS, BATCH_SIZE, NUM_EXAMPLES = 10, 10, 25, 250


def forward(x):
    x = jax.nn.relu(hk.Conv2D(32, 3, padding="VALID")(x))
    x = jax.nn.relu(hk.Conv2D(64, 3, padding="VALID")(x))
    x = hk.MaxPool(2, 2, "VALID")(x).reshape(x.shape[0], -1)
    return hk.Linear(62)(jax.nn.relu(hk.Linear(128)(x)))


def main() -> None:
    network = hk.without_apply_rng(hk.transform(forward))
    params = network.init(jax.random.PRNGKey(0), jnp.zeros((1, 28, 28, 1)))
    assert sum(leaf.size for leaf in jax.tree_util.tree_leaves(params)) == 1_206_590

    def gradient(params, batch, rng):
        def loss(params):
            return -jnp.mean(jnp.sum(jax.nn.log_softmax(network.apply(params, batch["x"])) * batch["y"], axis=1))

        return jax.grad(loss)(params)

    batches = fedjax.ShuffleRepeatBatchHParams(batch_size=BATCH_SIZE, num_epochs=None, num_steps=LOCAL_STEPS, seed=0)
    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        gradient, fedjax.optimizers.sgd(0.1), fedjax.optimizers.sgd(1.0), batches
    )
    draws = np.random.default_rng(0)
    clients = []
    for index in range(NUM_CLIENTS):
        x, label = draws.random((NUM_EXAMPLES, 28, 28, 1), np.float32), draws.integers(62, size=NUM_EXAMPLES)
        clients.append(
            (
                str(index),
                fedjax.ClientDataset({"x": x, "y": np.eye(62, dtype=np.float32)[label]}),
                jax.random.PRNGKey(index),
            )
        )
    state = algorithm.init(params)

    def one_round() -> None:
        nonlocal state
        state, _ = algorithm.apply(state, clients)
        jax.block_until_ready(state.params)

    serve(one_round)


if __name__ == "__main__":
    main()
