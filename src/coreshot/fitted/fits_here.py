"""Do these records look like those that the model was fitted to? Without labels, from what the clients have sent.

A client's sums say the mean and the variance of everything that the model sees of its records: the inputs of a table,
the features of an image. The means of new records are compared with those of all clients together, and of each client.
Where even the best of these comparisons fails, the records look like nobody's. A comparison fails if one of the means
differs more than chance explains: the smallest p-value of all of them, times their number, is below ALARM (Bonferroni).
So of records of one client, or of all, at most a share of ALARM is called strange, up to what the normal distribution
of a mean gets wrong with few records; a value that is rare has its variance raised (`FLOOR`).

Besides, records far from all that the clients saw are counted (`unlike`): of the clients' own, at most one in LIMIT^2
can be, whatever the data are. More than that, surely, is an alarm too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import scipy.stats
from jaxtyping import Float

from coreshot.data.schema import Table
from coreshot.errors import CoreshotError
from coreshot.fitted.model import Contents, FittedModel
from coreshot.fitted.survival import refuse_survival
from coreshot.fitted.unlike import LIMIT, is_unlike_training
from coreshot.glm.received import find_filling
from coreshot.methods.glm import Glm
from coreshot.methods.spectral import Spectral
from coreshot.spectral.coreset import Moments
from coreshot.study import Study
from coreshot.types import Sees

ALARM = 0.01  # the share of harmless draws that is called strange
FEWEST_RECORDS = 10
FLOOR = 1.0  # the square of a usual input: the variance of a mean is at least this over the square of the records
NEVER, ALWAYS = 1e-3, 1 - 1e-3  # shares of missing cells
MAX_NAMED = 5  # columns that differ most
ALL = "all clients"


@dataclass(frozen=True)
class Means:
    """Of what the model sees of some records."""

    count: float
    mean: Float[np.ndarray, " seen"]
    variance: Float[np.ndarray, " seen"]

    @classmethod
    def of_moments(cls, moments: Moments) -> Means:
        """Features of which the last is the constant."""
        last = moments.dimension - 1
        mean = moments.joint[:last, last] / moments.num_examples
        square = np.diag(moments.joint)[:last] / moments.num_examples
        return cls(moments.num_examples, mean, np.maximum(square - mean**2, 0.0))

    def difference(self, other: Means) -> Float[np.ndarray, " seen"]:
        """Of the other's means, in standard errors."""
        fewest = min(self.count, other.count)
        error = self.variance * (1 / self.count + 1 / other.count) + FLOOR / fewest**2
        return (other.mean - self.mean) / np.sqrt(error)


@dataclass(frozen=True)
class Fit:
    """`p_values` by client, and of all clients together; `differing` columns, in standard errors from the nearest."""

    p_values: dict[str, float]
    differing: dict[str, float]
    num_records: int
    num_unlike: int
    is_far: bool  # surely more records are far away than a client's own could be
    lost: tuple[str, ...]  # columns that are missing here in all records, and that clients have
    unknown: tuple[str, ...]  # columns that are here, and that no client had
    nearest: str  # a client, or ALL

    @property
    def is_alarm(self) -> bool:
        return self.is_far or self.p_values[self.nearest] < ALARM

    @property
    def sentence(self) -> str:
        if self.is_far:
            return (
                f"these records look like nobody's: {self.num_unlike:,} of {self.num_records:,} are more than "
                f"{LIMIT:g} times as far from the clients' records as these usually are; do not rely on the model here."
            )
        if self.is_alarm:
            return "these records look like nobody's: their means differ from those of every client; look at why."
        if self.nearest == ALL:
            return "these records look like those of the federation."
        return f"these records look like those of {self.nearest}, not like those of all clients together."


def check_fit(model: FittedModel, contents: Contents, x: Float[np.ndarray, "n ..."]) -> Fit:
    if len(x) < FEWEST_RECORDS:
        raise CoreshotError(f"check: {len(x)} records are too few to compare; give at least {FEWEST_RECORDS}.")
    refuse_survival(
        model.study, "check", "where a person counts once a period, so means say little; look with `coreshot evaluate`."
    )
    clients = _client_means(model.study, contents)
    assert isinstance(model.posterior, Sees)
    seen = np.asarray(model.posterior.seen(np.asarray(x)), np.float64)
    here = Means(len(seen), seen.mean(axis=0), seen.var(axis=0))
    references = {ALL: _pool(clients), **clients}
    differences = {name: reference.difference(here) for name, reference in references.items()}
    p_values = {name: _p_value(found) for name, found in differences.items()}
    unlike = is_unlike_training(model, x)
    num_unlike = 0 if unlike is None else int(np.sum(unlike))
    lower = scipy.stats.beta.ppf(ALARM, max(num_unlike, 1), len(x) - num_unlike + 1)
    nearest = _nearest(differences)
    lost, unknown = _missing_columns(model.study, clients, np.asarray(x))
    is_far = num_unlike > 0 and bool(lower > LIMIT**-2)
    named = _name_columns(model.study, differences[nearest])
    return Fit(p_values, named, len(x), num_unlike, is_far, lost, unknown, nearest)


def _limit(size: int) -> float:
    """In standard errors, beyond which the largest of so many differences is strange."""
    return float(scipy.stats.norm.isf(ALARM / 2 / max(size, 1)))


def _nearest(differences: Mapping[str, Float[np.ndarray, " seen"]]) -> str:
    """All clients, where these are not refuted: it is the simplest statement. Else that from which the fewest inputs
    differ, and of several that with the least largest difference."""

    def strangeness(name: str) -> tuple[int, float, str]:
        found = np.abs(differences[name])
        return int(np.sum(found > _limit(len(found)))), float(np.max(found, initial=0.0)), name

    return ALL if strangeness(ALL)[0] == 0 else min(differences, key=strangeness)


def _client_means(study: Study, contents: Contents) -> dict[str, Means]:
    if isinstance(study.method, Glm):
        # A client that lacks a column has the mean of the others there, as new records without it have.
        filling, polynomials = find_filling(contents, study.method.fills), study.method.polynomials(study.model)
        num_inputs = int(np.prod(study.agreement.input_shape))
        summaries = {client: one.summary(polynomials, filling) for client, one in contents.items()}
        return {client: Means.of_moments(one.linear_moments(num_inputs)) for client, one in summaries.items()}
    if isinstance(study.method, Spectral):
        return {client: Means.of_moments(one.moments) for client, one in contents.items()}
    raise CoreshotError(
        "check: what the clients of this study have sent does not say what their records looked like; "
        "studies of the methods glm and spectral can be checked."
    )


def _pool(clients: Mapping[str, Means]) -> Means:
    counts = np.asarray([one.count for one in clients.values()])
    means = np.stack([one.mean for one in clients.values()])
    squares = np.stack([one.variance for one in clients.values()]) + means**2
    mean = counts @ means / np.sum(counts)
    return Means(float(np.sum(counts)), mean, np.maximum(counts @ squares / np.sum(counts) - mean**2, 0.0))


def _p_value(differences: Float[np.ndarray, " seen"]) -> float:
    largest = float(np.max(np.abs(differences), initial=0.0))
    return float(min(1.0, 2 * scipy.stats.norm.sf(largest) * len(differences)))


def _places(study: Study) -> list[tuple[str, list[int]]]:
    """The inputs of each column of a table, with the indicator of its missing cells."""
    if not isinstance(study.inputs, Table) or not isinstance(study.method, Glm):
        return []
    found, first = [], 0
    width = len(study.inputs.column_inputs)
    for number, column in enumerate(study.inputs.columns):
        indicator = [width + number] if study.inputs.has_indicators else []
        found.append((column.name, [*range(first, first + column.width), *indicator]))
        first += column.width
    return found


def _name_columns(study: Study, differences: Float[np.ndarray, " seen"]) -> dict[str, float]:
    """The columns that differ most from the nearest client's, surely."""
    limit = _limit(len(differences))
    largest = {name: float(max(differences[places], key=abs)) for name, places in _places(study)}
    named = sorted((name for name in largest if abs(largest[name]) > limit), key=lambda name: -abs(largest[name]))
    return {name: round(largest[name], 1) for name in named[:MAX_NAMED]}


def _missing_columns(
    study: Study, clients: Mapping[str, Means], x: Float[np.ndarray, "n ..."]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if not isinstance(study.inputs, Table) or not study.inputs.has_indicators:
        return (), ()
    lost, unknown = [], []
    for name, places in _places(study):
        here = float(np.mean(x[:, places[-1]]))
        there = [one.mean[places[-1]] for one in clients.values()]
        if here > ALWAYS and min(there) < ALWAYS:
            lost.append(name)
        if here < ALWAYS and min(there) > ALWAYS:
            unknown.append(name)
    return tuple(lost), tuple(unknown)
