"""Quality for communication: the curves of multi-round methods beside the dots of one-shot ones, and what it takes to match one of them."""

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
    """One arm and seed: rows of round, floats, bytes (cumulated, both directions) and metrics."""

    arm: str
    seed: int
    points: list[Row]


def shown_metrics(rows: Sequence[Row]) -> list[str]:
    return [name for name in HIGHER_IS_BETTER if any(row.get(name) is not None for row in rows)]


def first_match(points: Sequence[Row], metric: str, target: float) -> Row | None:
    """The first point of a curve that is as good as the target."""
    sign = 1 if HIGHER_IS_BETTER[metric] else -1
    return next((point for point in points if sign * point[metric] >= sign * target), None)


def communication_rows(rows: Sequence[Row], curves: Sequence[Curve], match: str) -> list[Row]:
    """For each curve and metric: the floats and bytes after which it first was as good as the arm `match` with the same seed; None if never."""
    targets = {row["seed"]: row for row in rows if row["arm"] == match}
    found = []
    for curve in curves:
        if curve.seed not in targets:
            continue
        for metric in shown_metrics(rows):
            point = first_match(curve.points, metric, targets[curve.seed][metric])
            reached = {"floats": point["floats"], "bytes": point["bytes"]} if point else {"floats": None, "bytes": None}
            found.append(
                {
                    "arm": curve.arm,
                    "seed": curve.seed,
                    "metric": metric,
                    "target": targets[curve.seed][metric],
                    **reached,
                }
            )
    return found


def matched(rows: Sequence[Row], arm: str, metric: str, unit: Unit) -> Mapping[str, Any]:
    """The mean over the seeds that matched, and how many of how many did."""
    own = [row for row in rows if row["arm"] == arm and row["metric"] == metric]
    reached = [row[unit] for row in own if row[unit] is not None]
    return {"mean": float(np.mean(reached)) if reached else None, "reached": len(reached), "seeds": len(own)}
