"""Rows of results as tables of text. The terminal, Markdown documents and HTML pages all show a `Grid`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from coreshot.errors import CoreshotError, visible
from coreshot.experiments.communication import HEADINGS, Row, Unit, shown_metrics, summarise_matches
from coreshot.storage import read_json

NO_VALUE = "–"


@dataclass(frozen=True)
class Grid:
    """A table as text. The first column names the line; columns from `first_number` on are numbers."""

    headings: list[str]
    lines: list[list[str]]
    first_number: int = 1


@dataclass(frozen=True)
class TableColumn:
    """A number of a row. A table leaves out a column that is None in each of its rows."""

    name: str
    heading: str
    format: str

    def cell(self, rows: Sequence[Mapping[str, Any]]) -> str:
        """Mean ± standard deviation over the rows that have a value."""
        values = [row[self.name] for row in rows if row.get(self.name) is not None]
        if not values:
            return NO_VALUE
        mean = format(np.mean(values), self.format)
        if len(set(values)) == 1:  # one seed, or a count that all seeds share
            return mean
        return f"{mean} ± {format(np.std(values, ddof=1), self.format)}"


ACCURACY = TableColumn("accuracy", "accuracy", ".3f")
NLL = TableColumn("nll", "NLL", ".3f")
ECE = TableColumn("ece", "ECE", ".3f")
RMSE = TableColumn("rmse", "RMSE", ".3f")
METRICS = (ACCURACY, NLL, TableColumn("brier", "Brier", ".3f"), ECE, RMSE)
SENT = (
    TableColumn("floats_up", "floats up", ",.0f"),
    TableColumn("floats_down", "floats down", ",.0f"),
    TableColumn("bytes_up", "bytes up", ",.0f"),
    TableColumn("bytes_down", "bytes down", ",.0f"),
)
COSTS = (
    *SENT,
    TableColumn("seconds_client", "seconds client", ".1f"),
    TableColumn("seconds_server", "seconds server", ".1f"),
)
CHECKS = (
    TableColumn("acceptance", "acceptance", ".2f"),
    TableColumn("r_hat", "R-hat", ".2f"),
    TableColumn("effective_samples", "effective samples", ".0f"),
    TableColumn("num_divergences", "divergences", ".0f"),
)


def summary_grid(rows: Sequence[Mapping[str, Any]], columns: Iterable[TableColumn]) -> Grid:
    """One line per arm: mean ± standard deviation over seeds, and the number of seeds."""
    shown = columns_with_values(rows, columns)
    lines = [
        [arm, *(column.cell(of_arm) for column in shown), str(len(of_arm))]
        for arm, of_arm in group_rows(rows, "arm").items()
    ]
    return Grid(["arm", *(column.heading for column in shown), "seeds"], lines)


def group_rows(rows: Iterable[Mapping[str, Any]], name: str) -> dict[str, list[Mapping[str, Any]]]:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row[name], []).append(row)
    return groups


def columns_with_values(rows: Sequence[Mapping[str, Any]], columns: Iterable[TableColumn]) -> list[TableColumn]:
    return [column for column in columns if any(row.get(column.name) is not None for row in rows)]


def grid_markdown(grid: Grid) -> str:
    rule = ["---"] + ["---:"] * (len(grid.headings) - 1)
    return "\n".join("| " + " | ".join(line) + " |" for line in (grid.headings, rule, *grid.lines)) + "\n"


def rich_table(title: str, grid: Grid) -> Table:
    """Of plain text: a `Text` of rich has no markup."""
    table = Table(title=Text(visible(title)), title_justify="left")
    for index, heading in enumerate(grid.headings):
        table.add_column(
            Text("\n".join(visible(part.replace("\xa0", " ")) for part in heading.split(" "))),
            justify="left" if index < grid.first_number else "right",
        )
    for line in grid.lines:
        table.add_row(*(Text(visible(cell)) for cell in line))
    return table


def summary_table(rows: Sequence[Row]) -> list[Table]:
    """One table per task, for the terminal."""
    return [
        rich_table(task, summary_grid(of_task, (*METRICS, *COSTS)))
        for task, of_task in group_rows(rows, "task").items()
    ]


def markdown_table(rows: Sequence[Row], communication: Sequence[Row] = ()) -> str:
    """Metrics and communication of each task. Times are left out, so that a second run gives the same text."""
    parts = []
    for task, of_task in group_rows(rows, "task").items():
        parts.append(f"`{task}`\n\n" + grid_markdown(summary_grid(of_task, (*METRICS, *SENT))))
        matches = communication_grid(of_task, [row for row in communication if row["task"] == task])
        if matches:
            parts.append(f"`{task}`, communication\n\n" + grid_markdown(matches))
    return "\n".join(parts)


def communication_grid(rows: Sequence[Mapping[str, Any]], matches: Sequence[Row]) -> Grid | None:
    """The paper's table: each metric, the floats until an arm matched the reference arm in it, and all floats."""
    if not matches:
        return None
    metrics = [column for column in METRICS if column.name in shown_metrics(rows)]
    ece = columns_with_values(rows, [ECE])
    headings = ["arm"]
    for metric in metrics:
        headings += [metric.heading, f"floats to match in {HEADINGS[metric.name]}"]
    lines = []
    for arm, own in group_rows(rows, "arm").items():
        cells = [arm]
        for metric in metrics:
            cells += [metric.cell(own), _match_cell(matches, arm, metric.name, "floats")]
        total = float(np.mean([row["floats_up"] + row["floats_down"] for row in own]))
        lines.append([*cells, *(column.cell(own) for column in ece), format(total, ",.0f")])
    return Grid([*headings, *(column.heading for column in ece), "floats in all"], lines)


def _match_cell(matches: Sequence[Row], arm: str, metric: str, unit: Unit) -> str:
    found = summarise_matches(matches, arm, metric, unit)
    if not found["seeds"]:
        return NO_VALUE  # the arm sent everything at once and has no curve
    if found["mean"] is None:
        return "never"
    seeds = "" if found["reached"] == found["seeds"] else f" ({found['reached']} of {found['seeds']} seeds)"
    return f"{found['mean']:,.0f}{seeds}"


def read_rows(folder: Path) -> list[Row]:
    path = folder / "results.json"
    if not path.is_file():
        raise CoreshotError(f"{folder}: there is no results.json; give a directory that `coreshot run` has written.")
    return list(read_json(path))


def read_communication(folder: Path) -> list[Row]:
    path = folder / "communication.json"
    return list(read_json(path)) if path.is_file() else []
