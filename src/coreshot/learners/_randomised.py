"""Randomise, then optimise: a perturbed data set whose most probable weights are a draw from the posterior. Ours, not the paper's.

A plain MAP trajectory says what the data say, not how sure they are: an ensemble of them agrees even where two noisy points are all there is.
Regression: each target gets noise of the likelihood's own scale (Bardsley et al. 2014; exact for a linear-Gaussian model with a flat prior).
Classification: each weight w becomes a Gamma(w) draw (weighted likelihood bootstrap, Newton and Raftery 1994).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from coreshot.models import Model
from coreshot.types import Points, PRNGKey


def randomised(key: PRNGKey, model: Model, points: Points) -> Points:
    """A point of weight w is w observations: their mean has noise_scale / sqrt(w). Each point draws by its position: padding changes nothing."""
    real = points.weight > 0
    weight = jnp.where(real, points.weight, 1.0)
    keys = jax.vmap(lambda index: jax.random.fold_in(key, index))(jnp.arange(points.num_points))
    if model.kind == "classification":
        return points.reweighted(jnp.where(real, jax.vmap(jax.random.gamma)(keys, weight), 0.0))
    noise = jax.vmap(lambda key: jax.random.normal(key, (model.num_outputs,)))(keys)
    return Points(points.x, points.y + model.noise_scale / jnp.sqrt(weight)[:, None] * noise, points.weight)
