"""Figure of survival: people in three groups by their predicted risk, with what the model expects and what was seen."""

from __future__ import annotations

import matplotlib
import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from coreshot.data.schema import Classes
from coreshot.fitted.survival import People
from coreshot.report.drawing import CLIENT_COLOURS, STYLE, Drawing

NUM_GROUPS = 3
NAMES = ("low risk", "middle risk", "high risk")
FEWEST = 3  # people; with fewer there is one group


def draw_survival(people: People, survival: Float[np.ndarray, "people periods"], target: Classes) -> Drawing:
    order = np.argsort(-survival[:, -1], kind="stable")
    size = NUM_GROUPS if len(order) >= FEWEST else 1
    group = np.empty(len(order), int)
    group[order] = np.arange(len(order)) * size // max(len(order), 1)
    times, shown = [0.0, *target.ends], []
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.6, 4.2), layout="constrained")
        axes = figure.subplots()
        for number in range(size):
            part, colour = people.select(group == number), CLIENT_COLOURS[number]
            seen, expected = part.kaplan_meier(), survival[group == number].mean(axis=0)
            label = f"{NAMES[number]}, {len(part.periods):,} people" if size > 1 else f"{len(part.periods):,} people"
            axes.plot(times, [1.0, *expected], color=colour, lw=1.4, label=label)
            axes.plot(times, [1.0, *seen], color=colour, marker="o", ms=4, lw=0)
            shown.append(f"{label}: {100 * expected[-1]:.0f} % expected at the end, {100 * seen[-1]:.0f} % seen")
        axes.set(xlabel=target.time, ylabel=f"share without the event ({target.name})", ylim=(0, 1.02))
        axes.legend()
    caption = (
        "Survival: people are sorted into groups by the risk that the model sees. Lines: the share of a group that the "
        "model expects to be without the event. Dots: the Kaplan-Meier estimate of the same people, at the ends of the "
        "periods. Where the dots of a group lie below its line, the event comes earlier than expected."
    )
    return Drawing(figure, f"Curves of survival. {'. '.join(shown)}.", caption)
