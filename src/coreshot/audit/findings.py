"""What an audit finds, computed from its trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from coreshot.audit.attack import Attack, Success, measure_success, run_attack
from coreshot.audit.bound import Bound, lower_bound
from coreshot.audit.confidence import CONFIDENCE
from coreshot.audit.distances import Distances, between_records, compare_distances
from coreshot.audit.subject import Subject, Which
from coreshot.audit.trial import Trial
from coreshot.privacy.promise import promised_epsilon


@dataclass(frozen=True)
class Findings:
    """The numbers of audit.json."""

    client: str
    record: int
    num_trials: int  # with each of the three sets
    confidence: float
    membership: Success
    canary: Success
    bound: Bound  # from the attack on the canary
    claimed_epsilon: float | None  # None: no promise is made
    distances: Distances | None  # None: the message has no points in input space
    classes_of_one: dict[str, float | None]  # by class: distance from its only record to the nearest pseudo-point

    @property
    def is_refuted(self) -> bool:
        return self.claimed_epsilon is not None and self.bound.epsilon > self.claimed_epsilon

    @property
    def verdict(self) -> str:
        bound = f"epsilon is at least {self.bound.epsilon:.3g} at delta {self.bound.delta:.3g}"
        shown = f"{bound}, with {100 * self.confidence:g} % confidence"
        if self.claimed_epsilon is None:
            return f"Nothing is promised about single records, and {shown}."
        if self.is_refuted:
            return f"The promise of epsilon = {self.claimed_epsilon:.3g} is broken: {shown}."
        return (
            f"The promise of epsilon = {self.claimed_epsilon:.3g} stands as far as these trials can tell: {shown}. "
            "That is no proof of it."
        )


def attack_record(trials: Sequence[Trial]) -> Attack:
    """The attack on the membership of the audited record."""
    return run_attack(_record_statistics(trials, "all"), _record_statistics(trials, "without"))


def attack_canary(trials: Sequence[Trial]) -> Attack:
    return run_attack(_canary_statistics(trials, "planted"), _canary_statistics(trials, "all"))


def _record_statistics(trials: Sequence[Trial], which: Which) -> Float[np.ndarray, "trials statistics"]:
    return np.array([trial.record for trial in _in_order(trials, which)], np.float64)


def _canary_statistics(trials: Sequence[Trial], which: Which) -> Float[np.ndarray, "trials statistics"]:
    return np.array([trial.canary for trial in _in_order(trials, which)], np.float64)


def _in_order(trials: Sequence[Trial], which: Which) -> list[Trial]:
    return sorted((trial for trial in trials if trial.which == which), key=lambda trial: trial.number)


def first_trial(trials: Sequence[Trial]) -> Trial:
    """The trial that also has the distances of pseudo-points."""
    return next(trial for trial in trials if (trial.which, trial.number) == ("all", 0))


def make_findings(subject: Subject, trials: Sequence[Trial], confidence: float = CONFIDENCE) -> Findings:
    first, on_canary = first_trial(trials), attack_canary(trials)
    real = between_records(subject.sets["all"])
    return Findings(
        client=subject.client,
        record=subject.record,
        num_trials=sum(trial.which == "all" for trial in trials),
        confidence=confidence,
        membership=measure_success(attack_record(trials).held_out, confidence),
        canary=measure_success(on_canary.held_out, confidence),
        bound=lower_bound(on_canary, subject.study.releases, confidence),
        claimed_epsilon=promised_epsilon(subject.study.releases),
        distances=compare_distances(first.to_records, real) if first.to_records else None,
        classes_of_one={str(label): (first.alone or {}).get(str(label)) for label in subject.single_record_classes},
    )
