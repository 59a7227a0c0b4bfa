"""Calibration of regressions: how often intervals contain the target. That of classes is in `metrics.Sums`."""

from __future__ import annotations

import numpy as np
import scipy.stats
from jaxtyping import Float

LEVELS = np.asarray([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99])
INTERVAL = 0.9  # the one that is named in words


def coverage(
    mean: Float[np.ndarray, "n outputs"],
    deviation: Float[np.ndarray, "n outputs"],
    targets: Float[np.ndarray, "n outputs"],
    levels: Float[np.ndarray, " levels"],
) -> Float[np.ndarray, " levels"]:
    """The share of targets inside central intervals of these levels, of Gaussians with this mean and deviation."""
    distance = np.abs(targets - mean) / deviation
    return np.asarray([np.mean(distance <= scipy.stats.norm.ppf(0.5 + level / 2)) for level in levels])
