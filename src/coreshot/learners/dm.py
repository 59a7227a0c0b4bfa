"""DM: pseudo-points whose features, under random networks, have the same class means as the client's data.

Zhao and Bilen, "Dataset Condensation with Distribution Matching", WACV 2023.

| paper              | here                                                        |
|--------------------|-------------------------------------------------------------|
| psi_theta          | Model.embed under fresh initial weights, drawn each update  |
| A(., omega)        | the same random shift of real and pseudo-images, max_shift  |
| Eq. (4)            | `loss`: over classes, squared distance of the mean features |

The client's data enter through the class means alone. Where we differ: all of a class's records make the mean, not a
batch of 256.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from coreshot.config import NonNegativeInt, settings
from coreshot.errors import CoreshotError
from coreshot.learners.descent import LossDescent
from coreshot.models import Model
from coreshot.types import Params, Points, PRNGKey


@settings
class Dm(LossDescent):
    max_shift: NonNegativeInt = 0  # pixels, of images

    def networks(self, key: PRNGKey, model: Model) -> Params:
        if model.kind != "classification":
            raise CoreshotError("learner: dm matches the means of classes, and regression has none; use bpc_fkl.")
        return model.init(key)

    def loss(self, key: PRNGKey, model: Model, points: Points, data: Points, networks: Params) -> Float[Array, ""]:
        shift = jax.random.randint(key, (2,), -self.max_shift, self.max_shift + 1)
        ours, theirs = (model.embed(networks, self._shifted(x, shift)) for x in (points.x, data.x))
        real, pseudo = (one.weight[:, None] * one.y for one in (data, points))
        both = (jnp.sum(real, axis=0) > 0) & (jnp.sum(pseudo, axis=0) > 0)
        gap = _means(real, theirs) - _means(pseudo, ours)
        return jnp.sum(jnp.where(both, jnp.sum(gap**2, axis=1), 0.0))

    def _shifted(self, x: Float[Array, "n ..."], shift: Array) -> Float[Array, "n ..."]:
        if not self.max_shift:
            return x
        return jnp.roll(x, shift, axis=(1, 2))

    def train_networks(
        self, key: PRNGKey, model: Model, points: Points, networks: Any, update: Int[Array, ""]
    ) -> Params:
        return model.init(key)

    def update_passes(self, model: Model, num_records: int) -> float:
        return self.num_points + num_records


def _means(weight: Float[Array, "n classes"], features: Float[Array, "n features"]) -> Float[Array, "classes features"]:
    return (weight.T @ features) / jnp.maximum(jnp.sum(weight, axis=0), 1e-6)[:, None]
