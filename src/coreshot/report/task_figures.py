"""Drawings of a task: pages of pseudo-images, and of the synthetic tasks what clients held, what they sent, and what the server believes after it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from coreshot.data import FederatedData
from coreshot.data.synthetic import INTERVALS, Moons, Regression, true_function
from coreshot.models import Model
from coreshot.report.drawing import CLIENT_COLOURS, CURVE, STYLE, Drawing
from coreshot.report.images import gallery
from coreshot.types import Coreset, Points, Posterior

FIRST = (
    "FedAvg",
    "DOSFL",
    "BPC-FL + SGD",
    "BPC-FL + Adam",
    "BPC-FL + HMC",
    "pooled + HMC",
)  # what a reader compares first; other arms keep the preset's order
CLASS_COLOURS = ("#123f8c", "#9b1420")
# Paler than the points, so that a point is seen on a field of its own class.
FIELD = LinearSegmentedColormap.from_list("class field", ["#7fa6e0", "#f7f5f2", "#e58a86"])

REGRESSION_X, REGRESSION_Y = (-1.2, 1.2), (-4.0, 4.0)
MOONS_X, MOONS_Y = (-1.7, 2.7), (-1.35, 1.75)
GRID_LINES, GRID_COLUMNS = 78, 110
IMAGE_CLIENTS, IMAGES_EACH = 5, 30


@dataclass(frozen=True)
class Panel:
    """One arm and seed, as it is drawn."""

    label: str
    note: str  # a second, smaller line: how well it did
    model: Model
    posterior: Posterior
    received: Points  # of all clients, as the server got them

    @property
    def is_sampled(self) -> bool:
        return not self.posterior.is_point_estimate


def draw(task: Any, data: FederatedData, panels: Sequence[Panel]) -> Drawing | None:
    """The figure of a task, or None for a task that cannot be drawn on a plane."""
    draw_task = FIGURES.get(type(task))
    if draw_task is None or not panels:
        return None
    ordered = sorted(panels, key=lambda panel: FIRST.index(panel.label) if panel.label in FIRST else len(FIRST))
    with matplotlib.rc_context(STYLE):
        return draw_task(data, ordered)


def draw_images(coresets: Mapping[str, Coreset], names: Sequence[str]) -> Drawing:
    """What the first few clients sent, a line or more for each, with the label above each image."""
    shown = dict(list(coresets.items())[:IMAGE_CLIENTS])
    images = np.concatenate([np.asarray(coreset.points.x)[:IMAGES_EACH] for coreset in shown.values()])
    labels = np.concatenate([np.argmax(coreset.points.y, axis=1)[:IMAGES_EACH] for coreset in shown.values()])
    num_columns = len(images) // len(shown)
    figure = gallery(
        images, [names[label] for label in labels], num_columns=num_columns, line_names=list(shown), show_scale=True
    )
    caption = (
        f"The first {num_columns} pseudo-images of {len(shown)} clients, as the server received them; one scale for all, from {images.min():.2f} "
        f"to {images.max():.2f} (real images lie in 0 to 1)."
    )
    return Drawing(figure, f"Pseudo-images of {', '.join(shown)}", caption)


def draw_regression(data: FederatedData, panels: Sequence[Panel]) -> Drawing:
    num_columns = min(4, len(panels))
    num_lines = -(-len(panels) // num_columns)
    figure = Figure(figsize=(max(4.8, 3.3 * num_columns), 2.5 * num_lines + 0.9), layout="constrained")
    axes = figure.subplots(num_lines, num_columns, sharex=True, sharey=True, squeeze=False)
    for one, panel in zip(axes.flat, panels, strict=False):
        _regression_panel(one, data, panel)
    for one in axes.flat[len(panels) :]:
        one.set_axis_off()
    for one in axes.flat[
        max(0, len(panels) - num_columns) : len(panels)
    ]:  # the lowest of each column, which need not be in the last line
        one.tick_params(labelbottom=True)
        one.set_xlabel("x")
    for one in axes[:, 0]:
        one.set_ylabel("y")
    figure.legend(
        handles=_regression_legend(data), loc="outside lower center", ncols=5 if num_columns > 2 else 2, fontsize=9
    )
    caption = (
        "Dots: client data, a colour for each client. Crosses: the pseudo-points that the server received, "
        "larger where a client gave one more weight. Dashed: the true function. "
        "Purple: what the server inferred; for an arm that samples, the mean of the function and a band of one deviation of the function "
        "between posterior samples (the epistemic part alone, without observation noise); a MAP arm has one curve and no band. "
        "Shaded: the three intervals where clients have data."
    )
    return Drawing(figure, f"Regression: data, pseudo-points and inferred function of {_names(panels)}.", caption)


def _regression_panel(axes: Axes, data: FederatedData, panel: Panel) -> None:
    for low, high in INTERVALS:
        axes.axvspan(low, high, color="#f1efe8", lw=0, zorder=0)
    for points, colour in zip(data.clients.values(), itertools.cycle(CLIENT_COLOURS), strict=False):
        axes.scatter(points.x[:, 0], points.y[:, 0], s=6, color=colour, alpha=0.7, lw=0, zorder=1)
    x = np.linspace(*REGRESSION_X, 241)
    predictive = panel.posterior.predict(x[:, None])
    mean, deviation = np.asarray(predictive.mean)[:, 0], np.asarray(predictive.epistemic)[:, 0]
    if panel.is_sampled:
        axes.fill_between(x, mean - deviation, mean + deviation, color=CURVE, alpha=0.25, lw=0, zorder=2)
    axes.plot(x, true_function(x), color="#777777", lw=0.9, ls="--", zorder=3)
    axes.plot(x, mean, color=CURVE, lw=1.6, zorder=4)
    axes.set(xlim=REGRESSION_X, ylim=REGRESSION_Y, yticks=(-3, 0, 3))
    _title(axes, panel)
    size = 26 * np.clip(np.asarray(panel.received.weight), 0.2, 4.0)  # by area, within what can be seen
    _received(
        axes,
        data,
        np.column_stack([panel.received.x, panel.received.y]),
        {"marker": "x", "s": size, "color": "black", "lw": 1.1},
    )


def _regression_legend(data: FederatedData) -> list[Any]:
    handles: list[Any] = []
    if len(data.clients) <= len(CLIENT_COLOURS):
        handles = [_dot(colour, name) for name, colour in zip(data.clients, CLIENT_COLOURS, strict=False)]
    return [
        *handles,
        Line2D([], [], ls="", marker="x", color="black", label="pseudo-points"),
        Line2D([], [], color="#777777", lw=0.9, ls="--", label="true function"),
        Line2D([], [], color=CURVE, lw=1.6, label="inferred function"),
        Patch(color=CURVE, alpha=0.25, lw=0, label="± one deviation (epistemic)"),
        Patch(color="#f1efe8", lw=0, label="intervals with data"),
    ]


def draw_moons(data: FederatedData, panels: Sequence[Panel]) -> Drawing:
    """Lines of probabilities of all arms, then lines of deviations of those that have samples."""
    sampled = [panel for panel in panels if panel.is_sampled]
    num_columns = min(6, len(panels))
    num_top, num_bottom = -(-len(panels) // num_columns), -(-len(sampled) // num_columns)
    figure = Figure(
        figsize=(max(4.4, 1.75 * num_columns + 1.0), 1.75 * (num_top + num_bottom) + 0.5), layout="compressed"
    )
    figure.get_layout_engine().set(w_pad=0.02, wspace=0.02, h_pad=0.05)  # type: ignore[union-attr, call-arg]
    axes = figure.subplots(num_top + num_bottom, num_columns, squeeze=False)
    top, bottom = axes[:num_top].ravel(), axes[num_top:].ravel()
    fields = {panel.label: _class_one_fields(panel) for panel in panels}
    images = [
        _probability_panel(one, data, panel, fields[panel.label][0]) for one, panel in zip(top, panels, strict=False)
    ]
    deviations = [
        _epistemic_panel(one, data, panel, fields[panel.label][1]) for one, panel in zip(bottom, sampled, strict=False)
    ]
    for one in [*top[len(panels) :], *bottom[len(sampled) :]]:
        one.set_axis_off()
    figure.colorbar(
        images[0], ax=top.tolist(), label="P(class 1)", ticks=(0, 0.5, 1), fraction=0.05, pad=0.01, aspect=12 * num_top
    )
    if deviations:
        figure.colorbar(
            deviations[0],
            ax=bottom.tolist(),
            label="deviation\nof P(class 1)",
            ticks=(0, 0.25, 0.5),
            fraction=0.05,
            pad=0.01,
            aspect=12 * num_bottom,
        )
    figure.legend(handles=_moons_legend(), loc="outside lower center", ncols=4 if num_columns > 3 else 2, fontsize=9)
    caption = (
        "Top: the predictive probability of class 1, averaged over posterior samples, with the line where it is one half. "
        "Bottom, for arms that sample: the epistemic part, the deviation of that probability between posterior samples. "
        "Dots: client data, coloured by class. White-edged crosses: the pseudo-points that the server received, coloured by their label."
    )
    return Drawing(figure, f"Two moons: predictive probability and epistemic uncertainty of {_names(panels)}.", caption)


def _class_one_fields(panel: Panel) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of P(class 1) on a grid, a few lines at a time: all at once would hold samples x points x width."""
    grid = np.stack(np.meshgrid(np.linspace(*MOONS_X, GRID_COLUMNS), np.linspace(*MOONS_Y, GRID_LINES)), axis=-1)
    parts = [panel.posterior.predict(lines.reshape(-1, 2)) for lines in np.split(grid, 6)]
    mean = np.concatenate([np.asarray(part.mean)[:, 1] for part in parts])
    deviation = np.concatenate([np.asarray(part.epistemic)[:, 1] for part in parts])
    return mean.reshape(GRID_LINES, GRID_COLUMNS), deviation.reshape(GRID_LINES, GRID_COLUMNS)


def _probability_panel(axes: Axes, data: FederatedData, panel: Panel, probability: np.ndarray) -> AxesImage:
    image = _field(axes, probability, FIELD, highest=1.0)
    if probability.min() < 0.5 < probability.max():  # matplotlib warns of a contour that is nowhere
        axes.contour(probability, levels=[0.5], extent=(*MOONS_X, *MOONS_Y), colors="#333333", linewidths=0.8)
    for points in data.clients.values():
        axes.scatter(points.x[:, 0], points.x[:, 1], s=7, c=_class_colours(points), lw=0, alpha=0.85)
    _moons_received(axes, data, panel)
    _title(axes, panel)
    return image


def _epistemic_panel(axes: Axes, data: FederatedData, panel: Panel, deviation: np.ndarray) -> AxesImage:
    # A deviation between probabilities cannot exceed 0.5, so one scale serves all arms.
    image = _field(axes, deviation, "viridis", highest=0.5)
    _moons_received(axes, data, panel)
    axes.set_title(panel.label, pad=4)
    return image


def _field(axes: Axes, field: np.ndarray, colours: LinearSegmentedColormap | str, highest: float) -> AxesImage:
    axes.set(xticks=(), yticks=())
    return axes.imshow(
        field, origin="lower", extent=(*MOONS_X, *MOONS_Y), cmap=colours, vmin=0, vmax=highest, interpolation="bilinear"
    )


def _moons_received(axes: Axes, data: FederatedData, panel: Panel) -> None:
    axes.set(xlim=MOONS_X, ylim=MOONS_Y)
    marker = {"marker": "X", "s": 38, "c": _class_colours(panel.received), "edgecolors": "white", "lw": 0.8}
    _received(axes, data, np.asarray(panel.received.x), marker)


def _moons_legend() -> list[Any]:
    cross: dict[str, Any] = {"ls": "", "marker": "X", "ms": 8, "markeredgecolor": "white"}
    dots = [_dot(colour, f"client data, class {label}") for label, colour in enumerate(CLASS_COLOURS)]
    return dots + [
        Line2D([], [], color=colour, label=f"pseudo-points, class {label}", **cross)
        for label, colour in enumerate(CLASS_COLOURS)
    ]


def _class_colours(points: Points) -> list[str]:
    return [CLASS_COLOURS[label] for label in np.argmax(np.asarray(points.y), axis=1)]


def _received(axes: Axes, data: FederatedData, places: np.ndarray, marker: dict[str, Any]) -> None:
    """Crosses where received points lie, and words for those that cannot be shown as crosses."""
    if len(places) >= sum(points.num_points for points in data.clients.values()):
        _remark(axes, "all data were sent")  # a cross on every dot would hide the data
        return
    axes.scatter(places[:, 0], places[:, 1], zorder=5, **marker)
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    outside = np.sum((places[:, 0] < left) | (places[:, 0] > right) | (places[:, 1] < low) | (places[:, 1] > high))
    if outside:
        _remark(axes, f"pseudo-points outside: {outside}")


def _remark(axes: Axes, text: str) -> None:
    box = {"facecolor": "white", "alpha": 0.8, "lw": 0, "pad": 1.5}
    axes.text(0.02, 0.03, text, transform=axes.transAxes, fontsize=7.5, color="#333333", bbox=box, zorder=6)


def _title(axes: Axes, panel: Panel) -> None:
    axes.set_title(panel.label, pad=16)
    axes.text(0.5, 1.03, panel.note, transform=axes.transAxes, ha="center", va="bottom", fontsize=8, color="#555555")


def _dot(colour: str, label: str) -> Line2D:
    return Line2D([], [], ls="", marker="o", ms=4, color=colour, label=label)


def _names(panels: Sequence[Panel]) -> str:
    return ", ".join(panel.label for panel in panels)


FIGURES: dict[type[Any], Callable[[FederatedData, Sequence[Panel]], Drawing]] = {
    Regression: draw_regression,
    Moons: draw_moons,
}
