"""Presets -> rows of results in a directory. Append-only and resumable: a run that was killed goes on where it stopped.

DIR/config.json                     the resolved presets; a directory belongs to one configuration
DIR/environment.json                versions and hardware of the first run
DIR/messages/STUDY/...              what clients sent, as it crossed the wire, shared by all arms of the same study
DIR/arms/PRESET/ARM/seed-N/...      ledger, posterior, diagnostics, and row.json, written last: it says that the arm is done
DIR/results.json                    one row per task, arm and seed
DIR/diagnostics.json                the same order, with what a row has no place for
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from jax.flatten_util import ravel_pytree

from coreshot.data import FederatedData
from coreshot.data.validate import check_fits_learner
from coreshot.errors import CoreshotError
from coreshot.evaluate import metrics, predict, sums
from coreshot.inference.diagnostics import diagnose
from coreshot.keys import named_key
from coreshot.methods import OneShot
from coreshot.methods.one_shot import OneShotState
from coreshot.models import Model
from coreshot.preset import Arm, Preset, build_preset
from coreshot.progress import Progress, Silent
from coreshot.simulate import Reply, simulate
from coreshot.storage import read_json, write_bytes, write_json
from coreshot.study import Study
from coreshot.types import Posterior
from coreshot.wire import Ledger

MAX_PROBES = 200  # pseudo-inputs at which R-hat and effective sample size are measured


class ReplyStore(MutableMapping[tuple[int, str], Reply]):
    """Replies of one study as files: the message itself, and beside it how long it took and what there is to note."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _path(self, round_and_client: tuple[int, str]) -> Path:
        return self._folder / f"round-{round_and_client[0]}" / f"{round_and_client[1]}.safetensors"

    def __getitem__(self, key: tuple[int, str]) -> Reply:
        path = self._path(key)
        if not path.is_file():
            raise KeyError(key)
        return Reply(path.read_bytes(), **read_json(path.with_suffix(".json")))

    def __setitem__(self, key: tuple[int, str], reply: Reply) -> None:
        path = self._path(key)
        write_json(path.with_suffix(".json"), {"seconds": reply.seconds, "notes": reply.notes})
        write_bytes(path, reply.data)  # last: its presence says that both are whole

    def __delitem__(self, key: tuple[int, str]) -> None:
        raise TypeError("run directories are append-only")

    def __iter__(self) -> Iterator[tuple[int, str]]:
        for path in sorted(self._folder.glob("round-*/*.safetensors")):
            yield int(path.parent.name.removeprefix("round-")), path.stem

    def __len__(self) -> int:
        return sum(1 for _ in self)


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
        return self.preset.study(self.arm.learner, self.seed)

    @property
    def method(self) -> OneShot:
        return OneShot(self.study.learner, self.preset.inferences[self.arm.inference], self.arm.weighting)

    @property
    def key(self) -> jax.Array:
        return jax.random.key(self.seed)


def jobs_of(presets: Sequence[Preset], seeds: Sequence[int] | None) -> list[Job]:
    return [Job(preset, arm, seed) for preset in presets for seed in (seeds or preset.seeds) for arm in preset.arms]


def run(presets: Sequence[Preset], out: Path, seeds: Sequence[int] | None = None, progress: Progress | None = None) -> list[dict[str, Any]]:
    """All rows of these presets in `out`; those that are there already are kept, and no other configuration may live there."""
    progress = progress or Silent()
    claim(presets, out)
    jobs = jobs_of(presets, seeds)
    for index, job in enumerate(jobs):
        if not (out / job.folder / "row.json").exists():
            progress.say(f"[{index + 1}/{len(jobs)}] {job.preset.name}, seed {job.seed}: {job.arm.label}")
            run_job(job, out, progress)
            collect(out)
    return collect(out)


def claim(presets: Sequence[Preset], out: Path) -> None:
    """Make the directory, or make sure that it belongs to this configuration (the seeds may differ: they add rows)."""
    config = {preset.name: {key: value for key, value in preset.resolved.items() if key != "seeds"} for preset in presets}
    path = out / "config.json"
    for part in (out, *out.parents):
        if part.exists() and not part.is_dir():
            raise CoreshotError(f"{part}: is a file, not a directory; choose another --out.")
    if not path.exists():
        # A kill may have come after environment.json, or have left a temporary file: still ours, still empty.
        others = [entry for entry in out.iterdir() if entry.name != "environment.json" and entry.suffix != ".tmp"] if out.exists() else []
        if others:
            raise CoreshotError(f"{out}: is not empty and holds no coreshot run; choose another --out.")
        write_json(out / "environment.json", environment())
        write_json(path, config)
        return
    difference = _first_difference(read_json(path), config)
    if difference:
        raise CoreshotError(f"{out}: holds a run of another configuration ({difference}); choose another --out, nothing was changed.")


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
        **{name: version(name) for name in names},
    }


def run_job(job: Job, out: Path, progress: Progress) -> None:
    data: FederatedData = job.preset.task.make(job.seed)
    study, method, ledger = job.study, job.method, Ledger()
    for name, points in data.clients.items():
        check_fits_learner(points, kind=data.kind, num_points=study.learner.num_points, client=name)
    replies = reply_store(job, out)
    state = _exchange(job, data, ledger, replies, progress)
    progress.begin(f"{job.arm.label}: infer and evaluate", 1)
    began = time.perf_counter()
    posterior, info = method.posterior(named_key(job.key, f"inference {job.arm.label}"), study.model, state)
    posterior = jax.block_until_ready(posterior)
    seconds_server = time.perf_counter() - began
    values = metrics(study.model, sums(study.model, posterior, data.test, data.truth))
    _check_finite(job, asdict(values))
    report = diagnose(study.model, posterior, info, method.log_density(study.model, state).points.x[:MAX_PROBES])
    progress.end()
    notes = [f"{name}: {note}" for (_, name), reply in replies.items() for note in reply.notes]
    for line in [*notes, *report.warnings]:
        progress.say(f"  note: {line}")
    folder = out / job.folder
    write_bytes(folder / "ledger.jsonl", ledger.to_json_lines().encode())
    write_bytes(folder / "posterior.safetensors", save_posterior(posterior))
    summaries = job.preset.task.summaries(lambda x: predict(study.model, posterior, x))
    write_json(folder / "diagnostics.json", {**asdict(report), **summaries, "notes": notes, "weighting": job.arm.weighting, "study": study.hash})
    row = {
        "task": job.preset.name,
        "arm": job.arm.label,
        "seed": job.seed,
        **asdict(values),
        "floats_up": ledger.floats("up"),
        "floats_down": ledger.floats("down"),
        "bytes_up": ledger.bytes("up"),
        "bytes_down": ledger.bytes("down"),
        "seconds_client": round(sum(reply.seconds for reply in replies.values()), 3),
        "seconds_server": round(seconds_server, 3),
    }
    write_json(folder / "row.json", row)


def _exchange(job: Job, data: FederatedData, ledger: Ledger, replies: ReplyStore, progress: Progress) -> OneShotState:
    learner = job.study.learner
    is_new = len(replies) < len(data.clients)
    if is_new:
        progress.begin(f"clients learn ({job.arm.learner}, seed {job.seed})", max(1, learner.num_chunks) * len(data.clients))
    state: OneShotState = simulate(job.key, job.study, job.method, data.clients, ledger, replies, progress.advance)
    if is_new:
        progress.end()
    return state


def _check_finite(job: Job, values: dict[str, float | None]) -> None:
    for name, value in values.items():
        if value is not None and not np.isfinite(value):
            raise CoreshotError(
                f"preset {job.preset.name}, arm {job.arm.label!r}, seed {job.seed}: {name} is not finite, so the inference broke down; "
                f"lower the step size of inference.{job.arm.inference}."
            )


def reply_store(job: Job, out: Path) -> ReplyStore:
    return ReplyStore(out / "messages" / job.study.hash[:16])


def load_state(job: Job, out: Path) -> OneShotState:
    """What the server had received, read back from the run directory."""
    data: FederatedData = job.preset.task.make(job.seed)
    state: OneShotState = simulate(job.key, job.study, job.method, data.clients, Ledger(), reply_store(job, out))
    return state


def save_posterior(posterior: Posterior) -> bytes:
    flat = jax.vmap(lambda params: ravel_pytree(params)[0])(posterior.params)
    return safetensors.numpy.save({"params": np.asarray(flat)})


def load_posterior(model: Model, data: bytes) -> Posterior:
    unravel = ravel_pytree(model.init(jax.random.key(0)))[1]
    return Posterior(jax.vmap(unravel)(jnp.asarray(safetensors.numpy.load(data)["params"])))


def load_presets(out: Path) -> list[Preset]:
    path = out / "config.json"
    if not path.is_file():
        raise CoreshotError(f"{out}: holds no coreshot run (there is no config.json); give a directory that `coreshot run` has written.")
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
    heads = [{"task": row["task"], "arm": row["arm"], "seed": row["seed"]} for row in rows]
    write_json(
        out / "diagnostics.json", [{**head, **read_json(out / job.folder / "diagnostics.json")} for head, job in zip(heads, jobs, strict=True)]
    )
    return rows
