"""How good a regression is, in the study's own units: RMSE, MAE, NLL, and how often intervals hold the target."""

from __future__ import annotations

import numpy as np
import scipy.stats
from jaxtyping import Float

from coreshot.data.schema import Quantity
from coreshot.fitted.calibration import INTERVAL
from coreshot.fitted.intervals import Interval, num_resamples, percentiles, resample, wilson
from coreshot.fitted.quality import Answers, Measure, Quality, count_records


def quantity_quality(answers: Answers, target: Quantity) -> Quality:
    error = target.in_units(answers.mean - answers.y, is_deviation=True)
    y = target.in_units(answers.y)
    # A density is per unit: on a scale that is wider by a factor it is smaller by that factor.
    unit = float(target.in_units(np.ones((1, 1)), is_deviation=True)[0, 0])
    log_prob = answers.log_prob - y.shape[1] * np.log(unit)
    reach = scipy.stats.norm.ppf(0.5 + INTERVAL / 2)
    is_inside = np.abs(answers.mean - answers.y) <= reach * answers.deviation
    count = num_resamples(len(y))
    intervals = _bootstrap(error, log_prob, count) if len(y) > 1 else {}
    mean, spread = float(np.mean(y)), float(np.std(y))
    always = "always saying their mean"  # without its value: of one record it is a cell
    rmse = Measure("rmse", "RMSE", float(np.sqrt(np.mean(error**2))), intervals.get("rmse"), "units", spread, always)
    mae_constant = float(np.mean(np.abs(y - mean)))
    density = float(scipy.stats.norm(mean, spread).entropy()) if spread > 0 else None
    measures = (
        rmse,
        Measure("mae", "MAE", float(np.mean(np.abs(error))), intervals.get("mae"), "units", mae_constant, always),
        Measure("nll", "NLL", float(-np.mean(log_prob)), intervals.get("nll"), "number", density, _DENSITY),
        Measure(
            "coverage_90",
            "inside the 90 % interval",
            float(np.mean(is_inside)),
            wilson(int(np.sum(is_inside)), is_inside.size),
            "share",
            INTERVAL,
            "if the intervals are right",
        ),
    )
    return Quality(len(y), _sentence(rmse, target.name, len(y)), measures, _notes(target.name, count))


_DENSITY = "always giving the normal distribution of these records"


def _sentence(rmse: Measure, name: str, size: int) -> str:
    assert rmse.baseline is not None
    interval = f", 95 % interval {rmse.shown_interval}" if rmse.interval else ""
    if rmse.interval is None:
        verdict = "but one record does not tell how good the model is"
    elif rmse.interval[0] <= rmse.baseline <= rmse.interval[1]:
        verdict = "so the model is not clearly better"
    else:
        verdict = "so the model is clearly " + ("better" if rmse.value < rmse.baseline else "worse")
    return (
        f"For {count_records(size)} the model predicts {name} with a root mean squared error of "
        f"{rmse.show(rmse.value)}{interval}, in the study's units; {rmse.compared} would have "
        f"{rmse.show(rmse.baseline)}, {verdict}."
    )


def _bootstrap(
    error: Float[np.ndarray, "n outputs"], log_prob: Float[np.ndarray, " n"], count: int
) -> dict[str, Interval | None]:
    columns = np.column_stack([np.mean(error**2, axis=1), np.mean(np.abs(error), axis=1), -log_prob])

    def statistics(weights: Float[np.ndarray, "resamples n"]) -> dict[str, np.ndarray]:
        means = weights @ columns / len(columns)
        return {"rmse": np.sqrt(means[:, 0]), "mae": means[:, 1], "nll": means[:, 2]}

    return {name: percentiles(values) for name, values in resample(len(error), count, statistics).items()}


def _notes(name: str, count: int) -> tuple[str, ...]:
    return (
        f"RMSE, MAE and NLL are in the units of {name} in the study.",
        f"95 % intervals: Wilson's for the share inside; for the others the bootstrap with {count:,} resamples of the "
        "records and a fixed seed.",
    )
