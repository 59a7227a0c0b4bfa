"""Quality for communication: the curves of multi-round methods beside the dots of one-shot ones, and what it takes to match one of them."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from coreshot.experiments.communication import HEADINGS, HIGHER_IS_BETTER, Curve, Row, Unit, shown_metrics
from coreshot.report.drawing import STYLE, Drawing

COLOURS = ("#0072b2", "#009e73", "#e69f00", "#56b4e9", "#8c6d46", "#7f7f7f")  # Okabe and Ito's, in this order
JUMP_START = "#d62728"
MARKERS = ("o", "s", "D", "^", "v", "P")


def draw_convergence(
    rows: Sequence[Row], curves: Sequence[Curve], unit: Unit, jump_starts: Sequence[str]
) -> Drawing | None:
    """A panel for each metric; None where no arm has a curve."""
    metrics = shown_metrics(rows)
    if not curves or not metrics:
        return None
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.6 * len(metrics), 3.9), layout="constrained")
        for axes, metric in zip(np.atleast_1d(figure.subplots(1, len(metrics))), metrics, strict=True):
            _panel(axes, rows, curves, metric, unit, jump_starts)
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8.5)
    dashed = (
        " Dashed: HMC on the pooled data, which no federation has."
        if any(row["arm"] == "pooled + HMC" for row in rows)
        else ""
    )
    caption = (
        f"Communication so far, in {unit}, both directions and all clients together, on a logarithmic axis. Lines: multi-round methods, the mean "
        "over seeds with a band from the worst to the best seed; red: started from the one-shot result (the jump start). "
        "Marks: BPC-FL's arms and DOSFL, a mark for each seed." + dashed
    )
    return Drawing(figure, f"{' and '.join(HEADINGS[metric] for metric in metrics)} over {unit} sent.", caption)


def _panel(
    axes: Axes, rows: Sequence[Row], curves: Sequence[Curve], metric: str, unit: Unit, jump_starts: Sequence[str]
) -> None:
    ordinary = [arm for arm in dict.fromkeys(curve.arm for curve in curves) if arm not in jump_starts]
    for arm in dict.fromkeys(curve.arm for curve in curves):
        colour = JUMP_START if arm in jump_starts else COLOURS[ordinary.index(arm) % len(COLOURS)]
        _line(axes, [curve for curve in curves if curve.arm == arm], metric, unit, colour)
    one_shot = [row for row in rows if row["arm"] not in {curve.arm for curve in curves}]
    sent = [
        arm for arm in dict.fromkeys(row["arm"] for row in one_shot) if arm.startswith("BPC-FL") or " + " not in arm
    ]
    for arm, marker in zip(sent, MARKERS, strict=False):
        own = [row for row in one_shot if row["arm"] == arm]
        amount = [row[f"{unit}_up"] + row[f"{unit}_down"] for row in own]
        axes.scatter(
            amount,
            [row[metric] for row in own],
            s=26,
            marker=marker,
            facecolors="#6a3d9a",
            edgecolors="white",
            lw=0.5,
            label=arm,
            zorder=5,
        )
    pooled = [row[metric] for row in rows if row["arm"] == "pooled + HMC"]
    if pooled:
        axes.axhline(float(np.mean(pooled)), color="#777777", lw=0.9, ls="--", label="pooled + HMC", zorder=1)
    axes.set(xscale="log", xlabel=f"{unit} sent, cumulated", title=HEADINGS[metric])
    if not HIGHER_IS_BETTER[metric]:
        _logarithmic(axes)
    axes.grid(alpha=0.25, lw=0.5)


def _line(axes: Axes, curves: Sequence[Curve], metric: str, unit: Unit, colour: str) -> None:
    """Seeds have their points at the same rounds."""
    length = min(len(curve.points) for curve in curves)
    amount = np.mean([[point[unit] for point in curve.points[:length]] for curve in curves], axis=0)
    values = np.array([[point[metric] for point in curve.points[:length]] for curve in curves])
    axes.fill_between(amount, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.15, lw=0)
    axes.plot(amount, values.mean(axis=0), color=colour, lw=1.6, label=curves[0].arm, zorder=3)


def _logarithmic(axes: Axes) -> None:
    """Errors span orders of magnitude; plain numbers are read more easily than powers."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
