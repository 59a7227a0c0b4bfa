"""Time to an event as a sequence of binary records: a person has one for each period in which the event could happen.

Discrete-time survival (Cox 1972, section 6; Singer and Willett, "It's About Time: Using Discrete-Time Survival Analysis
to Study Duration and the Timing of Events", 1993). A person who has the event in period k has k records, of which the
last says yes. One who is lost to follow-up has a record for each period that was seen to its end. Given who was at
risk, these records are independent, so a logistic regression of them is the likelihood of the times, and the hazard of
each period is a probability. The period is a column of the table, so hazards need not be proportional.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float, Int

from coreshot.data.schema import Classes, Column, Table
from coreshot.errors import CoreshotError

MAX_PERIODS = 60
ROUNDING = 1e-6  # of the last end: times were single precision


def period_names(ends: Sequence[float]) -> tuple[str, ...]:
    return tuple(f"{low:g} to {high:g}" for low, high in zip((0.0, *ends[:-1]), ends, strict=True))


def with_periods(table: Table, target: Classes, where: str) -> Table:
    """With the period as one more column."""
    assert target.time is not None
    if len(target.ends) > MAX_PERIODS:
        raise CoreshotError(f"{where}: {len(target.ends)} periods are more than {MAX_PERIODS}; make them longer.")
    if any(target.time in (column.name, *column.names) for column in table.columns):
        raise CoreshotError(f"{where}: {target.time!r} is both a column and the time; remove it from the table.")
    column = Column(name=target.time, kind="category", values=period_names(target.ends))
    return replace(table, columns=(*table.columns, column))


def time_column(target: Classes) -> Column:
    """The time as a site's file has it. All times far after the last end are alike; one below 0 is to be noticed."""
    assert target.time is not None
    return Column(name=target.time, kind="number", range=(-last_time(target), last_time(target)), outside="clip")


def last_time(target: Classes) -> float:
    return 2 * target.ends[-1]


def at_risk(
    times: Float[np.ndarray, " n"], events: Int[np.ndarray, " n"], ends: Sequence[float]
) -> tuple[Int[np.ndarray, " rows"], Int[np.ndarray, " rows"], Int[np.ndarray, " rows"]]:
    """Of each record of a person and a period: the person, the period, and whether the event was then.

    A time that is an end belongs to the period that ends there. Of an event after the last end only is known that it
    was later."""
    borders = np.asarray(ends)
    nearest = borders[np.argmin(np.abs(times[:, None] - borders), axis=1)]
    times = np.where(np.abs(times - nearest) < ROUNDING * borders[-1], nearest, times)
    period = np.searchsorted(borders, times, side="left")  # in which the time lies
    whole = np.searchsorted(borders, times, side="right")  # periods that were seen to their end
    has_event = (events == 1) & (period < len(borders))
    counts = np.where(has_event, period + 1, whole)
    owner = np.repeat(np.arange(len(times)), counts)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    return owner, place, (has_event[owner] & (place == period[owner])).astype(np.int64)


def every_period(count: int, num_periods: int) -> tuple[Int[np.ndarray, " rows"], Int[np.ndarray, " rows"]]:
    """Of people of whom nothing is known yet: the person and the period of each record."""
    return np.repeat(np.arange(count), num_periods), np.tile(np.arange(num_periods), count)


def period_inputs(table: Table) -> slice:
    """Where the period is, among the inputs of a record: the last column."""
    width = len(table.column_inputs)
    return slice(width - table.columns[-1].width, width)
