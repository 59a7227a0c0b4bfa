"""Pixels of handwriting in one form: 28 x 28 of uint8, 0 where the paper is blank and 255 where there is ink."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from jaxtyping import UInt8

from coreshot.data.readers.protocol import stack_inputs
from coreshot.errors import CoreshotError

Background = Literal["black", "white"]

IMAGE_SHAPE = (28, 28)
NUM_PIXELS = 28 * 28
DARK, LIGHT = 64, 192  # a border with a median between these says nothing about the background
CLEAR_SHARE = 0.9  # of the images must have the same kind of border: a set with both kinds is two sets


def as_pixels(values: Any, where: str) -> UInt8[np.ndarray, "n 28 28"]:
    """Numbers of a floating type are shares (0 to 1), whole numbers go from 0 to 255."""
    images = stack_inputs(values, where)
    if images.dtype.kind not in "biuf":
        raise CoreshotError(f"{where}: pixels are of type {images.dtype}, not numbers; give 28 x 28 numbers an image.")
    images = _as_grey(images)
    if images.shape[1:] not in (IMAGE_SHAPE, (NUM_PIXELS,)):
        size = " x ".join(map(str, images.shape[1:])) or "1"
        raise CoreshotError(
            f"{where}: images have {size} pixels, and handwriting has images of 28 x 28; resize them, "
            "or add them with --as general."
        )
    return _as_bytes(images.reshape(-1, *IMAGE_SHAPE), where)


def _as_grey(images: np.ndarray) -> np.ndarray:
    """Without the axis of channels, where there is one."""
    if images.ndim != 4 or images.shape[-1] not in (1, 3):
        return images
    if images.shape[-1] == 3 and images.dtype == np.uint8:
        from PIL import Image

        return np.stack([np.asarray(Image.fromarray(image).convert("L")) for image in images])
    return images[..., 0] if images.shape[-1] == 1 else images


def _as_bytes(images: np.ndarray, where: str) -> np.ndarray:
    if images.dtype == np.uint8:
        return images
    highest = 1 if images.dtype.kind in "bf" else 255
    bad = np.argwhere(~((images >= 0) & (images <= highest)))  # NaN is neither
    if len(bad):
        value = images[tuple(bad[0])]
        raise CoreshotError(
            f"{where}: a pixel of image {bad[0][0]} is {value:g}, outside 0 to {highest}; "
            "give shares from 0 to 1, or whole numbers from 0 to 255."
        )
    return images.astype(np.uint8) if highest == 255 else np.rint(images * np.float32(255)).astype(np.uint8)


class BorderVote:
    """Finds the background of a set: letters lie in the middle, so the median pixel of an image's border is paper."""

    def __init__(self) -> None:
        self.dark = self.light = self.total = 0

    def count(self, images: UInt8[np.ndarray, "n 28 28"]) -> None:
        border = np.concatenate([images[:, 0], images[:, -1], images[:, 1:-1, 0], images[:, 1:-1, -1]], axis=1)
        median = np.median(border, axis=1)
        self.dark += int(np.sum(median < DARK))
        self.light += int(np.sum(median >= LIGHT))
        self.total += len(images)

    def decide(self, where: str) -> Background:
        if self.dark >= CLEAR_SHARE * self.total:
            return "black"
        if self.light >= CLEAR_SHARE * self.total:
            return "white"
        raise CoreshotError(
            f"{where}: the background is ambiguous: of {self.total} images {self.dark} have a dark border and "
            f"{self.light} a light one; mend those that differ, or say --background black or --background white."
        )
