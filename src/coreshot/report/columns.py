"""A figure of what a site's message tells about its columns: means and deviations, and relation to the target."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from coreshot.fitted.column_facts import SHARE, ColumnFact
from coreshot.fitted.column_words import format_value
from coreshot.fitted.message_facts import MessageFacts
from coreshot.report.drawing import CLIENT_COLOURS, CURVE, REFERENCE, STYLE, Drawing

MAX_LINES = 60  # columns, or values of categories, in a figure
MAX_CLASSES = len(CLIENT_COLOURS)
LINE_INCHES, HEAD_INCHES = 0.34, 1.5
MAX_LETTERS = 28  # of a name


def draw_columns(facts: MessageFacts, source: str, *, has_title: bool = False) -> Drawing:
    """A line for each column: within its public range on the left, with the target on the right. A page has the caption
    below, and a picture that stands alone has it as its title."""
    shown = facts.columns[:MAX_LINES]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(9.6, HEAD_INCHES + LINE_INCHES * len(shown)), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True, width_ratios=[3, 2])
        for line, fact in enumerate(shown):
            _draw_range(left, line, fact)
            _draw_correlations(right, line, fact)
        left.set_yticks(range(len(shown)), [_short(fact.name) for fact in shown], parse_math=False)
        left.set(ylim=(len(shown) - 0.4, -0.6), xlim=(-0.02, 1.02), xticks=[])
        left.set_xlabel("within the study's public range (its ends at the sides)", labelpad=6)
        right.set(xlim=(-1, 1), xticks=[-1, -0.5, 0, 0.5, 1])
        right.set_xlabel(_correlation_label(facts), parse_math=False)
        right.axvline(0, color=REFERENCE, lw=0.8)
        for axes in (left, right):
            axes.spines[["top", "right", "left"]].set_visible(False)
            axes.tick_params(axis="y", length=0)
        _add_legend(figure, left, facts)
    more = (
        f" Of {len(facts.columns)} columns and values, the first {MAX_LINES} are shown."
        if len(facts.columns) > len(shown)
        else ""
    )
    if len(facts.classes) > MAX_CLASSES:
        more += f" Of {len(facts.classes)} classes, the first {MAX_CLASSES} are shown."
    caption = f"What {source} tells about {facts.num_records:,} records, up to rounding.{more}"
    if has_title:
        figure.suptitle(caption, fontsize=10, parse_math=False)
    return Drawing(figure, _alt(shown), caption)


def _short(name: str) -> str:
    return name if len(name) <= MAX_LETTERS else f"{name[: MAX_LETTERS - 3]}..."


def _draw_range(axes: Axes, line: int, fact: ColumnFact) -> None:
    low, high = fact.bounds
    axes.plot([0, 1], [line, line], color="#dddddd", lw=1.2, zorder=1)
    for place, value, side in ((0.0, low, "left"), (1.0, high, "right")):
        axes.text(place, line + 0.36, _end(value, fact.kind), ha=side, va="center", fontsize=6.5, color=REFERENCE)
    if fact.mean is None or fact.deviation is None:
        axes.text(0.5, line, "no cells", ha="center", va="center", fontsize=8, color=REFERENCE)
        return
    # A share has no spread beside itself: its bar is the share.
    ends = [fact.mean - fact.deviation, fact.mean + fact.deviation] if fact.kind != SHARE else [0.0, fact.mean]
    ends = [_place(fact, end) for end in ends]
    axes.plot(ends, [line, line], color=CURVE, lw=5, alpha=0.3, solid_capstyle="butt", zorder=2)
    axes.plot([_place(fact, fact.mean)] * 2, [line - 0.2, line + 0.2], color=CURVE, lw=2, zorder=3)
    for colour, mean in zip(CLIENT_COLOURS, fact.class_means, strict=False):
        if mean is not None:
            axes.plot([_place(fact, mean)], [line], "o", color=colour, ms=4.5, mec="white", mew=0.5, zorder=4)


def _end(value: float, kind: str) -> str:
    return f"{100 * value:.0f} %" if kind == SHARE else format_value(value, kind)


def _place(fact: ColumnFact, value: float) -> float:
    """Within the range, 0 to 1."""
    low, high = fact.bounds
    return min(max((value - low) / (high - low), 0.0), 1.0)


def _draw_correlations(axes: Axes, line: int, fact: ColumnFact) -> None:
    axes.axhline(line, color="#eeeeee", lw=0.8, zorder=1)
    several = len(fact.correlations) > 1
    for index, value in enumerate(fact.correlations[:MAX_CLASSES]):
        if value is None:
            continue
        if several:
            axes.plot([value], [line], "o", color=CLIENT_COLOURS[index], ms=4.5, mec="white", mew=0.5, zorder=3)
        else:
            axes.barh([line], [value], height=0.5, color=CURVE, alpha=0.55, lw=0, zorder=2)


def _correlation_label(facts: MessageFacts) -> str:
    if len(facts.classes) > 2:
        return f"correlation with each class of {_short(facts.target_name)}"
    which = f" = {_short(facts.classes[1])}" if facts.classes else ""
    return f"correlation with {_short(facts.target_name)}{which}"


def _add_legend(figure: Figure, axes: Axes, facts: MessageFacts) -> None:
    handles = [
        axes.plot([], [], color=CURVE, lw=2, marker="|", ms=9, ls="none", mew=2, label="mean")[0],
        axes.plot([], [], color=CURVE, lw=5, alpha=0.3, label="mean ± deviation (of a share: from 0)")[0],
    ]
    for colour, name in zip(CLIENT_COLOURS, facts.classes, strict=False):
        handles += axes.plot([], [], "o", color=colour, ms=4.5, label=f"mean of the class {_short(name)}")
    legend = figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 3), fontsize=8)
    for text in legend.get_texts():
        text.set_parse_math(False)


def _alt(shown: Sequence[ColumnFact]) -> str:
    listed = ", ".join(f"{fact.name} {format_value(fact.mean, fact.kind)}" for fact in shown if fact.mean is not None)
    return f"Means of columns: {listed}."
