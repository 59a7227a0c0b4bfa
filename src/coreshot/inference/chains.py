"""Several chains at once; their draws along one axis, ordered by chain, then by draw."""

from __future__ import annotations

from collections.abc import Callable

import jax

from coreshot.inference.posterior import SamplePosterior
from coreshot.inference.protocol import Info
from coreshot.models import LogDensity
from coreshot.types import Params, PRNGKey


def sample_each(
    one_chain: Callable[[LogDensity, PRNGKey, Params], tuple[Params, Info]],
    num_chains: int,
    key: PRNGKey,
    log_density: LogDensity,
    init: Params,
) -> tuple[SamplePosterior, Info]:
    """one_chain returns draws along a leading axis; init has a leading chain axis."""
    keys = jax.random.split(key, num_chains)
    draws, info = log_density.model.each(lambda key, params: one_chain(log_density, key, params))(keys, init)
    return SamplePosterior(
        log_density.model, jax.tree.map(lambda draws: draws.reshape(-1, *draws.shape[2:]), draws)
    ), info
