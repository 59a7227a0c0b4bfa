"""Run directories -> tables, figures, and one HTML page that needs nothing else. Nothing here trains."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coreshot.data import FederatedData
from coreshot.data.handwriting.labels import CHARACTERS
from coreshot.errors import CoreshotError
from coreshot.experiments.communication import Curve, Unit
from coreshot.experiments.preset import Preset
from coreshot.experiments.run import Job, collect, finished_jobs, has_curve, load_presets, load_state
from coreshot.fitted.metrics import NUM_BINS
from coreshot.fitted.posterior_file import read_posterior
from coreshot.report.convergence import draw_convergence
from coreshot.report.drawing import Drawing, render
from coreshot.report.page import Grid, render_page, shown_image
from coreshot.report.tables import (
    CHECKS,
    COSTS,
    EPISTEMIC,
    METRICS,
    NOTHING,
    Row,
    columns_with_values,
    communication_grid,
    mean_and_deviation,
    read_communication,
    summary_grid,
)
from coreshot.report.task_figures import IMAGE_CLIENTS, Panel, draw, draw_images
from coreshot.storage import read_json, write_bytes
from coreshot.types import concatenate_points, points_of


def write_report(folder: Path) -> Path:
    """folder/report.html and folder/figures from what a run has left there; made anew each time."""
    presets, jobs = load_presets(folder), finished_jobs(folder)
    if not jobs:
        raise CoreshotError(
            f"{folder}: no arm has finished, so there is nothing to report; run the same `coreshot run` again, it goes on."
        )
    rows = _joined(collect(folder), read_json(folder / "diagnostics.json"))
    sections = [
        _section(folder, preset, [job for job in jobs if job.preset.name == preset.name], rows) for preset in presets
    ]
    page = render_page(
        "report.html.j2",
        sections=sections,
        weightings={row["weighting"] for row in rows},
        num_bins=NUM_BINS,
        environment=read_json(folder / "environment.json"),
        config=json.dumps(read_json(folder / "config.json"), indent=2, ensure_ascii=False),
    )
    path = folder / "report.html"
    write_bytes(path, page)
    return path


def _joined(results: list[Row], diagnostics: list[Row]) -> list[Row]:
    """Each row with its diagnostics and the ratio of its epistemic parts, where there is one."""
    rows = [{**diagnostic, **result} for result, diagnostic in zip(results, diagnostics, strict=True)]
    for row in rows:
        inside = row.get("epistemic_inside")  # 0 for a MAP estimate: one sample does not deviate from itself
        row["epistemic_ratio"] = row["epistemic_between"] / inside if inside else None
    return rows


def _section(folder: Path, preset: Preset, jobs: list[Job], all_rows: list[Row]) -> dict[str, Any]:
    rows = [row for row in all_rows if row["task"] == preset.name]
    done = {job.arm.label for job in jobs}
    return {
        "name": preset.name,
        "title": preset.title,
        "unfinished": [arm.label for arm in preset.arms if arm.label not in done],
        "summary": _with_weighting(summary_grid(rows, (*METRICS, *EPISTEMIC, *COSTS)), rows),
        "has_epistemic": any("epistemic_inside" in row for row in rows),
        "seeds": _seed_grid(rows),
        "checks": _check_grid(rows),
        "num_warned": sum(bool(row["warnings"] or row["notes"]) for row in rows),
        "num_rows": len(rows),
        "figure": _figure(folder, preset, jobs, rows) if jobs else None,
        **_convergence(folder, preset, jobs, rows),
    }


def _convergence(folder: Path, preset: Preset, jobs: list[Job], rows: list[Row]) -> dict[str, Any]:
    """The curves in floats and in bytes, and the paper's table: final metric, communication to match, ECE."""
    curves = [
        Curve(job.arm.label, job.seed, read_json(folder / job.folder / "curve.json"))
        for job in jobs
        if has_curve(job, folder)
    ]
    jump_starts = [arm.label for arm in preset.arms if arm.learner and arm.method]
    matches = [row for row in read_communication(folder) if row["task"] == preset.name]
    units: tuple[Unit, ...] = ("floats", "bytes")
    figures = {}
    for unit in units:
        drawing = draw_convergence(rows, curves, unit, jump_starts)
        if drawing is not None:
            figures[unit] = _saved(folder, f"{preset.name}-convergence-{unit}", drawing)
    return {"convergence": figures, "match": preset.match, "communication": communication_grid(rows, matches)}


def _with_weighting(grid: Grid, rows: Sequence[Row]) -> Grid:
    weighting = {row["arm"]: row["weighting"] for row in rows}
    return Grid([*grid.headings, "weighting"], [[*line, weighting[line[0]] or NOTHING] for line in grid.lines])


def _seed_grid(rows: Sequence[Row]) -> Grid:
    shown = columns_with_values(rows, (*METRICS, *EPISTEMIC, *COSTS))
    lines = [[row["arm"], str(row["seed"]), *(mean_and_deviation([row], column) for column in shown)] for row in rows]
    return Grid(["arm", "seed", *(column.heading for column in shown)], lines)


def _check_grid(rows: Sequence[Row]) -> Grid:
    lines = []
    for row in rows:
        words = "\n".join([*row["warnings"], *row["notes"]]) or "none"
        lines.append([row["arm"], words, str(row["seed"]), *(mean_and_deviation([row], column) for column in CHECKS)])
    return Grid(["arm", "warnings and notes", "seed", *(column.heading for column in CHECKS)], lines, first_number=2)


def _figure(folder: Path, preset: Preset, jobs: list[Job], rows: list[Row]) -> dict[str, Any] | None:
    seeds = [job.seed for job in jobs]
    seed = max(
        sorted(set(seeds)), key=seeds.count
    )  # the first of those with the most arms, so that a run in progress shows what it can
    if len(preset.task.input_shape) == 3:
        return _images(folder, [job for job in jobs if job.seed == seed])
    data: FederatedData = preset.task.make(seed)
    notes = {row["arm"]: _note(row) for row in rows if row["seed"] == seed}
    panels = [_panel(folder, job, data, notes.get(job.arm.label, "")) for job in jobs if job.seed == seed]
    drawing = draw(preset.task, data, panels)
    if drawing is None:
        return None
    return {**_saved(folder, preset.name, drawing), "seed": seed, "num_panels": len(panels)}


def _images(folder: Path, jobs: list[Job]) -> dict[str, Any] | None:
    """A page of what was learned: pseudo-images of the first arm that learns any."""
    learned = [job for job in jobs if job.arm.learner and job.study.learner and job.study.learner.num_chunks]
    if not learned:
        return None
    drawing = draw_images(load_state(learned[0], folder).coresets, CHARACTERS)
    return {**_saved(folder, learned[0].preset.name, drawing), "seed": learned[0].seed, "num_panels": IMAGE_CLIENTS}


def _saved(folder: Path, name: str, drawing: Drawing) -> dict[str, Any]:
    """The figure as files, and as the page shows it."""
    png = render(drawing, "png")
    write_bytes(folder / "figures" / f"{name}.png", png)
    write_bytes(folder / "figures" / f"{name}.svg", render(drawing, "svg"))
    return shown_image(drawing, png)


def _note(row: Row) -> str:
    return ", ".join(
        f"{column.heading} {mean_and_deviation([row], column)}"
        for column in columns_with_values([row], METRICS)
        if column.name in ("accuracy", "rmse", "nll")
    )


def _panel(folder: Path, job: Job, data: FederatedData, note: str) -> Panel:
    model = job.model
    study = job.method_study if job.arm.method else job.study
    path = folder / job.folder / "posterior.safetensors"
    posterior = read_posterior(study, path.read_bytes(), str(path))
    if not job.arm.learner:  # no points were sent, or (DOSFL) none that mean anything in themselves
        return Panel(
            job.arm.label,
            note,
            model,
            posterior,
            points_of(np.zeros((0, *model.input_shape)), np.zeros((0, model.num_outputs))),
        )
    received = concatenate_points([coreset.points for coreset in load_state(job, folder).coresets.values()])
    return Panel(job.arm.label, note, model, posterior, received)
