"""The table and the figure of `coreshot compare`: quality against the bytes and the seconds of a client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from coreshot.experiments.communication import HIGHER_IS_BETTER, Row
from coreshot.report.drawing import STYLE, Drawing, dot_style
from coreshot.report.tables import ACCURACY, METRICS, NLL, Grid, TableColumn, summary_grid

CLIENT_COSTS = (
    TableColumn("kilobytes", "kB a client", ",.1f"),
    TableColumn("seconds", "seconds a client", ",.2f"),
    TableColumn("seconds_server", "seconds server", ",.1f"),
)
LOWEST_COST = 1e-3  # costs below it are drawn there, because the axis is logarithmic


def comparison_grid(rows: Sequence[Row]) -> Grid:
    """One line per arm, the best first."""
    score = _score(rows).name
    sign = -1 if HIGHER_IS_BETTER[score] else 1
    return summary_grid(sorted(rows, key=lambda row: sign * _mean(rows, row["arm"], score)), (*METRICS, *CLIENT_COSTS))


def draw_comparison(rows: Sequence[Row]) -> Drawing:
    """A dot per arm, the mean over seeds: its quality against what a client sends and how long it computes."""
    score = _score(rows)
    arms = list(dict.fromkeys(row["arm"] for row in rows))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(11, 5.2), layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        for axes, cost in zip(panels, ("kilobytes", "seconds"), strict=True):
            for index, arm in enumerate(arms):
                style: Any = {"s": 42, **dot_style(index), "label": arm if cost == "seconds" else None}
                axes.scatter(max(_mean(rows, arm, cost), LOWEST_COST), _mean(rows, arm, score.name), **style)
        for axes, label in zip(panels, ("kilobytes a client sends", "seconds a client computes"), strict=True):
            axes.set(xscale="log", xlabel=label)
            axes.grid(visible=True, lw=0.3, color="#cccccc")
        panels[0].set_ylabel(score.heading)
        figure.legend(loc="outside right center", fontsize=8)
    described = "; ".join(
        f"{arm}: {score.heading} {_mean(rows, arm, score.name):.3f}, "
        f"{_mean(rows, arm, 'kilobytes'):,.1f} kB, {_mean(rows, arm, 'seconds'):,.2f} s"
        for arm in arms
    )
    caption = (
        f"Quality ({score.heading} on test data) against the bytes that a client sends and the seconds that it "
        "computes, mean over seeds."
    )
    return Drawing(figure, f"{caption} {described}", caption)


def _score(rows: Sequence[Row]) -> TableColumn:
    return ACCURACY if rows[0]["accuracy"] is not None else NLL


def _mean(rows: Sequence[Row], arm: str, name: str) -> float:
    return float(np.mean([row[name] for row in rows if row["arm"] == arm]))
