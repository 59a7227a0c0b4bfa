"""The paper's two figures in seconds: BPC-FL on two moons and on a regression, beside the pooled data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coreshot.experiments.job import make_jobs
from coreshot.experiments.preset import load_preset
from coreshot.experiments.run import run
from coreshot.progress import Silent
from coreshot.report.drawing import Drawing
from coreshot.report.run_report import draw_task
from coreshot.report.tables import COSTS, METRICS, Grid, summary_grid
from coreshot.storage import read_json

PRESETS = ("demo_moons", "demo_regression")
MAX_R_HAT = 1.05  # of the function values: what is called converged here; the diagnostics warn from 1.1 on


@dataclass(frozen=True)
class PaperStory:
    """One task of the paper."""

    name: str
    title: str
    results: Grid
    figure: Drawing
    remarks: list[str]  # what is wrong with the sampling, arm by arm; none where chains agree
    rows: list[dict[str, Any]]
    r_hat: float | None = None  # the largest of its arms; None where there are no chains


def tell_paper(name: str, folder: Path) -> PaperStory:
    """Runs in a thread beside the other parts, so it says nothing on the way."""
    preset = load_preset(name)
    rows = run([preset], folder / name, None, Silent())
    jobs = make_jobs([preset], None)
    remarks, r_hats = list[str](), list[float]()
    for job in jobs:
        found = read_json(folder / name / job.folder / "diagnostics.json")
        remarks += [f"{job.arm.label}: {line}" for line in [*found["warnings"], *found["notes"]]]
        r_hats += [] if found["r_hat"] is None else [found["r_hat"]]
    if r_hats and not max(r_hats) < MAX_R_HAT and not remarks:
        remarks.append(f"R-hat of the function values is {max(r_hats):.2f} (above {MAX_R_HAT}): sample for longer.")
    figure = draw_task(folder / name, preset, jobs, rows)
    assert figure is not None  # both tasks lie on a plane
    shown = [column for column in (*METRICS, *COSTS) if column.name in ("accuracy", "nll", "ece", "rmse", "bytes_up")]
    grid = summary_grid(rows, shown)
    lines = [line[:-1] for line in grid.lines]
    return PaperStory(
        name, preset.title, Grid(grid.headings[:-1], lines), figure, remarks, rows, max(r_hats, default=None)
    )
