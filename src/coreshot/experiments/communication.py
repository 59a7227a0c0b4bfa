"""Quality against communication: curves of multi-round methods, and what they send until they match a one-shot arm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Row = dict[str, Any]
Unit = Literal["floats", "bytes"]
HIGHER_IS_BETTER = {"accuracy": True, "nll": False, "rmse": False}
HEADINGS = {"accuracy": "accuracy", "nll": "NLL", "rmse": "RMSE"}


@dataclass(frozen=True)
class Curve:
    """One arm and seed: points with round, floats and bytes (cumulative, both directions) and metrics."""

    arm: str
    seed: int
    points: list[Row]


def shown_metrics(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The metrics that any row has a value for."""
    return [name for name in HIGHER_IS_BETTER if any(row.get(name) is not None for row in rows)]


def first_match(points: Sequence[Row], metric: str, target: float) -> Row | None:
    """The first point of a curve that is as good as the target."""
    sign = 1 if HIGHER_IS_BETTER[metric] else -1
    return next((point for point in points if sign * point[metric] >= sign * target), None)


def communication_rows(rows: Sequence[Row], curves: Sequence[Curve], match: str) -> list[Row]:
    """For each curve and metric: what was sent until it was as good as the arm `match` with the same seed.

    Floats and bytes are None where it never was.
    """
    targets = {row["seed"]: row for row in rows if row["arm"] == match}
    metrics = shown_metrics(rows)
    return [
        _match_row(curve, metric, targets[curve.seed][metric])
        for curve in curves
        if curve.seed in targets
        for metric in metrics
    ]


def _match_row(curve: Curve, metric: str, target: float) -> Row:
    point = first_match(curve.points, metric, target) or {"floats": None, "bytes": None}
    return {
        "arm": curve.arm,
        "seed": curve.seed,
        "metric": metric,
        "target": target,
        "floats": point["floats"],
        "bytes": point["bytes"],
    }


def summarise_matches(rows: Sequence[Row], arm: str, metric: str, unit: Unit) -> dict[str, Any]:
    """The mean over the seeds that matched, how many did, and how many seeds there are."""
    own = [row for row in rows if row["arm"] == arm and row["metric"] == metric]
    reached = [row[unit] for row in own if row[unit] is not None]
    return {"mean": float(np.mean(reached)) if reached else None, "reached": len(reached), "seeds": len(own)}
