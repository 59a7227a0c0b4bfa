"""Drawings of a task: pages of pseudo-images, and of the synthetic tasks what clients held, what they sent, and what the server believes after it."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib
from matplotlib.figure import Figure

STYLE: Any = {  # matplotlib's stubs want a Literal for each key
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that every machine draws the same
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.linewidth": 0.6,
    "legend.frameon": False,
    "svg.hashsalt": "coreshot",  # else the identifiers in an SVG are random
}
DPI = 130

CURVE = "#6a3d9a"
# Okabe and Ito's palette without its purple, which is the curve's, and without its yellow, which is lost on white.
CLIENT_COLOURS = ("#e69f00", "#56b4e9", "#009e73", "#d55e00", "#0072b2", "#8c6d46", "#7f7f7f", "#b5bd00")
MARKERS = "osD^v<>P"


@dataclass(frozen=True)
class Drawing:
    figure: Figure
    alt: str
    caption: str


def dot_style(index: int) -> dict[str, str]:
    """Of the index-th of many arms: colours first, then other shapes."""
    return {
        "color": CLIENT_COLOURS[index % len(CLIENT_COLOURS)],
        "marker": MARKERS[index // len(CLIENT_COLOURS) % len(MARKERS)],
    }


def render(drawing: Drawing, kind: Literal["png", "svg"]) -> bytes:
    buffer = io.BytesIO()
    metadata = {"Date": None} if kind == "svg" else {"Software": None}  # the same drawing is the same bytes
    with matplotlib.rc_context(STYLE):
        drawing.figure.savefig(buffer, format=kind, dpi=DPI, metadata=metadata, facecolor="white")
    return buffer.getvalue()
