"""A network in a file of ONNX as a feature map: any network that all sides have, and that nobody trains.

File and SHA-256, outputs, input size and constants are in the study; onnxruntime runs it (`coreshot.frozen.network`).
Outputs are standardised by public constants and rounded, so that sites on different machines compute the same features:
an entry differs only where it is at a border, and then by one step of `round_to`.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from pydantic import Field

from coreshot.config import Count, Positive, settings
from coreshot.errors import CoreshotError
from coreshot.frozen.files import Sha256, check_inside, find_file
from coreshot.frozen.images import Filter, check_channels, prepare_images
from coreshot.frozen.network import Network, load_network, run_records
from coreshot.spectral.public_constants import read_constants, standardise
from coreshot.spectral.random_layer import RandomOnTop, Weights
from coreshot.types import PRNGKey

IMAGES_AT_ONCE = 16  # prepared for the network: 16 images of 224 x 224 take 40 MB in float64
PIXELS = 32  # a weight of a convolutional network is used about once in every 32 x 32 pixels


@settings
class Onnx:
    """Outputs of a network in a file, joined; with random features of them beside, if the study wants them."""

    name: Literal["onnx"] = "onnx"
    dimension: Count  # of all outputs together, and of the random features
    file: str
    sha256: Sha256
    outputs: Annotated[tuple[str, ...], Field(min_length=1)]
    layout: Literal["channels_first", "channels_last", "vector"] = "channels_first"
    input_size: tuple[Count, Count] | None = None  # images are resized to this height and width; None: as they are
    resize: Filter = "bicubic"
    mean: Annotated[tuple[float, ...], Field(min_length=1)] = (0.0,)  # of each channel, subtracted before
    deviation: Annotated[tuple[Positive, ...], Field(min_length=1)] = (1.0,)
    mirrored: bool = False  # the mean of the outputs of an image and of its mirror image
    sidecar: str | None = None  # file with the outputs' means and deviations on public records
    sidecar_sha256: Sha256 | None = None
    scale: Positive = 1.0  # without a sidecar: outputs are divided by this
    round_to: Positive = 2.0**-8  # of a standardised output
    random_features: RandomOnTop | None = None

    def __post_init__(self) -> None:
        for file in (self.file, self.sidecar):
            if file is not None:
                check_inside(file)
        if (self.sidecar is None) != (self.sidecar_sha256 is None):
            raise CoreshotError("features: a sidecar has a file and a SHA-256; give sidecar and sidecar_sha256.")
        if self.layout == "vector" and (self.input_size is not None or self.mirrored):
            raise CoreshotError("features: vectors are neither resized nor mirrored; remove input_size and mirrored.")
        if len(set(self.outputs)) < len(self.outputs):
            raise CoreshotError("features: an output is named twice; name each once.")

    @property
    def num_frozen(self) -> int:
        return self.dimension - (self.random_features.dimension if self.random_features else 0)

    def check(self, input_shape: tuple[int, ...]) -> None:
        """The file is run once on zeros."""
        if self.layout != "vector":
            if len(input_shape) != 3:
                raise CoreshotError(
                    f"features: {self.layout} is for images (lines, columns, channels), the study has "
                    f'{list(input_shape)}; use layout = "vector".'
                )
            check_channels(input_shape, self.mean, self.deviation, "features")
        found = self._run(np.zeros((1, *input_shape), np.float32)).shape[1]
        if found != self.num_frozen:
            beside = f" beside {self.random_features.dimension} random ones" if self.random_features else ""
            raise CoreshotError(
                f"features: {', '.join(self.outputs)} of {self.file} {'has' if len(self.outputs) == 1 else 'have'} "
                f"{found} numbers, the study's dimension leaves {self.num_frozen}{beside}; change it."
            )
        if self.sidecar is None or self.sidecar_sha256 is None:
            return
        num_constants = len(read_constants(self.sidecar, self.sidecar_sha256, self.sha256, self.outputs)[0])
        if num_constants != found:
            raise CoreshotError(
                f"features: {self.sidecar} has constants for {num_constants} numbers, the network gives {found}; "
                "make it again with examples/backbones/sidecar.py."
            )

    def draw(self, key: PRNGKey, input_shape: tuple[int, ...]) -> Weights:
        """Constants and random weights."""
        weights = {} if self.random_features is None else self.random_features.draw(key, self.num_frozen)
        if self.sidecar is None or self.sidecar_sha256 is None:
            return weights
        center, spread = read_constants(self.sidecar, self.sidecar_sha256, self.sha256, self.outputs)
        return {**weights, "center": jnp.asarray(center), "spread": jnp.asarray(spread)}

    def _network(self) -> tuple[Network, str]:
        network = load_network(self.file, self.sha256)
        network.check_outputs(self.outputs)
        if len(network.inputs) != 1:
            raise CoreshotError(
                f"features: {self.file} has the inputs {', '.join(network.inputs)}, and a feature map has one; "
                "take a network with one input."
            )
        return network, next(iter(network.inputs))

    def _run(self, x: Float[np.ndarray, "n ..."]) -> Float[np.ndarray, "n frozen"]:
        network, input_name = self._network()
        if self.layout == "vector":
            flat = (x.reshape(len(x), -1) - np.asarray(self.mean)) / np.asarray(self.deviation)
            return run_records(network, input_name, self.outputs, flat.astype(np.float32))
        parts = []
        for first in range(0, len(x), IMAGES_AT_ONCE):
            images = x[first : first + IMAGES_AT_ONCE]
            sides = [images, images[:, :, ::-1]] if self.mirrored else [images]
            found = [
                run_records(
                    network,
                    input_name,
                    self.outputs,
                    prepare_images(side, self.input_size, self.resize, self.mean, self.deviation, self.layout),
                )
                for side in sides
            ]
            parts.append(sum(found[1:], found[0]) / len(found))
        return np.concatenate(parts)

    def embed(self, weights: Weights, x: Float[np.ndarray, "n ..."]) -> Float[np.ndarray, "n frozen"]:
        center, spread = weights.get("center", 0.0), weights.get("spread", self.scale)
        return standardise(self._run(x), center, spread, self.round_to)

    def apply(self, weights: Weights, x: Float[Array, "n frozen"]) -> Float[Array, "n d"]:
        return x if self.random_features is None else self.random_features.apply(weights, x)

    def operations(self, input_shape: tuple[int, ...]) -> float:
        """A guess from the size of the file: a float32 weight is four bytes."""
        path = find_file(self.file)
        num_weights = path.stat().st_size / 4 if path.is_file() else 0.0
        lines, columns = self.input_size or (input_shape[:2] if self.layout != "vector" else (PIXELS, PIXELS))
        uses = max(1.0, lines * columns / PIXELS**2) * (1 + self.mirrored)
        random = 2 * self.num_frozen * (self.dimension - self.num_frozen)
        return 2 * num_weights * uses + random


@settings
class Precomputed:
    """The records are vectors of a named embedding already: the site computed them before, and its file says so."""

    name: Literal["precomputed"] = "precomputed"
    dimension: Count  # of a vector, and of the random features
    embedding: str  # its name
    sha256: Sha256  # of the network that makes it
    sidecar: str | None = None
    sidecar_sha256: Sha256 | None = None
    sidecar_output: str = "embedding"  # whose means and deviations
    scale: Positive = 1.0  # without a sidecar: vectors are divided by this
    largest: Positive = 1000.0  # a standardised entry beyond this is of another embedding
    round_to: Positive = 2.0**-8
    random_features: RandomOnTop | None = None

    def __post_init__(self) -> None:
        if self.sidecar is not None:
            check_inside(self.sidecar)
        if (self.sidecar is None) != (self.sidecar_sha256 is None):
            raise CoreshotError("features: a sidecar has a file and a SHA-256; give sidecar and sidecar_sha256.")

    @property
    def num_frozen(self) -> int:
        return self.dimension - (self.random_features.dimension if self.random_features else 0)

    def check(self, input_shape: tuple[int, ...]) -> None:
        length = math.prod(input_shape)
        if length != self.num_frozen:
            raise CoreshotError(
                f"features: vectors of {self.embedding} have length {self.num_frozen} by the study's dimension, and "
                f"its inputs are {list(input_shape)}; make them agree."
            )
        if self.sidecar is None or self.sidecar_sha256 is None:
            return
        constants = read_constants(self.sidecar, self.sidecar_sha256, self.sha256, (self.sidecar_output,))
        if len(constants[0]) != length:
            raise CoreshotError(
                f"features: {self.sidecar} has constants for {len(constants[0])} numbers, vectors of {self.embedding} "
                f"have {length}; take the right sidecar."
            )

    def draw(self, key: PRNGKey, input_shape: tuple[int, ...]) -> Weights:
        weights = {} if self.random_features is None else self.random_features.draw(key, self.num_frozen)
        if self.sidecar is None or self.sidecar_sha256 is None:
            return weights
        center, spread = read_constants(self.sidecar, self.sidecar_sha256, self.sha256, (self.sidecar_output,))
        return {**weights, "center": jnp.asarray(center), "spread": jnp.asarray(spread)}

    def embed(self, weights: Weights, x: Float[np.ndarray, "n ..."]) -> Float[np.ndarray, "n frozen"]:
        flat = x.reshape(len(x), -1)
        found = standardise(flat, weights.get("center", 0.0), weights.get("spread", self.scale), self.round_to)
        if not np.all(np.abs(found) <= self.largest):
            raise CoreshotError(
                f"features: some records are no vectors of {self.embedding}: an entry is not finite, or beyond "
                f"{self.largest:g} deviations; compute them again with the study's network."
            )
        return found

    def apply(self, weights: Weights, x: Float[Array, "n frozen"]) -> Float[Array, "n d"]:
        return x if self.random_features is None else self.random_features.apply(weights, x)

    def operations(self, input_shape: tuple[int, ...]) -> float:
        return 2 * self.num_frozen * (self.dimension - self.num_frozen)
