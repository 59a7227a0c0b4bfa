"""Makes fedjax.safetensors: what FedJAX computes for FedAvg, MIME and MimeLite, and everything needed to compute the
same with coreshot.

Run in an environment of its own, from this folder:

    python3 -m venv fedjax-env
    fedjax-env/bin/pip install -r ../../benchmarks/fedjax-requirements.txt
    fedjax-env/bin/python make_fedjax.py

Three clients of different sizes, a small MLP (2 -> 8 -> 3, tanh), five rounds; the batches are FedJAX's own, recorded
by an index that travels
with the examples.
"""

import fedjax
import jax
import jax.numpy as jnp
import numpy as np
from fedjax.algorithms import fed_avg, mime, mime_lite
from safetensors.numpy import save_file

NUM_ROUNDS, LOCAL_STEPS, BATCH_SIZE = 5, 4, 5
SIZES = {"a": 7, "b": 12, "c": 20}


def make_clients() -> dict[str, dict[str, np.ndarray]]:
    draws = np.random.default_rng(0)
    clients = {}
    for name, size in SIZES.items():
        x = draws.normal(size=(size, 2)).astype(np.float32)
        label = (np.sum(x, axis=1) > 0).astype(np.int32) + (x[:, 0] > 1)
        clients[name] = {"x": x, "label": label.astype(np.int32), "index": np.arange(size, dtype=np.int32)}
    return clients


def make_params() -> dict[str, dict[str, np.ndarray]]:
    draws = np.random.default_rng(1)
    shapes = {"Dense_0": (2, 8), "Dense_1": (8, 3)}
    return {
        layer: {
            "kernel": draws.normal(size=shape).astype(np.float32) / 2,
            "bias": 0.1 * draws.normal(size=shape[1]).astype(np.float32),
        }
        for layer, shape in shapes.items()
    }


def each_loss(params, batch, rng):
    hidden = jnp.tanh(batch["x"] @ params["Dense_0"]["kernel"] + params["Dense_0"]["bias"])
    logits = hidden @ params["Dense_1"]["kernel"] + params["Dense_1"]["bias"]
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), batch["label"][:, None], axis=1)[:, 0]


def gradient(params, batch, rng):
    return jax.grad(lambda params: jnp.mean(each_loss(params, batch, rng)))(params)


def run(algorithm, datasets) -> dict:
    state = algorithm.init(make_params())
    for _ in range(NUM_ROUNDS):
        state, _ = algorithm.apply(state, [(name, data, jax.random.PRNGKey(0)) for name, data in datasets.items()])
    return jax.tree_util.tree_map(np.asarray, state.params)


def main() -> None:
    clients = make_clients()
    datasets = {name: fedjax.ClientDataset(examples) for name, examples in clients.items()}
    batches = fedjax.ShuffleRepeatBatchHParams(batch_size=BATCH_SIZE, num_epochs=None, num_steps=LOCAL_STEPS, seed=3)
    whole = fedjax.PaddedBatchHParams(batch_size=8)
    adam = fedjax.optimizers.adam(0.05)
    results = {
        "fed_avg": run(
            fed_avg.federated_averaging(gradient, adam, fedjax.optimizers.sgd(0.7, momentum=0.9), batches), datasets
        ),
        "mime": run(mime.mime(each_loss, adam, batches, whole, 0.8), datasets),
        "mime_momentum": run(
            mime.mime(each_loss, fedjax.optimizers.sgd(0.1, momentum=0.9), batches, whole, 1.0), datasets
        ),
        "mime_lite": run(mime_lite.mime_lite(each_loss, adam, batches, whole, 0.8), datasets),
    }
    arrays = {
        f"{method}/{layer}/{leaf}": array
        for method, tree in results.items()
        for layer, part in tree.items()
        for leaf, array in part.items()
    }
    arrays |= {f"start/{layer}/{leaf}": array for layer, part in make_params().items() for leaf, array in part.items()}
    for name, examples in clients.items():
        arrays[f"data/{name}/x"], arrays[f"data/{name}/label"] = examples["x"], examples["label"]
        arrays[f"plan/{name}"] = np.stack([batch["index"] for batch in datasets[name].shuffle_repeat_batch(batches)])
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, "fedjax.safetensors")


if __name__ == "__main__":
    main()
