"""The jump start: a one-shot result is the initial weights of a multi-round method.

d'Hondt et al., "One-Shot Federated Learning with Bayesian Pseudocoresets" (the red line of the convergence figure).
"""

from __future__ import annotations

import jax

from coreshot.errors import CoreshotError
from coreshot.inference.posterior import SamplePosterior
from coreshot.methods.protocol import MultiRound, State


def warm_start(method: MultiRound, posterior: SamplePosterior) -> State:
    """The method's state before its first round, which is round 1: round 0 was the one shot."""
    if posterior.num_samples > 1:
        raise CoreshotError(
            f"jump start: the posterior has {posterior.num_samples} samples, and the mean of their weights is not one "
            "of it; start from a MAP estimate (inference map_estimate with one chain)."
        )
    return method.begin(jax.tree.map(lambda leaf: leaf[0], posterior.params), first_round=1)
