"""The subject of an audit: a client of a study, one of its records, and three sets of records to tell apart.

    all      the client's records
    without  the same without the audited record
    planted  the same with one more record, the canary

Membership of the record is `all` against `without`; presence of the canary is `planted` against `all`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from coreshot.audit.canaries import make_canary
from coreshot.audit.distances import between_records, single_record_classes
from coreshot.config import choose
from coreshot.data import FederatedData
from coreshot.errors import CoreshotError
from coreshot.study import Study
from coreshot.types import Points, concatenate_points

Which = Literal["all", "without", "planted"]
WHICH: tuple[Which, ...] = get_args(Which)
LEAST_RECORDS = 3


@dataclass(frozen=True)
class Subject:
    study: Study
    client: str
    record: int  # its position among the client's records
    sets: Mapping[Which, Points]
    # The other clients that a trial needs: all of them, with one record each, where clients share the noise; else none.
    others: Mapping[str, Points]

    @cached_property
    def target_record(self) -> Points:
        return take_record(self.sets["all"], self.record)

    @cached_property
    def target_canary(self) -> Points:
        return take_record(self.sets["planted"], self.sets["planted"].num_points - 1)

    @cached_property
    def single_record_classes(self) -> dict[int, int]:
        """Classes with one record, and its position; none for a regression."""
        return single_record_classes(self.sets["all"]) if self.study.agreement.kind == "classification" else {}

    @cached_property
    def spacing(self) -> float:
        """The median distance of a record to its nearest neighbour."""
        return float(np.median(between_records(self.sets["without"])))


def take_record(points: Points, position: int) -> Points:
    return jax.tree.map(lambda array: np.asarray(array)[position : position + 1], points)


def make_subject(study: Study, data: FederatedData, client: str | None = None, record: int | None = None) -> Subject:
    """By default the first client and its most exposed record."""
    if study.method.num_rounds != 1:
        raise CoreshotError(
            f"audit: the method has {study.method.num_rounds} rounds; "
            "only learners and methods of one round can be audited."
        )
    name = client if client is not None else next(iter(data.clients))
    points = choose("client", name, data.clients, "audit")
    if points.num_points < LEAST_RECORDS:
        raise CoreshotError(
            f"audit: client {name} has {points.num_points} records; name one with at least {LEAST_RECORDS}."
        )
    index = most_exposed(points, study) if record is None else record
    if not 0 <= index < points.num_points:
        raise CoreshotError(
            f"audit: record {index} does not exist; client {name} has records 0 to {points.num_points - 1}."
        )
    sets = _make_sets(points, index, study)
    for which in WHICH:
        study.check_records(
            sets[which], f"client {name}, without record {index}" if which == "without" else f"client {name}"
        )
    shares_noise = any(release.num_sharers > 1 for release in study.releases)
    # The attacker knows the others' records and subtracts them, so one record each is enough.
    others = {other: take_record(held, 0) for other, held in data.clients.items() if shares_noise and other != name}
    return Subject(study, name, index, sets, others)


def _make_sets(points: Points, index: int, study: Study) -> dict[Which, Points]:
    return {
        "all": points,
        "without": jax.tree.map(lambda array: jnp.asarray(np.delete(np.asarray(array), index, axis=0)), points),
        "planted": concatenate_points([points, make_canary(points, study.agreement.kind)]),
    }


def most_exposed(points: Points, study: Study) -> int:
    """The first record of the smallest class; in a regression, the record that is farthest from the mean."""
    x, y = np.asarray(points.x).reshape(points.num_points, -1), np.asarray(points.y)
    if study.agreement.kind == "regression":
        return int(np.argmax(np.sum((x - np.mean(x, axis=0)) ** 2, axis=1)))
    counts = np.sum(y, axis=0)
    smallest = np.argmin(np.where(counts > 0, counts, np.inf))
    return int(np.argmax(y[:, smallest]))
