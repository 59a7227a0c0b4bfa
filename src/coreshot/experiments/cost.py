"""What a preset will cost, said before any work: counts from its settings, bytes from an encoded message, time from a
short calibration.

Time is passes (one point, forward and backward) times the seconds of a pass, which a short loop of real training steps
measures.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array
from rich.table import Table

from coreshot.data import FederatedData
from coreshot.experiments.preset import Arm, Preset
from coreshot.learners.protocol import LearningCost
from coreshot.methods import Dosfl, FedPa
from coreshot.methods.one_shot import coreset_message
from coreshot.models import LogDensity, Model
from coreshot.models.parallel import map_in_threads
from coreshot.progress import Progress
from coreshot.runtime.simulate import simulate
from coreshot.study import Study
from coreshot.types import Coreset, Params, Points, concatenate_points, make_points
from coreshot.wire.ledger import Ledger
from coreshot.wire.messages import Message, encode_message

NUM_PROBES = 10  # training steps that are timed


@dataclass(frozen=True)
class Cost:
    """Of one part of a preset, over all seeds."""

    part: str
    what: str
    memory: str  # or disk
    wire: str
    seconds: float


@dataclass(frozen=True)
class Plan:
    preset: str
    num_clients: int
    num_seeds: int
    parts: list[Cost]

    @property
    def seconds(self) -> float:
        return sum(part.seconds for part in self.parts)


def plan(preset: Preset, seeds: Sequence[int] | None, progress: Progress) -> Plan:
    """One part per learner, per inference and per method."""
    seeds = seeds or preset.seeds
    data: FederatedData = preset.task.make(seeds[0])
    parts = []
    for name in sorted({arm.learner for arm in preset.arms if arm.learner}):
        progress.say(f"{preset.name}: timing {name}")
        learner, model = preset.learners[name], preset.study(name, seeds[0]).model
        costs = [learner.cost(model, points.num_points) for points in data.clients.values()]
        seconds = len(seeds) * _learner_seconds(model, costs, data)
        largest = max(costs, key=lambda cost: cost.passes)
        work = f"{largest.work} x {len(costs)} clients" if largest.passes else largest.work
        wire = _wire(preset, name, data, len(seeds))
        parts.append(Cost(f"clients: {name}", work, _memory(largest, len(costs)), wire, seconds))
    for name in sorted({arm.inference for arm in preset.arms if arm.inference}):
        progress.say(f"{preset.name}: timing {name}")
        inference = preset.inferences[name]
        passes = [
            inference.num_passes(_num_received(preset, arm, data)) for arm in preset.arms if arm.inference == name
        ]
        seconds = len(seeds) * sum(passes) * inference.num_chains * _pass_seconds(preset.model, _probe(data), 1)
        parts.append(
            Cost(
                f"server: {name}",
                f"{max(passes):,} passes x {inference.num_chains} chains x {len(passes)} arms",
                "",
                "",
                seconds,
            )
        )
    for name in sorted({arm.method for arm in preset.arms if arm.method}):
        progress.say(f"{preset.name}: timing {name}")
        uses = sum(arm.method == name for arm in preset.arms)
        seconds, wire = _method_cost(preset, name, data, len(seeds) * uses)
        parts.append(
            Cost(f"method: {name}", f"{preset.methods[name].num_rounds:,} rounds x {uses} arms", "", wire, seconds)
        )
    return Plan(preset.name, len(data.clients), len(seeds), parts)


def plan_table(found: Plan) -> Table:
    title = f"{found.preset}: {found.num_clients} clients, {found.num_seeds} seeds"
    table = Table("part", "what", "memory or disk", "wire, all seeds", "time, about", title=title)
    for part in found.parts:
        table.add_row(part.part, part.what, part.memory, part.wire, _time(part.seconds))
    table.add_row("total", "", "", "", _time(found.seconds))
    return table


def _memory(cost: LearningCost, num_clients: int) -> str:
    if not cost.num_bytes:
        return ""
    at_once = min(os.cpu_count() or 1, num_clients)
    return f"{cost.num_bytes / 1e6:,.1f} MB ({cost.kept_in}) a client, {at_once} at once"


def _shortened(method: Any) -> tuple[Any, float]:
    """A method that does a small part of the work, and how many times as much the whole is."""
    if isinstance(method, Dosfl):
        return replace(method, num_updates=1), float(method.num_updates)
    if method.num_rounds == 1:
        return method, 1.0
    short = (
        replace(method, num_rounds=1, burn_in_rounds=0) if isinstance(method, FedPa) else replace(method, num_rounds=1)
    )
    return short, float(method.num_rounds)


def _method_cost(preset: Preset, name: str, data: FederatedData, num_runs: int) -> tuple[float, str]:
    """Seconds, and what crosses the wire, from a round that is really run: the rounds of a method are alike."""
    short, times = _shortened(preset.methods[name])
    study, ledger = Study(preset.agreement(), preset.network, method=short), Ledger()
    simulate(jax.random.key(0), study, data.clients, ledger)
    seconds = _timed(lambda: simulate(jax.random.key(0), study, data.clients, Ledger()), is_compiled=True)
    rounds = num_runs * preset.methods[name].num_rounds
    up, down = (rounds * ledger.bytes(direction) for direction in ("up", "down"))
    floats_up, floats_down = (rounds * ledger.floats(direction) for direction in ("up", "down"))
    wire = f"{floats_up:,} floats, {up:,} bytes up; {floats_down:,} floats, {down:,} bytes down"
    return num_runs * times * seconds, wire


def _wire(preset: Preset, name: str, data: FederatedData, num_seeds: int) -> str:
    """Exact: an invitation down and a coreset of the right size up for each client, encoded and booked."""
    study, ledger = preset.study(name), Ledger()
    for client, points in data.clients.items():
        learner = preset.learners[name]
        cost = learner.cost(study.model, points.num_points)
        coreset = _example_coreset(cost, study.model, learner.num_points or points.num_points)
        invitation = Message("invitation", 0, {})
        ledger.book("down", client, invitation, encode_message(invitation, study_hash=study.hash, client=client))
        reply = coreset_message(coreset, study.model, 0, learner.coding)
        encoded = encode_message(reply, study_hash=study.hash, client=client, releases=study.releases)
        ledger.book("up", client, reply, encoded)
    up, down = num_seeds * ledger.bytes("up"), num_seeds * ledger.bytes("down")
    return f"{num_seeds * ledger.floats('up'):,} floats, {up:,} bytes up; {down:,} bytes down"


def _example_coreset(cost: LearningCost, model: Model, size: int) -> Coreset:
    """A coreset of the size and kind that a learner sends: hard labels or soft ones, with point weights or without."""
    hard = jax.nn.one_hot(jnp.zeros(size, int), model.num_outputs)
    labels = jnp.full((size, model.num_outputs), 0.5) if cost.has_soft_labels else hard
    points = make_points(jnp.zeros((size, *model.input_shape)), labels)
    return Coreset(points.reweighted(jnp.full(size, 0.5)) if cost.has_point_weights else points, jnp.asarray(1.0))


def _learner_seconds(model: Model, costs: Sequence[LearningCost], data: FederatedData) -> float:
    """Clients run in parallel, one per core."""
    if not any(cost.passes for cost in costs):
        return 0.0
    num_cores = min(os.cpu_count() or 1, len(costs))
    seconds = _pass_seconds(model, _probe(data, costs[0].batch_size), costs[0].num_networks, num_cores)
    return sum(cost.passes for cost in costs) * seconds / num_cores


def _num_received(preset: Preset, arm: Arm, data: FederatedData) -> int:
    """How many points the server will have."""
    each = preset.learners[str(arm.learner)].num_points
    clients = list(data.clients.values())[: arm.num_clients]
    return sum(each or points.num_points for points in clients)


def _probe(data: FederatedData, size: int = 25) -> Points:
    points = concatenate_points(list(data.clients.values())[:2])
    return jax.tree.map(lambda array: array[:size], points)


def _pass_seconds(model: Model, points: Points, num_weights: int, num_threads: int = 1) -> float:
    """Of a training step, over its points and over the sets of weights that take it together, with so many threads
    doing the same.
    """
    log_density = LogDensity(model, points)
    params = jax.vmap(model.init)(jax.random.split(jax.random.key(0), num_weights))

    @jax.jit
    def train(params: Params) -> Params:
        def step(_: Array, params: Params) -> Params:
            return jax.tree.map(lambda value, slope: value + 1e-9 * slope, params, jax.grad(log_density)(params))

        return model.each(lambda params: jax.lax.fori_loop(0, NUM_PROBES, step, params))(params)

    seconds = _timed(lambda: map_in_threads(lambda _: jax.block_until_ready(train(params)), range(num_threads)))
    return seconds / NUM_PROBES / points.num_points / num_weights


def _timed(work: Callable[[], object], is_compiled: bool = False) -> float:
    """Seconds of the second call: the first compiles."""
    if not is_compiled:
        work()
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _time(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds > 100 else f"{seconds:.0f} s"
