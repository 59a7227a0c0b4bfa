"""What every server inference is: a map from a log density and initial weights to a posterior."""

from __future__ import annotations

from typing import Protocol

from jaxtyping import Array

from coreshot.inference.posterior import SamplePosterior
from coreshot.models import LogDensity
from coreshot.types import Params, PRNGKey

Info = dict[str, Array]  # diagnostics that do not persist: per chain, or per chain and draw


class Inference(Protocol):
    @property
    def num_chains(self) -> int:
        """The number of initial weights that it needs."""

    @property
    def num_samples(self) -> int:
        """Samples kept of each chain."""

    def num_passes(self, num_points: int) -> int:
        """Training passes of a chain, at most: gradients at one point, summed over num_points of them."""

    def __call__(self, key: PRNGKey, log_density: LogDensity, init: Params) -> tuple[SamplePosterior, Info]:
        """init has a leading chain axis; the posterior's samples are ordered by chain, then by draw."""
