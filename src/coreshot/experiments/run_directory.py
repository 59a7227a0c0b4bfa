"""A run directory: append-only, one configuration, resumable.

DIR/config.json                     the resolved presets
DIR/environment.json                versions and hardware of the first run
DIR/messages/STUDY/...              what clients sent, as it crossed the wire; shared by all arms of the same study
DIR/arms/PRESET/ARM/seed-N/...      ledger, posterior, diagnostics, and row.json, written last: the arm is done;
                                    for a multi-round method also curve.json, and while it runs a checkpoint
DIR/results.json                    one row for each task, arm and seed
DIR/diagnostics.json                in the same order, what is not part of a row
DIR/communication.json              for each arm with a curve and each metric: what it sent until it was as good as the
                                    arm that the preset names in `match`
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

from coreshot.errors import CoreshotError
from coreshot.experiments.communication import Curve, communication_rows
from coreshot.experiments.job import Job
from coreshot.experiments.preset import Preset, build_preset
from coreshot.fitted.model import read_messages
from coreshot.runtime.replies import reply_store
from coreshot.storage import read_json, write_json
from coreshot.types import Coreset
from coreshot.wire.ledger import Ledger


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


def read_coresets(job: Job, out: Path) -> dict[str, Coreset]:
    """The coresets that an arm's server received, by client, decoded from the messages in the run directory."""
    ledger = Ledger.from_json_lines((out / job.folder / "ledger.jsonl").read_text())
    clients = [entry.client for entry in ledger.entries if (entry.direction, entry.kind) == ("up", "coreset")]
    replies = reply_store(job.study, out)
    if any((0, name) not in replies for name in clients):
        raise CoreshotError(
            f"{out}: preset {job.preset.name}, arm {job.arm.label!r}, seed {job.seed}: "
            f"messages/{job.study.hash[:16]} is not complete; messages were removed, or another version of coreshot "
            "made this run: report it with that version, or run it anew in another --out."
        )
    return read_messages(job.study, [replies[0, name].data for name in clients])


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
