"""A message beside the records that it was made from: what rounding lost, and how much of single records it gives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from coreshot.data.schema import Table
from coreshot.errors import CoreshotError
from coreshot.fitted.column_facts import InputSums, lone_records
from coreshot.fitted.message_facts import MessageFacts
from coreshot.fitted.model import fit_contents
from coreshot.glm.polynomials import SMALLEST_DEVIATION
from coreshot.methods.glm import Glm, SiteMessage
from coreshot.methods.protocol import Content
from coreshot.methods.spectral import Spectral, center_labels
from coreshot.spectral.coreset import Moments
from coreshot.spectral.received import ReceivedRows
from coreshot.study import Study
from coreshot.types import Points

WRONG_RECORDS = 0.25  # deviations: where a mean is off by more, the records are others
LEAST_DEVIATION = 0.1  # of half a range: a column that hardly varies is measured in these


@dataclass(frozen=True)
class Loss:
    """Changes of predictions for these records: of probabilities, or in units of the noise's deviation."""

    mean_change: float
    largest_change: float
    mean_error: float | None  # the largest of a column's mean, in its deviations; None: the message has no means


def measure_loss(study: Study, content: Content, points: Points, sums: InputSums | None, where: str) -> Loss:
    """A CoreshotError where the message was not made from these records."""
    if isinstance(content, SiteMessage | ReceivedRows):
        _check_count(points, content, where)
    error = None if sums is None else _mean_error(sums, _moved_inputs(study, content, points), points, where)
    if isinstance(study.method, Glm) and isinstance(content, SiteMessage):
        changes = study.method.changes_by_rounding(study.model, points, content)
    elif isinstance(study.method, Spectral) and isinstance(content, ReceivedRows):
        changes = _spectral_changes(study, study.method, content, points)
    else:
        raise CoreshotError("--against: this study's messages cannot be compared with records; leave it out.")
    return Loss(float(np.mean(changes)), float(np.max(changes)), error)


def _check_count(points: Points, content: SiteMessage | ReceivedRows, where: str) -> None:
    if points.num_points != round(content.num_examples):
        raise CoreshotError(
            f"{where}: holds {points.num_points:,} records, and the message stands for "
            f"{round(content.num_examples):,}; give the file that it was made from."
        )


def _moved_inputs(study: Study, content: Content, points: Points) -> Float[np.ndarray, "n inputs"]:
    """Inside the limits that a message names; missing cells as they are."""
    x = np.asarray(points.x, np.float64).reshape(points.num_points, -1)
    if not isinstance(study.method, Glm) or not isinstance(content, SiteMessage) or content.limits is None:
        return x
    moved = content.limits(x)
    for entry, indicator in study.method.fills:
        moved[:, entry] = np.where(x[:, indicator] > 0.5, x[:, entry], moved[:, entry])
    return moved


def _mean_error(sums: InputSums, x: Float[np.ndarray, "n inputs"], points: Points, where: str) -> float:
    joint = np.concatenate([x, np.asarray(points.y, np.float64)], axis=1)
    difference = np.abs(sums.joint[0, 1:] / sums.count - np.mean(joint, axis=0))
    deviation = np.maximum(np.std(joint, axis=0), LEAST_DEVIATION)
    error = float(np.max(difference / deviation))
    if error > WRONG_RECORDS:
        raise CoreshotError(
            f"{where}: a mean of its records differs from the message's by {error:.2g} deviations; "
            "give the file that it was made from."
        )
    return error


def _spectral_changes(
    study: Study, method: Spectral, content: ReceivedRows, points: Points
) -> Float[np.ndarray, "n outputs"]:
    """Of the model of this message alone, beside that of the exact moments."""
    features = method.draw_map(study.model, study.shared_key)(np.asarray(points.x))
    labels = center_labels(study.model, np.asarray(points.y))
    exact = ReceivedRows.of_moments(Moments.from_rows(features, labels, len(features)))
    before, after = (
        fit_contents(study, {"site": received}, None, "mass", 0).predict(points.x) for received in (exact, content)
    )
    change = np.abs(np.asarray(after.mean) - np.asarray(before.mean))
    if study.agreement.kind == "regression":
        change = change / np.maximum(np.asarray(before.aleatoric), 1e-12)
    return change


@dataclass(frozen=True)
class ReadOff:
    """A record that is alone in a group, as a thief reads it off the message."""

    group: str
    error: float  # root mean square over the numbers of the record, in the columns' deviations


def read_off(study: Study, facts: MessageFacts, points: Points) -> list[ReadOff]:
    if not isinstance(study.inputs, Table):
        return []
    x, y = np.asarray(points.x, np.float64), np.asarray(points.y, np.float64)
    joint = np.concatenate([np.ones((len(x), 1)), x, y], axis=1)
    truth = dict(lone_records(study.inputs, InputSums(joint.T @ joint, x.shape[1]), study.target))
    deviation = np.std(x, axis=0)
    numbers = [entry for entry in study.inputs.number_inputs if deviation[entry] > SMALLEST_DEVIATION]
    used = numbers or np.flatnonzero(deviation > SMALLEST_DEVIATION).tolist()
    found = []
    for group, inputs in facts.lone:
        if group in truth and used:
            scaled = (truth[group] - inputs)[used] / deviation[used]
            found.append(ReadOff(group, float(np.sqrt(np.mean(scaled**2)))))
    return found
