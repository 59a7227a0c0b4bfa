"""Sums of clipped per-example gradients in whole numbers, without keeping the largest part of each: the gradients of
dense kernels.

Goodfellow, "Efficient Per-Example Gradient Computations", 2015. The gradient of a dense kernel is the outer product of
the layer's input (a) and the gradient at its outputs (s). Its norm is |a| |s|, and each of its entries is one product,
which is rounded and added where it is computed. In the paper's ConvNet these are 98 % of 1.2 million weights. The other
weights (biases, convolutions, normalisations) are few, and differentiated for each record.

Each record's clipped gradient is rounded to whole numbers before anything is added. Nearly `UNIT` of them are the clip.
Whole numbers are added exactly and in any order, so removing a record takes away its own whole numbers and changes
nothing else: the sensitivity is that of one rounded gradient, whose norm is at most `UNIT`.

That needs one thing of the compiler: a record's gradient must not depend on where in a batch it stands. A test checks
it, on the machine on which it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from coreshot.models import Model
from coreshot.models.nested import flatten_dict, unflatten_dict
from coreshot.types import Params, Points

UNIT = 2**24  # what no rounded gradient is longer than: all whole numbers up to it are float32 numbers
MAX_RECORDS = 64  # in one sum, which then stays below 2^31
RECORDS_AT_ONCE = 4  # few, so that their arrays stay in the cache
# How much a float32 norm, and a product of three float32 numbers, can be wrong. See `_length`: the errors of about 40
# roundings, each of 2^-24 at most, of which a square root halves most.
ROUNDING = 2.0**-18
# Smaller numbers count as zero in norms and in products alike, whether or not the processor can tell them from zero.
SMALLEST = 1e-30
LARGEST = 1e30  # a longer gradient counts as not finite: the reciprocal of its length could vanish

Path = tuple[str, ...]  # of a weight in the tree, or of a layer


def clipped_sum(
    model: Model, params: Params, batch: Points, is_there: Bool[Array, " batch"], clip: Float[Array, ""]
) -> Params:
    """The sum of the gradients of minus the log-likelihood of single records, each clipped to norm `clip` and rounded,
    in whole numbers (int32), of which `clip_in_whole_numbers` are the clip.

    Padding behind the last present record costs no time.
    """
    assert len(is_there) <= MAX_RECORDS, "more records than the sum has room for"
    weights = flatten_dict(params)
    dense = [path[:-1] for path, weight in weights.items() if path[-1] == "kernel" and weight.ndim == 2]
    kernels = {path: weights.pop((*path, "kernel")) for path in dense}
    longest = clip_in_whole_numbers(sum(int(np.prod(one.shape)) for one in (*weights.values(), *kernels.values())))

    def add(index: Array, total: tuple[Any, Any]) -> tuple[Any, Any]:
        first = index * RECORDS_AT_ONCE
        x, y, here = (
            jax.lax.dynamic_slice_in_dim(array, first, RECORDS_AT_ONCE) for array in (filled.x, filled.y, present)
        )
        slopes_of_all = jax.vmap(lambda x, y: _slopes(model, weights, kernels, x, y))(x, y)
        small, slopes, inputs = jax.tree.map(lambda each: jnp.where(jnp.abs(each) < SMALLEST, 0.0, each), slopes_of_all)
        lengths = _lengths(small, slopes, inputs)
        # A gradient that is not finite becomes zero, because one record would determine the whole sum.
        counts = here & jnp.isfinite(lengths)
        scale = jnp.where(counts, longest / jnp.maximum(clip, jnp.where(counts, lengths, 1.0)), 0.0)
        of_small = jax.tree.map(lambda each: _rounded_sum(_broadcast(scale, each) * each), small)
        of_kernels = {
            path: _rounded_sum((scale[:, None] * inputs[path])[:, :, None] * slopes[path][:, None, :])
            for path in kernels
        }
        return jax.tree.map(jnp.add, total, (of_small, of_kernels))

    filled, present = _filled(batch, is_there)
    num_parts = -(-jnp.max(jnp.where(present, jnp.arange(1, len(present) + 1), 0)) // RECORDS_AT_ONCE)
    none = jax.tree.map(lambda weight: jnp.zeros(weight.shape, jnp.int32), (weights, kernels))
    small, of_kernels = jax.lax.fori_loop(0, num_parts, add, none)
    summed: Params = unflatten_dict({**small, **{(*path, "kernel"): kernel for path, kernel in of_kernels.items()}})
    return summed


def clip_in_whole_numbers(num_weights: int) -> float:
    """The norm to which a gradient is clipped before its entries are rounded, each by 1/2 at most: afterwards its norm
    is at most UNIT, whatever was rounded on the way."""
    return float((UNIT - np.sqrt(num_weights) / 2) * (1 - ROUNDING))


def _rounded_sum(values: Float[Array, "records ..."]) -> Int[Array, ...]:
    """Of whole numbers. What is not finite, because an intermediate product was too large, is left out."""
    whole = jnp.where(jnp.abs(values) <= UNIT, jnp.rint(values), 0.0)
    return jnp.sum(whole.astype(jnp.int32), axis=0)


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

        from flax.linen import intercept_methods  # a network is there, so flax is

        with intercept_methods(_listener(shift)):
            value = -model.log_prob(params, Points(x[None], y[None], jnp.ones(1)))
        assert inputs.keys() == kernels.keys(), "a kernel of a layer that is not flax's Dense"
        return value, inputs

    shifts = {path: jnp.zeros(kernel.shape[1]) for path, kernel in kernels.items()}
    (small, slopes), inputs = jax.grad(loss, argnums=(0, 1), has_aux=True)(weights, shifts)
    return small, slopes, inputs


def _listener(heard: Callable[[Path, Array, Array], Array]) -> Callable[..., Any]:
    """A flax interceptor: the output of a dense layer becomes heard(path, input, output)."""

    from flax.linen import Dense

    def listen(call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], context: Any) -> Any:
        given = call(*args, **kwargs)
        is_layer = isinstance(context.module, Dense) and context.method_name == "__call__"
        return heard(context.module.path, args[0], given) if is_layer else given

    return listen


def _lengths(
    small: dict[Path, Array], slopes: dict[Path, Array], inputs: dict[Path, Array]
) -> Float[Array, " records"]:
    """Norms of whole gradients; infinite where one is beyond LARGEST, and such a record's gradient becomes zero."""
    parts = [*map(_length, small.values()), *(_length(inputs[path]) * _length(slopes[path]) for path in slopes)]
    return _length(jnp.stack(parts, axis=1))


def _length(each: Float[Array, "records ..."]) -> Float[Array, " records"]:
    """Norms, in units of the largest entry: squares of small entries would underflow, and the norm be too small.

    Squares are added in pairs, then the sums in pairs, and so on: each goes through log2(size) roundings, whatever the
    compiler does, so that the error of the norm is known.
    """
    rows = each.reshape(len(each), -1).astype(jnp.float32)
    largest = jnp.max(jnp.abs(rows), axis=1)
    largest = jnp.where(largest <= LARGEST, largest, jnp.inf)
    squares = (rows / jnp.maximum(largest, jnp.finfo(jnp.float32).tiny)[:, None]) ** 2
    while squares.shape[1] > 1:
        squares = jnp.pad(squares, [(0, 0), (0, squares.shape[1] % 2)])
        half = squares.shape[1] // 2
        squares = squares[:, :half] + squares[:, half:]
    return jnp.where(jnp.isfinite(largest), largest * jnp.sqrt(squares[:, 0]), jnp.inf)


def _filled(batch: Points, is_there: Bool[Array, " batch"]) -> tuple[Points, Bool[Array, " filled"]]:
    missing = -len(is_there) % RECORDS_AT_ONCE
    filled = jax.tree.map(lambda array: jnp.pad(array, [(0, missing)] + [(0, 0)] * (array.ndim - 1)), batch)
    return filled, jnp.pad(is_there, (0, missing))


def _broadcast(values: Float[Array, " records"], like: Array) -> Array:
    return values.reshape(-1, *[1] * (like.ndim - 1))
