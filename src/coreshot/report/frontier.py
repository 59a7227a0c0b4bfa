"""The frontier as a picture: quality against how well an attack does, and against epsilon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from coreshot.audit.confidence import Estimate
from coreshot.report.drawing import STYLE, Drawing, dot_style, render
from coreshot.report.page import Grid
from coreshot.report.tables import Column, summary_grid
from coreshot.storage import write_bytes

NO_AUDIT = "–"  # several rounds: nothing here attacks those
NO_PROMISE = 64.0  # where arms without an epsilon are drawn, beyond all that can be asked for


def draw_frontier(rows: Sequence[Mapping[str, Any]]) -> Drawing:
    score, heading = ("accuracy", "accuracy") if "accuracy" in rows[0] else ("nll", "NLL")
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(12, 5.4), layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        for index, row in enumerate(rows):
            style: Any = dot_style(index)
            quality = np.asarray(row[score])
            if "canary_auc" in row:
                _attacked(panels[0], over_seeds(row["canary_auc"]), quality, style)
            epsilon = NO_PROMISE if row["epsilon"] is None else row["epsilon"]
            panels[1].errorbar(
                [epsilon], [quality.mean()], [_deviation(quality)], ls="", ms=6, lw=0.8, **style, label=row["arm"]
            )
        panels[0].set(xlabel="AUC of the attack on a planted record (0.5: guessing)", ylabel=heading, xlim=(0.3, 1.03))
        panels[0].axvline(0.5, color="#777777", lw=0.8, ls=":")
        _epsilon_axis(panels[1], rows)
        for axes in panels:
            axes.grid(visible=True, lw=0.3, color="#cccccc")
        figure.legend(loc="outside right center", fontsize=8)
    caption = (
        f"Left: {heading} on test data against the success of a likelihood-ratio attack on a record planted in one client's data "
        f"(mean over seeds; their intervals hold together with 95 % confidence). "
        f"Right: the same against the epsilon that is promised. Bars: one deviation over seeds."
    )
    described = "; ".join(f"{row['arm']}: {heading} {np.mean(row[score]):.3f}, {_words(row)}" for row in rows)
    return Drawing(figure, f"{caption} {described}", caption)


def over_seeds(estimates: Sequence[Sequence[float]]) -> Estimate:
    """The mean of the seeds' values, from the lowest end of their intervals to the highest."""
    values, lows, highs = np.asarray(estimates).T
    return Estimate(float(values.mean()), float(lows.min()), float(highs.max()))


def _attacked(axes: Axes, auc: Estimate, quality: np.ndarray, style: Mapping[str, Any]) -> None:
    ends = [[auc.value - auc.low], [auc.high - auc.value]]
    axes.errorbar([auc.value], [quality.mean()], [_deviation(quality)], ends, ls="", ms=6, lw=0.8, **style)


def _deviation(values: np.ndarray) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0


def _epsilon_axis(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    given = sorted({round(row["epsilon"], 2) for row in rows if row["epsilon"] is not None})
    ticks = [*given, NO_PROMISE]
    axes.set(xscale="log", xlabel="epsilon that is promised", xlim=(min(ticks) / 1.6, NO_PROMISE * 1.6))
    axes.set_xticks(ticks, [*(f"{epsilon:g}" for epsilon in given), "none"])
    axes.set_xticks([], minor=True)


def _words(row: Mapping[str, Any]) -> str:
    promised = "no promise" if row["epsilon"] is None else f"epsilon {row['epsilon']:.3g}"
    return f"{promised}, attack's AUC {over_seeds(row['canary_auc']).value:.2f}" if "canary_auc" in row else promised


def write_frontier_figures(rows: Sequence[Mapping[str, Any]], out: Path) -> Path:
    drawing = draw_frontier(rows)
    write_bytes(out / "frontier.svg", render(drawing, "svg"))
    write_bytes(out / "frontier.png", render(drawing, "png"))
    return out / "frontier.png"


def frontier_grid(rows: Sequence[Mapping[str, Any]]) -> Grid:
    """One line per arm, in the preset's order."""
    attacked = ("record_auc", "record AUC"), ("canary_auc", "canary AUC"), ("canary_found", "canary found at 1 %")
    score = Column("accuracy", "accuracy", ".3f") if "accuracy" in rows[0] else Column("nll", "NLL", ".3f")
    flat = [{"arm": row["arm"], score.name: value} for row in rows for value in row[score.name]]
    quality = {line[0]: line[1] for line in summary_grid(flat, (score,)).lines}
    lines = [
        [
            row["arm"],
            quality[row["arm"]],
            "none" if row["epsilon"] is None else f"{row['epsilon']:.3g}",
            *(_interval(over_seeds(row[name])) if name in row else NO_AUDIT for name, _ in attacked),
            f"{max(row['least_epsilon']):.2f}" if "least_epsilon" in row else NO_AUDIT,
        ]
        for row in rows
    ]
    return Grid(
        ["arm", score.heading, "epsilon claimed", *(heading for _, heading in attacked), "epsilon shown, at least"],
        lines,
    )


def _interval(estimate: Estimate) -> str:
    return f"{estimate.value:.2f} ({estimate.low:.2f} to {estimate.high:.2f})"
