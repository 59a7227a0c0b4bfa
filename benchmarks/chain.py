"""The compiled coreset chain of the paper's ConvNet over this machine's own matrix product, in one process, as JSON.

The best of several turns of each: what the machine can do, whatever else it was doing at times.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
from compilations import Compilations
from coreshot_update import learner_of, model_of
from jax.flatten_util import ravel_pytree
from updates import CHANNELS, DENSE, EMNIST, Update

from coreshot.learners.coreset_chains import chain_ends
from coreshot.types import Points, make_points

CORES = os.cpu_count() or 1
SIZE = 2048
NUM_TURNS = 6
CHAIN = replace(EMNIST, chain_length=10)


def step_flops(update: Update) -> int:
    """Nominal, of one training step of the ConvNet: what a layer multiplies and adds, for each image of a batch,
    forward and twice backward.

    Backward, one product gives the gradient in the weights and one that in the layer's input, which the first
    layer does not need.
    For 28 x 28 images and 62 classes, forward and in millions: 0.4 and 21.2 in the convolutions, 2.4 and 0.02 in
    the dense layers.
    """
    side, _, depth = update.input_shape
    products, before = [], depth
    for after in CHANNELS:
        side -= 2
        products.append(side * side * 9 * before * after)
        before = after
    before *= (side // 2) ** 2
    for after in (*DENSE, update.num_outputs):
        products.append(before * after)
        before = after
    return 2 * update.batch_size * (3 * sum(products) - products[0])


def some_points(update: Update) -> Points:
    x = jax.random.uniform(jax.random.key(0), (update.num_points, *update.input_shape))
    return make_points(x, jnp.eye(update.num_outputs)[jnp.arange(update.num_points) % update.num_outputs])


def compiled_chain(update: Update) -> Callable[[int], None]:
    """A function of a seed that runs all of a client's chains once."""
    model, points = model_of(update), some_points(update)
    run = jax.jit(partial(chain_ends, learner_of(update), model))
    starts = jnp.stack([ravel_pytree(model.init(jax.random.key(index)))[0] for index in range(update.num_trajectories)])
    keys = [jax.random.key(seed) for seed in range(CORES)]
    return lambda seed: jax.block_until_ready(run(points, keys[seed], starts)) and None


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    chain = compiled_chain(CHAIN)
    matrix = jax.random.normal(jax.random.key(0), (SIZE, SIZE), jnp.float32)
    product = jax.jit(jnp.matmul)
    with ThreadPoolExecutor(CORES) as pool:
        works = {
            "sgemm": lambda: jax.block_until_ready(product(matrix, matrix)),
            "beside": lambda: list(pool.map(chain, range(CORES))),
            "alone": lambda: chain(0),
        }
        for work in works.values():
            work()
        compilations = Compilations()
        best = dict.fromkeys(works, math.inf)
        for _ in range(NUM_TURNS):
            best = {name: min(best[name], seconds(work)) for name, work in works.items()}
    flops = CHAIN.num_trajectories * CHAIN.chain_length * step_flops(CHAIN)
    sgemm, beside, alone = 2 * SIZE**3 / best["sgemm"], CORES * flops / best["beside"], flops / best["alone"]
    print(
        json.dumps(
            {
                "sgemm_gflops": sgemm / 1e9,
                "conv_chain_gflops": beside / 1e9,
                "conv_chain_over_sgemm": beside / sgemm,
                "conv_chain_alone_over_sgemm": alone / sgemm,
                "second_call_compilations": compilations.count,
            }
        )
    )


if __name__ == "__main__":
    main()
