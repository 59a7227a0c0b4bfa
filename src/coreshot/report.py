"""Run directories -> tables, figures, and one HTML page that needs nothing else. Nothing here trains."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.markup import escape
from rich.table import Table

from coreshot.convergence import HEADINGS, Curve, Unit, draw_convergence, matched, shown_metrics
from coreshot.data import FederatedData
from coreshot.data.characters import CHARACTERS
from coreshot.errors import CoreshotError
from coreshot.evaluate import NUM_BINS
from coreshot.experiment import Job, collect, finished_jobs, has_curve, load_presets, load_state
from coreshot.figures import IMAGE_CLIENTS, Drawing, Panel, draw, draw_images, render
from coreshot.page import Grid, render_page, shown_image
from coreshot.posterior_file import posterior_of
from coreshot.preset import Preset
from coreshot.storage import read_json, write_bytes
from coreshot.types import concatenate_points, points_of

Row = dict[str, Any]
NOTHING = "–"


@dataclass(frozen=True)
class Column:
    """A number of a row; a column that is None in every row of a task is left out."""

    name: str
    heading: str
    format: str


ECE = Column("ece", "ECE", ".3f")
METRICS = (
    Column("accuracy", "accuracy", ".3f"),
    Column("nll", "NLL", ".3f"),
    Column("brier", "Brier", ".3f"),
    ECE,
    Column("rmse", "RMSE", ".3f"),
)
EPISTEMIC = (
    Column("epistemic_inside", "epistemic inside", ".3f"),
    Column("epistemic_between", "epistemic between", ".3f"),
    Column("epistemic_ratio", "between / inside", ".2f"),
)
COSTS = (
    Column("floats_up", "floats up", ",.0f"),
    Column("floats_down", "floats down", ",.0f"),
    Column("bytes_up", "bytes up", ",.0f"),
    Column("bytes_down", "bytes down", ",.0f"),
    Column("seconds_client", "seconds client", ".1f"),
    Column("seconds_server", "seconds server", ".1f"),
)
CHECKS = (
    Column("acceptance", "acceptance", ".2f"),
    Column("r_hat", "R-hat", ".2f"),
    Column("effective_samples", "effective samples", ".0f"),
    Column("num_divergences", "divergences", ".0f"),
)


def summary_table(rows: list[Row]) -> list[Table]:
    """One table per task, one line per arm: mean ± standard deviation over seeds."""
    return [rich_table(task, summary_grid(of_task, (*METRICS, *COSTS))) for task, of_task in _groups(rows, "task").items()]


def read_rows(folder: Path) -> list[Row]:
    path = folder / "results.json"
    if not path.is_file():
        raise CoreshotError(f"{folder}: there is no results.json; give a directory that `coreshot run` has written.")
    return list(read_json(path))


def markdown_table(rows: list[Row], communication: Sequence[Row] = ()) -> str:
    """The same for documents: the metrics and what was sent, without times, so that a rerun gives the same text."""
    costs = tuple(column for column in COSTS if not column.name.startswith("seconds"))
    parts = []
    for task, of_task in _groups(rows, "task").items():
        parts.append(f"`{task}`\n\n" + grid_markdown(summary_grid(of_task, (*METRICS, *costs))))
        matches = communication_grid(of_task, [row for row in communication if row["task"] == task])
        if matches:
            parts.append(f"`{task}`, communication\n\n" + grid_markdown(matches))
    return "\n".join(parts)


def grid_markdown(grid: Grid) -> str:
    rule = ["---"] + ["---:"] * (len(grid.headings) - 1)
    return "\n".join("| " + " | ".join(line) + " |" for line in (grid.headings, rule, *grid.lines)) + "\n"


def rich_table(title: str, grid: Grid) -> Table:
    table = Table(title=escape(title), title_justify="left")
    for index, heading in enumerate(grid.headings):
        table.add_column(heading.replace(" ", "\n"), justify="left" if index < grid.first_number else "right")
    for line in grid.lines:
        table.add_row(*map(escape, line))
    return table


def summary_grid(rows: Sequence[Row], columns: Iterable[Column]) -> Grid:
    shown = _with_values(rows, columns)
    arms = _groups(rows, "arm")
    lines = [[arm, *(_spread(of_arm, column) for column in shown), str(len(of_arm))] for arm, of_arm in arms.items()]
    return Grid(["arm", *(column.heading for column in shown), "seeds"], lines)


def _groups(rows: Iterable[Row], name: str) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[name], []).append(row)
    return groups


def _with_values(rows: Sequence[Row], columns: Iterable[Column]) -> list[Column]:
    return [column for column in columns if any(row.get(column.name) is not None for row in rows)]


def _spread(rows: Sequence[Row], column: Column) -> str:
    values = [row[column.name] for row in rows if row.get(column.name) is not None]
    if not values:
        return NOTHING
    mean = format(np.mean(values), column.format)
    if len(set(values)) == 1:  # one seed, or a count that is the same in all: "80 ± 0" says no more than "80"
        return mean
    return f"{mean} ± {format(np.std(values, ddof=1), column.format)}"


def write_report(folder: Path) -> Path:
    """folder/report.html and folder/figures from what a run has left there; made anew each time."""
    presets, jobs = load_presets(folder), finished_jobs(folder)
    if not jobs:
        raise CoreshotError(f"{folder}: no arm has finished, so there is nothing to report; run the same `coreshot run` again, it goes on.")
    rows = _joined(collect(folder), read_json(folder / "diagnostics.json"))
    sections = [_section(folder, preset, [job for job in jobs if job.preset.name == preset.name], rows) for preset in presets]
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
    curves = [Curve(job.arm.label, job.seed, read_json(folder / job.folder / "curve.json")) for job in jobs if has_curve(job, folder)]
    jump_starts = [arm.label for arm in preset.arms if arm.learner and arm.method]
    matches = [row for row in read_communication(folder) if row["task"] == preset.name]
    units: tuple[Unit, ...] = ("floats", "bytes")
    figures = {}
    for unit in units:
        drawing = draw_convergence(rows, curves, unit, jump_starts)
        if drawing is not None:
            figures[unit] = _saved(folder, f"{preset.name}-convergence-{unit}", drawing)
    return {"convergence": figures, "match": preset.match, "communication": communication_grid(rows, matches)}


def read_communication(folder: Path) -> list[Row]:
    path = folder / "communication.json"
    return list(read_json(path)) if path.is_file() else []


def communication_grid(rows: Sequence[Row], matches: Sequence[Row]) -> Grid | None:
    """The paper's table: final metrics, and the floats after which an arm was as good as the one to match; one-shot arms sent all at once."""
    if not matches:
        return None
    names = shown_metrics(rows)
    lines = []
    for arm, own in _groups(rows, "arm").items():
        total = float(np.mean([row["floats_up"] + row["floats_down"] for row in own]))
        cells = [arm]
        for name in names:
            cells.append(_spread(own, next(column for column in METRICS if column.name == name)))
            cells.append(_matched_cell(matched(matches, arm, name, "floats")))
        lines.append([*cells, _spread(own, ECE), format(total, ",.0f")])
    headings = ["arm"]
    for name in names:
        headings += [HEADINGS[name], f"floats to match in {HEADINGS[name]}"]
    ece = ["ECE", "floats in all"] if any(row["ece"] is not None for row in rows) else ["floats in all"]
    lines = [line if len(ece) == 2 else [*line[:-2], line[-1]] for line in lines]
    return Grid([*headings, *ece], lines)


def _matched_cell(found: Mapping[str, Any]) -> str:
    if not found["seeds"]:
        return NOTHING  # a one-shot arm has no curve
    if found["mean"] is None:
        return "never"
    return f"{found['mean']:,.0f}" + ("" if found["reached"] == found["seeds"] else f" ({found['reached']} of {found['seeds']} seeds)")


def _with_weighting(grid: Grid, rows: Sequence[Row]) -> Grid:
    weighting = {row["arm"]: row["weighting"] for row in rows}
    return Grid([*grid.headings, "weighting"], [[*line, weighting[line[0]] or NOTHING] for line in grid.lines])


def _seed_grid(rows: Sequence[Row]) -> Grid:
    shown = _with_values(rows, (*METRICS, *EPISTEMIC, *COSTS))
    lines = [[row["arm"], str(row["seed"]), *(_spread([row], column) for column in shown)] for row in rows]
    return Grid(["arm", "seed", *(column.heading for column in shown)], lines)


def _check_grid(rows: Sequence[Row]) -> Grid:
    lines = []
    for row in rows:
        words = "\n".join([*row["warnings"], *row["notes"]]) or "none"
        lines.append([row["arm"], words, str(row["seed"]), *(_spread([row], column) for column in CHECKS)])
    return Grid(["arm", "warnings and notes", "seed", *(column.heading for column in CHECKS)], lines, first_number=2)


def _figure(folder: Path, preset: Preset, jobs: list[Job], rows: list[Row]) -> dict[str, Any] | None:
    seeds = [job.seed for job in jobs]
    seed = max(sorted(set(seeds)), key=seeds.count)  # the first of those with the most arms, so that a run in progress shows what it can
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
        f"{column.heading} {_spread([row], column)}" for column in _with_values([row], METRICS) if column.name in ("accuracy", "rmse", "nll")
    )


def _panel(folder: Path, job: Job, data: FederatedData, note: str) -> Panel:
    model = job.model
    study = job.method_study if job.arm.method else job.study
    path = folder / job.folder / "posterior.safetensors"
    posterior = posterior_of(study, path.read_bytes(), str(path))
    if not job.arm.learner:  # no points were sent, or (DOSFL) none that mean anything in themselves
        return Panel(job.arm.label, note, model, posterior, points_of(np.zeros((0, *model.input_shape)), np.zeros((0, model.num_outputs))))
    received = concatenate_points([coreset.points for coreset in load_state(job, folder).coresets.values()])
    return Panel(job.arm.label, note, model, posterior, received)
