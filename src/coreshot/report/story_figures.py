"""Figures of `coreshot demo`: what stays at a site beside what leaves it, and how good everybody is."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib
import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from coreshot.fitted.metrics import Metrics
from coreshot.report.drawing import CURVE, REFERENCE, STYLE, Drawing

SHOWN = 5  # images in a line, and lines
MOST_ROWS = 60


def draw_what_leaves(
    name: str, images: Float[np.ndarray, "n height width 1"], rows: Float[np.ndarray, "rows columns"], size: int
) -> Drawing:
    """Some of the site's images, which stay, and the numbers of its file, which leave."""
    shown = rows[:MOST_ROWS]
    limit = float(np.quantile(np.abs(shown), 0.98)) or 1.0
    framed = np.pad(images[: SHOWN**2, ..., 0], ((0, 0), (1, 1), (1, 1)))  # with paper around each
    lines = [np.concatenate(list(framed[SHOWN * line : SHOWN * (line + 1)]), axis=1) for line in range(SHOWN)]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.2, 2.9), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=[1, 2])
        left.imshow(np.concatenate(lines), cmap="gray_r", interpolation="nearest")
        side = framed.shape[1]
        left.set(title="stays at the site: images", xticks=(), yticks=())
        for edge in range(1, SHOWN):
            left.axhline(edge * side - 0.5, color=REFERENCE, lw=0.6)
            left.axvline(edge * side - 0.5, color=REFERENCE, lw=0.6)
        right.imshow(shown, cmap="PuOr", vmin=-limit, vmax=limit, interpolation="nearest", aspect="auto")
        right.set(title=f"leaves: {len(rows)} rows of {rows.shape[1]} numbers", xticks=(), yticks=())
    caption = (
        f"{name}. Left: {SHOWN**2} of its {len(images):,} images. Right: the first {len(shown)} rows of its file of "
        f"{size:,} bytes, as the server reads them. Each row mixes all images of the site; a row of features is no "
        "picture. That is not a promise: with few images, rows can give single ones away."
    )
    return Drawing(figure, f"Images of {name}, which stay, beside the rows of numbers that leave.", caption)


def draw_quality(found: Mapping[str, Metrics]) -> Drawing:
    """A bar for the errors of each, the shorter the better."""
    names = list(found)
    errors = [100 * (1 - (one.accuracy or 0.0)) for one in found.values()]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.2, 0.5 + 0.36 * len(names)), layout="constrained")
        axes = figure.subplots()
        colours = [CURVE, *[REFERENCE] * (len(names) - 1)]
        axes.barh(range(len(names)), errors, color=colours, height=0.62)
        for line, error in enumerate(errors):
            axes.text(error + 0.3, line, f"{error:.1f} %", va="center", fontsize=9)
        axes.set_yticks(range(len(names)), names)
        axes.set(xlim=(0, max(errors) * 1.12 + 0.5), xticks=())
        axes.invert_yaxis()
        axes.spines[["top", "right", "bottom"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
    told = ", ".join(f"{name} {error:.1f} %" for name, error in zip(names, errors, strict=True))
    return Drawing(figure, f"Wrong answers: {told}.", "Wrong answers on images that no site holds. Shorter is better.")
