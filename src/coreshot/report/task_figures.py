"""Figures of a task on a plane: what clients held, what they sent, and what the server inferred from it, arm by arm.

The task's `Display.plane` says whether functions are drawn as curves or as fields of colours, and on which axes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from coreshot.data import FederatedData
from coreshot.data.display import CurvePlane, Display, FieldPlane
from coreshot.report.drawing import CLIENT_COLOURS, CURVE, REFERENCE, STYLE, Drawing
from coreshot.types import Points, Posterior

CLASS_COLOURS = ("#123f8c", "#9b1420")
# Paler than the points, so that a point can be seen on a field of its own class.
FIELD_COLOURS = LinearSegmentedColormap.from_list("class field", ["#7fa6e0", "#f7f5f2", "#e58a86"])
INTERVAL_COLOUR = "#8888881f"  # nearly transparent: on white and on a dark page alike
CURVE_POINTS = 241
GRID_LINES, GRID_COLUMNS, GRID_PARTS = 78, 110, 6


@dataclass(frozen=True)
class Panel:
    """One arm with one seed."""

    label: str
    note: str  # a second, smaller line of the title: the arm's metrics
    posterior: Posterior
    received: Points  # from all clients, as the server got them


def draw_plane(display: Display, data: FederatedData, panels: Sequence[Panel]) -> Drawing | None:
    """The figure of a task, or None for a task that cannot be drawn on a plane."""
    if not panels or display.plane is None:
        return None
    with matplotlib.rc_context(STYLE):
        if isinstance(display.plane, CurvePlane):
            return _draw_curves(display.plane, data, panels)
        return _draw_fields(display, display.plane, data, panels)


def _draw_curves(plane: CurvePlane, data: FederatedData, panels: Sequence[Panel]) -> Drawing:
    num_columns = min(4, len(panels))
    num_lines = -(-len(panels) // num_columns)
    figure = Figure(figsize=(max(4.8, 3.3 * num_columns), 2.5 * num_lines + 0.9), layout="constrained")
    axes = figure.subplots(num_lines, num_columns, sharex=True, sharey=True, squeeze=False)
    for one, panel in zip(axes.flat, panels, strict=False):
        _curve_panel(one, plane, data, panel)
    for one in axes.flat[len(panels) :]:
        one.set_axis_off()
    lowest = slice(max(0, len(panels) - num_columns), len(panels))  # of each column; not always in the last line
    for one in axes.flat[lowest]:
        one.tick_params(labelbottom=True)
        one.set_xlabel("x")
    for one in axes[:, 0]:
        one.set_ylabel("y")
    figure.legend(
        handles=_curve_legend(data), loc="outside lower center", ncols=5 if num_columns > 2 else 2, fontsize=9
    )
    caption = (
        "Dots: client data, one colour for each client. Crosses: the pseudo-points that the server received, "
        "larger where a client gave one more weight. Dashed: the true function. "
        "Purple: what the server inferred. For an arm that samples, the mean of the function and a band of one "
        "standard deviation of the function over posterior samples (the epistemic part alone, without observation "
        "noise); a MAP arm has one curve and no band. Shaded: the intervals where clients have data."
    )
    alt = f"{plane.title}: data, pseudo-points and inferred function of {_names(panels)}."
    return Drawing(figure, alt, caption)


def _curve_panel(axes: Axes, plane: CurvePlane, data: FederatedData, panel: Panel) -> None:
    for low, high in plane.data_intervals:
        axes.axvspan(low, high, color=INTERVAL_COLOUR, lw=0, zorder=0)
    for points, colour in zip(data.clients.values(), itertools.cycle(CLIENT_COLOURS), strict=False):
        axes.scatter(points.x[:, 0], points.y[:, 0], s=6, color=colour, alpha=0.7, lw=0, zorder=1)
    x = np.linspace(*plane.x, CURVE_POINTS)
    predictive = panel.posterior.predict(x[:, None])
    mean, deviation = np.asarray(predictive.mean)[:, 0], np.asarray(predictive.epistemic)[:, 0]
    if not panel.posterior.is_point_estimate:
        axes.fill_between(x, mean - deviation, mean + deviation, color=CURVE, alpha=0.25, lw=0, zorder=2)
    axes.plot(x, plane.true_function(x), color=REFERENCE, lw=0.9, ls="--", zorder=3)
    axes.plot(x, mean, color=CURVE, lw=1.6, zorder=4)
    axes.set(xlim=plane.x, ylim=plane.y, yticks=plane.y_ticks)
    _set_title(axes, panel)
    places = np.column_stack([panel.received.x, panel.received.y])
    size = 26 * np.clip(np.asarray(panel.received.weight), 0.2, 4.0)  # by area, within what can be seen
    _draw_received(axes, data, places, {"marker": "x", "s": size, "color": "black", "lw": 1.1})


def _curve_legend(data: FederatedData) -> list[Any]:
    handles: list[Any] = []
    if len(data.clients) <= len(CLIENT_COLOURS):
        handles = [_dot(colour, name) for name, colour in zip(data.clients, CLIENT_COLOURS, strict=False)]
    return [
        *handles,
        Line2D([], [], ls="", marker="x", color="black", label="pseudo-points"),
        Line2D([], [], color=REFERENCE, lw=0.9, ls="--", label="true function"),
        Line2D([], [], color=CURVE, lw=1.6, label="inferred function"),
        Patch(color=CURVE, alpha=0.25, lw=0, label="± one deviation (epistemic)"),
        Patch(color=INTERVAL_COLOUR, lw=0, label="intervals with data"),
    ]


def _draw_fields(display: Display, plane: FieldPlane, data: FederatedData, panels: Sequence[Panel]) -> Drawing:
    """Lines with the probabilities of all arms, then lines with the deviations of the arms that sample."""
    fields = [_class_one_fields(plane, panel) for panel in panels]
    sampled = [
        (panel, field)
        for panel, (_, field) in zip(panels, fields, strict=True)
        if not panel.posterior.is_point_estimate
    ]
    num_columns = min(6, len(panels))
    num_top, num_bottom = -(-len(panels) // num_columns), -(-len(sampled) // num_columns)
    size = max(4.4, 1.75 * num_columns + 1.0), 1.75 * (num_top + num_bottom) + 0.5
    figure = Figure(figsize=size, layout="compressed")
    figure.get_layout_engine().set(w_pad=0.02, wspace=0.02, h_pad=0.05)  # type: ignore[union-attr, call-arg]
    axes = figure.subplots(num_top + num_bottom, num_columns, squeeze=False)
    top, bottom = axes[:num_top].ravel(), axes[num_top:].ravel()
    name = f"P({_class_label(display, 1)})"
    images = [
        _probability_panel(one, plane, data, panel, field)
        for one, panel, (field, _) in zip(top, panels, fields, strict=False)
    ]
    _colour_bar(figure, images[0], top, name, (0, 0.5, 1), num_top)
    deviations = [
        _deviation_panel(one, plane, data, panel, field) for one, (panel, field) in zip(bottom, sampled, strict=False)
    ]
    if deviations:
        _colour_bar(figure, deviations[0], bottom, f"deviation\nof {name}", (0, 0.25, 0.5), num_bottom)
    for one in [*top[len(panels) :], *bottom[len(sampled) :]]:
        one.set_axis_off()
    handles = _field_legend(display)
    figure.legend(handles=handles, loc="outside lower center", ncols=4 if num_columns > 3 else 2, fontsize=9)
    caption = (
        f"Top: the predictive probability of {_class_label(display, 1)}, averaged over posterior samples, with the "
        "line where it is one half. Bottom, for arms that sample: the epistemic part, the standard deviation of that "
        "probability over posterior samples. Dots: client data, coloured by class. White-edged crosses: the "
        "pseudo-points that the server received, coloured by their label."
    )
    alt = f"{plane.title}: predictive probability and epistemic uncertainty of {_names(panels)}."
    return Drawing(figure, alt, caption)


Field = Float[np.ndarray, "lines columns"]


def _class_one_fields(plane: FieldPlane, panel: Panel) -> tuple[Field, Field]:
    """Mean and deviation of the probability of class 1 on a grid.

    The grid is predicted in parts, because memory grows with samples x points x width of the network.
    """
    grid = np.stack(np.meshgrid(np.linspace(*plane.x, GRID_COLUMNS), np.linspace(*plane.y, GRID_LINES)), axis=-1)
    parts = [panel.posterior.predict(lines.reshape(-1, 2)) for lines in np.split(grid, GRID_PARTS)]
    mean = np.concatenate([np.asarray(part.mean)[:, 1] for part in parts])
    deviation = np.concatenate([np.asarray(part.epistemic)[:, 1] for part in parts])
    return mean.reshape(GRID_LINES, GRID_COLUMNS), deviation.reshape(GRID_LINES, GRID_COLUMNS)


def _probability_panel(
    axes: Axes, plane: FieldPlane, data: FederatedData, panel: Panel, probability: Field
) -> AxesImage:
    image = _draw_field(axes, plane, probability, FIELD_COLOURS, highest=1.0)
    if probability.min() < 0.5 < probability.max():  # matplotlib warns about a contour without points
        axes.contour(probability, levels=[0.5], extent=(*plane.x, *plane.y), colors="#333333", linewidths=0.8)
    for points in data.clients.values():
        axes.scatter(points.x[:, 0], points.x[:, 1], s=7, c=_class_colours(points), lw=0, alpha=0.85)
    _draw_received_classes(axes, plane, data, panel)
    _set_title(axes, panel)
    return image


def _deviation_panel(axes: Axes, plane: FieldPlane, data: FederatedData, panel: Panel, deviation: Field) -> AxesImage:
    # The standard deviation of a probability is at most 0.5, so all arms can share one scale.
    image = _draw_field(axes, plane, deviation, "viridis", highest=0.5)
    _draw_received_classes(axes, plane, data, panel)
    axes.set_title(panel.label, pad=4)
    return image


def _draw_field(
    axes: Axes, plane: FieldPlane, field: Field, colours: LinearSegmentedColormap | str, highest: float
) -> AxesImage:
    axes.set(xticks=(), yticks=())
    extent = (*plane.x, *plane.y)
    return axes.imshow(
        field, origin="lower", extent=extent, cmap=colours, vmin=0, vmax=highest, interpolation="bilinear"
    )


def _colour_bar(
    figure: Figure, image: AxesImage, axes: np.ndarray, label: str, ticks: tuple[float, ...], num_lines: int
) -> None:
    figure.colorbar(image, ax=axes.tolist(), label=label, ticks=ticks, fraction=0.05, pad=0.01, aspect=12 * num_lines)


def _draw_received_classes(axes: Axes, plane: FieldPlane, data: FederatedData, panel: Panel) -> None:
    axes.set(xlim=plane.x, ylim=plane.y)
    marker = {"marker": "X", "s": 38, "c": _class_colours(panel.received), "edgecolors": "white", "lw": 0.8}
    _draw_received(axes, data, np.asarray(panel.received.x), marker)


def _field_legend(display: Display) -> list[Any]:
    cross: dict[str, Any] = {"ls": "", "marker": "X", "ms": 8, "markeredgecolor": "white"}
    classes = [(_class_label(display, label), colour) for label, colour in enumerate(CLASS_COLOURS)]
    dots = [_dot(colour, f"client data, {name}") for name, colour in classes]
    return dots + [Line2D([], [], color=colour, label=f"pseudo-points, {name}", **cross) for name, colour in classes]


def _class_label(display: Display, label: int) -> str:
    return f"class {display.class_name(label)}"


def _class_colours(points: Points) -> list[str]:
    return [CLASS_COLOURS[label] for label in np.argmax(np.asarray(points.y), axis=1)]


def _draw_received(axes: Axes, data: FederatedData, places: np.ndarray, marker: dict[str, Any]) -> None:
    """Crosses at the received points, and a remark about points that no cross can show."""
    if len(places) >= sum(points.num_points for points in data.clients.values()):
        _add_remark(axes, "all data were sent")  # a cross on every dot would hide the data
        return
    axes.scatter(places[:, 0], places[:, 1], zorder=5, **marker)
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    outside = np.sum((places[:, 0] < left) | (places[:, 0] > right) | (places[:, 1] < low) | (places[:, 1] > high))
    if outside:
        _add_remark(axes, f"pseudo-points outside: {outside}")


def _add_remark(axes: Axes, text: str) -> None:
    box = {"facecolor": "white", "alpha": 0.8, "lw": 0, "pad": 1.5}
    axes.text(0.02, 0.03, text, transform=axes.transAxes, fontsize=7.5, color="#333333", bbox=box, zorder=6)


def _set_title(axes: Axes, panel: Panel) -> None:
    axes.set_title(panel.label, pad=16)
    axes.text(0.5, 1.03, panel.note, transform=axes.transAxes, ha="center", va="bottom", fontsize=8, color="#555555")


def _dot(colour: str, label: str) -> Line2D:
    return Line2D([], [], ls="", marker="o", ms=4, color=colour, label=label)


def _names(panels: Sequence[Panel]) -> str:
    return ", ".join(panel.label for panel in panels)
