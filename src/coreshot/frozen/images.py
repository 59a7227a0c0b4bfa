"""Images as a network wants them: resized, with its channels, less its mean, over its deviation.

Resizing multiplies by two matrices in float64 and rounds to float32, so that it does not depend on the machine's
threads. An output pixel is a weighted mean of the pixels that it covers, as Pillow's are.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
from jaxtyping import Float

from coreshot.errors import CoreshotError

Filter = Literal["bilinear", "bicubic"]
Layout = Literal["channels_first", "channels_last"]


@lru_cache(maxsize=16)
def resize_matrix(extent: int, wanted: int, how: Filter) -> Float[np.ndarray, "wanted extent"]:
    """Rows sum to one. Where the image shrinks, the filter is as wide as an output pixel."""
    scale = extent / wanted
    width = max(scale, 1.0)
    centers = (np.arange(wanted) + 0.5) * scale - 0.5
    distance = np.abs(np.arange(extent) - centers[:, None]) / width
    weights = np.maximum(1 - distance, 0) if how == "bilinear" else _cubic(distance)
    return weights / weights.sum(axis=1, keepdims=True)


def _cubic(distance: Float[np.ndarray, "wanted extent"]) -> Float[np.ndarray, "wanted extent"]:
    """Keys 1981, with a = -1/2."""
    near = 1.5 * distance**3 - 2.5 * distance**2 + 1
    far = -0.5 * distance**3 + 2.5 * distance**2 - 4 * distance + 2
    return np.where(distance < 1, near, np.where(distance < 2, far, 0.0))


def prepare_images(
    x: Float[np.ndarray, "n ..."],
    size: Sequence[int] | None,
    how: Filter,
    mean: Sequence[float],
    deviation: Sequence[float],
    layout: Layout,
) -> Float[np.ndarray, "n ..."]:
    """Images [n, height, width, channels] for the network. A single channel is repeated where the mean has several."""
    if x.shape[3] == 1 and len(mean) > 1:
        x = np.repeat(x, len(mean), axis=3)
    # Before resizing, where there are fewer pixels: resizing keeps means, so the order does not matter.
    scaled = ((x - np.asarray(mean)) / np.asarray(deviation)).transpose(0, 3, 1, 2)
    if size is not None and tuple(size) != x.shape[1:3]:
        lines, columns = (resize_matrix(extent, wanted, how) for extent, wanted in zip(x.shape[1:3], size, strict=True))
        scaled = lines @ scaled @ columns.T
    scaled = scaled if layout == "channels_first" else scaled.transpose(0, 2, 3, 1)
    return np.ascontiguousarray(scaled, np.float32)


def check_channels(input_shape: Sequence[int], mean: Sequence[float], deviation: Sequence[float], where: str) -> None:
    if len(mean) != len(deviation):
        raise CoreshotError(f"{where}: mean has {len(mean)} numbers and deviation {len(deviation)}; give one each.")
    if len(mean) > 1 and input_shape[-1] not in (1, len(mean)):
        raise CoreshotError(
            f"{where}: mean has {len(mean)} numbers, and the study's images have {input_shape[-1]} channels; "
            "give one for each channel."
        )
