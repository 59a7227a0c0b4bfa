"""Learners x inferences x K on one task, as one table and one figure: quality against bytes and against seconds a client.

What a learned coreset has to beat is always in it: a random handful of records, class means, noise, as many raw images of 8 bits as fit the same
bytes, the same at half resolution, the spectral coreset at those bytes, and all data pooled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from coreshot.report.drawing import STYLE, Drawing, dot_style
from coreshot.report.run_report import Grid
from coreshot.report.tables import METRICS, Column, summary_grid

COSTS = (
    Column("kilobytes", "kB a client", ",.1f"),
    Column("seconds", "seconds a client", ",.2f"),
    Column("seconds_server", "seconds server", ",.1f"),
)


def comparison_grid(rows: Sequence[dict[str, Any]]) -> Grid:
    """One line per arm, the best first."""
    score = "accuracy" if rows[0]["accuracy"] is not None else "nll"
    sign = -1 if score == "accuracy" else 1
    means = {
        arm: np.mean([row[score] for row in rows if row["arm"] == arm])
        for arm in dict.fromkeys(row["arm"] for row in rows)
    }
    return summary_grid(sorted(rows, key=lambda row: sign * means[row["arm"]]), (*METRICS, *COSTS))


def draw_comparison(rows: Sequence[dict[str, Any]]) -> Drawing:
    """A dot per arm, mean over seeds: how good it is, against what it sends and what it takes."""
    score, heading = ("accuracy", "accuracy") if rows[0]["accuracy"] is not None else ("nll", "NLL")
    arms = list(dict.fromkeys(row["arm"] for row in rows))

    def mean(arm: str, key: str) -> float:
        return float(np.mean([row[key] for row in rows if row["arm"] == arm]))

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(11, 5.2), layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        for index, arm in enumerate(arms):
            style: Any = dot_style(index)
            for axes, key in zip(panels, ("kilobytes", "seconds"), strict=True):
                axes.scatter(
                    max(mean(arm, key), 1e-3), mean(arm, score), s=42, **style, label=arm if key == "seconds" else None
                )
        for axes, label in zip(panels, ("kilobytes a client sends", "seconds a client computes"), strict=True):
            axes.set(xscale="log", xlabel=label)
            axes.grid(visible=True, lw=0.3, color="#cccccc")
        panels[0].set_ylabel(heading)
        figure.legend(loc="outside right center", fontsize=8)
    described = "; ".join(
        f"{arm}: {heading} {mean(arm, score):.3f}, {mean(arm, 'kilobytes'):,.1f} kB, {mean(arm, 'seconds'):,.2f} s"
        for arm in arms
    )
    caption = f"Quality ({heading}, on test data) against the bytes that a client sends and the seconds that it computes, mean over seeds."
    return Drawing(figure, f"{caption} {described}", caption)
