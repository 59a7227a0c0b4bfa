"""Averages over the cells of a grid, for feature maps of images."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float


def cell_averages(extent: int, grid: int) -> Float[np.ndarray, "grid extent"]:
    """The matrix that averages `extent` lines into `grid` cells of equal width. A line on a border is split by area."""
    borders = np.linspace(0, extent, grid + 1)
    line = np.arange(extent)
    overlap = np.minimum(borders[1:, None], line + 1) - np.maximum(borders[:-1, None], line)
    shares = np.maximum(overlap, 0)
    return (shares / shares.sum(axis=1, keepdims=True)).astype(np.float32)
