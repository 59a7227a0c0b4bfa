"""One trial: the client distills one of its three sets anew, and the attacker looks at what the server received."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from coreshot.audit.distances import to_records
from coreshot.audit.statistics import received_points, record_statistics
from coreshot.audit.subject import Subject, Which, take_record
from coreshot.keys import named_key
from coreshot.runtime.simulate import simulate
from coreshot.wire.ledger import Ledger


@dataclass(frozen=True)
class Trial:
    """A line of trials.jsonl: statistics, and for the first trial with all records also distances.

    It holds no record and no message.
    """

    which: Which
    number: int
    record: list[float] | None = None  # statistics about the record; None: not needed for this set
    canary: list[float] | None = None  # statistics about the canary; None: not needed for this set
    to_records: list[float] | None = None  # from each pseudo-point to the nearest record
    alone: dict[str, float] | None = None  # by class with one record: from that record to the nearest pseudo-point


def run_trial(subject: Subject, which: Which, number: int, seed: int) -> Trial:
    """Each trial has its own randomness: learners draw from the seed, protecting noise from the operating system."""
    key = named_key(jax.random.key(seed), f"audit {which} {number}")
    clients = {**subject.others, subject.client: subject.sets[which]}
    state = simulate(key, subject.study, clients, Ledger())
    return Trial(
        which,
        number,
        record_statistics(subject, state, subject.target_record) if which != "planted" else None,
        record_statistics(subject, state, subject.target_canary) if which != "without" else None,
        **(_distances(subject, state) if (which, number) == ("all", 0) else {}),
    )


def _distances(subject: Subject, state: Any) -> dict[str, Any]:
    points, records = received_points(subject, state), subject.sets["all"]
    if points is None:
        return {}
    single = {str(label): take_record(records, at) for label, at in subject.single_record_classes.items()}
    nearest = {label: float(np.min(to_records(points.x, record))) for label, record in single.items()}
    return {"to_records": to_records(points.x, records).tolist(), "alone": nearest}
