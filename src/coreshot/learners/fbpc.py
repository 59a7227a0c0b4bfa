"""FBPC: as BPC-fKL, but in function space: the noise is added to the outputs at the pseudo-points, not to the weights.

Kim et al., "Function Space Bayesian Pseudocoreset for Bayesian Neural Networks", NeurIPS 2023. Symbols and settings are
those of `bpc_fkl`; noise_scale is not used.

Outputs are drawn from N(f(Z; theta), Psi) around each trajectory's end, where Psi is the diagonal covariance of f(Z;
.). S draws therefore cost one pass through the network, not S. Where we differ: Psi is taken over the trajectories of
an update, not over a window of iterates, because our store keeps only the ends of chains.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from coreshot.config import settings
from coreshot.keys import named_key
from coreshot.learners.bpc_fkl import BpcFkl
from coreshot.learners.coreset_chains import flat_chain_ends
from coreshot.learners.experts import make_unravel
from coreshot.models import Model
from coreshot.types import Points, PRNGKey


@settings
class Fbpc(BpcFkl):
    def gradient(
        self, key: PRNGKey, model: Model, points: Points, data: Points, networks: PyTree[Array], drawn: PyTree[Array]
    ) -> Points:
        (starts, ends), (key_chain, key_data, key_coreset) = drawn, jax.random.split(key, 3)
        coreset_ends = flat_chain_ends(self, model, points, key_chain, starts)

        def expected(points: Points, ends: Array, key: PRNGKey) -> Float[Array, ""]:
            outputs = model.each(lambda flat: model.apply(make_unravel(model)(flat), points.x))(ends)
            deviation = jax.lax.stop_gradient(jnp.std(outputs, axis=0))
            noise = jax.random.normal(key, (self.num_noise_samples, *outputs.shape))
            log_prob = jax.vmap(jax.vmap(lambda one: model.log_prob_each(one, points.y)))(outputs + deviation * noise)
            return jnp.mean(jnp.sum(points.weight * log_prob, axis=-1))

        def contrast(points: Points) -> Float[Array, ""]:
            points = model.augment(named_key(key, "augment"), points)
            return expected(points, coreset_ends, key_coreset) - expected(points, ends, key_data)

        return self.scaled(jax.grad(contrast)(points))

    def gradient_passes(self, num_records: int) -> int:
        """Noise samples are of outputs, and need no further pass."""
        return self.num_points * (self.num_trajectories + (self.num_data_draws or self.num_trajectories))
