"""How good a classifier is: accuracy, AUC, sensitivity and specificity, NLL, Brier score, calibration, confusion."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.stats
from jaxtyping import Float, Int

from coreshot.fitted.intervals import SEED, Interval, num_resamples, percentiles, resample, weighted_auc, wilson
from coreshot.fitted.metrics import NUM_BINS, bin_index
from coreshot.fitted.quality import (
    THRESHOLD,
    Answers,
    ClassCalibration,
    Measure,
    Quality,
    check_positive,
    count_records,
    percent,
)

CALIBRATED_DRAWS = 200  # of labels from the model's own probabilities


@dataclass(frozen=True)
class _Forecasts:
    """Probabilities and labels, and what several measures need of them."""

    answers: Answers
    names: tuple[str, ...]

    @property
    def probabilities(self) -> Float[np.ndarray, "n classes"]:
        return self.answers.mean

    @cached_property
    def labels(self) -> Int[np.ndarray, " n"]:
        return np.argmax(self.answers.y, axis=1)

    @cached_property
    def predicted(self) -> Int[np.ndarray, " n"]:
        return np.argmax(self.probabilities, axis=1)

    @cached_property
    def counts(self) -> Int[np.ndarray, " classes"]:
        return np.bincount(self.labels, minlength=len(self.names))

    @property
    def size(self) -> int:
        return len(self.labels)

    @cached_property
    def brier(self) -> Float[np.ndarray, " n"]:
        return np.sum((self.probabilities - self.answers.y) ** 2, axis=1)

    @cached_property
    def confidence(self) -> Float[np.ndarray, " n"]:
        return self.probabilities.max(axis=1)

    @cached_property
    def bins(self) -> Float[np.ndarray, "n bins"]:
        return np.eye(NUM_BINS)[bin_index(self.confidence)]

    @property
    def curves(self) -> list[int]:
        """The classes with an ROC curve: some records are of it, some are not. Of two classes one is enough."""
        both = [index for index, count in enumerate(self.counts) if 0 < count < self.size]
        return both[-1:] if len(self.names) == 2 else both


def class_quality(
    answers: Answers, names: tuple[str, ...], positive: str | None = None, threshold: float = THRESHOLD
) -> Quality:
    index = check_positive(names, positive, threshold)
    found = _Forecasts(answers, names)
    accuracy = _accuracy(found)
    count = num_resamples(found.size, len(found.curves))
    intervals = _bootstrap(found, count) if found.size > 1 else {}
    measures = (
        accuracy,
        *_auc(found, intervals),
        *_at_threshold(found, index, threshold),
        *_scores(found, intervals),
    )
    confusion = np.zeros((len(names), len(names)), int)
    np.add.at(confusion, (found.labels, found.predicted), 1)
    return Quality(
        found.size,
        _sentence(accuracy, found),
        measures,
        _notes(found, names[index], threshold, count),
        {"positive": names[index], "threshold": threshold},
        tuple(_calibration(found)),
        tuple(tuple(int(cell) for cell in row) for row in confusion),
    )


def _accuracy(found: _Forecasts) -> Measure:
    num_right = int(np.sum(found.labels == found.predicted))
    commonest = int(np.argmax(found.counts))
    return Measure(
        "accuracy",
        "accuracy",
        num_right / found.size,
        wilson(num_right, found.size),
        "share",
        float(found.counts[commonest] / found.size),
        f"always saying {found.names[commonest]!r}",
    )


def _sentence(accuracy: Measure, found: _Forecasts) -> str:
    assert accuracy.interval is not None
    assert accuracy.baseline is not None
    low, high = accuracy.interval
    if low > accuracy.baseline:
        verdict = "so the model is clearly better"
    elif accuracy.value > accuracy.baseline:
        verdict = "so the model is not clearly better"
    else:
        verdict = "so the model is " + ("no better" if high >= accuracy.baseline else "clearly worse")
    return (
        f"Of {count_records(found.size)} the model is right on {round(accuracy.value * found.size):,} "
        f"({percent(accuracy.value)}, 95 % interval {accuracy.shown_interval}); "
        f"{accuracy.compared} would be right on {percent(accuracy.baseline)}, {verdict}."
    )


def _auc(found: _Forecasts, intervals: Mapping[str, Interval | None]) -> Iterator[Measure]:
    from sklearn.metrics import roc_auc_score  # loads in about a second, which only an evaluation needs

    if not found.curves:
        return
    areas = [roc_auc_score(found.labels == index, found.probabilities[:, index]) for index in found.curves]
    heading = "AUC" if len(found.names) == 2 else "AUC, mean of one class against the rest"
    yield Measure("auc", heading, float(np.mean(areas)), intervals.get("auc"), "number", 0.5, "guessing")


def _at_threshold(found: _Forecasts, index: int, threshold: float) -> Iterator[Measure]:
    is_positive, is_said = found.labels == index, found.probabilities[:, index] >= threshold
    for key, group, hit in (
        ("sensitivity", is_positive, is_said),
        ("specificity", ~is_positive, ~is_said),
    ):
        size, hits = int(np.sum(group)), int(np.sum(group & hit))
        if size:
            heading = f"{key} for {found.names[index]!r} at {threshold:g}"
            yield Measure(key, heading, hits / size, wilson(hits, size), "share")


def _scores(found: _Forecasts, intervals: Mapping[str, Interval | None]) -> Iterator[Measure]:
    shares = found.counts / found.size
    always = "always giving the classes' shares"
    nll, entropy = float(-np.mean(found.answers.log_prob)), float(scipy.stats.entropy(shares))
    yield Measure("nll", "NLL", nll, intervals.get("nll"), "number", entropy, always)
    constant = float(1 - np.sum(shares**2))
    yield Measure(
        "brier", "Brier score", float(np.mean(found.brier)), intervals.get("brier"), "number", constant, always
    )
    usual = "a perfectly calibrated model on as many records"
    yield Measure("ece", "ECE", _ece(found), intervals.get("ece"), "number", _calibrated_ece(found), usual)


def _gaps(found: _Forecasts) -> Float[np.ndarray, "n bins"]:
    is_right = (found.labels == found.predicted).astype(np.float64)
    return found.bins * (found.confidence - is_right)[:, None]


def _ece(found: _Forecasts) -> float:
    return float(np.sum(np.abs(np.mean(_gaps(found), axis=0))))


def _calibrated_ece(found: _Forecasts) -> float:
    """The mean ECE if each prediction were right with the probability that it states: few records make it large.

    Bröcker and Smith, "Increasing the reliability of reliability diagrams", Weather and Forecasting 2007.
    """
    generator, total = np.random.default_rng(SEED), 0.0
    for _ in range(CALIBRATED_DRAWS):
        is_right = generator.random(found.size) < found.confidence
        total += float(np.sum(np.abs((found.confidence - is_right) @ found.bins))) / found.size
    return total / CALIBRATED_DRAWS


def _bootstrap(found: _Forecasts, count: int) -> dict[str, Interval | None]:
    columns = np.column_stack([-found.answers.log_prob, found.brier, _gaps(found)])
    areas = [weighted_auc(found.probabilities[:, index], found.labels == index) for index in found.curves]

    def statistics(weights: Float[np.ndarray, "resamples n"]) -> dict[str, np.ndarray]:
        means = weights @ columns / found.size
        values = {"nll": means[:, 0], "brier": means[:, 1], "ece": np.sum(np.abs(means[:, 2:]), axis=1)}
        return values | ({"auc": np.mean([area(weights) for area in areas], axis=0)} if areas else {})

    values = resample(found.size, count, statistics)
    intervals = {name: percentiles(of_one) for name, of_one in values.items()}
    # A mean of absolute values is too large in a resample, by about as much as it is too large in the records.
    bias = float(np.mean(values["ece"])) - _ece(found)
    low, high = intervals["ece"] or (0.0, 0.0)
    intervals["ece"] = max(low - bias, 0.0), max(high - bias, 0.0)
    return intervals


def _calibration(found: _Forecasts) -> Iterator[ClassCalibration]:
    for name, count, mean in zip(found.names, found.counts.tolist(), found.probabilities.mean(axis=0), strict=True):
        yield ClassCalibration(name, count, float(mean), count / found.size, wilson(count, found.size))


def _notes(found: _Forecasts, positive: str, threshold: float, count: int) -> tuple[str, ...]:
    notes = [
        f"{positive!r} counts as found where its probability is at least {threshold:g}. Sensitivity: the share of "
        f"{positive!r} that is found. Specificity: the share of the others that is not.",
        f"95 % intervals: Wilson's for shares; for the others the bootstrap with {count:,} resamples of the records "
        "and a fixed seed, for the ECE minus its bias.",
    ]
    absent = [name for name, size in zip(found.names, found.counts, strict=True) if size == 0]
    if absent:
        notes.append(f"No record is of class {', '.join(absent)}: what needs such records is left out.")
    return tuple(notes)
