"""Checks of a client's arrays before any work: an error is one sentence that says what was found, where, what to do."""

from __future__ import annotations

from typing import Any

import numpy as np

from coreshot.data.large_arrays import in_parts
from coreshot.errors import CoreshotError
from coreshot.types import Kind, Points, make_points


def check_points(
    x: Any,
    y: Any,
    *,
    kind: Kind,
    input_shape: tuple[int, ...],
    num_outputs: int,
    client: str,
    on_device: bool = True,
) -> Points:
    """Arrays of a client as Points; labels may be integers (0 to classes - 1) or one row of outputs a point."""
    inputs = _as_floats(x, "inputs", client)
    targets = _as_floats(y, "labels" if kind == "classification" else "targets", client)
    if len(inputs) == 0:
        raise CoreshotError(f"{client}: there are no points; leave this client out or give it data.")
    if inputs.shape[1:] != input_shape:
        raise CoreshotError(
            f"{client}: inputs have shape {inputs.shape}, "
            f"the study wants (points, {', '.join(map(str, input_shape))}); reshape them."
        )
    if len(inputs) != len(targets):
        raise CoreshotError(
            f"{client}: {len(inputs)} inputs but {len(targets)} labels or targets; give one for each input."
        )
    if kind == "classification":
        return make_points(inputs, _as_one_hot(targets, num_outputs, client), on_device)
    targets = targets[:, None] if targets.ndim == 1 else targets
    if targets.shape[1:] != (num_outputs,):
        raise CoreshotError(
            f"{client}: targets have shape {targets.shape}, the study wants (points, {num_outputs}); reshape them."
        )
    return make_points(inputs, targets, on_device)


def check_fits_learner(points: Points, *, kind: Kind, num_points: int | None, client: str) -> None:
    """What a learner needs of valid data: at least K points and, in a classification, at least two classes."""
    if num_points is not None and points.num_points < num_points:
        raise CoreshotError(
            f"{client}: {points.num_points} points are fewer than the coreset's {num_points}; "
            "lower num_points or leave this client out."
        )
    present = np.flatnonzero(np.asarray(points.y).sum(axis=0) > 0)
    if kind == "classification" and len(present) == 1:
        raise CoreshotError(
            f"{client}: all {points.num_points} labels are class {present[0]}; "
            "a coreset of one class says nothing about the others, so add points of another class "
            "or leave this client out."
        )


def _as_floats(values: Any, what: str, client: str) -> np.ndarray:
    try:
        array = np.asarray(values, dtype=np.float32)
    except (TypeError, ValueError):
        raise CoreshotError(f"{client}: {what} are not an array of numbers; give numbers of one shape.") from None
    if array.ndim == 0:
        raise CoreshotError(f"{client}: {what} are a single number; give one row a point.")
    position, num_bad = tuple[int, ...](), 0
    for part, some in in_parts(array):
        bad = np.argwhere(~np.isfinite(some))
        if len(bad) and not num_bad:
            position = (part.start + int(bad[0][0]), *(int(i) for i in bad[0][1:]))
        num_bad += len(bad)
    if num_bad:
        raise CoreshotError(
            f"{client}: {what} are not finite at index {position} ({num_bad} such values); remove or fill them."
        )
    return array


def _as_one_hot(labels: np.ndarray, num_classes: int, client: str) -> np.ndarray:
    if labels.ndim == 2 and labels.shape[1] == num_classes and num_classes > 1:
        bad = np.flatnonzero((np.abs(labels.sum(axis=1) - 1) > 1e-5) | (labels.min(axis=1) < 0))
        if len(bad):
            raise CoreshotError(
                f"{client}: label row {bad[0]} is not class probabilities that sum to 1 "
                f"({len(bad)} such rows); mend it."
            )
        return labels
    if labels.ndim != 1 and labels.shape[1:] != (1,):
        raise CoreshotError(
            f"{client}: labels have shape {labels.shape}, "
            f"the study wants one integer or {num_classes} probabilities a point."
        )
    labels = labels.reshape(-1)
    bad = np.flatnonzero((labels != np.round(labels)) | (labels < 0) | (labels >= num_classes))
    if len(bad):
        raise CoreshotError(
            f"{client}: the label at index {bad[0]} is none of the study's classes 0 to {num_classes - 1} "
            f"({len(bad)} such labels); relabel or drop it."
        )
    return np.eye(num_classes, dtype=np.float32)[labels.astype(int)]
