"""Who holds what, for data that cannot be shown as images: classes by client, or the spread of a quantity by client."""

from __future__ import annotations

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from coreshot.data.store import Holder, StoredData
from coreshot.report.drawing import CURVE, STYLE

MOST_CLIENTS = 60  # that are drawn
MOST_NAMES = 30  # of classes that are written below the columns
LINE_INCHES, WIDTH_INCHES, MARGIN_INCHES = 0.2, 7.2, 1.5


def draw_holdings(data: StoredData) -> Figure:
    """A line for each of the first clients."""
    holders = data.of_role("train", "extra", "test")
    shown = holders[:MOST_CLIENTS]
    with matplotlib.rc_context(STYLE):
        height = max(2.4, LINE_INCHES * len(shown) + MARGIN_INCHES)
        figure = Figure(figsize=(WIDTH_INCHES, height), layout="constrained")
        axes = figure.subplots()
        if data.description.kind == "regression":
            _draw_quantity(axes, data, shown)
        else:
            _draw_classes(figure, axes, data, shown)
        axes.set_yticks(range(len(shown)), [_name(holder) for holder in shown], fontsize=7, parse_math=False)
        axes.set_ylim(len(shown) - 0.5, -0.5)
        more = f", the first {len(shown)} of {len(holders)} holders" if len(holders) > len(shown) else ""
        axes.set_title(f"{data.name}: {len(data.targets):,} records{more}", parse_math=False)
    return figure


def _name(holder: Holder) -> str:
    return f"{holder.name} (test)" if holder.role == "test" else holder.name


def _draw_classes(figure: Figure, axes: Axes, data: StoredData, holders: list[Holder]) -> None:
    names = data.description.class_names
    counts = np.stack([np.bincount(data.targets[one.rows], minlength=len(names)) for one in holders])
    image = axes.imshow(np.ma.masked_equal(counts, 0), aspect="auto", cmap="viridis_r", interpolation="nearest")
    if len(names) <= MOST_NAMES:
        axes.set_xticks(range(len(names)), [name[:20] for name in names], rotation=45, ha="right", parse_math=False)
    axes.set_xlabel("class")
    figure.colorbar(image, ax=axes, label="records (white: none)")


def _draw_quantity(axes: Axes, data: StoredData, holders: list[Holder]) -> None:
    values = [data.targets[one.rows][:, 0] for one in holders]
    boxes = axes.boxplot(
        values, positions=range(len(values)), orientation="horizontal", widths=0.6, sym=".", patch_artist=True
    )
    for box in boxes["boxes"]:
        box.set(facecolor=CURVE, alpha=0.35)
    for mark in boxes["fliers"]:
        mark.set(markersize=2)
    axes.set_xlabel(f"{data.description.target_names[0]} (box: middle half of a client's records)")
