"""BPC-W: a pseudocoreset whose chains end where the experts' do, in Wasserstein distance: trajectory matching.

Kim et al., "On Divergence Measures for Bayesian Pseudocoresets", NeurIPS 2022 (section 3.2), after Cazenavette et al., "Dataset Distillation by
Matching Training Trajectories", CVPR 2022.

The loss is |theta_C - theta_D|^2 / |theta_0 - theta_D|^2, averaged over trajectories, and its gradient goes back through the whole chain: keep
coreset_chain_length short. Settings are bpc_fkl's; num_noise_samples and noise_scale are not used.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from coreshot.config import settings
from coreshot.learners.bpc_fkl import BpcFkl, chain_ends
from coreshot.models import Model
from coreshot.types import Points, PRNGKey


@settings
class BpcW(BpcFkl):
    def gradient(self, model: Model, points: Points, data: Points, key: PRNGKey, starts: Array, ends: Array) -> Points:
        def distance(points: Points) -> Float[Array, ""]:
            reached = jax.vmap(lambda params: ravel_pytree(params)[0])(chain_ends(self, model, points, key, starts))
            return jnp.mean(jnp.sum((reached - ends) ** 2, axis=1) / jnp.sum((starts - ends) ** 2, axis=1))

        return self.scaled(jax.grad(distance)(points))
