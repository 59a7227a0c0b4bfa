"""Run directories -> tables, figures, and one HTML page that needs nothing else. Nothing here trains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.markup import escape
from rich.table import Table

from coreshot.errors import CoreshotError
from coreshot.experiments.communication import HEADINGS, matched, shown_metrics
from coreshot.report.page import Grid
from coreshot.storage import read_json

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
    return [
        rich_table(task, summary_grid(of_task, (*METRICS, *COSTS)))
        for task, of_task in group_rows(rows, "task").items()
    ]


def read_rows(folder: Path) -> list[Row]:
    path = folder / "results.json"
    if not path.is_file():
        raise CoreshotError(f"{folder}: there is no results.json; give a directory that `coreshot run` has written.")
    return list(read_json(path))


def markdown_table(rows: list[Row], communication: Sequence[Row] = ()) -> str:
    """The same for documents: the metrics and what was sent, without times, so that a rerun gives the same text."""
    costs = tuple(column for column in COSTS if not column.name.startswith("seconds"))
    parts = []
    for task, of_task in group_rows(rows, "task").items():
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
    shown = columns_with_values(rows, columns)
    arms = group_rows(rows, "arm")
    lines = [
        [arm, *(mean_and_deviation(of_arm, column) for column in shown), str(len(of_arm))]
        for arm, of_arm in arms.items()
    ]
    return Grid(["arm", *(column.heading for column in shown), "seeds"], lines)


def group_rows(rows: Iterable[Row], name: str) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[name], []).append(row)
    return groups


def columns_with_values(rows: Sequence[Row], columns: Iterable[Column]) -> list[Column]:
    return [column for column in columns if any(row.get(column.name) is not None for row in rows)]


def mean_and_deviation(rows: Sequence[Row], column: Column) -> str:
    values = [row[column.name] for row in rows if row.get(column.name) is not None]
    if not values:
        return NOTHING
    mean = format(np.mean(values), column.format)
    if len(set(values)) == 1:  # one seed, or a count that is the same in all: "80 ± 0" says no more than "80"
        return mean
    return f"{mean} ± {format(np.std(values, ddof=1), column.format)}"


def read_communication(folder: Path) -> list[Row]:
    path = folder / "communication.json"
    return list(read_json(path)) if path.is_file() else []


def communication_grid(rows: Sequence[Row], matches: Sequence[Row]) -> Grid | None:
    """The paper's table: final metrics, and the floats after which an arm was as good as the one to match; one-shot arms sent all at once."""
    if not matches:
        return None
    names = shown_metrics(rows)
    lines = []
    for arm, own in group_rows(rows, "arm").items():
        total = float(np.mean([row["floats_up"] + row["floats_down"] for row in own]))
        cells = [arm]
        for name in names:
            cells.append(mean_and_deviation(own, next(column for column in METRICS if column.name == name)))
            cells.append(_matched_cell(matched(matches, arm, name, "floats")))
        lines.append([*cells, mean_and_deviation(own, ECE), format(total, ",.0f")])
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
    return f"{found['mean']:,.0f}" + (
        "" if found["reached"] == found["seeds"] else f" ({found['reached']} of {found['seeds']} seeds)"
    )
