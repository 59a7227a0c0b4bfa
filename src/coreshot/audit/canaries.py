"""A record that nobody has, made to be noticed: as far from the client's records as their own range allows, of the class it has fewest of.

The private spectral statistics scale every record to the same length, so to them one record is as bad as another; learners and means are not so fair.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from coreshot.types import Kind, Points, points_of


def canary(points: Points, kind: Kind) -> Points:
    """One point: a real client could hold it, number by number."""
    y = np.asarray(points.y)
    label = np.eye(y.shape[1])[np.argmin(np.sum(y, axis=0))] if kind == "classification" else _far_corner(y)
    return points_of(_far_corner(np.asarray(points.x))[None], label[None])


def _far_corner(values: Float[np.ndarray, "n ..."]) -> Float[np.ndarray, ...]:
    """Of the box that holds them: of each number the end of its range that is farther from the mean."""
    low, mean, high = np.min(values, axis=0), np.mean(values, axis=0), np.max(values, axis=0)
    return np.where(mean - low > high - mean, low, high)
