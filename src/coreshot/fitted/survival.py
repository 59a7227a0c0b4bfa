"""Curves of survival from a model of periods, and how good they are, beside the Kaplan-Meier curve of the same people.

Both scores are proper. The log likelihood of a person's records is that of the time, or of not having had the event so
long. The Brier score at the end of a period weighs people by the inverse probability of not having been lost before
(Graf, Schmoor, Sauerbrei and Schumacher, "Assessment and Comparison of Prognostic Classification Schemes for Survival
Data", Statistics in Medicine 1999), here in whole periods; its mean over the periods is the integrated Brier score.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from coreshot.data.periods import period_inputs
from coreshot.data.schema import Classes, Table
from coreshot.errors import CoreshotError
from coreshot.fitted.intervals import Interval, num_resamples, percentiles, resample
from coreshot.fitted.model import FittedModel
from coreshot.fitted.quality import Measure, Quality
from coreshot.study import Study

SMALLEST_HAZARD = 1e-6


def is_survival(study: Study) -> bool:
    return isinstance(study.target, Classes) and bool(study.target.ends)


def curves(model: FittedModel, x: Float[np.ndarray, "people inputs"]) -> Float[np.ndarray, "people periods"]:
    """The probability of not having had the event at the end of each period. `x` has one record for each person, of
    whatever period."""
    target, table = model.study.target, model.study.inputs
    assert isinstance(target, Classes)
    assert isinstance(table, Table)
    num_periods, place = len(target.ends), period_inputs(table)
    every = np.repeat(x, num_periods, axis=0)
    every[:, place] = np.tile(np.eye(num_periods, dtype=x.dtype), (len(x), 1))
    hazards = np.asarray(model.predict(every).mean, np.float64)[:, 1].reshape(len(x), num_periods)
    return np.cumprod(1 - hazards, axis=1)


@dataclass(frozen=True)
class People:
    """What was seen of each person: in how many periods, and whether the event was in the last of them."""

    x: Float[np.ndarray, "people inputs"]  # of the first period
    periods: Int[np.ndarray, " people"]
    events: Bool[np.ndarray, " people"]
    num_periods: int

    @classmethod
    def of_records(
        cls,
        x: Float[np.ndarray, "rows inputs"],
        y: Int[np.ndarray, " rows"],
        owner: Int[np.ndarray, " rows"],
        num_periods: int,
    ) -> People:
        _, first, counts = np.unique(owner, return_index=True, return_counts=True)
        return cls(x[first], counts, np.add.reduceat(np.asarray(y), first) > 0, num_periods)

    def select(self, chosen: Bool[np.ndarray, " people"]) -> People:
        return People(self.x[chosen], self.periods[chosen], self.events[chosen], self.num_periods)

    def kaplan_meier(self) -> Float[np.ndarray, " periods"]:
        return np.cumprod(1 - self.hazards())

    def hazards(self) -> Float[np.ndarray, " periods"]:
        """Of these people, whoever they are: a life table."""
        places = np.arange(self.num_periods)
        at_risk = np.sum(self.periods[:, None] > places, axis=0)
        had = np.sum(self.events[:, None] & (self.periods[:, None] == places + 1), axis=0)
        return had / np.maximum(at_risk, 1)

    def log_prob(self, survival: Float[np.ndarray, "people periods"]) -> Float[np.ndarray, " people"]:
        before = np.concatenate([np.ones((len(survival), 1)), survival], axis=1)
        rows = np.arange(len(survival))
        at_end, at_start = before[rows, self.periods], before[rows, self.periods - 1]
        return np.log(np.maximum(np.where(self.events, at_start - at_end, at_end), SMALLEST_HAZARD))

    def brier(self, survival: Float[np.ndarray, "people periods"]) -> Float[np.ndarray, "people periods"]:
        """Of each person at the end of each period; the mean over people is the score."""
        places, seen = np.arange(self.num_periods), self._seen()
        had = self.events[:, None] & (self.periods[:, None] <= places + 1)
        is_known = (self.periods[:, None] > places) & ~had
        weight_had = 1 / seen[self.periods - 1]
        return np.where(had, weight_had[:, None] * survival**2, 0.0) + np.where(
            is_known, (1 - survival) ** 2 / seen, 0.0
        )

    def _seen(self) -> Float[np.ndarray, " periods"]:
        """The probability of being seen in each period, of those who have not had the event before."""
        places = np.arange(self.num_periods)
        lost = np.sum(~self.events[:, None] & (self.periods[:, None] == places), axis=0)
        left = np.sum(self.periods[:, None] > places, axis=0)
        return np.cumprod(1 - lost / np.maximum(lost + left, 1))

    def concordance(self, survival: Float[np.ndarray, "people periods"]) -> float:
        """Harrell's: of two people of whom one is known to have had the event earlier, how often this one's risk is
        the higher one."""
        risk, right, total = -survival[:, -1], 0.0, 0
        for period in range(1, self.num_periods + 1):
            earlier = risk[self.events & (self.periods == period)]
            later = np.sort(risk[(self.periods > period) | (~self.events & (self.periods == period))])
            below, to = np.searchsorted(later, earlier, "left"), np.searchsorted(later, earlier, "right")
            right += float(np.sum(below + 0.5 * (to - below)))
            total += len(earlier) * len(later)
        return right / total if total else float("nan")


def survival_quality(people: People, survival: Float[np.ndarray, "people periods"], target: Classes) -> Quality:
    constant = np.broadcast_to(people.kaplan_meier(), survival.shape)
    log_prob, briers = people.log_prob(survival), people.brier(survival).mean(axis=1)
    intervals = _bootstrap(log_prob, briers) if len(log_prob) > 1 else {}
    always = "always giving their Kaplan-Meier curve"
    brier = Measure(
        "integrated_brier",
        "integrated Brier score",
        float(np.mean(briers)),
        intervals.get("brier"),
        "number",
        float(np.mean(people.brier(constant))),
        always,
    )
    nll = Measure(
        "nll",
        "NLL of a person",
        float(-np.mean(log_prob)),
        intervals.get("nll"),
        "number",
        float(-np.mean(people.log_prob(constant))),
        always,
    )
    concordance = Measure("concordance", "concordance", people.concordance(survival), None, "number", 0.5, "guessing")
    notes = (
        f"Time is {target.time}, in {people.num_periods} periods; they end at "
        f"{', '.join(f'{end:g}' for end in target.ends)}.",
        "95 % intervals: the bootstrap with a fixed seed; the concordance has none.",
    )
    return Quality(len(people.periods), _sentence(brier, people, target), (brier, nll, concordance), notes)


def _sentence(brier: Measure, people: People, target: Classes) -> str:
    assert brier.baseline is not None
    if brier.interval is None or brier.interval[0] <= brier.baseline <= brier.interval[1]:
        verdict = "so the model is not clearly better"
    else:
        verdict = "so the model is clearly " + ("better" if brier.value < brier.baseline else "worse")
    return (
        f"For {len(people.periods):,} people, of whom {int(np.sum(people.events)):,} had the event ({target.name} = "
        f"{target.classes[1]}), the integrated Brier score is {brier.show(brier.value)}; {brier.compared} would have "
        f"{brier.show(brier.baseline)}, {verdict}."
    )


def _bootstrap(
    log_prob: Float[np.ndarray, " people"], briers: Float[np.ndarray, " people"]
) -> dict[str, Interval | None]:
    columns = np.column_stack([-log_prob, briers])

    def statistics(weights: Float[np.ndarray, "resamples people"]) -> dict[str, np.ndarray]:
        means = weights @ columns / len(columns)
        return {"nll": means[:, 0], "brier": means[:, 1]}

    count = num_resamples(len(columns))
    return {name: percentiles(values) for name, values in resample(len(columns), count, statistics).items()}


def refuse_survival(study: Study, command: str, why: str) -> None:
    if is_survival(study):
        raise CoreshotError(f"{command}: this study is of a time to an event, {why}")
