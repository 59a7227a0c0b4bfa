"""How experts and coreset chains come to their weights: by climbing (the paper), or as draws from the posterior.

map: they climb log prior + log likelihood, as the paper's Algorithm 2 with its table's prior. A plain MAP trajectory says what the data say, not
how sure they are: an ensemble of them agrees even where two noisy points are all there is. So, ours:
randomised: they climb the posterior of a perturbed data set, whose most probable weights are a draw from the posterior. Regression: each target
gets noise of the likelihood's own scale (Bardsley et al. 2014; exact for a linear-Gaussian model with a flat prior). Classification: each weight
w becomes a Gamma(w) draw (weighted likelihood bootstrap, Newton and Raftery 1994).
langevin: every step adds the noise that makes its chain an unadjusted Langevin sampler of the posterior (Welling and Teh 2011).
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from coreshot.models import Model
from coreshot.types import Points, PRNGKey

Sampling: TypeAlias = Literal["map", "randomised", "langevin"]


def noise_scale(step_size: float, num_observations: Float[Array, ""]) -> Float[Array, ""]:
    """A step h on the log density over n is a step h / n on the log density: its Langevin noise has the variance 2 h / n."""
    return jnp.sqrt(2 * step_size / num_observations)


def randomised(key: PRNGKey, model: Model, points: Points) -> Points:
    """A point of weight w is w observations: their mean has noise_scale / sqrt(w). Each point draws by its position: padding changes nothing."""
    real = points.weight > 0
    weight = jnp.where(real, points.weight, 1.0)
    keys = jax.vmap(lambda index: jax.random.fold_in(key, index))(jnp.arange(points.num_points))
    if model.kind == "classification":
        return points.reweighted(jnp.where(real, jax.vmap(jax.random.gamma)(keys, weight), 0.0))
    noise = jax.vmap(lambda key: jax.random.normal(key, (model.num_outputs,)))(keys)
    return Points(points.x, points.y + model.noise_scale / jnp.sqrt(weight)[:, None] * noise, points.weight)
