"""How experts and coreset chains sample weights: by MAP ascent (the paper), or as draws from the posterior (ours).

| sampling   | what a chain ascends                                                                                |
|------------|-----------------------------------------------------------------------------------------------------|
| map        | log prior + log likelihood: the paper's Algorithm 2 with its table's prior                          |
| randomised | the posterior of a perturbed data set, whose most probable weights are a draw from the posterior    |
| langevin   | as map, and every step adds the noise of an unadjusted Langevin sampler (Welling and Teh 2011)      |

An ensemble of MAP trajectories does not show uncertainty: its members agree even where two noisy points are all there
is. The perturbation of "randomised" is, in regression, noise of the likelihood's own scale on each target (Bardsley et
al. 2014; exact for a linear-Gaussian model with a flat prior), and in classification a Gamma(w) draw for each weight w
(weighted likelihood bootstrap, Newton and Raftery 1994).
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from coreshot.models import Model
from coreshot.types import Points, PRNGKey

Sampling: TypeAlias = Literal["map", "randomised", "langevin"]


def langevin_noise_scale(step_size: float, num_observations: Float[Array, ""]) -> Float[Array, ""]:
    """Standard deviation: a step h on (log density / n) is a step h / n on the log density, so its variance is 2 h /
    n.
    """
    return jnp.sqrt(2 * step_size / num_observations)


def randomised(key: PRNGKey, model: Model, points: Points) -> Points:
    """A perturbed copy. A point of weight w is w observations, whose mean has noise of noise_scale / sqrt(w).

    Each point draws by its position, so padding changes nothing.
    """
    real = points.weight > 0
    weight = jnp.where(real, points.weight, 1.0)
    keys = jax.vmap(lambda index: jax.random.fold_in(key, index))(jnp.arange(points.num_points))
    if model.kind == "classification":
        return points.reweighted(jnp.where(real, jax.vmap(jax.random.gamma)(keys, weight), 0.0))
    noise = jax.vmap(lambda key: jax.random.normal(key, (model.num_outputs,)))(keys)
    return Points(points.x, points.y + model.noise_scale / jnp.sqrt(weight)[:, None] * noise, points.weight)
