"""The types that every package uses: weighted points, a coreset, a prediction, a posterior."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, Self, TypeAlias, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

Params: TypeAlias = dict[str, Any]
PRNGKey: TypeAlias = Key[Array, ""]
Kind: TypeAlias = Literal["classification", "regression"]  # of a task


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Points:
    """Private data, coresets and padding alike: a point of weight w counts as w observations, 0 marks padding.

    Stacked points of several clients have a leading client axis.
    """

    x: Float[Array, "n ..."]
    y: Float[Array, "n outputs"]  # one-hot or soft labels, or regression targets
    weight: Float[Array, " n"]

    @property
    def num_points(self) -> int:
        return self.weight.shape[-1]

    def reweighted(self, weight: Float[Array, "*clients n"]) -> Self:
        return replace(self, weight=weight)


def make_points(x: Any, y: Any, on_device: bool = True) -> Points:
    """Points of weight one. Without on_device, arrays are NumPy's: what has no use for others keeps no copies."""
    if not on_device:
        arrays: list[Any] = [np.asarray(x, np.float32), np.asarray(y, np.float32), np.ones(len(x), np.float32)]
        return Points(*arrays)
    x, y = jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)
    # numpy makes the ones: jnp.ones would compile for each size anew, and clients have many sizes.
    return Points(x, y, jnp.asarray(np.ones(x.shape[0], np.float32), jnp.float32))


def pad_points(points: Points, size: int) -> Points:
    """The same points, padded with rows of weight zero, so that clients of different sizes have arrays of one shape."""
    missing = size - points.num_points

    def pad(array: Array) -> Array:
        return jnp.pad(array, [(0, missing)] + [(0, 0)] * (array.ndim - 1))

    return jax.tree.map(pad, points)


def padded_size(num_points: int) -> int:
    """The next power of two: clients padded to it have few shapes, so there are few compilations."""
    return 1 << (num_points - 1).bit_length()


def concatenate_points(parts: Sequence[Points]) -> Points:
    return jax.tree.map(lambda *arrays: jnp.concatenate(arrays), *parts)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Coreset:
    """What a client has learned to say about its data: K points that stand for num_examples records."""

    points: Points
    num_examples: Array  # scalar, n_m


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Predictive:
    """What a posterior says about inputs, and how the uncertainty splits."""

    mean: Float[Array | np.ndarray, "n outputs"]  # class probabilities, or the mean of the function
    epistemic: Float[
        Array | np.ndarray, "n outputs"
    ]  # deviation between posterior samples: of probabilities, or of the function
    aleatoric: Float[
        Array | np.ndarray, "n outputs"
    ]  # what would remain with the weights known: deviation of the label, or of the noise


@runtime_checkable
class Posterior(Protocol):
    """What a server infers: samples of a network's weights, or a linear head in closed form."""

    @property
    def is_point_estimate(self) -> bool:
        """Whether it is one set of weights, so that it claims no epistemic uncertainty."""

    def predict(self, x: Float[Array | np.ndarray, "n ..."]) -> Predictive: ...

    def log_predictive(self, points: Points) -> Float[Array | np.ndarray, " n"]:
        """log p(y | x, messages) of each point: the density of the posterior average, not the average of the logs."""

    def sample_outputs(self, x: Float[Array | np.ndarray, "n ..."]) -> Float[Array, "samples n outputs"] | None:
        """Network outputs of each posterior sample; None for a closed form, which has no samples."""

    def novelty(self, x: Float[Array | np.ndarray, "n ..."]) -> Float[np.ndarray, " n"]:
        """How far each input is from all that the clients saw; a CoreshotError where the posterior cannot tell."""

    def usual_novelty(self) -> float | None:
        """The root mean square novelty of the clients' own records; None where the posterior cannot tell."""

    def arrays(self) -> dict[str, np.ndarray]:
        """What its file holds; the method that made it reads it back with `load_posterior`."""


@runtime_checkable
class Sees(Protocol):
    """A posterior that says what it sees of records, as the clients' sums are of it."""

    def seen(self, x: Float[Array | np.ndarray, "n ..."]) -> Float[np.ndarray, "n seen"]: ...
