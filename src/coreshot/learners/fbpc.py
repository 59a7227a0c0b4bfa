"""FBPC: as BPC-fKL, but in function space: the noise is of the outputs at the pseudo-points, not of the weights.

Kim et al., "Function Space Bayesian Pseudocoreset for Bayesian Neural Networks", NeurIPS 2023.

Outputs are drawn from N(f(Z; theta), Psi) around each trajectory's end, Psi the diagonal covariance of f(Z; .): S draws cost one pass through the
network, not S. Settings are bpc_fkl's; noise_scale, which is of weights, is not used.
Where we differ: Psi is taken over the trajectories of an update, not over a window of iterates, of which our store keeps the ends only.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from coreshot.config import settings
from coreshot.learners.bpc_fkl import BpcFkl, chain_ends, make_unravel
from coreshot.models import Model
from coreshot.types import Points, PRNGKey


@settings
class Fbpc(BpcFkl):
    def gradient(self, model: Model, points: Points, data: Points, key: PRNGKey, starts: Array, ends: Array) -> Points:
        key_chain, key_data, key_coreset = jax.random.split(key, 3)
        coreset_ends = jax.vmap(lambda params: ravel_pytree(params)[0])(
            chain_ends(self, model, points, key_chain, starts)
        )

        def expected(points: Points, ends: Array, key: PRNGKey) -> Float[Array, ""]:
            outputs = model.each(lambda flat: model.apply(make_unravel(model)(flat), points.x))(ends)
            deviation = jax.lax.stop_gradient(jnp.std(outputs, axis=0))
            noise = jax.random.normal(key, (self.num_noise_samples, *outputs.shape))
            log_prob = jax.vmap(jax.vmap(lambda one: model.log_prob_each(one, points.y)))(outputs + deviation * noise)
            return jnp.mean(jnp.sum(points.weight * log_prob, axis=-1))

        def contrast(points: Points) -> Float[Array, ""]:
            return expected(points, coreset_ends, key_coreset) - expected(points, ends, key_data)

        return self.scaled(jax.grad(contrast)(points))
