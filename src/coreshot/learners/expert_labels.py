"""Soft labels: what a client's experts predict, on average, at its pseudo-points."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from coreshot.learners.experts import make_unravel
from coreshot.models import Model
from coreshot.types import Points


@partial(jax.jit, static_argnums=0)
def mean_predictions(
    model: Model, points: Points, experts: Float[Array, "clients experts weights"]
) -> Float[Array, "clients points classes"]:
    """The class probabilities of each point, averaged over the experts.

    The KL's gradient in a label is E_C[log p] - E_D[log p], of the logits of each class; it vanishes where the label
    equals what the client's posterior predicts at the point, as the chains on the points then predict the same.
    """
    unravel = make_unravel(model)

    def one_client(points: Points, experts: Array) -> Array:
        each = jax.vmap(lambda flat: jax.nn.softmax(model.apply(unravel(flat), points.x)))(experts)
        return jnp.mean(each, axis=0)

    return jax.vmap(one_client)(points, experts)
