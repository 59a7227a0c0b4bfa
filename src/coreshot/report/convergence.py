"""Figures of quality against communication: curves of multi-round methods and marks of one-shot arms."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Literal

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from coreshot.experiments.communication import HEADINGS, HIGHER_IS_BETTER, Curve, Row, Unit, shown_metrics
from coreshot.experiments.preset import Arm, Preset
from coreshot.learners.baselines import Everything
from coreshot.report.drawing import CURVE, REFERENCE, STYLE, Drawing

METHOD_COLOURS = ("#0072b2", "#009e73", "#e69f00", "#56b4e9", "#8c6d46", "#7f7f7f")  # Okabe and Ito's, in this order
JUMP_START_COLOUR = "#d62728"
ONE_SHOT_MARKERS = ("o", "s", "D", "^", "v", "P")
POOLED_DASHES = ("--", "-.", ":")

ArmRole = Literal["jump start", "method", "learned", "pooled", "baseline"]


def arm_role(preset: Preset, arm: Arm) -> ArmRole:
    """What an arm is in a figure of convergence, from its parts.

    A baseline's learner learns nothing: a random subset, class means, noise. Figures leave baselines out.
    """
    if arm.method:
        return "jump start" if arm.learner else "method"
    learner = preset.learners[str(arm.learner)]
    if isinstance(learner, Everything):
        return "pooled"
    return "learned" if learner.num_chunks else "baseline"


def draw_convergence(
    rows: Sequence[Row], curves: Sequence[Curve], unit: Unit, roles: Mapping[str, ArmRole]
) -> Drawing | None:
    """A panel for each metric; None where no arm has a curve. `roles` has the role of each arm, by its label."""
    metrics = shown_metrics(rows)
    if not curves or not metrics:
        return None
    pooled = [arm for arm in dict.fromkeys(row["arm"] for row in rows) if roles[arm] == "pooled"]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.6 * len(metrics), 3.9), layout="constrained")
        for axes, metric in zip(np.atleast_1d(figure.subplots(1, len(metrics))), metrics, strict=True):
            _draw_curves(axes, curves, metric, unit, roles)
            _draw_one_shot(axes, rows, curves, metric, unit, roles)
            for arm, dashes in zip(pooled, itertools.cycle(POOLED_DASHES), strict=False):
                mean = float(np.mean([row[metric] for row in rows if row["arm"] == arm]))
                axes.axhline(mean, color=REFERENCE, lw=0.9, ls=dashes, label=arm, zorder=1)
            _format_axes(axes, metric, unit)
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8.5)
    dashed = f" Dashed: {' and '.join(pooled)}, on the pooled data, which no federation has." if pooled else ""
    caption = (
        f"Communication so far in {unit}, both directions and all clients together, on a logarithmic axis. "
        "Lines: multi-round methods, the mean over seeds with a band from the worst to the best seed; "
        "red: started from the one-shot result (a jump start). "
        "Marks: arms that send once, one mark for each seed." + dashed
    )
    return Drawing(figure, f"{' and '.join(HEADINGS[metric] for metric in metrics)} over {unit} sent.", caption)


def _draw_curves(axes: Axes, curves: Sequence[Curve], metric: str, unit: Unit, roles: Mapping[str, ArmRole]) -> None:
    colours = itertools.cycle(METHOD_COLOURS)
    for arm in dict.fromkeys(curve.arm for curve in curves):
        colour = JUMP_START_COLOUR if roles[arm] == "jump start" else next(colours)
        _draw_curve(axes, [curve for curve in curves if curve.arm == arm], metric, unit, colour)


def _draw_curve(axes: Axes, curves: Sequence[Curve], metric: str, unit: Unit, colour: str) -> None:
    """The curves of one arm's seeds, whose points are at the same rounds."""
    length = min(len(curve.points) for curve in curves)
    amount = np.mean([[point[unit] for point in curve.points[:length]] for curve in curves], axis=0)
    values = np.array([[point[metric] for point in curve.points[:length]] for curve in curves])
    axes.fill_between(amount, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.15, lw=0)
    axes.plot(amount, values.mean(axis=0), color=colour, lw=1.6, label=curves[0].arm, zorder=3)


def _draw_one_shot(
    axes: Axes, rows: Sequence[Row], curves: Sequence[Curve], metric: str, unit: Unit, roles: Mapping[str, ArmRole]
) -> None:
    with_curve = {curve.arm for curve in curves}
    arms = [arm for arm in dict.fromkeys(row["arm"] for row in rows) if roles[arm] in ("learned", "method")]
    shown = [arm for arm in arms if arm not in with_curve]
    for index, arm in enumerate(shown):
        own = [row for row in rows if row["arm"] == arm]
        is_first_use = index < len(ONE_SHOT_MARKERS)  # after that the same markers come again, without a filling
        axes.scatter(
            [row[f"{unit}_up"] + row[f"{unit}_down"] for row in own],
            [row[metric] for row in own],
            s=26,
            marker=ONE_SHOT_MARKERS[index % len(ONE_SHOT_MARKERS)],
            facecolors=CURVE if is_first_use else "white",
            edgecolors="white" if is_first_use else CURVE,
            lw=0.5 if is_first_use else 1.0,
            label=arm,
            zorder=5,
        )


def _format_axes(axes: Axes, metric: str, unit: Unit) -> None:
    axes.set(xscale="log", xlabel=f"{unit} sent, cumulated", title=HEADINGS[metric])
    if not HIGHER_IS_BETTER[metric]:  # errors span orders of magnitude
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))  # easier to read than powers
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(alpha=0.25, lw=0.5)
