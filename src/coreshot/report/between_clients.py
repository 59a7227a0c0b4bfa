"""Figure: what each client has seen, beside what the model of all expects there."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from coreshot.data.schema import Classes
from coreshot.fitted.between_clients import ClientDifference
from coreshot.report.drawing import CURVE, REFERENCE, STYLE, Drawing
from coreshot.study import Study

MOST = 30  # clients that one figure has room for
HERE = "these records"


def draw_between(clients: Sequence[ClientDifference], study: Study, here: ClientDifference | None = None) -> Drawing:
    """`here`: the records that the page is about, as one more line."""
    shown = sorted(clients, key=lambda one: one.seen - one.expected)[:MOST] + ([here] if here else [])
    what = _what(study)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(5.2, 1.2 + 0.28 * len(shown)), layout="constrained")
        axes = figure.subplots()
        lines = np.arange(len(shown))
        for line, one in zip(lines, shown, strict=True):
            axes.plot([one.expected, one.seen], [line, line], color=REFERENCE, lw=1.0)
        axes.plot([one.expected for one in shown], lines, color=REFERENCE, marker="|", ms=10, lw=0, label="expected")
        axes.plot([one.seen for one in shown], lines, color=CURVE, marker="o", ms=5, lw=0, label="seen")
        axes.set_yticks(lines, [one.client for one in shown])
        axes.set(xlabel=what)
        axes.legend()
    more = f" Of {len(clients)} clients {MOST} are shown." if len(clients) > MOST else ""
    caption = (
        f"Between clients: {what}. Dots: seen in a client's records. Marks: what the model of all clients expects of "
        "the same records. A long line is a difference that the columns do not explain; where a place is like that, "
        f"adapt the model to it (coreshot adapt).{more}"
    )
    words = "; ".join(f"{one.client}: {one.seen:.3g} seen, {one.expected:.3g} expected" for one in shown)
    return Drawing(figure, f"Between clients. {words}.", caption)


def _what(study: Study) -> str:
    target = study.target
    if isinstance(target, Classes):
        where = "share of periods with" if target.ends else "share of"
        return f"{where} {target.name} = {target.classes[-1]}"
    if study.agreement.kind == "classification":
        return f"share of class {study.agreement.num_outputs - 1}"
    return f"mean of {target.name if target else 'the target'}"
