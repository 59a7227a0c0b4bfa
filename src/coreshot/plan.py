"""What a preset will cost, said before any work: counts from its settings, bytes from an encoded message, time from a short calibration."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from rich.table import Table

from coreshot.data import FederatedData
from coreshot.inference import Inference
from coreshot.keys import client_key
from coreshot.learners import BpcFkl, Learner
from coreshot.learners._experts import bytes_needed
from coreshot.learners._store import TRAJECTORIES_AT_ONCE
from coreshot.learners.distill import distill
from coreshot.methods import Dosfl, FedPa
from coreshot.methods.one_shot import coreset_message
from coreshot.models import LogDensity, Model
from coreshot.preset import Preset
from coreshot.progress import Progress
from coreshot.simulate import simulate
from coreshot.study import Study
from coreshot.types import Coreset, Message, concatenate_points, points_of
from coreshot.wire import Ledger, encode_message


def plan_table(preset: Preset, seeds: Sequence[int] | None, progress: Progress) -> Table:
    """One line per learner and per inference, and the total."""
    seeds = seeds or preset.seeds
    data: FederatedData = preset.task.make(seeds[0])
    table = Table(
        "part", "what", "memory or disk", "wire, all seeds", "time, about", title=f"{preset.name}: {len(data.clients)} clients, {len(seeds)} seeds"
    )
    total = 0.0
    for name in sorted({arm.learner for arm in preset.arms if arm.learner}):
        progress.say(f"{preset.name}: timing {name}")
        learner, study = preset.learners[name], preset.study(name, seeds[0])
        seconds = len(seeds) * _learner_seconds(study.model, learner, data)
        total += seconds
        table.add_row(
            f"clients: {name}",
            _work(learner, len(data.clients)),
            _room(learner, study.model, data),
            _wire(preset, name, data, len(seeds)),
            _time(seconds),
        )
    for name in sorted({arm.inference for arm in preset.arms if arm.inference}):
        progress.say(f"{preset.name}: timing {name}")
        inference, uses = preset.inferences[name], sum(arm.inference == name for arm in preset.arms)
        seconds = len(seeds) * uses * _inference_seconds(preset.model, inference, data)
        total += seconds
        table.add_row(
            f"server: {name}", f"{inference.num_gradients:,} gradients x {inference.num_chains} chains x {uses} arms", "", "", _time(seconds)
        )
    for name in sorted({arm.method for arm in preset.arms if arm.method}):
        progress.say(f"{preset.name}: timing {name}")
        uses = sum(arm.method == name for arm in preset.arms)
        seconds = len(seeds) * uses * _method_seconds(preset, name, data)
        total += seconds
        table.add_row(
            f"method: {name}",
            f"{preset.methods[name].num_rounds:,} rounds x {uses} arms",
            "",
            _method_wire(preset, name, data, len(seeds) * uses),
            _time(seconds),
        )
    table.add_row("total", "", "", "", _time(total))
    return table


def _work(learner: Learner, num_clients: int) -> str:
    if not isinstance(learner, BpcFkl):
        return "no learning"
    experts = learner.experts.num_trajectories * learner.experts.num_steps * num_clients
    chains = learner.num_updates * learner.num_trajectories * learner.coreset_chain_length * num_clients
    return f"{experts:,} expert steps, {learner.num_updates} updates, {chains:,} chain steps"


def _room(learner: Learner, model: Model, data: FederatedData) -> str:
    if not isinstance(learner, BpcFkl):
        return ""
    need = bytes_needed(learner.experts, learner.data_chain_length, len(data.clients), model.num_params())
    return f"{need / 1e6:,.0f} MB of experts ({learner.experts.store})"


def _shortened(method: Any) -> tuple[Any, float]:
    """A method that does a small part of the work, and how many times as much the whole is."""
    if isinstance(method, Dosfl):
        return replace(method, num_updates=1), float(method.num_updates)
    short = replace(method, num_rounds=1, burn_in_rounds=0) if isinstance(method, FedPa) else replace(method, num_rounds=1)
    return short, float(method.num_rounds)


def _method_seconds(preset: Preset, name: str, data: FederatedData) -> float:
    short, times = _shortened(preset.methods[name])
    study = Study(preset.agreement(), preset.network, method=short)
    return times * _timed(lambda: simulate(jax.random.key(0), study, short, data.clients, Ledger()))


def _method_wire(preset: Preset, name: str, data: FederatedData, num_runs: int) -> str:
    """From one round that is really run: the rounds of a method are alike."""
    short, _ = _shortened(preset.methods[name])
    ledger = Ledger()
    simulate(jax.random.key(0), Study(preset.agreement(), preset.network, method=short), short, data.clients, ledger)
    times = num_runs * preset.methods[name].num_rounds
    up, down = (times * ledger.bytes(direction) for direction in ("up", "down"))
    return f"{times * ledger.floats('up'):,} floats, {up:,} bytes up; {times * ledger.floats('down'):,} floats, {down:,} bytes down"


def _wire(preset: Preset, name: str, data: FederatedData, num_seeds: int) -> str:
    """Exact: an invitation down and a coreset of the right size up for each client, encoded and booked."""
    study, ledger = preset.study(name), Ledger()
    for client, points in data.clients.items():
        learner = preset.learners[name]
        coreset = _example_coreset(learner, study.model, learner.num_points or points.num_points)
        for direction, message in (("down", Message("invitation", 0, {})), ("up", coreset_message(coreset, study.model, 0))):
            ledger.book(direction, client, message, encode_message(message, study_hash=study.hash, client=client))  # type: ignore[arg-type]
    up, down = num_seeds * ledger.bytes("up"), num_seeds * ledger.bytes("down")
    return f"{num_seeds * ledger.floats('up'):,} floats, {up:,} bytes up; {down:,} bytes down"


def _example_coreset(learner: Learner, model: Model, size: int) -> Coreset:
    """A coreset of the size and kind that this learner sends: hard labels or soft ones, with point weights or without."""
    is_soft = isinstance(learner, BpcFkl) and learner.step_size_y > 0
    has_weights = isinstance(learner, BpcFkl) and learner.guidance == "client" and model.kind == "regression"
    labels = jnp.full((size, model.num_outputs), 0.5) if is_soft else jax.nn.one_hot(jnp.zeros(size, int), model.num_outputs)
    points = points_of(jnp.zeros((size, *model.input_shape)), labels)
    return Coreset(points.reweighted(jnp.full(size, 0.5)) if has_weights else points, jnp.asarray(1.0))


def _learner_seconds(model: Model, learner: Learner, data: FederatedData) -> float:
    """From two short runs, each timed once it is compiled: what an update costs, and what the experts cost."""
    keys = {name: client_key(jax.random.key(0), 0, name) for name in data.clients}

    def run(learner: Learner) -> float:
        return _timed(lambda: distill(model, learner, data.clients, keys, jax.random.key(0)))

    if not isinstance(learner, BpcFkl):
        return run(learner)
    few = replace(learner.experts, num_trajectories=min(TRAJECTORIES_AT_ONCE, learner.experts.num_trajectories))
    one, three = (run(replace(learner, num_updates=updates, experts=few)) for updates in (1, 3))
    per_update = max(three - one, 0.0) / 2
    batches = learner.experts.num_trajectories / few.num_trajectories
    return per_update * learner.num_updates + batches * max(one - per_update, 0.0)


def _inference_seconds(model: Model, inference: Inference, data: FederatedData) -> float:
    """The cost of a gradient on all points of all clients (an upper bound: a coreset has fewer), times how many there will be."""
    pooled = LogDensity(model, concatenate_points(list(data.clients.values())))
    params = jax.vmap(model.init)(jax.random.split(jax.random.key(0), inference.num_chains))
    num_probes = 20

    @jax.jit
    def climb(params):  # type: ignore[no-untyped-def]
        def body(_, params):  # type: ignore[no-untyped-def]
            gradient = jax.vmap(jax.grad(pooled))(params)
            return jax.tree.map(lambda value, slope: value + 1e-9 * slope, params, gradient)

        return jax.lax.fori_loop(0, num_probes, body, params)

    return _timed(lambda: jax.block_until_ready(climb(params))) / num_probes * inference.num_gradients


def _timed(work: Callable[[], object]) -> float:
    """Seconds of the second call: the first compiles."""
    work()
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _time(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds > 100 else f"{seconds:.0f} s"
