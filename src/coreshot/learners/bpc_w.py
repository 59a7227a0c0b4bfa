"""BPC-W: a pseudocoreset whose chains end where the experts' do, in Wasserstein distance: trajectory matching.

Kim et al., "On Divergence Measures for Bayesian Pseudocoresets", NeurIPS 2022 (section 3.2), after Cazenavette et al.,
"Dataset Distillation by Matching Training Trajectories", CVPR 2022. Symbols and settings are those of `bpc_fkl`.

The loss is |theta_C - theta_D|^2 / |theta_0 - theta_D|^2, averaged over trajectories. Its gradient goes back through
the whole chain, so coreset_chain_length should be short. num_noise_samples and noise_scale are not used.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from coreshot.config import settings
from coreshot.learners.bpc_fkl import BpcFkl
from coreshot.learners.coreset_chains import flat_chain_ends
from coreshot.models import Model
from coreshot.types import Points, PRNGKey


@settings
class BpcW(BpcFkl):
    def gradient(
        self, key: PRNGKey, model: Model, points: Points, data: Points, networks: PyTree[Array], drawn: PyTree[Array]
    ) -> Points:
        starts, ends = drawn

        def distance(points: Points) -> Float[Array, ""]:
            reached = flat_chain_ends(self, model, points, key, starts)
            return jnp.mean(
                jnp.sum((reached - ends) ** 2, axis=1) / jnp.sum((starts[:, : ends.shape[1]] - ends) ** 2, axis=1)
            )

        return self.scaled(jax.grad(distance)(points))

    def gradient_passes(self, num_records: int) -> int:
        """Back through the chain: each of its steps once more."""
        return self.num_trajectories * self.coreset_chain_length * min(self.batch_size, self.num_points)
