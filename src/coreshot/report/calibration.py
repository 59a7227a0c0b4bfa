"""Figures of calibration: a reliability diagram for classes, and the coverage of intervals for quantities."""

from __future__ import annotations

import matplotlib
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from coreshot.fitted.calibration import LEVELS
from coreshot.fitted.intervals import wilson
from coreshot.fitted.metrics import NUM_BINS, Sums
from coreshot.report.drawing import CURVE, REFERENCE, STYLE, Drawing


def draw_reliability(total: Sums) -> Drawing:
    """Above: how often predictions of each confidence were correct. Below: how many predictions there were."""
    count = np.asarray(total.bin_count)
    used = count > 0
    mean = np.asarray(total.bin_confidence)[used] / count[used]
    correct = np.asarray(total.bin_correct)[used] / count[used]
    ends = np.asarray(
        [wilson(round(share * size), int(size)) for share, size in zip(correct, count[used], strict=True)]
    )
    error = np.maximum(np.stack([correct - ends[:, 0], ends[:, 1] - correct]), 0)  # rounding may make it negative
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.6, 4.8), layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
        _diagonal(upper)
        upper.errorbar(mean, correct, error, color=CURVE, marker="o", ms=4, lw=1.4, elinewidth=0.8, capsize=2)
        upper.set_ylabel("share that was correct")
        edges = np.linspace(0, 1, NUM_BINS + 1)
        lower.bar(edges[:-1], count, width=1 / NUM_BINS, align="edge", color=CURVE, alpha=0.45, lw=0)
        lower.set(xlabel="confidence of the prediction", ylabel="records")
    caption = (
        f"Reliability: predictions are sorted into {NUM_BINS} bins by their confidence, the probability of the "
        "predicted class. Dots show the share of correct predictions in a bin, with a 95 % interval. On the dashed "
        "line this share equals the confidence; below it, the model is overconfident. Bars: the number of records in "
        "each bin."
    )
    pairs = zip(mean, correct, strict=True)
    shown = ", ".join(f"confidence {100 * x:.0f} %: {100 * y:.0f} % correct" for x, y in pairs)
    return Drawing(figure, f"Reliability diagram. {shown}.", caption)


def draw_coverage(found: Float[np.ndarray, " levels"]) -> Drawing:
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.6, 4.2), layout="constrained")
        axes = figure.subplots()
        _diagonal(axes)
        axes.plot(LEVELS, found, color=CURVE, marker="o", ms=4, lw=1.4)
        axes.set(xlabel="level of the interval", ylabel="share of targets inside")
    caption = (
        "Coverage: the share of targets inside the model's central intervals of each level. On the dashed line this "
        "share equals the level; below it, the model is overconfident."
    )
    shown = ", ".join(
        f"{100 * level:.0f} % interval: {100 * share:.0f} %" for level, share in zip(LEVELS, found, strict=True)
    )
    return Drawing(figure, f"Coverage of intervals. {shown}.", caption)


def _diagonal(axes: Axes) -> None:
    axes.plot([0, 1], [0, 1], color=REFERENCE, lw=0.9, ls="--")
    axes.set(xlim=(0, 1), ylim=(0, 1.02))
