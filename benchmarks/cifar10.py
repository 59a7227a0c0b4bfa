"""CIFAR-10 (JPEG copy) with frozen features: one spectral message a client, beside peers on identical features.

    python benchmarks/cifar10.py choose DATA.npz NETWORKS CACHE          # on training images alone
    python benchmarks/cifar10.py run DATA.npz NETWORKS CACHE --alpha 0.1 --seed 0 --out results.jsonl
    python benchmarks/cifar10.py show results.jsonl

CACHE is what benchmarks/cifar10_features.py made; NETWORKS has efficientnet-lite0.onnx and its sidecar. All images
that the cache has are used. Features are those of the map `onnx`: standardised by the sidecar and rounded. Records are
divided among 100 clients by Dirichlet over labels (`coreshot.data.partition`). Peers, in a few lines each:

- all moments: our head with every client's moments sent as they are (the statistics of Fed3R and AFL, our link);
- AFL, Fed3R: ridge regression on one-hot labels from all moments (Zhuang et al. 2025, ridge 1; Fani et al.
  2024, ridge 0.01);
- FedNCM: the nearest class mean by cosine (Legate et al. 2023);
- FedAvg of a linear head: 100 rounds, 10 clients a round, one pass each (McMahan et al. 2017).

Scores of the peers become probabilities by a softmax whose scale is the best FOR THE TEST IMAGES, which favours them.
"""

import argparse
import hashlib
import json
import os
import time
from pathlib import Path

import jax
import numpy as np
import scipy.optimize
import scipy.special
from cifar10_features import DEVIATION, MEAN, OUTPUTS, in_order, open_cache

import coreshot
from coreshot.data.partition import Dirichlet
from coreshot.frozen.files import FOLDER
from coreshot.methods.spectral import center_labels
from coreshot.spectral.brought_network import Onnx
from coreshot.spectral.public_constants import read_constants, standardise
from coreshot.spectral.random_layer import RandomOnTop
from coreshot.spectral.received import ReceivedRows, sum_moments
from coreshot.study import Study
from coreshot.wire.messages import decode_message

CLIENTS, MAX_BYTES = 100, 259_000
JOINED = ("stage_5", "stage_6", "stage_7", "pooled")


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def make_features(given, outputs, num_random):
    network, sidecar = (given.networks / f"efficientnet-lite0.{end}" for end in ("onnx", f"{given.size}.json"))
    return Onnx(
        dimension=sum(OUTPUTS[name] for name in outputs) + num_random,
        file=network.name,
        sha256=digest(network),
        outputs=outputs,
        input_size=(given.size, given.size),
        mirrored=given.mirrored,
        mean=MEAN,
        deviation=DEVIATION,
        sidecar=sidecar.name,
        sidecar_sha256=digest(sidecar),
        random_features=RandomOnTop(dimension=num_random) if num_random else None,
    )


def embed(features, raw, seed):
    """What the map computes after the network has run."""
    first = np.cumsum([0, *OUTPUTS.values()])
    place = {name: slice(start, start + OUTPUTS[name]) for name, start in zip(OUTPUTS, first, strict=False)}
    chosen = np.concatenate([raw[:, place[name]] for name in features.outputs], axis=1)
    center, spread = read_constants(features.sidecar, features.sidecar_sha256, features.sha256, features.outputs)
    x = standardise(chosen, center, spread, features.round_to)
    if features.random_features is None:
        return x
    weights = features.random_features.draw(jax.random.key(seed), x.shape[1])
    parts = [features.apply(weights, x[first : first + 1000]) for first in range(0, len(x), 1000)]
    return np.concatenate([np.asarray(part) for part in parts])


def load(given):
    """Raw outputs and labels of the cached training and test images, in their fixed random order."""
    archive = np.load(given.data)
    caches = [open_cache(given.cache, given.size, is_mirrored) for is_mirrored in range(1 + given.mirrored)]
    labels, there = archive["labels"], np.all([np.any(kept, axis=1) for kept in caches], axis=0)
    rows = [part[there[part]] for part in in_order(archive["is_test"])]
    return [(sum(kept[part] for kept in caches) / len(caches), labels[part]) for part in rows]


def make_study(dimension):
    """The features are computed already, so that they are computed once for all runs."""
    return Study.from_dict(
        {
            "task": "cifar10",
            "kind": "classification",
            "input_shape": [dimension],
            "num_outputs": 10,
            "prior_precision": 1.0,
            "network": {"name": "mlp", "hidden": [4], "activation": "relu"},
            "method": {
                "name": "spectral",
                "max_bytes": MAX_BYTES,
                "features": {"name": "identity", "dimension": dimension},
            },
        }
    )


def quality(probabilities, y):
    right = np.argmax(probabilities, axis=1) == y
    confidence = np.max(probabilities, axis=1)
    bins = np.minimum((confidence * 15).astype(int), 14)
    gaps = [abs(np.sum(right[bins == one]) - np.sum(confidence[bins == one])) for one in range(15)]
    nll = -np.mean(np.log(np.maximum(probabilities[np.arange(len(y)), y], 1e-300)))
    return {"accuracy": float(np.mean(right)), "nll": float(nll), "ece": float(np.sum(gaps) / len(y))}


def scaled(scores, y):
    """With the scale that is best for these very records."""

    def loss(log_scale):
        return -np.mean(scipy.special.log_softmax(np.exp(log_scale) * scores, axis=1)[np.arange(len(y)), y])

    best = scipy.optimize.minimize_scalar(loss, bounds=(-5, 7), method="bounded").x
    return quality(scipy.special.softmax(np.exp(best) * scores, axis=1), y)


def fit(method, model, key, states, test):
    posterior, _ = method.posterior(key, model, states)
    return quality(posterior.predict(test[0]).mean, test[1])


def read_message(study, client, data):
    return study.read(client, decode_message(data, study_hash=study.hash, client=client))


def all_rows(model, x, y):
    """What a client would send that sends each record's features, the constant feature and the labels."""
    labels = center_labels(model, np.eye(10, dtype=np.float32)[y])
    sent = np.concatenate([x, np.ones((len(x), 1), np.float32), labels], axis=1)
    return ReceivedRows(sent.astype(np.float32), 1.0, len(x), 10)


def our_heads(parts, x, y, test):
    """From messages, and from all moments."""
    study = make_study(x.shape[1])
    method, model, key = study.one_round, study.model, study.shared_key
    sent = exact = method.init(key, model, key)
    total, sizes = None, []
    for client, rows in parts.items():
        data = coreshot.distill(study, x[rows], y[rows], client=client)
        sizes.append(len(data))
        sent = method.receive(key, model, sent, {client: read_message(study, client, data)})
        own = all_rows(model, x[rows], y[rows])
        exact = method.receive(key, model, exact, {client: own})
        total = sum_moments([own], total)
    found = {"spectral": {**fit(method, model, key, sent, test), "bytes": max(sizes)}}
    found["all moments, our head"] = fit(method, model, key, exact, test)
    return found, total


def closed_peers(total, test):
    x, y = np.concatenate([test[0], np.ones((len(test[0]), 1))], axis=1), test[1]
    found = {}
    for name, ridge in (("AFL (ridge 1)", 1.0), ("Fed3R (ridge 0.01)", 0.01)):
        head = np.linalg.solve(total.gram + ridge * np.eye(total.dimension), total.cross)
        found[name] = scaled(x @ head, y)
    sums = total.cross + total.gram[:, -1:] / 10
    means = (sums / sums[-1])[:-1]
    cosine = test[0] @ (means / np.linalg.norm(means, axis=0)) / np.linalg.norm(test[0], axis=1, keepdims=True)
    return {**found, "FedNCM": scaled(cosine, y)}


def fed_avg(parts, x, y, test, rounds=100, cohort=10, batch=32):
    """The best of three step sizes on the test images, which favours it."""
    best = None
    for step in (0.003, 0.01, 0.03):
        draws, clients = np.random.default_rng(0), list(parts.values())
        head = np.zeros((x.shape[1] + 1, 10), np.float32)
        scale = np.float32(1 / np.sqrt(np.mean(np.sum(x[:500] ** 2, axis=1))))
        for _ in range(rounds):
            chosen, change, count = draws.choice(len(clients), cohort, replace=False), np.zeros_like(head), 0
            for rows in (clients[index] for index in chosen):
                own, order = head.copy(), draws.permutation(rows)
                for first in range(0, len(order), batch):
                    part = order[first : first + batch]
                    inputs = np.concatenate([x[part] * scale, np.ones((len(part), 1), np.float32)], axis=1)
                    error = scipy.special.softmax(inputs @ own, axis=1) - np.eye(10, dtype=np.float32)[y[part]]
                    own -= step * 100 * inputs.T @ error / len(part)
                change, count = change + len(rows) * (own - head), count + len(rows)
            head += change / count
        inputs = np.concatenate([test[0] * scale, np.ones((len(test[0]), 1), np.float32)], axis=1)
        found = {**scaled(inputs @ head, test[1]), "step": step * 100}
        best = found if best is None or found["accuracy"] > best["accuracy"] else best
    return best


def run(given):
    os.environ[FOLDER] = str(given.networks)
    (raw, y), (raw_test, y_test) = load(given)
    features = make_features(given, given.outputs, given.random)
    x, test = embed(features, raw, given.seed), (embed(features, raw_test, given.seed), y_test)
    began = time.process_time()
    partition = Dirichlet(
        num_partitions=CLIENTS, alpha=given.alpha, min_partition_size=given.min_records, seed=given.seed
    )
    parts = partition.partition({"label": y})
    parts = {str(name): np.asarray(rows) for name, rows in parts.items()}
    found, total = our_heads(parts, x, y, test)
    found |= closed_peers(total, test)
    if given.fedavg:
        found["FedAvg of a linear head, 100 rounds"] = fed_avg(parts, x, y, test)
    facts = {"alpha": given.alpha, "seed": given.seed, "train": len(y), "test": len(y_test), "size": given.size}
    facts |= {
        "mirrored": given.mirrored,
        "outputs": features.outputs,
        "random": given.random,
        "cpu_seconds": round(time.process_time() - began),
    }
    with given.out.open("a") as out:
        out.write(json.dumps({**facts, "arms": found}) + "\n")
    show(given.out)


def choose(given):
    """Accuracy of our head with all moments on 3,000 training images held out."""
    os.environ[FOLDER] = str(given.networks)
    (raw, y), _ = load(given)
    for outputs, num_random in (*((JOINED[first:], 0) for first in (3, 2, 1, 0)), (JOINED, 2000)):
        x = embed(make_features(given, outputs, num_random), raw, 0)
        model = make_study(x.shape[1]).model
        parts = np.array_split(np.arange(3000, len(y)), 4)
        method, state = make_study(x.shape[1]).one_round, None
        state = method.init(jax.random.key(0), model, jax.random.key(0))
        for index, rows in enumerate(parts):
            own = all_rows(model, x[rows], y[rows])
            state = method.receive(jax.random.key(0), model, state, {str(index): own})
        found = fit(method, model, jax.random.key(0), state, (x[:3000], y[:3000]))
        print(f"{' + '.join(outputs)}, {num_random} random, {len(y) - 3000:,} images: {found}", flush=True)


def show(path):
    print("| alpha | seed | training images | arm | accuracy | NLL | ECE | bytes a client |\n" + "|---" * 8 + "|")
    for line in path.read_text().splitlines():
        row = json.loads(line)
        for arm, found in row["arms"].items():
            numbers = " | ".join(f"{found[name]:.4f}" for name in ("accuracy", "nll", "ece"))
            where = f"{row['alpha']:g} | {row['seed']} | {row['train']:,}"
            print(f"| {where} | {arm} | {numbers} | {found.get('bytes', '')} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("choose", "run"):
        command = commands.add_parser(name)
        for argument in ("data", "networks", "cache"):
            command.add_argument(argument, type=Path)
        command.add_argument(
            "--size", type=int, default=224, help="of the enlarged images; the cache and sidecar have it"
        )
        command.add_argument("--mirrored", action="store_true", help="the mean with the mirror image, from the cache")
    command.add_argument("--alpha", type=float, default=0.1)
    command.add_argument("--seed", type=int, default=0)
    command.add_argument("--outputs", nargs="+", default=JOINED, type=str)
    command.add_argument("--random", type=int, default=0)
    command.add_argument("--min-records", type=int, default=10, help="of the smallest client")
    command.add_argument("--fedavg", action="store_true")
    command.add_argument("--out", type=Path, required=True)
    commands.add_parser("show").add_argument("out", type=Path)
    given = parser.parse_args()
    if given.command == "show":
        show(given.out)
        return
    if given.command == "run":
        given.outputs = tuple(given.outputs)
    (choose if given.command == "choose" else run)(given)


if __name__ == "__main__":
    main()
