"""What all figures share: style, colours, and how a figure becomes the bytes of a file."""

from __future__ import annotations

import hashlib
import html
import io
import re
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
INK = "#1d1d24"  # of text and axes: in a page it becomes the page's own, light on dark where that is asked for
SOFT_INK = "#555555"
PIXELS = 4 / 3  # of a page for a point of a figure
INKED = ("text.color", "axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "xtick.color", "ytick.color")
STYLE |= dict.fromkeys(INKED, INK)

CURVE = "#6a3d9a"
REFERENCE = "#777777"  # of lines to compare with: the diagonal, guessing, a true function
# Okabe and Ito's palette without its purple, which is too near CURVE, and its yellow, which is hard to see on white.
CLIENT_COLOURS = ("#e69f00", "#56b4e9", "#009e73", "#d55e00", "#0072b2", "#8c6d46", "#7f7f7f", "#b5bd00")
ARM_MARKERS = "osD^v<>P"


@dataclass(frozen=True)
class Drawing:
    figure: Figure
    alt: str
    caption: str


def dot_style(index: int) -> dict[str, str]:
    """The style of the index-th arm: each colour once with the first marker, then with the next marker."""
    return {
        "color": CLIENT_COLOURS[index % len(CLIENT_COLOURS)],
        "marker": ARM_MARKERS[index // len(CLIENT_COLOURS) % len(ARM_MARKERS)],
    }


def page_svg(drawing: Drawing) -> str:
    """An SVG to stand in a page itself: without a background, and with the page's ink.

    Identifiers are made the drawing's own, since a page has several.
    """
    buffer = io.StringIO()
    with matplotlib.rc_context(STYLE):
        drawing.figure.savefig(buffer, format="svg", dpi=DPI, metadata={"Date": None}, transparent=True)
    text = buffer.getvalue()
    own = hashlib.sha256(text.encode()).hexdigest()[:8]
    start = text.index("<svg")
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', text[start:])
    assert box is not None  # matplotlib writes one
    body = re.sub(
        r"<metadata>.*?</metadata>|<style.*?</style>", "", text[text.index(">", start) + 1 :], flags=re.DOTALL
    )
    body = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{own}-", body)
    for colour in (INK, SOFT_INK, "#000000"):
        body = body.replace(colour, "currentColor")
    body = body.replace(CURVE, "var(--curve)")  # lighter where the page is dark
    return (
        f'<svg viewBox="0 0 {box[1]} {box[2]}" width="{float(box[1]) * PIXELS:.0f}" role="img" '
        f'aria-label="{html.escape(drawing.alt)}" stroke-linejoin="round">{body}'
    )


def render(drawing: Drawing, kind: Literal["png", "svg"]) -> bytes:
    buffer = io.BytesIO()
    metadata = {"Date": None} if kind == "svg" else {"Software": None}  # so that the same drawing gives the same bytes
    with matplotlib.rc_context(STYLE):
        drawing.figure.savefig(buffer, format=kind, dpi=DPI, metadata=metadata, facecolor="white")
    return buffer.getvalue()
