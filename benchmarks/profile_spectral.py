"""Where the time of a spectral study goes: 100 clients of 230 images and their server, whole and in parts, beside the
time that matrix products of as many operations take in the same run.

    python benchmarks/profile_spectral.py [--clients 100] [--parts 12] [--dimension 4096] [--bytes 259000]

Parts are those of fewer clients. Growth is the whole's time over that of a quarter of the clients, over four.

Seconds are of the clock, and of all cores' work together in brackets: beside other work the second is the better one.
Prints a table; the last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from peak_memory import UNIT
from spectral_clients import IMAGES_EACH, some_clients

from coreshot.config import decode_named
from coreshot.experiments.preset import load_preset
from coreshot.methods import METHODS
from coreshot.models.parallel import map_in_threads
from coreshot.privacy.guarded_records import guard_records
from coreshot.runtime.simulate import simulate
from coreshot.spectral.banded import to_band
from coreshot.spectral.blocked import factorise, invert_factor
from coreshot.spectral.calibration import fit_link
from coreshot.spectral.coreset import spectral_rows
from coreshot.spectral.evidence import best_ridge
from coreshot.spectral.received import ReceivedRows
from coreshot.study import Study
from coreshot.wire import coding
from coreshot.wire.ledger import Ledger
from coreshot.wire.messages import decode_message, encode_message

FACTORS = 10  # of the server, in operations: a band is four, groups left out four, the posterior one and an inverse
PRODUCT = 2048  # the size of the matrices whose product is this machine's limit


class Clock:
    """Seconds of the clock and of the cores, by part."""

    def __init__(self) -> None:
        self.parts: dict[str, tuple[float, float, float]] = {}

    def time(self, name: str, operations: float, work: Callable[[], Any]) -> Any:
        began, cpu = time.perf_counter(), time.process_time()
        found = work()
        self.parts[name] = (time.perf_counter() - began, time.process_time() - cpu, operations)
        return found


def product_speed(multiply: Callable[[], Any], repeats: int = 15) -> tuple[float, float]:
    """Operations a second: of the clock, and of a core's second; the best of several, whatever else runs at times."""
    multiply()
    found = []
    for _ in range(repeats):
        began, cpu = time.perf_counter(), time.process_time()
        multiply()
        found.append((time.perf_counter() - began, time.process_time() - cpu))
    clocked, by_core = (min(times) for times in zip(*found, strict=True))
    return 2.0 * PRODUCT**3 / clocked, 2.0 * PRODUCT**3 / by_core


def limits() -> dict[str, tuple[float, float]]:
    draws = np.random.default_rng(0)
    double = draws.normal(size=(PRODUCT, PRODUCT))
    single = jnp.asarray(double, jnp.float32)
    product = jax.jit(lambda one: one @ one)
    # Of NumPy, blocks side by side as the server's are.
    halves = np.array_split(double, os.cpu_count() or 1)
    return {
        "float32": product_speed(lambda: product(single).block_until_ready()),
        "float64": product_speed(lambda: map_in_threads(lambda part: part @ double, halves)),
    }


def whole(study: Study, clients: dict[str, Any]) -> tuple[float, float]:
    began, cpu = time.perf_counter(), time.process_time()
    state = simulate(jax.random.key(0), study, clients, Ledger(), replies={})  # as `coreshot run` asks each client once
    study.method.posterior(jax.random.key(0), study.model, state)
    return time.perf_counter() - began, time.process_time() - cpu


def parts(study: Study, clients: dict[str, Any], clock: Clock) -> None:
    method, model = study.method, study.model
    drawn = method.draw_map(model, study.shared_key)
    size, columns, num = drawn.dimension, drawn.dimension + model.num_outputs, len(clients)
    images = [np.asarray(points.x) for points in clients.values()]
    labels = [np.asarray(points.y) - 1 / model.num_outputs for points in clients.values()]
    operations = num * IMAGES_EACH * method.features.operations(model.input_shape)
    features = clock.time("client: features", operations, lambda: map_in_threads(drawn, images))
    pairs = list(zip(features, labels, strict=True))
    rows = clock.time(
        "client: rows",
        num * (4.0 * IMAGES_EACH**2 * columns + 10.0 * IMAGES_EACH**3),
        lambda: map_in_threads(lambda pair: spectral_rows(*pair, method.num_points, method.label_scale), pairs),
    )
    joints = [np.concatenate([one.features, method.label_scale * one.labels], axis=1).astype("f") for one in rows]
    counted, encode = [0], coding.encode_rows

    def count(*arguments: Any, **settings: Any) -> bytes:
        counted[0] += 1
        return encode(*arguments, **settings)

    coding.encode_rows = count
    clock.time("client: coding", 0.0, lambda: map_in_threads(method._coded, joints))
    coding.encode_rows = encode
    print(f"codes made for each client: {counted[0] / num:.2f}", flush=True)
    key, start = jax.random.key(0), method.init(jax.random.key(0), model, study.shared_key)
    invitation = method.send(key, model, start, list(clients))
    answers = method.reply(
        key, model, guard_records(clients, study.releases), [invitation.message], study.shared_key, lambda _: None
    )
    data = {
        name: encode_message(message, study_hash=study.hash, client=name, releases=study.releases)
        for name, (message, _) in answers.items()
    }
    contents: dict[str, ReceivedRows] = clock.time(
        "server: read",
        0.0,
        lambda: {name: study.read(name, decode_message(one, study_hash=study.hash)) for name, one in data.items()},
    )
    num_rows = sum(len(one.sent) for one in contents.values())
    state = clock.time(
        "server: sums",
        1.0 * num_rows * columns**2,
        lambda: method.receive(key, model, start, contents),
    )
    groups = [state.groups[name] for name in sorted(state.groups, key=str)]
    total = sum(groups[1:], groups[0])
    matrix = total.gram + np.eye(size)
    clock.time("server: one factor", size**3 / 3, lambda: factorise(matrix))
    clock.time("server: its inverse", size**3 / 3, lambda: invert_factor(matrix))
    banded = clock.time("server: a band", size**3 * 4 / 3, lambda: to_band(total.gram, total.cross))
    clock.time("server: evidence of one ridge", 0.0, lambda: banded.solve(1.0))
    ridge = clock.time("server: evidence, band included", size**3 * 4 / 3, lambda: best_ridge(total))
    order = sorted(state.groups, key=str)
    means = [(order.index(coding_group(state, name)), one) for name, one in sorted(state.class_means.items())]
    clock.time("server: left-out groups, link", len(groups) * size**3 / 3, lambda: fit_link(groups, means, ridge))
    clock.time("server: posterior, all of it", size**3 * FACTORS / 3, lambda: method.posterior(key, model, state))


def coding_group(state: Any, name: str) -> Any:
    from coreshot.methods.spectral import _find_group

    return _find_group(state, name)


def total_operations(study: Study, num_clients: int) -> tuple[float, float]:
    """In float32 and in float64: what is done, and no more. (Two thirds of what one factor for each ridge would be.)"""
    method, model = study.method, study.model
    size = method.features.dimension + 1
    columns = size + model.num_outputs
    single = num_clients * IMAGES_EACH * method.features.operations(model.input_shape)
    client = num_clients * (4.0 * IMAGES_EACH**2 * columns + 10.0 * IMAGES_EACH**3)
    return single, client + 1.0 * num_clients * IMAGES_EACH * columns**2 + FACTORS * size**3 / 3


def spectral_study(dimension: int, max_bytes: int | None, name: str = "random_conv") -> Study:
    """Of EMNIST-62's images."""
    base = load_preset("spectral_emnist62").method_study("spectral_260")
    features = {"name": name, "dimension": dimension}
    settings = {"name": "spectral", "features": features, **({} if max_bytes is None else {"max_bytes": max_bytes})}
    return Study(base.agreement, base.network, decode_named(METHODS, settings, "profile", "method"))


def main() -> None:
    parser = argparse.ArgumentParser(description="Profiles a spectral study.")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--parts", type=int, default=12, help="clients whose parts are timed one by one")
    parser.add_argument("--dimension", type=int, default=4096)
    parser.add_argument("--bytes", type=int, default=259_000)
    chosen = parser.parse_args()
    study = spectral_study(chosen.dimension, chosen.bytes)
    shape, outputs = study.model.input_shape, study.model.num_outputs
    whole(study, some_clients(0, 4, shape, outputs))  # compiles
    speeds, clock = limits(), Clock()
    for name, (clocked, by_core) in speeds.items():
        print(f"matrix product, {name}: {clocked / 1e9:.0f} GFLOP/s, {by_core / 1e9:.0f} a core's second")
    quarter, _ = whole(study, some_clients(500, chosen.clients // 4, shape, outputs))
    seconds, cpu = whole(study, some_clients(1000, chosen.clients, shape, outputs))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT / 1e9
    single, double = total_operations(study, chosen.clients)
    limit = single / speeds["float32"][0] + double / speeds["float64"][0]
    limit_cpu = single / speeds["float32"][1] + double / speeds["float64"][1]
    told = f"products of as many operations: {limit:.2f} s [{limit_cpu:.2f}]"
    print(f"{f'whole, {chosen.clients} clients':32} {seconds:7.2f} s [{cpu:7.2f}]  {told}", flush=True)
    parts(study, some_clients(2000, chosen.parts, shape, outputs), clock)
    print(f"parts of {chosen.parts} clients:")
    for name, (clocked, by_core, operations) in clock.parts.items():
        speed = speeds["float32" if "features" in name else "float64"][1]
        share = f"{operations / speed / by_core:5.0%} of a product's speed" if operations else ""
        print(f"{name:32} {clocked:7.2f} s [{by_core:7.2f}]  {share}")
    found = {
        "seconds": seconds,
        "growth": seconds / quarter / 4,
        "cpu_seconds": cpu,
        "sgemm_gflops": speeds["float32"][0] / 1e9,
        "peak_gb": peak,
    }
    print(json.dumps({**found, "over_products": seconds / limit, "cpu_over_products": cpu / limit_cpu}))


if __name__ == "__main__":
    main()
