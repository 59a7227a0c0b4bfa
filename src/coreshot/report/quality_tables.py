"""The quality of a model as tables; the terminal and the model's page show the same."""

from __future__ import annotations

from collections.abc import Mapping

from coreshot.fitted.quality import Measure, Quality
from coreshot.report.tables import NO_VALUE, Grid

SHOWN = ("accuracy", "auc", "rmse", "mae", "integrated_brier", "nll", "ece", "coverage_90", "concordance")
MOST_CLASSES = 15  # of a confusion matrix that people can read
INTERVAL = "95\xa0%\xa0interval"  # with spaces at which no table breaks the line


def measures_grid(quality: Quality) -> Grid:
    lines = [
        [
            one.heading,
            one.compared,
            one.show(one.value),
            one.shown_interval or NO_VALUE,
            one.shown_baseline,
        ]
        for one in quality.measures
    ]
    return Grid(["measure", "compared\xa0with", "this\xa0model", INTERVAL, "the\xa0comparison"], lines, first_number=2)


def confusion_grid(quality: Quality) -> Grid | None:
    """None of a regression, and of more classes than people can read."""
    if not 0 < len(quality.classes) <= MOST_CLASSES:
        return None
    names = [one.name for one in quality.classes]
    lines = [
        [name, *(f"{count:,}" for count in row), f"{sum(row):,}"]
        for name, row in zip(names, quality.confusion, strict=True)
    ]
    return Grid(["true class", *(f"predicted {name}" for name in names), "records"], lines)


def calibration_grid(quality: Quality) -> Grid | None:
    if not quality.classes:
        return None
    lines = []
    for one in quality.classes:
        measure = Measure("share", "", one.share, one.interval)
        lines.append([one.name, f"{one.mean_probability:.3f}", f"{one.share:.3f}", measure.shown_interval or NO_VALUE])
    return Grid(["class", "mean\xa0probability", "share of\xa0the\xa0records", INTERVAL], lines)


def clients_grid(clients: Mapping[str, Quality]) -> Grid | None:
    """Each client's records in one line; None where the records do not name clients."""
    if not clients:
        return None
    every = {one.name: one for quality in clients.values() for one in quality.measures}
    shown = [name for name in SHOWN if name in every]
    headings = [
        "records of",
        "records",
        *(every[name].heading.partition(",")[0].replace(" ", "\xa0") for name in shown),
    ]
    headings.insert(3, f"{every[shown[0]].heading} of\xa0a\xa0constant\xa0answer")
    lines = []
    for client, quality in clients.items():
        first, *others = (_cell(quality.measure(name)) for name in shown)
        main = quality.measure(shown[0])
        lines.append([client, f"{quality.records:,}", first, main.shown_baseline if main else NO_VALUE, *others])
    return Grid(headings, lines)


def _cell(measure: Measure | None) -> str:
    if measure is None:
        return NO_VALUE
    value = measure.show(measure.value)
    return f"{value} ({measure.shown_interval})" if measure.interval else value
