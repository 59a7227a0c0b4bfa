"""A preset's grid search: every combination of the values in its [sweep], each in a run directory of its own, on seeds that no table reports."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from coreshot.convergence import HIGHER_IS_BETTER
from coreshot.errors import CoreshotError
from coreshot.experiment import run
from coreshot.preset import Preset, Sweep, load_preset
from coreshot.progress import Progress
from coreshot.storage import write_json


def sweep(name: str, overrides: Sequence[str], out: Path, progress: Progress) -> list[dict[str, Any]]:
    """One row per combination, the best first; also in out/sweep.json. Combinations that are done are not run again."""
    settings = load_preset(name, overrides).sweep
    if settings is None:
        raise CoreshotError(f"preset {name}: has no [sweep]; add one with arm, seeds, metric and grid, or choose another preset.")
    names = list(settings.grid)
    rows: list[dict[str, Any]] = []
    for values in itertools.product(*settings.grid.values()):
        changes = dict(zip(names, values, strict=True))
        preset = _only(load_preset(name, [*overrides, *(f"{path}={value}" for path, value in changes.items())]), settings.arm)
        progress.say(", ".join(f"{path} = {value:g}" for path, value in changes.items()))
        rows.append({**changes, settings.metric: _quality(preset, settings, out / "-".join(f"{value:g}" for value in values), progress)})
    rows.sort(key=lambda row: _badness(row[settings.metric], settings.metric))
    write_json(out / "sweep.json", rows)
    return rows


def _quality(preset: Preset, settings: Sweep, out: Path, progress: Progress) -> float | None:
    """The mean over the seeds; None for values with which the arm breaks down, which is a result of a search and not its end."""
    try:
        found = run([preset], out, settings.seeds, progress)
    except CoreshotError as error:
        progress.say(f"  note: {error}")
        return None
    return float(np.mean([row[settings.metric] for row in found]))


def _badness(value: float | None, metric: str) -> float:
    return np.inf if value is None else -value if HIGHER_IS_BETTER[metric] else value


def _only(preset: Preset, label: str) -> Preset:
    arms = tuple(arm for arm in preset.arms if arm.label == label)
    if not arms:
        raise CoreshotError(f"preset {preset.name}, sweep: there is no arm {label!r}; there are {', '.join(arm.label for arm in preset.arms)}.")
    return replace(preset, arms=arms)
