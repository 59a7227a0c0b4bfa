"""The plan of a preset before any work: counts from its settings, bytes from encoded examples, time from a short probe.

Time is passes (one point through the network, forward and backward) times the seconds of a pass, which a short loop of
training steps measures; plus operations of linear algebra times the seconds of one in a product of matrices.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import jax
import numpy as np
from jaxtyping import Array
from rich.table import Table
from rich.text import Text

from coreshot.data import FederatedData
from coreshot.errors import visible
from coreshot.experiments.preset import Arm, Preset
from coreshot.methods.protocol import MethodCost
from coreshot.models import LogDensity, Model
from coreshot.models.parallel import map_in_threads
from coreshot.progress import Progress
from coreshot.study import Study
from coreshot.types import Params, Points, concatenate_points
from coreshot.wire.ledger import Direction, Ledger
from coreshot.wire.messages import encode_message

NUM_PROBES = 10  # training steps that are timed
MATRIX_SIZE = 700  # of a product of matrices that is timed


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
        parts.append(_method_cost(f"clients: {name}", preset.study(name, seeds[0]), data, len(seeds)))
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
        study = Study(preset.agreement(seeds[0]), preset.network, method=preset.methods[name])
        num_arms = sum(arm.method == name for arm in preset.arms)
        part = _method_cost(f"method: {name}", study, data, num_arms * len(seeds))
        parts.append(replace(part, what=f"{study.method.num_rounds:,} rounds x {num_arms} arms: {part.what}"))
    return Plan(preset.name, len(data.clients), len(seeds), parts)


def plan_table(found: Plan) -> Table:
    title = f"{found.preset}: {found.num_clients} clients, {found.num_seeds} seeds"
    table = Table("part", "what", "memory or disk", "wire, all seeds", "time, about", title=Text(visible(title)))
    for part in found.parts:
        cells = (part.part, part.what, part.memory, part.wire, _time(part.seconds))
        table.add_row(*(Text(visible(cell)) for cell in cells))  # names of a preset are no markup
    table.add_row("total", "", "", "", _time(found.seconds))
    return table


def _method_cost(part: str, study: Study, data: FederatedData, num_runs: int) -> Cost:
    found = study.method.cost(study.model, [points.num_points for points in data.clients.values()])
    seconds = num_runs * _method_seconds(study.model, found, data)
    return Cost(part, found.work, _memory(found, len(data.clients)), _wire(study, found, data, num_runs), seconds)


def _memory(cost: MethodCost, num_clients: int) -> str:
    if not cost.num_bytes:
        return ""
    at_once = min(os.cpu_count() or 1, num_clients)
    return f"{cost.num_bytes / 1e6:,.1f} MB ({cost.kept_in}) a client, {at_once} at once"


def _wire(study: Study, cost: MethodCost, data: FederatedData, num_runs: int) -> str:
    """Example messages of the right sizes, down and up for each client, encoded and booked."""
    ledger = Ledger()
    for client, exchanges in zip(data.clients, cost.exchanges, strict=True):
        for down, up in exchanges:
            ledger.book("down", client, down, encode_message(down, study_hash=study.hash, client=client))
            encoded = encode_message(up, study_hash=study.hash, client=client, releases=study.releases)
            ledger.book("up", client, up, encoded)

    def total(direction: Direction) -> str:
        times = num_runs * cost.num_answers
        floats, num_bytes = (round(times * count) for count in (ledger.floats(direction), ledger.bytes(direction)))
        return f"{floats:,} floats, {num_bytes:,} bytes {direction}"

    return f"{total('up')}; {total('down')}"


def _method_seconds(model: Model, cost: MethodCost, data: FederatedData) -> float:
    """Clients run in parallel, one per core; the server's linear algebra uses all cores."""
    num_cores = min(os.cpu_count() or 1, len(data.clients))
    seconds = 0.0
    if cost.passes:
        probe = _probe(data, cost.batch_size)
        seconds += cost.passes * _pass_seconds(cost.model or model, probe, cost.num_networks, num_cores) / num_cores
    if cost.server_passes:
        seconds += cost.server_passes * _pass_seconds(model, _probe(data), 1)
    operations = cost.operations + cost.server_operations
    return seconds + operations * _operation_seconds() if operations else seconds


@cache
def _operation_seconds() -> float:
    """Of a multiplication or an addition in a product of matrices, with all cores."""
    matrix = np.random.default_rng(0).normal(size=(MATRIX_SIZE, MATRIX_SIZE))
    return _timed(lambda: matrix @ matrix) / (2 * MATRIX_SIZE**3)


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


def _timed(work: Callable[[], object]) -> float:
    """Seconds of the second call: the first compiles."""
    work()
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _time(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds > 100 else f"{seconds:.0f} s"
