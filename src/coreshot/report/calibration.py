"""Does a model mean what it says? Of classes a reliability diagram, of quantities how often intervals hold the truth."""

from __future__ import annotations

import matplotlib
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from coreshot.fitted.calibration import LEVELS
from coreshot.fitted.metrics import NUM_BINS, Sums
from coreshot.report.drawing import CURVE, STYLE, Drawing


def draw_reliability(total: Sums) -> Drawing:
    """How often predictions of each confidence were right, and below it how many there were."""
    count, confidence, correct = (
        np.asarray(part) for part in (total.bin_count, total.bin_confidence, total.bin_correct)
    )
    there = count > 0
    mean, right = confidence[there] / count[there], correct[there] / count[there]
    error = np.sqrt(right * (1 - right) / count[there])
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.6, 4.8), layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
        _diagonal(upper)
        upper.errorbar(mean, right, error, color=CURVE, marker="o", ms=4, lw=1.4, elinewidth=0.8, capsize=2)
        upper.set_ylabel("share that was right")
        edges = np.linspace(0, 1, NUM_BINS + 1)
        lower.bar(edges[:-1], count, width=1 / NUM_BINS, align="edge", color=CURVE, alpha=0.45, lw=0)
        lower.set(xlabel="confidence of the prediction", ylabel="records")
    caption = (
        f"Reliability: predictions fall into {NUM_BINS} bins by their confidence, the probability of the predicted class; dots show how often "
        "those of a bin were right, with one standard error. On the dashed line the model is as often right as it says; below it, it is too sure "
        "of itself. Bars: how many records a bin has."
    )
    shown = ", ".join(f"{100 * x:.0f} % sure: {100 * y:.0f} % right" for x, y in zip(mean, right, strict=True))
    return Drawing(figure, f"Reliability diagram. {shown}.", caption)


def draw_coverage(found: Float[np.ndarray, " levels"]) -> Drawing:
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.6, 4.2), layout="constrained")
        axes = figure.subplots()
        _diagonal(axes)
        axes.plot(LEVELS, found, color=CURVE, marker="o", ms=4, lw=1.4)
        axes.set(xlabel="level of the interval", ylabel="share of targets inside")
    caption = (
        "Coverage: the share of targets inside the model's central intervals of each level. On the dashed line intervals hold the truth as often "
        "as they say; below it the model is too sure of itself."
    )
    shown = ", ".join(
        f"{100 * level:.0f} % interval: {100 * share:.0f} %" for level, share in zip(LEVELS, found, strict=True)
    )
    return Drawing(figure, f"Coverage of intervals. {shown}.", caption)


def _diagonal(axes: Axes) -> None:
    axes.plot([0, 1], [0, 1], color="#777777", lw=0.9, ls="--")
    axes.set(xlim=(0, 1), ylim=(0, 1.02))
