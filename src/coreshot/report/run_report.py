"""The report of a run directory: figures, and one HTML page that needs no other file. Nothing is trained for it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coreshot.data import FederatedData
from coreshot.data.display import Display
from coreshot.errors import CoreshotError
from coreshot.experiments.communication import Curve, Row, Unit
from coreshot.experiments.job import Job
from coreshot.experiments.preset import Preset
from coreshot.experiments.run_directory import collect, finished_jobs, has_curve, load_presets, read_coresets
from coreshot.fitted.metrics import NUM_BINS
from coreshot.fitted.posterior_file import read_posterior
from coreshot.report.convergence import arm_role, draw_convergence
from coreshot.report.drawing import Drawing, render
from coreshot.report.images import IMAGE_CLIENTS, draw_images
from coreshot.report.page import embed_drawing, render_page
from coreshot.report.tables import (
    ACCURACY,
    CHECKS,
    COSTS,
    METRICS,
    NLL,
    NO_VALUE,
    RMSE,
    Grid,
    TableColumn,
    columns_with_values,
    communication_grid,
    read_communication,
    summary_grid,
)
from coreshot.report.task_figures import Panel, draw_plane
from coreshot.storage import read_json, write_bytes
from coreshot.types import concatenate_points, make_points


def write_report(folder: Path) -> Path:
    """Write folder/report.html and folder/figures from the files of a run; earlier ones are replaced."""
    presets, jobs = load_presets(folder), finished_jobs(folder)
    if not jobs:
        raise CoreshotError(
            f"{folder}: no arm has finished, so there is nothing to report; "
            "run the same `coreshot run` again, it continues where it stopped."
        )
    results, diagnostics = collect(folder), read_json(folder / "diagnostics.json")
    rows = [{**diagnostic, **result} for result, diagnostic in zip(results, diagnostics, strict=True)]
    page = render_page(
        "report.html.j2",
        sections=[
            _section(
                folder,
                preset,
                [job for job in jobs if job.preset.name == preset.name],
                [row for row in rows if row["task"] == preset.name],
            )
            for preset in presets
        ],
        weightings={row["weighting"] for row in rows},
        num_bins=NUM_BINS,
        environment=read_json(folder / "environment.json"),
        config=json.dumps(read_json(folder / "config.json"), indent=2, ensure_ascii=False),
    )
    path = folder / "report.html"
    write_bytes(path, page)
    return path


def _section(folder: Path, preset: Preset, jobs: list[Job], rows: list[Row]) -> dict[str, Any]:
    """What the template shows of one preset."""
    done = {job.arm.label for job in jobs}
    display: Display = preset.task.display
    rows, task_columns = _with_task_columns(rows, display)
    columns = (*METRICS, *task_columns, *COSTS)
    return {
        "name": preset.name,
        "title": preset.title,
        "unfinished": [arm.label for arm in preset.arms if arm.label not in done],
        "summary": _with_weighting(summary_grid(rows, columns), rows),
        "columns_note": display.columns_note if columns_with_values(rows, task_columns) else "",
        "seeds": _seed_grid(rows, columns),
        "checks": _check_grid(rows),
        "num_warned": sum(bool(row["warnings"] or row["notes"]) for row in rows),
        "num_rows": len(rows),
        "figure": _figure(folder, preset, jobs, rows) if jobs else None,
        **_convergence(folder, preset, jobs, rows),
    }


def _with_task_columns(rows: Sequence[Row], display: Display) -> tuple[list[Row], list[TableColumn]]:
    """The rows with the values of the task's own columns, under the columns' headings, and these columns."""
    found = [{**row, **{column.heading: column.value(row) for column in display.columns}} for row in rows]
    return found, [TableColumn(column.heading, column.heading, column.format) for column in display.columns]


def _with_weighting(grid: Grid, rows: Sequence[Row]) -> Grid:
    weighting = {row["arm"]: row["weighting"] for row in rows}
    return Grid([*grid.headings, "weighting"], [[*line, weighting[line[0]] or NO_VALUE] for line in grid.lines])


def _seed_grid(rows: Sequence[Row], columns: Sequence[TableColumn]) -> Grid:
    shown = columns_with_values(rows, columns)
    lines = [[row["arm"], str(row["seed"]), *(column.cell([row]) for column in shown)] for row in rows]
    return Grid(["arm", "seed", *(column.heading for column in shown)], lines)


def _check_grid(rows: Sequence[Row]) -> Grid:
    lines = []
    for row in rows:
        remarks = "\n".join([*row["warnings"], *row["notes"]]) or "none"
        lines.append([row["arm"], remarks, str(row["seed"]), *(column.cell([row]) for column in CHECKS)])
    return Grid(["arm", "warnings and notes", "seed", *(column.heading for column in CHECKS)], lines, first_number=2)


def _convergence(folder: Path, preset: Preset, jobs: list[Job], rows: list[Row]) -> dict[str, Any]:
    """The curves in floats and in bytes, and the table of communication."""
    curves = [
        Curve(job.arm.label, job.seed, read_json(folder / job.folder / "curve.json"))
        for job in jobs
        if has_curve(job, folder)
    ]
    roles = {arm.label: arm_role(preset, arm) for arm in preset.arms}
    matches = [row for row in read_communication(folder) if row["task"] == preset.name]
    units: tuple[Unit, ...] = ("floats", "bytes")
    figures = {}
    for unit in units:
        drawing = draw_convergence(rows, curves, unit, roles)
        if drawing is not None:
            figures[unit] = _save(folder, f"{preset.name}-convergence-{unit}", drawing)
    return {"convergence": figures, "match": preset.match, "communication": communication_grid(rows, matches)}


def _figure(folder: Path, preset: Preset, jobs: list[Job], rows: list[Row]) -> dict[str, Any] | None:
    """Panels on a plane, or pseudo-images, or nothing, as the task's inputs allow."""
    seeds = [job.seed for job in jobs]
    # The first seed among those with the most arms: a run in progress shows what it can.
    seed = max(sorted(set(seeds)), key=seeds.count)
    shown = [job for job in jobs if job.seed == seed]
    if len(preset.task.input_shape) == 3:
        return _image_figure(folder, shown)
    if preset.task.display.plane is None:  # before posteriors are read
        return None
    drawing = draw_task(folder, preset, shown, rows)
    if drawing is None:
        return None
    return {**_save(folder, preset.name, drawing), "seed": seed, "num_panels": len(shown)}


def draw_task(folder: Path, preset: Preset, jobs: Sequence[Job], rows: Sequence[Row]) -> Drawing | None:
    """A panel for each of these jobs, all of one seed; None where the task's inputs lie on no plane."""
    seed = jobs[0].seed
    data: FederatedData = preset.task.make(seed)
    notes = {row["arm"]: _note(row) for row in rows if row["seed"] == seed}
    panels = [_panel(folder, job, notes[job.arm.label]) for job in jobs]
    return draw_plane(preset.task.display, data, _in_order(panels, preset.highlight))


def _in_order(panels: Sequence[Panel], first: Sequence[str]) -> list[Panel]:
    """The panels with these labels first, in their order; the others follow in the preset's order."""
    return sorted(panels, key=lambda panel: first.index(panel.label) if panel.label in first else len(first))


def _image_figure(folder: Path, jobs: list[Job]) -> dict[str, Any] | None:
    """Pseudo-images of the first arm that learns any."""
    learned = [job for job in jobs if job.arm.learner and job.preset.learners[job.arm.learner].num_chunks]
    if not learned:
        return None
    job = learned[0]
    real = np.asarray(job.data().test.x)
    coresets, real_range = read_coresets(job, folder), (float(real.min()), float(real.max()))
    drawing = draw_images(coresets, job.preset.task.display, real_range)
    return {**_save(folder, job.preset.name, drawing), "seed": job.seed, "num_panels": IMAGE_CLIENTS}


def _save(folder: Path, name: str, drawing: Drawing) -> dict[str, Any]:
    """Write the figure as files, and return what the page needs to show it."""
    write_bytes(folder / "figures" / f"{name}.png", render(drawing, "png"))
    write_bytes(folder / "figures" / f"{name}.svg", render(drawing, "svg"))
    return embed_drawing(drawing)


def _note(row: Row) -> str:
    shown = columns_with_values([row], (ACCURACY, NLL, RMSE))
    return ", ".join(f"{column.heading} {column.cell([row])}" for column in shown)


def _panel(folder: Path, job: Job, note: str) -> Panel:
    model = job.model
    study = job.method_study if job.arm.method else job.study
    path = folder / job.folder / "posterior.safetensors"
    posterior = read_posterior(study, path.read_bytes(), str(path))
    # A method of its own sends no points, or (DOSFL) points that are not like records.
    received = make_points(np.zeros((0, *model.input_shape)), np.zeros((0, model.num_outputs)))
    if job.arm.learner:
        received = concatenate_points([coreset.points for coreset in read_coresets(job, folder).values()])
    return Panel(job.arm.label, note, posterior, received)
