"""The figure of an audit: the attack's ROC curve, its scores, and the distances of pseudo-points to records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from coreshot.audit.attack import FALSE_POSITIVES, Scores, roc
from coreshot.audit.distances import between_records
from coreshot.audit.findings import Findings, attack_canary, attack_record, first_trial
from coreshot.audit.run import read_trials
from coreshot.audit.subject import Subject
from coreshot.audit.trial import Trial
from coreshot.report.drawing import CLIENT_COLOURS, CURVE, REFERENCE, STYLE, Drawing, render
from coreshot.storage import write_bytes

INSIDE_COLOUR, OUTSIDE_COLOUR, CANARY_COLOUR = CLIENT_COLOURS[3], CLIENT_COLOURS[4], "#b5b5b5"
LEAST_SHARE = 1e-3  # the smallest share of false positives on the axis
HISTOGRAM_BINS = 40
WIDE = 50.0  # scores beyond it are drawn on a scale that is logarithmic on both sides of 0
WIDE_TICKS = (-1e6, -1e3, -10.0, 0.0, 10.0, 1e3, 1e6)
OUTLIERS = 0.005  # the share of scores at either end that the outermost bins hold


def draw_audit(subject: Subject, trials: Sequence[Trial], found: Findings) -> Drawing:
    on_record, on_canary = attack_record(trials).held_out, attack_canary(trials).held_out
    points_to_records = first_trial(trials).to_records
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(11, 3.6), layout="constrained")
        axes = figure.subplots(1, 3)
        _roc_panel(axes[0], on_record, on_canary, found)
        _score_panel(axes[1], on_record, f"scores about record {found.record}")
        if points_to_records:
            _distance_panel(axes[2], np.asarray(points_to_records), between_records(subject.sets["all"]))
            last = "the distances of pseudo-points, and of real records, to the nearest real record"
        else:
            _score_panel(axes[2], on_canary, "scores about the canary")
            last = "the scores about the planted canary"
    success = found.membership
    caption = (
        f"Left: true positives against false positives, from {success.num_inside} trials with the record and "
        f"{success.num_outside} without it; dotted: guessing; the dot and its interval: at 1 % false positives. "
        f"Middle: the attack's scores, which are log likelihood ratios or have the same order. Right: {last}."
    )
    alt = f"Audit of {found.client}: AUC {success.auc.value:.3f}. {found.verdict}"
    return Drawing(figure, alt, caption)


def _roc_panel(axes: Axes, record: Scores, canary: Scores, found: Findings) -> None:
    guess = np.geomspace(LEAST_SHARE, 1, 50)
    axes.plot(guess, guess, color=REFERENCE, lw=0.9, ls=":")
    for scores, colour, label in ((canary, CANARY_COLOUR, "canary"), (record, CURVE, f"record {found.record}")):
        false, true = roc(scores)
        axes.step(np.maximum(false, LEAST_SHARE), true, where="post", color=colour, lw=1.6, label=label)
    at = found.membership.found_at_one_percent
    errors = [[max(0.0, at.value - at.low)], [max(0.0, at.high - at.value)]]
    axes.errorbar([FALSE_POSITIVES], [at.value], yerr=errors, fmt="o", ms=5, color=CURVE, capsize=3, lw=1.0)
    axes.set(xscale="log", xlim=(LEAST_SHARE, 1), ylim=(-0.02, 1.02), xlabel="false positives", ylabel="true positives")
    area = found.membership.auc
    axes.set_title(f"AUC {area.value:.3f} ({area.low:.3f} to {area.high:.3f})")
    axes.legend(loc="upper left", fontsize=8)


def _score_panel(axes: Axes, scores: Scores, title: str) -> None:
    parts = {"without": scores.outside, "with": scores.inside}
    is_wide = np.max(np.abs(np.concatenate(list(parts.values())))) > WIDE
    drawn = {label: np.arcsinh(part) if is_wide else part for label, part in parts.items()}
    low, high = np.quantile(np.concatenate(list(drawn.values())), [OUTLIERS, 1 - OUTLIERS])
    if high - low <= 1e-9 * max(1.0, abs(high)):  # all scores are the same
        low, high = low - 1, high + 1
    bins = np.linspace(low, high, HISTOGRAM_BINS + 1).tolist()
    for (label, part), colour in zip(drawn.items(), (OUTSIDE_COLOUR, INSIDE_COLOUR), strict=True):
        axes.hist(np.clip(part, low, high), bins=bins, color=colour, alpha=0.6, label=label)
    if is_wide:
        shown = [value for value in WIDE_TICKS if low <= np.arcsinh(value) <= high]
        axes.set_xticks(np.arcsinh(shown), [f"{value:g}" for value in shown])
    axes.set(title=title, xlabel="score", ylabel="trials")
    axes.margins(y=0.18)  # room for the legend
    axes.legend(loc="upper center", fontsize=8, ncols=2)


def _distance_panel(axes: Axes, own: Float[np.ndarray, " k"], real: Float[np.ndarray, " n"]) -> None:
    for distances, colour, label in (
        (real, OUTSIDE_COLOUR, "real records"),
        (own, INSIDE_COLOUR, "pseudo-points"),
    ):
        ordered = np.sort(distances)
        share = np.arange(1, len(ordered) + 1) / len(ordered)
        axes.step(ordered, share, where="post", color=colour, lw=1.6, label=label)
    axes.set(title="distance to the nearest real record", xlabel="distance")
    axes.set(ylabel="share that is nearer", ylim=(0, 1.02))
    axes.margins(x=0.03)  # so that copies, which are at 0, can be seen
    axes.legend(loc="lower right", fontsize=8)


def write_audit_figure(subject: Subject, folder: Path, found: Findings) -> Path:
    """Write folder/audit.png from the folder's trials, as many of them as the findings are computed from."""
    trials = [trial for trial in read_trials(folder) if trial.number < found.num_trials]
    path = folder / "audit.png"
    write_bytes(path, render(draw_audit(subject, trials, found), "png"))
    return path
