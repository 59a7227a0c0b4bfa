"""The audit as one picture: how well membership can be told, the scores that tell it, and how near pseudo-points come to records."""

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
from coreshot.audit.findings import Findings, attacks
from coreshot.audit.run import read_trials
from coreshot.audit.subject import Subject
from coreshot.audit.trial import Trial
from coreshot.report.drawing import CLIENT_COLOURS, CURVE, STYLE, Drawing, render
from coreshot.storage import write_bytes

INSIDE, OUTSIDE = CLIENT_COLOURS[3], CLIENT_COLOURS[4]
LEAST_SHARE = 1e-3  # of false positives that are drawn
NUM_BINS = 40
WIDE = 50.0  # scores beyond it are drawn as a logarithm would draw them, either side of 0
TICKS = (-1e6, -1e3, -10.0, 0.0, 10.0, 1e3, 1e6)  # of those
FAR = 0.005  # of scores at either end, drawn in the outermost bins: a few are very far


def draw_audit(subject: Subject, trials: Sequence[Trial], found: Findings) -> Drawing:
    on_record, on_canary = attacks(trials)
    first = next(trial for trial in trials if (trial.which, trial.number) == ("all", 0))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(11, 3.6), layout="constrained")
        axes = figure.subplots(1, 3)
        _roc_panel(axes[0], on_record.scored, on_canary.scored, found)
        _score_panel(axes[1], on_record.scored, f"scores about record {found.record}")
        if first.to_records:
            _distance_panel(axes[2], np.asarray(first.to_records), between_records(subject.sets["all"]))
        else:
            _score_panel(axes[2], on_canary.scored, "scores about the canary")
    last = (
        "how near pseudo-points and real records are to a real record"
        if first.to_records
        else "the same of the planted canary"
    )
    caption = (
        f"Left: records found against false alarms, over {found.membership.num_inside} trials with and {found.membership.num_outside} without the "
        "record; dotted: guessing; the dot and its interval: at one false alarm in a hundred. "
        f"Middle: the scores behind it, log likelihood ratios or what orders trials as they do. Right: {last}."
    )
    alt = f"Audit of {found.client}: AUC {found.membership.auc.value:.3f}. {found.verdict}"
    return Drawing(figure, alt, caption)


def _roc_panel(axes: Axes, record: Scores, canary: Scores, found: Findings) -> None:
    guess = np.geomspace(LEAST_SHARE, 1, 50)
    axes.plot(guess, guess, color="#777777", lw=0.9, ls=":")
    for scores, colour, label in ((canary, "#b5b5b5", "canary"), (record, CURVE, f"record {found.record}")):
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
    low, high = np.quantile(np.concatenate(list(drawn.values())), [FAR, 1 - FAR])
    if high - low <= 1e-9 * max(1.0, abs(high)):  # all the same
        low, high = low - 1, high + 1
    for (label, part), colour in zip(drawn.items(), (OUTSIDE, INSIDE), strict=True):
        axes.hist(
            np.clip(part, low, high),
            bins=np.linspace(low, high, NUM_BINS + 1).tolist(),
            color=colour,
            alpha=0.6,
            label=label,
        )
    if is_wide:
        shown = [value for value in TICKS if low <= np.arcsinh(value) <= high]
        axes.set_xticks(np.arcsinh(shown), [f"{value:g}" for value in shown])
    axes.set(title=title, xlabel="score", ylabel="trials")
    axes.margins(y=0.18)  # room for the legend
    axes.legend(loc="upper center", fontsize=8, ncols=2)


def _distance_panel(axes: Axes, own: Float[np.ndarray, " k"], real: Float[np.ndarray, " n"]) -> None:
    for distances, colour, label in ((real, OUTSIDE, "real records"), (own, INSIDE, "pseudo-points")):
        ordered = np.sort(distances)
        axes.step(
            ordered, np.arange(1, len(ordered) + 1) / len(ordered), where="post", color=colour, lw=1.6, label=label
        )
    axes.set(
        title="distance to the nearest real record", xlabel="distance", ylabel="share that is nearer", ylim=(0, 1.02)
    )
    axes.margins(x=0.03)  # copies are at 0, and to be seen there
    axes.legend(loc="lower right", fontsize=8)


def write_audit_figure(subject: Subject, folder: Path, found: Findings) -> Path:
    """folder/audit.png, from the trials that the folder holds and the findings are made of."""
    trials = [trial for trial in read_trials(folder) if trial.number < found.num_trials]
    path = folder / "audit.png"
    write_bytes(path, render(draw_audit(subject, trials, found), "png"))
    return path
