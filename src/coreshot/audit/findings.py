"""From trials to what an audit says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from coreshot.audit.attack import Attack, Success, attack, success
from coreshot.audit.bound import Bound, lower_bound
from coreshot.audit.confidence import CONFIDENCE
from coreshot.audit.distances import Distances, between_records, compared
from coreshot.audit.subject import Subject, Which
from coreshot.audit.trial import Trial
from coreshot.privacy.promise import promised_epsilon


@dataclass(frozen=True)
class Findings:
    """Numbers about the audit; audit.json has them all."""

    client: str
    record: int
    num_trials: int  # of each of the three sets
    confidence: float
    membership: Success
    canary: Success
    bound: Bound  # from the canary
    claimed_epsilon: float | None  # None: nothing is promised
    distances: Distances | None  # None: the message has no points in the space of the inputs
    classes_of_one: dict[
        str, float | None
    ]  # by class, how near a pseudo-point is to its one record, where there are such points

    @property
    def is_refuted(self) -> bool:
        return self.claimed_epsilon is not None and self.bound.epsilon > self.claimed_epsilon

    @property
    def verdict(self) -> str:
        shown = f"epsilon is at least {self.bound.epsilon:.3g} at delta {self.bound.delta:.3g}, with {100 * self.confidence:g} % confidence"
        if self.claimed_epsilon is None:
            return f"Nothing is promised about single records, and {shown}."
        if self.is_refuted:
            return f"The promise of epsilon = {self.claimed_epsilon:.3g} is broken: {shown}."
        return f"The promise of epsilon = {self.claimed_epsilon:.3g} stands as far as these trials can tell: {shown}. That is no proof of it."


def attacks(trials: Sequence[Trial]) -> tuple[Attack, Attack]:
    """On the record's membership, and on the canary."""
    return attack(_clues(trials, "all", "record"), _clues(trials, "without", "record")), attack(
        _clues(trials, "planted", "canary"), _clues(trials, "all", "canary")
    )


def _clues(trials: Sequence[Trial], which: Which, about: str) -> Float[np.ndarray, "trials clues"]:
    ordered = sorted((trial for trial in trials if trial.which == which), key=lambda trial: trial.number)
    return np.array([getattr(trial, about) for trial in ordered], np.float64)


def findings(subject: Subject, trials: Sequence[Trial], confidence: float = CONFIDENCE) -> Findings:
    on_record, on_canary = attacks(trials)
    first = next(trial for trial in trials if (trial.which, trial.number) == ("all", 0))
    return Findings(
        client=subject.client,
        record=subject.record,
        num_trials=sum(trial.which == "all" for trial in trials),
        confidence=confidence,
        membership=success(on_record.scored, confidence),
        canary=success(on_canary.scored, confidence),
        bound=lower_bound(on_canary, subject.study.releases, confidence),
        claimed_epsilon=promised_epsilon(subject.study.releases),
        distances=compared(first.to_records, between_records(subject.sets["all"])) if first.to_records else None,
        classes_of_one={str(label): (first.alone or {}).get(str(label)) for label in subject.alone},
    )
