"""A page of small images with a title above each: private images, or the pseudo-images that clients sent."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from coreshot.data.display import Display
from coreshot.report.drawing import DPI, Drawing
from coreshot.types import Coreset

GAP = 0.16  # between images, as a share of their width
TITLE = 0.42  # room above each image, as a share of its height
CELL_INCHES = 0.62
MARGIN_INCHES, LINE_NAME_INCHES, BAR_INCHES = 0.12, 1.1, 0.7
IMAGE_CLIENTS, IMAGES_EACH = 5, 30


def draw_images(coresets: Mapping[str, Coreset], display: Display, real_range: tuple[float, float]) -> Drawing:
    """What the first few clients sent: a line for each client, with the label above each image."""
    shown = dict(list(coresets.items())[:IMAGE_CLIENTS])
    num_columns = min(IMAGES_EACH, *(coreset.points.num_points for coreset in shown.values()))
    images = np.concatenate([np.asarray(coreset.points.x)[:num_columns] for coreset in shown.values()])
    labels = np.concatenate([np.argmax(coreset.points.y, axis=1)[:num_columns] for coreset in shown.values()])
    figure = gallery(
        images,
        [display.class_name(int(label)) for label in labels],
        num_columns=num_columns,
        line_names=list(shown),
        show_scale=True,
        high_is_dark=display.high_is_dark,
    )
    caption = (
        f"The first {num_columns} pseudo-images of {len(shown)} clients, as the server received them; "
        f"one scale for all, from {images.min():.2f} to {images.max():.2f} "
        f"(real images lie in {real_range[0]:g} to {real_range[1]:g})."
    )
    return Drawing(figure, f"Pseudo-images of {', '.join(shown)}", caption)


def gallery(
    images: ArrayLike,
    titles: Sequence[str],
    *,
    num_columns: int = 16,
    scale: tuple[float, float] | None = None,
    line_names: Sequence[str] = (),
    show_scale: bool = False,
    high_is_dark: bool = True,
) -> Figure:
    """A figure of [n, height, width] or [n, height, width, channels] images, line by line.

    Three channels are red, green and blue; of any other number, the mean over channels is shown in grey. All images
    share one scale, so that they can be compared: the lowest and the highest value of all, or `scale`, and values
    beyond it are drawn as its ends. Values need not lie in 0 to 1, and those of learned images seldom do.
    """
    stack = _drawable(np.asarray(images, np.float32))
    low, high = (float(stack.min()), float(stack.max())) if scale is None else scale
    norm, colours = Normalize(low, high if high > low else low + 1), "gray_r" if high_is_dark else "gray"
    num_columns = min(num_columns, len(stack))
    num_lines = -(-len(stack) // num_columns)
    figure, axes = _page(num_columns, num_lines, bool(line_names), show_scale)
    for index, (image, title) in enumerate(zip(stack, titles, strict=True)):
        x, y = index % num_columns * (1 + GAP) + GAP / 2, index // num_columns * (1 + TITLE) + TITLE
        pixels = (
            image if image.ndim == 2 else np.asarray(np.clip(norm(image), 0, 1))
        )  # matplotlib scales no colour images
        axes.imshow(
            pixels, cmap=colours, norm=norm, extent=(x, x + 1, y + 1, y), interpolation="nearest", aspect="auto"
        )
        axes.text(x + 0.5, y - 0.06, title, ha="center", va="bottom", fontsize=8, parse_math=False)
    for line, name in enumerate(line_names):
        axes.text(-0.1, line * (1 + TITLE) + TITLE + 0.5, name, ha="right", va="center", fontsize=8, parse_math=False)
    axes.set(xlim=(0, num_columns * (1 + GAP)), ylim=(num_lines * (1 + TITLE), 0))  # imshow has changed them
    if show_scale and stack.ndim == 3:  # a colour image has no bar of greys
        bar = figure.add_axes((1 - BAR_INCHES / figure.get_figwidth(), 0.15, 0.12 / figure.get_figwidth(), 0.7))
        figure.colorbar(ScalarMappable(norm, colours), cax=bar).ax.tick_params(labelsize=8)
    return figure


def _drawable(stack: Float[np.ndarray, "n height width *channels"]) -> Float[np.ndarray, "n height width *colours"]:
    if stack.ndim == 3 or stack.shape[-1] == 3:
        return stack
    return stack[..., 0] if stack.shape[-1] == 1 else stack.mean(axis=-1)


def _page(num_columns: int, num_lines: int, has_line_names: bool, show_scale: bool) -> tuple[Figure, Axes]:
    """An empty figure, and axes whose unit is the side of an image."""
    left = MARGIN_INCHES + (LINE_NAME_INCHES if has_line_names else 0)
    right = MARGIN_INCHES + (BAR_INCHES if show_scale else 0)
    size = (
        left + num_columns * CELL_INCHES * (1 + GAP) + right,
        2 * MARGIN_INCHES + num_lines * CELL_INCHES * (1 + TITLE),
    )
    figure = Figure(figsize=size)
    axes = figure.add_axes(
        (left / size[0], MARGIN_INCHES / size[1], 1 - (left + right) / size[0], 1 - 2 * MARGIN_INCHES / size[1])
    )
    axes.set_axis_off()
    return figure, axes


def png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    metadata = {"Software": None}  # so that the same figure gives the same bytes
    figure.savefig(buffer, format="png", dpi=DPI, metadata=metadata, facecolor="white")
    return buffer.getvalue()
