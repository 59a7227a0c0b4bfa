"""Facts about columns as a person reads them: numbers with four digits, shares in percent, dates as dates."""

from __future__ import annotations

import datetime
import math

from coreshot.fitted.column_facts import SHARE


def format_value(value: float | None, kind: str, deviation: float | None = None) -> str:
    """An end of a range; or, with a column's deviation, a mean, with as many digits as rounding leaves."""
    if value is None:
        return ""
    if kind == SHARE:
        return format_share(value)
    if kind == "date":
        first, last = 1, datetime.date.max.toordinal()
        return datetime.date.fromordinal(min(max(round(value), first), last)).isoformat()
    if deviation:
        digits = min(max(2 - math.floor(math.log10(deviation)), 0), 12)
        return f"{round(value, digits) + 0.0:,.{digits}f}"
    return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def format_deviation(value: float | None, kind: str) -> str:
    if value is None:
        return ""
    if kind == SHARE:
        return ""  # follows from the share
    return f"{value:,.4g}" + (" days" if kind == "date" else "")


def format_share(value: float | None) -> str:
    return "not told" if value is None else f"{100 * value + 0.0:.1f} %"


def format_signed(value: float | None) -> str:
    return "" if value is None else f"{value:+.2f}"
