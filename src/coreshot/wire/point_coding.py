"""Inputs of a coreset in few bytes: fewer bits for each pixel, fewer pixels, and the arithmetic code of `coding`.

Decoding gives the same float32 numbers on every machine.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from jaxtyping import Float
from pydantic import Field

from coreshot.config import Count, settings
from coreshot.errors import CoreshotError
from coreshot.wire.coding import decode_rows, encode_rows


@settings
class PointCoding:
    bits: Annotated[int, Field(gt=0, le=14)] = 8  # of each value: the largest absolute value is level 2^bits - 1
    factor: Count = 1  # images are sent as means of factor x factor blocks and restored by linear interpolation

    def encode(self, x: Float[np.ndarray, "points ..."]) -> tuple[bytes, float]:
        """The code, and the step of its quantisation."""
        small = self._shrink(np.asarray(x, np.float32))
        step = float(np.float32(max(float(np.max(np.abs(small))), 1e-12) / (2**self.bits - 1)))
        return encode_rows(small.reshape(len(small), -1), step, keep_zeros=True), step

    def decode(
        self, data: bytes, step: float, num_points: int, input_shape: tuple[int, ...], where: str
    ) -> Float[np.ndarray, "points ..."]:
        shape = self._small_shape(input_shape)
        rows = decode_rows(data, step, int(np.prod(shape)), num_points, where)
        if len(rows) != num_points:
            raise CoreshotError(f"{where}: {len(rows)} coded points, but {num_points} labels; distill it again.")
        return self._enlarge(rows.reshape(num_points, *shape), input_shape)

    def _small_shape(self, input_shape: tuple[int, ...]) -> tuple[int, ...]:
        if self.factor == 1:
            return input_shape
        if len(input_shape) != 3 or input_shape[0] % self.factor or input_shape[1] % self.factor:
            raise CoreshotError(
                f"coding: inputs of {input_shape} have no blocks of {self.factor} x {self.factor} pixels; "
                "use factor = 1."
            )
        return input_shape[0] // self.factor, input_shape[1] // self.factor, input_shape[2]

    def _shrink(self, x: Float[np.ndarray, "points ..."]) -> Float[np.ndarray, "points ..."]:
        if self.factor == 1:
            return x
        lines, columns, channels = self._small_shape(x.shape[1:])
        return x.reshape(len(x), lines, self.factor, columns, self.factor, channels).mean(axis=(2, 4))

    def _enlarge(
        self, x: Float[np.ndarray, "points ..."], input_shape: tuple[int, ...]
    ) -> Float[np.ndarray, "points ..."]:
        if self.factor == 1:
            return x
        return _interpolate(_interpolate(x, 1, input_shape[0]), 2, input_shape[1])


def _interpolate(x: Float[np.ndarray, "points ..."], axis: int, extent: int) -> Float[np.ndarray, "points ..."]:
    """Linear interpolation between block centres, by single products and sums, which round the same everywhere."""
    place = np.clip((np.arange(extent) + 0.5) * x.shape[axis] / extent - 0.5, 0, x.shape[axis] - 1)
    left = np.floor(place).astype(int)
    right = np.minimum(left + 1, x.shape[axis] - 1)
    share = (place - left).astype(np.float32).reshape([-1 if index == axis else 1 for index in range(x.ndim)])
    return (1 - share) * np.take(x, left, axis) + share * np.take(x, right, axis)
