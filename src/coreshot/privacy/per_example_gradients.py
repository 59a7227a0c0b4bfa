"""Sums of clipped per-example gradients, without computing the largest part of each: the gradients of dense kernels.

Goodfellow, "Efficient Per-Example Gradient Computations", 2015. The gradient of a dense kernel is the outer product of
the layer's input (a) and the gradient at its outputs (s). Its norm is |a| |s|, and the sum of the clipped ones is one
matrix product. In the paper's ConvNet these are 98 % of 1.2 million weights. The other weights (biases, convolutions,
normalisations) are few, and differentiated for each record. The sum then takes little longer than a plain gradient of
the batch, and a third of the time of whole per-example gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict, unflatten_dict
from jaxtyping import Array, Bool, Float

from coreshot.models import Model
from coreshot.types import Params, Points

RECORDS_AT_ONCE = 4  # few, so that their arrays stay in the cache

Path = tuple[str, ...]  # of a weight in the tree, or of a layer


def clipped_sum(
    model: Model, params: Params, batch: Points, is_there: Bool[Array, " batch"], clip: Float[Array, ""]
) -> Params:
    """The sum of the gradients of minus the log-likelihood of single records, each clipped to norm `clip`.

    Padding behind the last present record costs no time.
    """
    weights = flatten_dict(params)
    dense = [path[:-1] for path, weight in weights.items() if path[-1] == "kernel" and weight.ndim == 2]
    kernels = {path: weights.pop((*path, "kernel")) for path in dense}

    def add(index: Array, total: tuple[Any, Any]) -> tuple[Any, Any]:
        first = index * RECORDS_AT_ONCE
        x, y, here = (
            jax.lax.dynamic_slice_in_dim(array, first, RECORDS_AT_ONCE) for array in (filled.x, filled.y, present)
        )
        small, slopes, inputs = jax.vmap(lambda x, y: _slopes(model, weights, kernels, x, y))(x, y)
        lengths = _lengths(small, slopes, inputs)
        scale = jnp.where(here, jnp.minimum(1.0, clip / jnp.maximum(lengths, 1e-12)), 0.0)
        # A gradient that is not finite becomes zero, because one record would determine the whole sum.
        scale = jnp.where(jnp.isfinite(lengths), scale, 0.0)
        small, slopes, inputs = jax.tree.map(
            lambda each: jnp.where(_broadcast(jnp.isfinite(lengths), each), each, 0.0), (small, slopes, inputs)
        )
        of_kernels = {path: (scale[:, None] * inputs[path]).T @ slopes[path] for path in kernels}
        return jax.tree.map(
            jnp.add, total, (jax.tree.map(lambda each: jnp.tensordot(scale, each, 1), small), of_kernels)
        )

    filled, present = _filled(batch, is_there)
    num_parts = -(-jnp.max(jnp.where(present, jnp.arange(1, len(present) + 1), 0)) // RECORDS_AT_ONCE)
    small, of_kernels = jax.lax.fori_loop(0, num_parts, add, jax.tree.map(jnp.zeros_like, (weights, kernels)))
    summed: Params = unflatten_dict({**small, **{(*path, "kernel"): kernel for path, kernel in of_kernels.items()}})
    return summed


def _slopes(
    model: Model, weights: dict[Path, Array], kernels: dict[Path, Array], x: Array, y: Array
) -> tuple[dict[Path, Array], dict[Path, Array], dict[Path, Array]]:
    """For one record: the gradient of all weights but dense kernels, and the gradients at the outputs and the inputs of
    dense layers."""

    def loss(weights: dict[Path, Array], shifts: dict[Path, Array]) -> tuple[Array, dict[Path, Array]]:
        params = unflatten_dict({**weights, **{(*path, "kernel"): kernel for path, kernel in kernels.items()}})
        inputs: dict[Path, Array] = {}

        def shift(path: Path, got: Array, given: Array) -> Array:
            assert path not in inputs, "a dense layer that is used twice"
            assert got.ndim == 2, "a dense layer over more than one axis"
            inputs[path] = got[0].astype(jnp.float32)
            return given + shifts[path]

        with nn.intercept_methods(_listener(shift)):
            value = -model.log_prob(params, Points(x[None], y[None], jnp.ones(1)))
        assert inputs.keys() == kernels.keys(), "a kernel of a layer that is not flax's Dense"
        return value, inputs

    shifts = {path: jnp.zeros(kernel.shape[1]) for path, kernel in kernels.items()}
    (small, slopes), inputs = jax.grad(loss, argnums=(0, 1), has_aux=True)(weights, shifts)
    return small, slopes, inputs


def _listener(heard: Callable[[Path, Array, Array], Array]) -> Callable[..., Any]:
    """A flax interceptor: the output of a dense layer becomes heard(path, input, output)."""

    def listen(call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], context: Any) -> Any:
        given = call(*args, **kwargs)
        is_layer = isinstance(context.module, nn.Dense) and context.method_name == "__call__"
        return heard(context.module.path, args[0], given) if is_layer else given

    return listen


def _lengths(
    small: dict[Path, Array], slopes: dict[Path, Array], inputs: dict[Path, Array]
) -> Float[Array, " records"]:
    """Norms of whole gradients; infinite where a norm is beyond float32, and such a record's gradient becomes zero."""
    parts = [*map(_length, small.values()), *(_length(inputs[path]) * _length(slopes[path]) for path in slopes)]
    return _length(jnp.stack(parts, axis=1))


def _length(each: Float[Array, "records ..."]) -> Float[Array, " records"]:
    """Norms, in units of the largest entry: squares of small entries would underflow, and the norm be too small."""
    rows = each.reshape(len(each), -1).astype(jnp.float32)
    largest = jnp.max(jnp.abs(rows), axis=1)
    return largest * jnp.linalg.norm(rows / jnp.maximum(largest, jnp.finfo(jnp.float32).tiny)[:, None], axis=1)


def _filled(batch: Points, is_there: Bool[Array, " batch"]) -> tuple[Points, Bool[Array, " filled"]]:
    missing = -len(is_there) % RECORDS_AT_ONCE
    filled = jax.tree.map(lambda array: jnp.pad(array, [(0, missing)] + [(0, 0)] * (array.ndim - 1)), batch)
    return filled, jnp.pad(is_there, (0, missing))


def _broadcast(flags: Bool[Array, " records"], like: Array) -> Array:
    return flags.reshape(-1, *[1] * (like.ndim - 1))
