"""Whom an audit is about: a client of a study and one of its records; and the three sets of records between which an attacker has to decide.

    all      the client's records as they are
    without  the same less the record
    planted  the same and one more, the canary

`all` against `without` is the question of membership, `planted` against `all` that of the canary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from coreshot.audit.canaries import canary
from coreshot.audit.distances import between_records, classes_of_one
from coreshot.config import choose
from coreshot.data import FederatedData
from coreshot.errors import CoreshotError
from coreshot.methods.protocol import SecureSum
from coreshot.study import Study
from coreshot.types import Points, concatenate_points

Which = Literal["all", "without", "planted"]
WHICH: tuple[Which, ...] = get_args(Which)
LEAST_RECORDS = 3


@dataclass(frozen=True)
class Subject:
    study: Study
    client: str
    record: int  # its position among the client's
    sets: Mapping[Which, Points]
    others: Mapping[
        str, Points
    ]  # clients that a trial needs beside this one: where noise is shared all, with one record each; else none

    @cached_property
    def of_record(self) -> Points:
        return one_of(self.sets["all"], self.record)

    @cached_property
    def of_canary(self) -> Points:
        return one_of(self.sets["planted"], self.sets["planted"].num_points - 1)

    @cached_property
    def alone(self) -> dict[int, int]:
        """Classes of one record, and where it is."""
        return classes_of_one(self.sets["all"]) if self.study.agreement.kind == "classification" else {}

    @cached_property
    def spacing(self) -> float:
        """How far a record is from its neighbour, in the middle."""
        return float(np.median(between_records(self.sets["without"])))


def one_of(points: Points, position: int) -> Points:
    return jax.tree.map(lambda array: np.asarray(array)[position : position + 1], points)


def subject_of(study: Study, data: FederatedData, client: str | None = None, record: int | None = None) -> Subject:
    """The first client and its most exposed record, where they are not named."""
    if study.method.num_rounds != 1:
        raise CoreshotError(
            f"audit: the method has {study.method.num_rounds} rounds; only learners and methods of one round can be audited."
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
    sets: dict[Which, Points] = {
        "all": points,
        "without": jax.tree.map(lambda array: jnp.asarray(np.delete(np.asarray(array), index, axis=0)), points),
        "planted": concatenate_points([points, canary(points, study.agreement.kind)]),
    }
    for which in WHICH:
        study.check_records(
            sets[which], f"client {name}, without record {index}" if which == "without" else f"client {name}"
        )
    shares_noise = isinstance(study.method, SecureSum) and study.method.num_sharers is not None
    # The attacker knows what others hold, and takes it off: it may as well be one record.
    others = {other: one_of(held, 0) for other, held in data.clients.items() if shares_noise and other != name}
    return Subject(study, name, index, sets, others)


def most_exposed(points: Points, study: Study) -> int:
    """The first record of the smallest class; of targets, the record that is farthest from the mean."""
    x, y = np.asarray(points.x).reshape(points.num_points, -1), np.asarray(points.y)
    if study.agreement.kind == "regression":
        return int(np.argmax(np.sum((x - np.mean(x, axis=0)) ** 2, axis=1)))
    counts = np.sum(y, axis=0)
    smallest = np.argmin(np.where(counts > 0, counts, np.inf))
    return int(np.argmax(y[:, smallest]))
