"""A spectral study beside what a user would write with scikit-learn, and its server beside AFL's aggregation.

    python benchmarks/spectral_peers.py [--clients 100] [--dimension 1024] [--features random_vector] [--afl FILE]

scikit-learn: RBFSampler and RidgeClassifier, or RidgeClassifierCV over ten ridges, on all records pooled. random_vector
are the same features as RBFSampler's, random Fourier features of the inputs; random_conv, for images, takes 20 to 40
times as many operations. coreshot chooses its ridge by evidence and calibrates probabilities, so the second is the like
of it. Its clients code what they send to --bytes, which pooling need not; and once more with all rows as float32.

AFL (He et al., "AFL: A Single-Round Analytic Approach for Federated Learning with Pre-trained Models", CVPR 2025) adds
clients one after the other: with C_u = X_u^T X_u + r I and W_u the client's own solution, the aggregate of u and v has
C = C_u + C_v and W = C^-1 (C_u W_u + C_v W_v); its absolute aggregation law is the same with inverses of each. Both are
given the same matrices as coreshot's server. `aggregate` is ours, and makes two inverses a client, which is the least
that the law needs; --afl FILE runs the authors' own `aggregation` too, from afl.py of
github.com/ZHUANGHP/Analytic-federated-learning, with torch.

All run on the same cores. Seconds are of the clock, and of the process in brackets; the last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
from profile_spectral import spectral_study
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import RidgeClassifier, RidgeClassifierCV
from spectral_clients import some_clients

from coreshot.runtime.simulate import simulate
from coreshot.wire.ledger import Ledger

RIDGES = np.logspace(-4, 5, 10)


def timed(name: str, work: Callable[[], Any]) -> tuple[Any, float]:
    began, cpu = time.perf_counter(), time.process_time()
    found = work()
    seconds = time.perf_counter() - began
    print(f"{name:44} {seconds:8.2f} s [{time.process_time() - cpu:8.2f}]", flush=True)
    return found, seconds


def aggregate(grams: list[np.ndarray], crosses: list[np.ndarray], ridge: float) -> np.ndarray:
    """Clients one after the other, by AFL's law, and its ridge taken out at the end."""
    eye = np.eye(len(grams[0]))
    gram = grams[0] + ridge * eye
    weights = np.linalg.inv(gram) @ crosses[0]
    for one, cross in zip(grams[1:], crosses[1:], strict=True):
        own = one + ridge * eye
        own_weights = np.linalg.inv(own) @ cross
        total = np.linalg.inv(gram + own)
        weights = total @ (gram @ weights + own @ own_weights)
        gram = gram + own
    found: np.ndarray = np.linalg.solve(gram - (len(grams) - 1) * ridge * eye, gram @ weights)
    return found


def official(
    file: Path, grams: list[np.ndarray], crosses: list[np.ndarray], ridge: float
) -> Callable[[], Any]:  # ready to be timed
    """The authors' code, with their clients' matrices made."""
    import torch

    torch.Tensor.cuda = lambda self, *_, **__: self  # theirs is written for one
    theirs = SourceFileLoader("afl", str(file)).load_module()
    wide = [torch.from_numpy(gram + ridge * np.eye(len(gram))) for gram in grams]
    inverses = [torch.inverse(one) for one in wide]
    heads = [inverse @ torch.from_numpy(cross) for inverse, cross in zip(inverses, crosses, strict=True)]
    return lambda: theirs.aggregation(heads, inverses, wide, SimpleNamespace(gpu=0))


def main() -> None:
    parser = argparse.ArgumentParser(description="A spectral study beside its peers.")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--dimension", type=int, default=1024)
    parser.add_argument("--bytes", type=int, default=69_000)
    parser.add_argument("--features", default="random_vector", choices=("random_vector", "random_conv"))
    parser.add_argument("--afl", type=Path, help="the authors' afl.py")
    chosen = parser.parse_args()
    study = spectral_study(chosen.dimension, chosen.bytes, chosen.features)
    shape, outputs = study.model.input_shape, study.model.num_outputs
    key, method = jax.random.key(0), study.method

    def ours(clients: dict[str, Any]) -> Any:
        state = simulate(key, study, clients, Ledger(), replies={})
        method.posterior(key, study.model, state)
        return state

    clients, found = some_clients(1000, chosen.clients, shape, outputs), {}
    for name, limit in (("rows", None), ("coreshot", chosen.bytes)):
        study = spectral_study(chosen.dimension, limit, chosen.features)
        method = study.method
        ours(some_clients(0, 4, shape, outputs))  # compiles
        told = "float32 rows" if limit is None else f"coded to {limit:,} bytes"
        state, found[name] = timed(f"coreshot, {told}", lambda: ours(clients))
    x = np.concatenate([np.asarray(points.x).reshape(points.num_points, -1) for points in clients.values()])
    y = np.concatenate([np.argmax(np.asarray(points.y), axis=1) for points in clients.values()])
    sampler = RBFSampler(n_components=chosen.dimension, random_state=0)
    features, sampling = timed("scikit-learn, features", lambda: sampler.fit_transform(x))
    _, plain = timed("scikit-learn, RidgeClassifier", lambda: RidgeClassifier().fit(features, y))
    _, chosen_ridge = timed("scikit-learn, RidgeClassifierCV", lambda: RidgeClassifierCV(RIDGES).fit(features, y))
    groups = list(state.groups.values())
    grams = [groups[place % len(groups)].gram for place in range(chosen.clients)]
    crosses = [groups[place % len(groups)].cross for place in range(chosen.clients)]
    _, server = timed("coreshot, server", lambda: method.posterior(key, study.model, state))
    _, afl = timed("AFL's law, of as many matrices", lambda: aggregate(grams, crosses, 1.0))
    found |= {"ridge": sampling + plain, "ridge_cv": sampling + chosen_ridge, "server": server, "afl": afl}
    if chosen.afl:
        found["afl_official"] = timed("AFL's own code", official(chosen.afl, grams, crosses, 1.0))[1]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
