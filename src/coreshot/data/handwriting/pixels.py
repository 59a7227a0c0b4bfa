"""Pixels of handwriting in one form: 28 x 28 of uint8, 0 where the paper is blank and 255 where there is ink."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from coreshot.errors import CoreshotError

Background = Literal["black", "white"]

IMAGE_SHAPE = (28, 28)
NUM_PIXELS = 28 * 28
DARK, LIGHT = 64, 192  # a border whose median lies between says nothing about the background
CLEAR_SHARE = 0.9  # of the images must have the same kind of border: a set with both is two sets


def as_pixels(values: Any, where: str, dtype: type[np.float32] | None = None) -> np.ndarray:
    """[n, 28, 28] of uint8: numbers of a floating type are shares (0 to 1), whole numbers 0 to 255."""
    if getattr(values, "ndim", 1) == 0:
        raise CoreshotError(f"{where}: a single value in place of images; give 28 x 28 numbers an image.")
    if len(values) == 0:
        return np.zeros((0, *IMAGE_SHAPE), np.uint8)
    try:
        images = np.asarray(values, dtype)
    except (TypeError, ValueError):  # images of different sizes, or no numbers
        raise CoreshotError(
            f"{where}: {_odd_one(values)}; coreshot reads images of 28 x 28 numbers, so mend or remove it."
        ) from None
    if images.dtype.kind not in "biuf":
        raise CoreshotError(f"{where}: pixels are of type {images.dtype}, not numbers; give 28 x 28 numbers an image.")
    if images.ndim == 4 and images.shape[-1] == 1:
        images = images[..., 0]
    if images.shape[1:] not in (IMAGE_SHAPE, (NUM_PIXELS,)):
        size = " x ".join(map(str, images.shape[1:])) or "1"
        raise CoreshotError(f"{where}: images have {size} pixels, and coreshot reads images of 28 x 28; resize them.")
    return _scaled(images.reshape(-1, *IMAGE_SHAPE), where)


def _odd_one(values: Iterable[Any]) -> str:
    for index, image in enumerate(values):
        size = len(np.asarray(image, dtype=object).reshape(-1))
        if size != NUM_PIXELS:
            return f"image {index} has {size} pixels, not {NUM_PIXELS}"
    return "pixels are not numbers"


def _scaled(images: np.ndarray, where: str) -> np.ndarray:
    if images.dtype == np.uint8:
        return images
    highest = 1 if images.dtype.kind in "bf" else 255
    bad = np.argwhere(~((images >= 0) & (images <= highest)))  # also where it is not a number
    if len(bad):
        value = images[tuple(bad[0])]
        raise CoreshotError(
            f"{where}: a pixel of image {bad[0][0]} is {value:g}, outside 0 to {highest}; give shares from 0 to 1, or whole numbers from 0 to 255."
        )
    return images.astype(np.uint8) if highest == 255 else np.rint(images * np.float32(255)).astype(np.uint8)


class BorderVote:
    """Which background a set has, by the median pixel on the border of each image: letters lie in the middle, the border is paper."""

    def __init__(self) -> None:
        self.dark = self.light = self.total = 0

    def count(self, images: np.ndarray) -> None:
        border = np.concatenate([images[:, 0], images[:, -1], images[:, 1:-1, 0], images[:, 1:-1, -1]], axis=1)
        median = np.median(border, axis=1)
        self.dark += int(np.sum(median < DARK))
        self.light += int(np.sum(median >= LIGHT))
        self.total += len(images)

    def decide(self, where: str) -> Background:
        for background, votes in (("black", self.dark), ("white", self.light)):
            if votes >= CLEAR_SHARE * self.total:
                return background  # type: ignore[return-value]
        raise CoreshotError(
            f"{where}: the background is ambiguous: of {self.total} images {self.dark} have a dark border and {self.light} a light one; "
            "mend those that differ, or say --background black or --background white."
        )
