"""The coreset chain with the convolution that coreshot takes on a CPU over the same chain with XLA's own, as JSON;
small: XLA's takes long.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace

import jax
from chain import compiled_chain, seconds
from updates import EMNIST

from coreshot.models import model as models
from coreshot.models.cpu_convolution import patch_convolution

NUM_TURNS = 3
CHAIN = replace(EMNIST, num_trajectories=1, batch_size=5, chain_length=3)


def chain_with(convolution: Callable[..., jax.Array]) -> Callable[[], None]:
    """Compiled at once, because the convolution is chosen while a program is traced."""
    models.convolution = lambda: convolution
    run = compiled_chain(CHAIN)
    run(0)
    return lambda: run(0)


def main() -> None:
    chains = {"patches": chain_with(patch_convolution), "lax": chain_with(jax.lax.conv_general_dilated)}
    best = dict.fromkeys(chains, math.inf)
    for _ in range(NUM_TURNS):
        best = {name: min(best[name], seconds(run)) for name, run in chains.items()}
    print(json.dumps({"patches_over_lax_conv": best["lax"] / best["patches"]}))


if __name__ == "__main__":
    main()
