"""A canary: a record that no client has, made to be as conspicuous as the client's range of values allows.

The private spectral statistics scale every record to the same length, so all records are equally conspicuous to them.
Learners and class means do not scale records.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from coreshot.types import Kind, Points, make_points


def make_canary(points: Points, kind: Kind) -> Points:
    """One point at a corner of the box that holds the records, in the class of which there are fewest."""
    y = np.asarray(points.y)
    label = np.eye(y.shape[1])[np.argmin(np.sum(y, axis=0))] if kind == "classification" else _far_corner(y)
    return make_points(_far_corner(np.asarray(points.x))[None], label[None])


def _far_corner(values: Float[np.ndarray, "n ..."]) -> Float[np.ndarray, "*shape"]:
    """For each number the end of its range that is farther from its mean."""
    low, mean, high = np.min(values, axis=0), np.mean(values, axis=0), np.max(values, axis=0)
    return np.where(mean - low > high - mean, low, high)
