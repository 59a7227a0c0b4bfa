"""Writes a small case of a pseudodata update without noise, and coreshot's gradient for it, in the form in which
torch_update.py checks its own.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import jax
import numpy as np
from coreshot_update import learner_of, model_of
from jax.flatten_util import ravel_pytree
from safetensors.numpy import save_file
from updates import UPDATES

from coreshot.learners.bpc_fkl import kl_gradient
from coreshot.learners.coreset_chains import chain_ends
from coreshot.types import Params, make_points

NUM_POINTS, CHAIN_LENGTH = 4, 5  # fewer points than a batch: nothing is drawn


def in_torch_order(params: Params) -> list[np.ndarray]:
    """Kernels before biases, output before input; the first dense layer of a ConvNet sees channels before lines
    and columns.
    """
    found, channels = [], 0
    for name, layer in params.items():
        kernel, bias = (np.asarray(layer[part]) for part in ("kernel" if "kernel" in layer else "scale", "bias"))
        if name.startswith("Conv"):
            kernel, channels = kernel.transpose(3, 2, 0, 1), kernel.shape[3]
        elif name.startswith("Dense") and channels:
            side = round((len(kernel) / channels) ** 0.5)
            kernel, channels = (
                kernel.reshape(side, side, channels, -1).transpose(3, 2, 0, 1).reshape(kernel.shape[1], -1),
                0,
            )
        elif name.startswith("Dense"):
            kernel = kernel.T
        found += [kernel, bias]
    return found


def case(name: str) -> dict[str, np.ndarray]:
    update = replace(UPDATES[name], num_points=NUM_POINTS, chain_length=CHAIN_LENGTH)
    model, learner = model_of(update), learner_of(update)
    draws = np.random.default_rng(0)
    x = draws.random((NUM_POINTS, *update.input_shape), np.float32)
    label = draws.integers(update.num_outputs, size=NUM_POINTS)
    points = make_points(x, np.eye(update.num_outputs, dtype=np.float32)[label])
    start, end = (model.init(jax.random.key(seed)) for seed in range(2))
    coreset_end = jax.jit(chain_ends, static_argnums=(0, 1))(
        learner, model, points, jax.random.key(2), ravel_pytree(start)[0][None]
    )
    gradient = np.asarray(kl_gradient(model, points, jax.tree.map(lambda leaf: leaf[None], end), coreset_end).x)
    channels_first = (0, x.ndim - 1, *range(1, x.ndim - 1))
    arrays = {
        "x": x.transpose(channels_first),
        "y": label,
        "chain_length": np.array(CHAIN_LENGTH),
        "gradient": gradient.transpose(channels_first),
    }
    for kind, params in (("start", start), ("end", end)):
        arrays |= {f"{kind}.{index}": array for index, array in enumerate(in_torch_order(params))}
    return {f"{name}.{key}": np.ascontiguousarray(array) for key, array in arrays.items()}


if __name__ == "__main__":
    save_file({key: array for name in UPDATES for key, array in case(name).items()}, sys.argv[1])
