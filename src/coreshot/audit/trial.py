"""One trial: the client distills one of its three sets anew, the message goes through bytes to the server, and the attacker looks at it there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from coreshot.audit.clues import clues, received_points
from coreshot.audit.distances import to_records
from coreshot.audit.subject import Subject, Which, one_of
from coreshot.keys import named_key
from coreshot.runtime.simulate import simulate
from coreshot.wire.ledger import Ledger


@dataclass(frozen=True)
class Trial:
    """All that is kept of it: clues, and of the first with all records the distances of pseudo-points. No record, and no message."""

    which: Which
    number: int
    record: list[float] | None = None  # clues about it; None: not asked in this set
    canary: list[float] | None = None
    to_records: list[float] | None = None  # of each pseudo-point to the nearest record
    alone: dict[str, float] | None = None  # by class of one record: from that record to the nearest pseudo-point


def run_trial(subject: Subject, which: Which, number: int, seed: int) -> Trial:
    """With randomness of its own: the seed's where a learner draws, the operating system's where noise protects."""
    key = named_key(jax.random.key(seed), f"audit {which} {number}")
    clients = {**subject.others, subject.client: subject.sets[which]}
    state = simulate(key, subject.study, clients, Ledger())
    return Trial(
        which,
        number,
        clues(subject, state, subject.of_record) if which != "planted" else None,
        clues(subject, state, subject.of_canary) if which != "without" else None,
        **(_distances(subject, state) if (which, number) == ("all", 0) else {}),
    )


def _distances(subject: Subject, state: Any) -> dict[str, Any]:
    points, records = received_points(subject, state), subject.sets["all"]
    if points is None:
        return {}
    alone = {str(label): one_of(records, position) for label, position in subject.alone.items()}
    nearest = {label: float(np.min(to_records(points.x, record))) for label, record in alone.items()}
    return {"to_records": to_records(points.x, records).tolist(), "alone": nearest}
