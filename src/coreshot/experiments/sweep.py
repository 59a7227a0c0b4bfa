"""A preset's grid search over the values in its [sweep], on seeds that no table reports.

Each combination of values has a run directory of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from coreshot.errors import CoreshotError
from coreshot.experiments.communication import HIGHER_IS_BETTER
from coreshot.experiments.preset import Preset, Sweep, load_preset
from coreshot.experiments.run import run
from coreshot.experiments.run_directory import claim
from coreshot.progress import Progress
from coreshot.storage import write_json


def run_sweep(name: str, overrides: Sequence[str], out: Path, progress: Progress) -> list[dict[str, Any]]:
    """One row per combination, the best first; also in out/sweep.json. Finished combinations are not run again."""
    settings = load_preset(name, overrides).sweep
    if settings is None:
        raise CoreshotError(
            f"preset {name}: has no [sweep]; add one with arm, seeds, metric and grid, or choose another preset."
        )
    names = list(settings.grid)
    rows: list[dict[str, Any]] = []
    for values in itertools.product(*settings.grid.values()):
        changes = dict(zip(names, values, strict=True))
        assignments = [f"{path}={value}" for path, value in changes.items()]
        preset = _with_one_arm(load_preset(name, [*overrides, *assignments]), settings.arm)
        progress.say(", ".join(f"{path} = {value:g}" for path, value in changes.items()))
        folder = out / "-".join(f"{value:g}" for value in values)
        rows.append({**changes, settings.metric: _mean_metric(preset, settings, folder, progress)})
    if all(row[settings.metric] is None for row in rows):
        raise CoreshotError(
            f"preset {name}, sweep: arm {settings.arm!r} broke down with every combination; the notes above say why."
        )
    rows.sort(key=lambda row: _sort_key(row[settings.metric], settings.metric))
    write_json(out / "sweep.json", rows)
    return rows


def _mean_metric(preset: Preset, settings: Sweep, out: Path, progress: Progress) -> float | None:
    """The mean over the seeds; None where the arm breaks down with these values, which does not end the search."""
    claim([preset], out)  # a folder of another configuration is an error, not a result
    try:
        found = run([preset], out, settings.seeds, progress)
    except CoreshotError as error:
        progress.say(f"  note: {error}")
        return None
    values = [row[settings.metric] for row in found if row["seed"] in settings.seeds]
    if None in values:
        raise CoreshotError(
            f"preset {preset.name}, sweep: metric {settings.metric!r} has no meaning for this task; choose another."
        )
    return float(np.mean(values))


def _sort_key(value: float | None, metric: str) -> float:
    """Smaller is better; an arm that broke down comes last."""
    return np.inf if value is None else -value if HIGHER_IS_BETTER[metric] else value


def _with_one_arm(preset: Preset, label: str) -> Preset:
    arms = tuple(arm for arm in preset.arms if arm.label == label)
    if not arms:
        raise CoreshotError(
            f"preset {preset.name}, sweep: there is no arm {label!r}; "
            f"there are {', '.join(arm.label for arm in preset.arms)}."
        )
    return replace(preset, arms=arms)
