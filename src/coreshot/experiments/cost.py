"""What a preset will cost, said before any work: counts from its settings, bytes from an encoded message, time from a short calibration.

Time is passes (one point, forward and backward) times the seconds of a pass, which a short loop of real training steps measures.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array
from rich.table import Table

from coreshot.data import FederatedData
from coreshot.experiments.preset import Arm, Preset
from coreshot.learners import BpcFkl, Learner
from coreshot.learners.experts import bytes_needed, start_steps
from coreshot.methods import Dosfl, FedPa
from coreshot.methods.one_shot import coreset_message
from coreshot.models import LogDensity, Model
from coreshot.progress import Progress
from coreshot.runtime.simulate import simulate
from coreshot.study import Study
from coreshot.types import Coreset, Params, Points, concatenate_points, points_of
from coreshot.wire.ledger import Ledger
from coreshot.wire.messages import Message, encode_message

NUM_PROBES = 10  # training steps that are timed


@dataclass(frozen=True)
class Cost:
    """Of one part of a preset, over all seeds."""

    part: str
    what: str
    room: str  # in memory or on disk
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
        learner, study = preset.learners[name], preset.study(name, seeds[0])
        seconds = len(seeds) * _learner_seconds(study.model, learner, data)
        what, room = _work(learner, len(data.clients)), _room(learner, study.model, data)
        parts.append(Cost(f"clients: {name}", what, room, _wire(preset, name, data, len(seeds)), seconds))
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
        table.add_row(part.part, part.what, part.room, part.wire, _time(part.seconds))
    table.add_row("total", "", "", "", _time(found.seconds))
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
    at_once = min(os.cpu_count() or 1, len(data.clients))
    need = bytes_needed(learner.experts, learner.data_chain_length, 1, model.num_params(), learner.chain_optimizer)
    return f"{need / 1e6:,.0f} MB of experts ({learner.experts.store}) a client, {at_once} at once"


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
    wire = f"{rounds * ledger.floats('up'):,} floats, {up:,} bytes up; {rounds * ledger.floats('down'):,} floats, {down:,} bytes down"
    return num_runs * times * seconds, wire


def _wire(preset: Preset, name: str, data: FederatedData, num_seeds: int) -> str:
    """Exact: an invitation down and a coreset of the right size up for each client, encoded and booked."""
    study, ledger = preset.study(name), Ledger()
    for client, points in data.clients.items():
        learner = preset.learners[name]
        coreset = _example_coreset(learner, study.model, learner.num_points or points.num_points)
        for direction, message in (
            ("down", Message("invitation", 0, {})),
            ("up", coreset_message(coreset, study.model, 0, learner.coding)),
        ):
            releases = study.releases if direction == "up" else ()
            encoded = encode_message(message, study_hash=study.hash, client=client, releases=releases)
            ledger.book(direction, client, message, encoded)  # type: ignore[arg-type]
    up, down = num_seeds * ledger.bytes("up"), num_seeds * ledger.bytes("down")
    return f"{num_seeds * ledger.floats('up'):,} floats, {up:,} bytes up; {down:,} bytes down"


def _example_coreset(learner: Learner, model: Model, size: int) -> Coreset:
    """A coreset of the size and kind that this learner sends: hard labels or soft ones, with point weights or without."""
    is_soft = isinstance(learner, BpcFkl) and learner.step_size_y > 0
    has_weights = isinstance(learner, BpcFkl) and learner.guidance == "client" and model.kind == "regression"
    labels = (
        jnp.full((size, model.num_outputs), 0.5) if is_soft else jax.nn.one_hot(jnp.zeros(size, int), model.num_outputs)
    )
    points = points_of(jnp.zeros((size, *model.input_shape)), labels)
    return Coreset(points.reweighted(jnp.full(size, 0.5)) if has_weights else points, jnp.asarray(1.0))


def _learner_seconds(model: Model, learner: Learner, data: FederatedData) -> float:
    """Clients run beside each other, one a core: so many rounds of one client's time as there are clients a core."""
    if not isinstance(learner, BpcFkl):
        return 0.0
    num_cores = min(os.cpu_count() or 1, len(data.clients))
    points = _probe(data, learner.batch_size)
    passes = learner.batch_size * _training_steps(learner) + 2 / 3 * learner.num_points * _input_gradients(learner)
    return (
        passes * _pass_seconds(model, points, learner.num_trajectories, num_cores) * -(-len(data.clients) // num_cores)
    )


def _training_steps(learner: BpcFkl) -> int:
    """Of one set of weights, on a batch: experts, the chains of all updates, and those of the start's search."""
    experts, updates = learner.experts, learner.num_updates * learner.num_trajectories
    is_searched = learner.guidance == "client" and learner.num_starts > 1
    chains = (updates + is_searched * learner.num_starts * learner.num_trajectories) * learner.coreset_chain_length
    if experts.store != "replay":
        return chains + experts.num_trajectories * experts.num_steps
    num_starts = len(start_steps(experts, learner.data_chain_length))
    pool = min(experts.pool, experts.num_trajectories)
    begun = pool * (num_starts * experts.save_interval // 2 + learner.data_chain_length)
    renewed = updates // num_starts * learner.data_chain_length
    return chains + begun + renewed + 2 * updates * experts.save_interval


def _input_gradients(learner: BpcFkl) -> int:
    """Of all points, in their inputs: two thirds of a training step, which also wants that of the weights."""
    of_data = learner.num_data_draws or learner.num_trajectories * learner.num_noise_samples
    return learner.num_updates * (learner.num_trajectories * learner.num_noise_samples + of_data)


def _num_received(preset: Preset, arm: Arm, data: FederatedData) -> int:
    """How many points the server will have."""
    each = preset.learners[str(arm.learner)].num_points
    clients = list(data.clients.values())[: arm.num_clients]
    return sum(each or points.num_points for points in clients)


def _probe(data: FederatedData, size: int = 25) -> Points:
    points = concatenate_points(list(data.clients.values())[:2])
    return jax.tree.map(lambda array: array[:size], points)


def _pass_seconds(model: Model, points: Points, num_weights: int, num_threads: int = 1) -> float:
    """Of a training step, over its points and over the sets of weights that take it together, with so many threads doing the same."""
    log_density = LogDensity(model, points)
    params = jax.vmap(model.init)(jax.random.split(jax.random.key(0), num_weights))

    @jax.jit
    def train(params: Params) -> Params:
        def step(_: Array, params: Params) -> Params:
            return jax.tree.map(lambda value, slope: value + 1e-9 * slope, params, jax.grad(log_density)(params))

        return model.each(lambda params: jax.lax.fori_loop(0, NUM_PROBES, step, params))(params)

    with ThreadPoolExecutor(num_threads) as pool:
        seconds = _timed(lambda: list(pool.map(lambda _: jax.block_until_ready(train(params)), range(num_threads))))
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
