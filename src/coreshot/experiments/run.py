"""Presets -> rows of results in a directory. Append-only and resumable: a run that was killed goes on where it stopped.

DIR/config.json                     the resolved presets; a directory belongs to one configuration
DIR/environment.json                versions and hardware of the first run
DIR/messages/STUDY/...              what clients sent, as it crossed the wire, shared by all arms of the same study
DIR/arms/PRESET/ARM/seed-N/...      ledger, posterior, diagnostics, and row.json, written last: it says that the arm is done;
                                    of a multi-round method also curve.json, and while it runs a checkpoint
DIR/results.json                    one row per task, arm and seed
DIR/diagnostics.json                the same order, with what a row has no place for
DIR/communication.json              for each arm with a curve and each metric: what it sent until it matched the arm that the preset names
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from coreshot.data import FederatedData
from coreshot.errors import CoreshotError
from coreshot.experiments.communication import Curve, communication_rows
from coreshot.experiments.preset import Arm, Preset, build_preset
from coreshot.experiments.round_log import Watch, checkpoint_path, resume_or_begin
from coreshot.fitted.metrics import Metrics, metrics, sums
from coreshot.fitted.model import read_messages
from coreshot.fitted.posterior_file import posterior_bytes
from coreshot.inference.diagnostics import diagnose
from coreshot.inference.posterior import SamplePosterior
from coreshot.inference.protocol import Info
from coreshot.keys import named_key
from coreshot.methods import OneShot
from coreshot.methods.one_shot import OneShotState
from coreshot.methods.protocol import MultiRound, PointInference
from coreshot.methods.warm_start import warm_start
from coreshot.models import Model
from coreshot.progress import Progress, Silent
from coreshot.runtime.executors import Executor
from coreshot.runtime.replies import reply_store
from coreshot.runtime.simulate import simulate
from coreshot.storage import read_json, write_bytes, write_json
from coreshot.study import Study
from coreshot.types import Posterior
from coreshot.wire.ledger import Ledger

MAX_PROBES = 200  # test inputs at which R-hat and effective sample size are measured


@dataclass(frozen=True)
class Job:
    """One row to be: an arm of a preset with a seed."""

    preset: Preset
    arm: Arm
    seed: int

    @property
    def folder(self) -> Path:
        return Path("arms") / self.preset.name / self.arm.slug / f"seed-{self.seed}"

    @property
    def study(self) -> Study:
        """Of the one-shot part."""
        return self.preset.study(str(self.arm.learner), self.seed)

    @property
    def point_inference(self) -> PointInference:
        """How the server infers in the one-shot part."""
        return PointInference(self.preset.inferences[str(self.arm.inference)], self.arm.weighting or "mass")

    @property
    def method_study(self) -> Study:
        """Of the arm's own method, which in a jump start comes after the one shot."""
        return self.preset.method_study(str(self.arm.method), self.seed)

    @property
    def model(self) -> Model:
        return self.preset.model

    @property
    def key(self) -> jax.Array:
        return jax.random.key(self.seed)

    def data(self) -> FederatedData:
        """The task's, with the clients that take part in this arm."""
        data: FederatedData = self.preset.task.make(self.seed)
        limit = self.arm.num_clients
        if limit is not None and limit > len(data.clients):
            raise CoreshotError(
                f"preset {self.preset.name}, arm {self.arm.label!r}: num_clients is {limit}, but the task has {len(data.clients)} clients; lower it."
            )
        return replace(data, clients=dict(list(data.clients.items())[:limit]))


def jobs_of(presets: Sequence[Preset], seeds: Sequence[int] | None) -> list[Job]:
    return [Job(preset, arm, seed) for preset in presets for seed in (seeds or preset.seeds) for arm in preset.arms]


def run(
    presets: Sequence[Preset],
    out: Path,
    seeds: Sequence[int] | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> list[dict[str, Any]]:
    """All rows of these presets in `out`; those that are there already are kept, and no other configuration may live there."""
    progress = progress or Silent()
    jobs = jobs_of(presets, seeds)
    for job in {(job.preset.name, job.arm.method, job.arm.num_clients): job for job in jobs}.values():
        _check_cohort(job)
    claim(presets, out)
    for index, job in enumerate(jobs):
        if not (out / job.folder / "row.json").exists():
            progress.say(f"[{index + 1}/{len(jobs)}] {job.preset.name}, seed {job.seed}: {job.arm.label}")
            run_job(job, out, progress, executor)
            collect(out)
    return collect(out)


def claim(presets: Sequence[Preset], out: Path) -> None:
    """Make the directory, or make sure that it belongs to this configuration (the seeds may differ: they add rows)."""
    config = {
        preset.name: {key: value for key, value in preset.resolved.items() if key != "seeds"} for preset in presets
    }
    path = out / "config.json"
    for part in (out, *out.parents):
        if part.exists() and not part.is_dir():
            raise CoreshotError(f"{part}: is a file, not a directory; choose another --out.")
    if not path.exists():
        # A kill may have come after environment.json, or have left a temporary file: still ours, still empty.
        others = (
            [entry for entry in out.iterdir() if entry.name != "environment.json" and entry.suffix != ".tmp"]
            if out.exists()
            else []
        )
        if others:
            raise CoreshotError(f"{out}: is not empty and holds no coreshot run; choose another --out.")
        write_json(out / "environment.json", environment())
        write_json(path, config)
        return
    difference = _first_difference(read_json(path), config)
    if difference:
        raise CoreshotError(
            f"{out}: holds a run of another configuration ({difference}); choose another --out, nothing was changed."
        )


def _first_difference(old: Any, new: Any, path: str = "") -> str | None:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            where = f"{path}.{key}" if path else str(key)
            if key not in old or key not in new:
                return f"{where} is only in the {'new' if key in new else 'old'} one"
            if found := _first_difference(old[key], new[key], where):
                return found
        return None
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        return next((one for index, pair in pairs if (one := _first_difference(*pair, f"{path}.{index}"))), None)
    return None if old == new else f"{path} is {old!r} there and {new!r} here"


def environment() -> dict[str, Any]:
    names = ("coreshot", "jax", "jaxlib", "flax", "optax", "blackjax", "numpy", "scikit-learn")
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "backend": jax.default_backend(),
        "devices": [device.device_kind for device in jax.devices()],
        **{name: version(name) for name in names},
    }


def run_job(job: Job, out: Path, progress: Progress, executor: Executor | None = None) -> None:
    data, model = job.data(), job.model
    outcome = _run_arm(job, data, out, progress, executor)
    assert outcome.posterior is not None
    values = metrics(model, sums(model, outcome.posterior, data.test, data.truth))
    _check_finite(job, asdict(values))
    report = diagnose(model, outcome.posterior, outcome.info, data.test.x[:MAX_PROBES])
    for line in [*outcome.notes, *report.warnings]:
        progress.say(f"  note: {line}")
    folder = out / job.folder
    write_bytes(folder / "ledger.jsonl", outcome.ledger.to_json_lines().encode())
    write_bytes(folder / "posterior.safetensors", posterior_bytes(outcome.posterior))
    summaries = job.preset.task.summaries(outcome.posterior.predict)
    extra = {
        "notes": outcome.notes,
        "weighting": job.arm.weighting,
        "study": (job.study if job.arm.learner else job.method_study).hash,
    }
    write_json(folder / "diagnostics.json", {**asdict(report), **summaries, **extra})
    row = {
        "task": job.preset.name,
        "arm": job.arm.label,
        "seed": job.seed,
        **asdict(values),
        "floats_up": outcome.ledger.floats("up"),
        "floats_down": outcome.ledger.floats("down"),
        "bytes_up": outcome.ledger.bytes("up"),
        "bytes_down": outcome.ledger.bytes("down"),
        "seconds_client": round(outcome.seconds_client, 3),
        "seconds_server": round(outcome.seconds_server, 3),
    }
    write_json(folder / "row.json", row)
    checkpoint_path(folder).unlink(missing_ok=True)  # last: a kill before it costs nothing


def _run_arm(job: Job, data: FederatedData, out: Path, progress: Progress, executor: Executor | None) -> Outcome:
    """A learner with an inference, a method of its own, or both: a jump start."""
    outcome, start = Outcome(Ledger()), None
    if job.arm.learner:
        outcome, start = _run_one_shot(job, data, out, progress, executor)
    if not job.arm.method:
        return outcome
    method = job.method_study.method
    if isinstance(method, MultiRound):
        return _run_rounds(job, method, data, out / job.folder, outcome, start, progress, executor)
    return _run_one_round(job, data, out, progress, executor)


@dataclass(frozen=True)
class Outcome:
    """What an arm has come to so far."""

    ledger: Ledger
    posterior: Posterior | None = None
    info: Info = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    seconds_client: float = 0.0
    seconds_server: float = 0.0


def _run_one_shot(
    job: Job, data: FederatedData, out: Path, progress: Progress, executor: Executor | None
) -> tuple[Outcome, SamplePosterior]:
    study = job.study
    for name, points in data.clients.items():
        study.check_records(points, name)
    what = f"clients learn ({job.arm.learner}, seed {job.seed})"
    state, outcome = _exchange(job.key, study, data, out, progress, executor, what)
    progress.begin(f"{job.arm.label}: infer and evaluate", 1)
    # Named after the one-shot part, so that a jump start begins where the arm without it ended.
    key = named_key(job.key, f"inference {job.arm.learner} {job.arm.inference} {job.arm.weighting}")
    method = OneShot(learner=study.learner)
    began = time.perf_counter()
    posterior, info = jax.block_until_ready(method.posterior(key, job.model, state, job.point_inference))
    seconds = time.perf_counter() - began
    progress.end()
    return replace(outcome, posterior=posterior, info=info, seconds_server=seconds), posterior


def _run_one_round(job: Job, data: FederatedData, out: Path, progress: Progress, executor: Executor | None) -> Outcome:
    """A method of one exchange that has a posterior of its own."""
    study, key = job.method_study, named_key(job.key, f"method {job.arm.method}")
    what = f"clients learn ({job.arm.method}, seed {job.seed})"
    state, outcome = _exchange(key, study, data, out, progress, executor, what)
    began = time.perf_counter()
    found = study.method.posterior(named_key(key, "posterior"), study.model, state)
    posterior, info = jax.block_until_ready(found)
    return replace(outcome, posterior=posterior, info=info, seconds_server=time.perf_counter() - began)


def _exchange(
    key: jax.Array,
    study: Study,
    data: FederatedData,
    out: Path,
    progress: Progress,
    executor: Executor | None,
    what: str,
) -> tuple[Any, Outcome]:
    """One exchange with all clients; answers that the run directory already holds are not asked for again."""
    replies, ledger, notes = reply_store(study, out), Ledger(), list[str]()
    # An arm with fewer clients may have asked some of them.
    num_missing = sum((0, name) not in replies for name in data.clients)
    if num_missing:
        progress.begin(what, study.one_round.num_chunks * num_missing)
    state = simulate(
        key,
        study,
        data.clients,
        ledger,
        replies=replies,
        executor=executor,
        on_chunk=progress.advance,
        on_exchange=lambda seen: notes.extend(seen.notes),
    )
    if num_missing:
        progress.end()
    # Of an arm with more clients there may be other replies.
    asked = {name: replies[0, name] for name in data.clients if (0, name) in replies}
    notes += [f"{name}: {note}" for name, reply in asked.items() for note in reply.notes]
    return state, Outcome(ledger, notes=notes, seconds_client=sum(reply.seconds for reply in asked.values()))


def _run_rounds(
    job: Job,
    method: MultiRound,
    data: FederatedData,
    folder: Path,
    before: Outcome,
    start_from: SamplePosterior | None,
    progress: Progress,
    executor: Executor | None,
) -> Outcome:
    """From the beginning, from a one-shot result, or from the checkpoint of a run that was killed."""
    study, model, key = job.method_study, job.model, named_key(job.key, f"method {job.arm.method}")
    start = method.init(named_key(key, "init"), model, study.shared_key)
    if start_from is not None:
        start = warm_start(method, start_from)
    log = resume_or_begin(folder, before.ledger, start)

    def evaluate(state: Any) -> Metrics:
        return metrics(model, sums(model, method.posterior(key, model, state)[0], data.test, data.truth))

    watch = Watch(log, folder, evaluate, job.preset.evaluate_every, progress)
    if log.state is start:  # not a checkpoint
        watch.measure()
    progress.begin(f"{job.arm.label}, seed {job.seed}: rounds", log.state.end - log.state.round)
    began, already = time.perf_counter(), log.seconds
    simulate(key, study, data.clients, log.ledger, state=log.state, executor=executor, on_exchange=watch.on_exchange)
    seconds_server = before.seconds_server + time.perf_counter() - began - (log.seconds - already)
    progress.end()
    posterior, info = method.posterior(named_key(key, "posterior"), model, log.state)
    write_json(folder / "curve.json", log.curve)
    notes, seconds_client = before.notes + log.notes, before.seconds_client + log.seconds
    return Outcome(log.ledger, posterior, info, notes, seconds_client, seconds_server)


def _check_cohort(job: Job) -> None:
    """Before any other arm has worked in vain."""
    method = job.preset.methods.get(job.arm.method or "")
    size = method.cohort_size if isinstance(method, MultiRound) else None
    if size is None and job.arm.num_clients is None:
        return
    num_clients = len(job.data().clients)
    if size is not None and size > num_clients:
        raise CoreshotError(
            f"preset {job.preset.name}, arm {job.arm.label!r}: cohort_size is {size}, but there are only {num_clients} clients; "
            f"lower method.{job.arm.method}.cohort_size or add clients."
        )


def _check_finite(job: Job, values: dict[str, float | None]) -> None:
    for name, value in values.items():
        if value is not None and not np.isfinite(value):
            raise CoreshotError(
                f"preset {job.preset.name}, arm {job.arm.label!r}, seed {job.seed}: {name} is not finite, so the inference broke down; "
                f"lower the step sizes of {f'method.{job.arm.method}' if job.arm.method else f'inference.{job.arm.inference}'}."
            )


def load_state(job: Job, out: Path) -> OneShotState:
    """What the server had received, read back from the run directory; where a message is missing, an error rather than training."""
    data = job.data()
    replies = reply_store(job.study, out)
    refused = {
        entry.client
        for entry in Ledger.from_json_lines((out / job.folder / "ledger.jsonl").read_text()).entries
        if entry.kind == "refused"
    }
    clients = {name: points for name, points in data.clients.items() if name not in refused or (0, name) in replies}
    if any((0, name) not in replies for name in clients):
        raise CoreshotError(
            f"{out}: preset {job.preset.name}, arm {job.arm.label!r}, seed {job.seed}: messages/{job.study.hash[:16]} is not complete; "
            f"messages were removed, or another version of coreshot made this run: report it with that version, or run it anew in another --out."
        )
    study = job.study
    messages = [replies[0, name].data for name in clients]
    return OneShotState(read_messages(study, messages), is_done=True)


def load_presets(out: Path) -> list[Preset]:
    path = out / "config.json"
    if not path.is_file():
        raise CoreshotError(
            f"{out}: holds no coreshot run (there is no config.json); give a directory that `coreshot run` has written."
        )
    return [build_preset(name, values) for name, values in read_json(path).items()]


def finished_jobs(out: Path) -> list[Job]:
    """Every job of the directory that has its row, in the order of presets, arms and seeds."""
    found = []
    for preset in load_presets(out):
        for arm in preset.arms:
            folder = out / Job(preset, arm, 0).folder.parent
            seeds = sorted(int(path.parent.name.removeprefix("seed-")) for path in folder.glob("seed-*/row.json"))
            found += [Job(preset, arm, seed) for seed in seeds]
    return found


def collect(out: Path) -> list[dict[str, Any]]:
    """results.json and diagnostics.json anew from all finished rows."""
    jobs = finished_jobs(out)
    rows = [read_json(out / job.folder / "row.json") for job in jobs]
    write_json(out / "results.json", rows)
    write_json(out / "communication.json", _communication(jobs, rows, out))
    heads = [{"task": row["task"], "arm": row["arm"], "seed": row["seed"]} for row in rows]
    write_json(
        out / "diagnostics.json",
        [{**head, **read_json(out / job.folder / "diagnostics.json")} for head, job in zip(heads, jobs, strict=True)],
    )
    return rows


def has_curve(job: Job, out: Path) -> bool:
    return (out / job.folder / "curve.json").is_file()


def _communication(jobs: Sequence[Job], rows: Sequence[dict[str, Any]], out: Path) -> list[dict[str, Any]]:
    found = []
    for preset in {job.preset.name: job.preset for job in jobs}.values():
        own = [job for job in jobs if job.preset.name == preset.name and has_curve(job, out)]
        curves = [Curve(job.arm.label, job.seed, read_json(out / job.folder / "curve.json")) for job in own]
        of_task = [row for row in rows if row["task"] == preset.name]
        found += [{"task": preset.name, **row} for row in communication_rows(of_task, curves, preset.match)]
    return found
