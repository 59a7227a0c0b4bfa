"""The table and the figure of `coreshot frontier`: quality against the success of an attack, and against epsilon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from coreshot.audit.confidence import Estimate
from coreshot.report.drawing import REFERENCE, STYLE, Drawing, dot_style, render
from coreshot.report.tables import ACCURACY, NLL, NO_VALUE, Grid, TableColumn, summary_grid
from coreshot.storage import write_bytes

NO_PROMISE = 64.0  # where arms without an epsilon are drawn, above every epsilon that a study can ask for
ATTACKS = {"record_auc": "record AUC", "canary_auc": "canary AUC", "canary_found": "canary found at 1 %"}


def draw_frontier(rows: Sequence[Mapping[str, Any]]) -> Drawing:
    score = _score(rows)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(12, 5.4), layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        for index, row in enumerate(rows):
            _draw_arm(panels, row, np.asarray(row[score.name]), dot_style(index))
        panels[0].set(xlabel="AUC of the attack on a planted record (0.5: guessing)", xlim=(0.3, 1.03))
        panels[0].set_ylabel(score.heading)
        panels[0].axvline(0.5, color=REFERENCE, lw=0.8, ls=":")
        _format_epsilon_axis(panels[1], rows)
        for axes in panels:
            axes.grid(visible=True, lw=0.3, color="#cccccc")
        figure.legend(loc="outside right center", fontsize=8)
    caption = (
        f"Left: {score.heading} on test data against the success of a likelihood-ratio attack on a record planted in "
        "one client's data (mean over seeds; the intervals of all seeds hold together with 95 % confidence). "
        "Right: the same against the promised epsilon. Bars: one standard deviation over seeds."
    )
    described = "; ".join(
        f"{row['arm']}: {score.heading} {np.mean(row[score.name]):.3f}, {_words(row)}" for row in rows
    )
    return Drawing(figure, f"{caption} {described}", caption)


def _draw_arm(
    panels: Sequence[Axes], row: Mapping[str, Any], quality: Float[np.ndarray, " seeds"], colours: Mapping[str, str]
) -> None:
    style: Any = {"ls": "", "ms": 6, "lw": 0.8, **colours}
    deviation = float(quality.std(ddof=1)) if len(quality) > 1 else 0.0
    if "canary_auc" in row:
        auc = merge_seeds(row["canary_auc"])
        ends = [[auc.value - auc.low], [auc.high - auc.value]]
        panels[0].errorbar([auc.value], [quality.mean()], [deviation], ends, **style)
    epsilon = NO_PROMISE if row["epsilon"] is None else row["epsilon"]
    panels[1].errorbar([epsilon], [quality.mean()], [deviation], **style, label=row["arm"])


def _format_epsilon_axis(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    given = sorted({round(row["epsilon"], 2) for row in rows if row["epsilon"] is not None})
    ticks = [*given, NO_PROMISE]
    axes.set(xscale="log", xlabel="promised epsilon", xlim=(min(ticks) / 1.6, NO_PROMISE * 1.6))
    axes.set_xticks(ticks, [*(f"{epsilon:g}" for epsilon in given), "none"])
    axes.set_xticks([], minor=True)


def _words(row: Mapping[str, Any]) -> str:
    promised = "no promise" if row["epsilon"] is None else f"epsilon {row['epsilon']:.3g}"
    return (
        f"{promised}, AUC of the attack {merge_seeds(row['canary_auc']).value:.2f}" if "canary_auc" in row else promised
    )


def merge_seeds(estimates: Sequence[Sequence[float]]) -> Estimate:
    """The mean of the seeds' values, with the lowest lower limit and the highest upper limit."""
    values, lows, highs = np.asarray(estimates).T
    return Estimate(float(values.mean()), float(lows.min()), float(highs.max()))


def write_frontier_figures(rows: Sequence[Mapping[str, Any]], out: Path) -> Path:
    drawing = draw_frontier(rows)
    write_bytes(out / "frontier.svg", render(drawing, "svg"))
    write_bytes(out / "frontier.png", render(drawing, "png"))
    return out / "frontier.png"


def frontier_grid(rows: Sequence[Mapping[str, Any]]) -> Grid:
    """One line per arm, in the preset's order. Arms of several rounds are not audited."""
    score = _score(rows)
    seeds = [{"arm": row["arm"], score.name: value} for row in rows for value in row[score.name]]
    quality = {line[0]: line[1] for line in summary_grid(seeds, (score,)).lines}
    lines = [
        [
            row["arm"],
            quality[row["arm"]],
            "none" if row["epsilon"] is None else f"{row['epsilon']:.3g}",
            *(_interval(merge_seeds(row[name])) if name in row else NO_VALUE for name in ATTACKS),
            f"{max(row['least_epsilon']):.2f}" if "least_epsilon" in row else NO_VALUE,
        ]
        for row in rows
    ]
    return Grid(["arm", score.heading, "epsilon claimed", *ATTACKS.values(), "epsilon shown, at least"], lines)


def _score(rows: Sequence[Mapping[str, Any]]) -> TableColumn:
    return ACCURACY if "accuracy" in rows[0] else NLL


def _interval(estimate: Estimate) -> str:
    return f"{estimate.value:.2f} ({estimate.low:.2f} to {estimate.high:.2f})"
