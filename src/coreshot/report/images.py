"""A page of small images, with a word above each: private images, or the pseudo-images that clients sent."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

GAP = 0.16  # between images, as a share of their width
TITLE = 0.42  # of the height, above each image
CELL_INCHES = 0.62
MARGIN_INCHES, LINE_NAME_INCHES, BAR_INCHES = 0.12, 1.1, 0.7
INK = "gray_r"  # low is paper, high is ink, as a person sees it


def gallery(
    images: ArrayLike,
    titles: Sequence[str],
    *,
    num_columns: int = 16,
    scale: tuple[float, float] | None = None,
    line_names: Sequence[str] = (),
    show_scale: bool = False,
) -> Figure:
    """A figure of [n, height, width] or [n, height, width, 1] images, line by line.

    All have one scale, so that two of them can be compared: the lowest and the highest pixel of all, or what `scale` says; pixels beyond it
    are drawn as its ends. The images need not lie in 0 to 1: learned ones seldom do.
    """
    stack = np.asarray(images, np.float32)
    stack = stack[..., 0] if stack.ndim == 4 else stack
    count = len(stack)
    low, high = (float(stack.min()), float(stack.max())) if scale is None else scale
    num_columns = min(num_columns, count)
    num_lines = -(-count // num_columns)
    left = MARGIN_INCHES + (LINE_NAME_INCHES if line_names else 0)
    right = MARGIN_INCHES + (BAR_INCHES if show_scale else 0)
    size = (
        left + num_columns * CELL_INCHES * (1 + GAP) + right,
        2 * MARGIN_INCHES + num_lines * CELL_INCHES * (1 + TITLE),
    )
    figure = Figure(figsize=size)
    axes = figure.add_axes(
        (left / size[0], MARGIN_INCHES / size[1], 1 - (left + right) / size[0], 1 - 2 * MARGIN_INCHES / size[1])
    )
    axes.set(xlim=(0, num_columns * (1 + GAP)), ylim=(num_lines * (1 + TITLE), 0))
    axes.set_axis_off()
    norm = Normalize(low, high if high > low else low + 1)
    for index, (image, title) in enumerate(zip(stack, titles, strict=True)):
        x, y = index % num_columns * (1 + GAP) + GAP / 2, index // num_columns * (1 + TITLE) + TITLE
        axes.imshow(image, cmap=INK, norm=norm, extent=(x, x + 1, y + 1, y), interpolation="nearest", aspect="auto")
        axes.text(x + 0.5, y - 0.06, title, ha="center", va="bottom", fontsize=8, parse_math=False)
    for line, name in enumerate(line_names):
        axes.text(-0.1, line * (1 + TITLE) + TITLE + 0.5, name, ha="right", va="center", fontsize=8, parse_math=False)
    axes.set(xlim=(0, num_columns * (1 + GAP)), ylim=(num_lines * (1 + TITLE), 0))  # imshow has changed them
    if show_scale:
        bar = figure.add_axes((1 - BAR_INCHES / size[0], 0.15, 0.12 / size[0], 0.7))
        figure.colorbar(ScalarMappable(norm, INK), cax=bar).ax.tick_params(labelsize=8)
    return figure


def png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(
        buffer, format="png", dpi=130, metadata={"Software": None}, facecolor="white"
    )  # the same figure is the same bytes
    return buffer.getvalue()
