"""Presets -> rows of results in a run directory (experiments/run_directory.py says what is in it).

A run that was killed continues where it stopped: rows that are there are kept, and clients that have answered are not
asked again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from coreshot.data import FederatedData
from coreshot.errors import CoreshotError
from coreshot.experiments.job import Job, make_jobs
from coreshot.experiments.preset import Preset
from coreshot.experiments.round_log import Watch, checkpoint_path, resume_or_begin
from coreshot.experiments.run_directory import claim, collect
from coreshot.fitted.metrics import Metrics, metrics, sums
from coreshot.fitted.posterior_file import posterior_bytes
from coreshot.inference.diagnostics import diagnose
from coreshot.inference.posterior import SamplePosterior
from coreshot.inference.protocol import Info
from coreshot.keys import named_key
from coreshot.methods import OneShot
from coreshot.methods.protocol import MultiRound
from coreshot.methods.warm_start import warm_start
from coreshot.progress import Progress, Silent
from coreshot.runtime.executors import Executor
from coreshot.runtime.replies import reply_store
from coreshot.runtime.simulate import simulate
from coreshot.storage import write_bytes, write_json
from coreshot.study import Study
from coreshot.types import Posterior
from coreshot.wire.ledger import Ledger

MAX_PROBES = 200  # test inputs at which R-hat and effective sample size are measured


def run(
    presets: Sequence[Preset],
    out: Path,
    seeds: Sequence[int] | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> list[dict[str, Any]]:
    """All rows of these presets in `out`. Rows that are there are kept; `out` holds one configuration only."""
    progress = progress or Silent()
    jobs = make_jobs(presets, seeds)
    for job in {(job.preset.name, job.arm.method, job.arm.num_clients): job for job in jobs}.values():
        _check_cohort(job)
    claim(presets, out)
    for index, job in enumerate(jobs):
        if not (out / job.folder / "row.json").exists():
            progress.say(f"[{index + 1}/{len(jobs)}] {job.preset.name}, seed {job.seed}: {job.arm.label}")
            run_job(job, out, progress, executor)
            collect(out)
    return collect(out)


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
    method = OneShot(learner=job.preset.learners[str(job.arm.learner)])
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
            f"preset {job.preset.name}, arm {job.arm.label!r}: cohort_size is {size}, "
            f"but there are only {num_clients} clients; lower method.{job.arm.method}.cohort_size or add clients."
        )


def _check_finite(job: Job, values: dict[str, float | None]) -> None:
    part = f"method.{job.arm.method}" if job.arm.method else f"inference.{job.arm.inference}"
    for name, value in values.items():
        if value is not None and not np.isfinite(value):
            raise CoreshotError(
                f"preset {job.preset.name}, arm {job.arm.label!r}, seed {job.seed}: {name} is not finite, "
                f"so the inference broke down; lower the step sizes of {part}."
            )
