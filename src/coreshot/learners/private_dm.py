"""DM with a promise: class sums of features under a few random networks are released once, with noise, and points are matched to them offline.

As `dm`, but the networks are fixed (they come from the study's key), features have norm one, and the records are seen only in one sum of
y (x) [features under each network, 1] / sqrt(networks + 1), of which each term has norm at most one. Points start around a constant that the study
names and cycle through all classes; every client counts as the same number of records.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from coreshot.config import Count, Positive, settings
from coreshot.errors import CoreshotError
from coreshot.keys import fold_each, named_key
from coreshot.learners._descent import FAR, Descent, DescentState
from coreshot.learners._start import public_start
from coreshot.models import Model
from coreshot.privacy.accounting import Privacy, noise_multiplier
from coreshot.privacy.fixed_batches import in_fixed_batches
from coreshot.privacy.gaussian_moments import noisy_cross
from coreshot.privacy.records import Records, unstacked
from coreshot.release import Release
from coreshot.types import Params, Points, PRNGKey

FEATURES = "class features"


@settings
class PrivateDm(Descent):
    privacy: Privacy
    num_networks: Count  # whose features are released; all of them share the noise
    records_each: Positive  # how many records every client is taken to have
    start_value: float = 0.0  # of every pixel or coordinate, around which points start with noise of init_scale

    def releases(self, model: Model) -> tuple[Release, ...]:
        content = "for each class the sum of its records' features under random networks (of norm one), and their number, with Gaussian noise"
        return (Release(FEATURES, content, "gaussian", 1.0, noise_multiplier(self.privacy), delta=self.privacy.delta),)

    def init(self, keys: Key[Array, " clients"], model: Model, records: Records, shared_key: PRNGKey) -> DescentState:
        if model.kind != "classification":
            raise CoreshotError("learner: private_dm matches the means of classes, and regression has none; use a classification study.")
        num_clients = len(keys)
        networks = jax.vmap(model.init)(jax.random.split(named_key(shared_key, "dm networks"), self.num_networks))
        targets = [self._targets(model, networks, client) for client in unstacked(records)]
        data = jax.tree.map(lambda *arrays: jnp.stack(arrays), *targets)
        x, labels = public_start(fold_each(keys, 1), model, self.num_points, self.start_value, self.init_scale)
        coreset = Points(x, labels, jnp.ones((num_clients, self.num_points)))
        everyone = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num_clients, *leaf.shape)), networks)
        center = jnp.full((num_clients, *model.input_shape), self.start_value)
        radius, count = jnp.full(num_clients, FAR * (1 + self.init_scale)), jnp.full(num_clients, jnp.float32(self.records_each))
        optimizer_state = jax.vmap(self._optimizer().init)(coreset)
        return DescentState(coreset, optimizer_state, everyone, jnp.ones_like(radius), center, radius, data, count, 0)

    def _targets(self, model: Model, networks: Params, client: Records) -> Points:
        """One "record" a class: its mean features under each network, [networks, features], and as its weight how far they can be trusted."""
        share = math.sqrt(self.num_networks + 1)

        def rows(points: Points) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "n classes"]]:
            present = np.asarray(points.weight) > 0
            features = in_fixed_batches(partial(_unit_features, model, networks), np.asarray(points.x)[present])
            flat = features.reshape(len(features), -1)
            return np.concatenate([flat, np.ones((len(flat), 1))], axis=1) / share, np.asarray(points.y)[present]

        sums = share * noisy_cross(client, FEATURES, rows).T
        deviation = share * noise_multiplier(self.privacy)
        counts = np.maximum(sums[:, -1], 0.0)
        # With c records against noise of this deviation, a class mean is c^2 / (c^2 + deviation^2) signal.
        means = sums[:, :-1].reshape(len(sums), self.num_networks, -1) / np.maximum(counts, 1.0)[:, None, None]
        trust = counts**2 / (counts**2 + deviation**2)
        return Points(jnp.asarray(means, jnp.float32), jnp.eye(len(sums)), jnp.asarray(trust, jnp.float32))

    def loss(self, key: PRNGKey, model: Model, points: Points, data: Points, networks: Any) -> Float[Array, ""]:
        index = jax.random.randint(key, (), 0, self.num_networks)
        ours = _unit(model.embed(jax.tree.map(lambda leaf: leaf[index], networks), points.x))
        share = points.weight[:, None] * points.y
        means = (share.T @ ours) / jnp.maximum(jnp.sum(share, axis=0), 1e-6)[:, None]
        is_there = jnp.sum(share, axis=0) > 0
        return jnp.sum(jnp.where(is_there, data.weight * jnp.sum((data.x[:, index] - means) ** 2, axis=1), 0.0))

    def next_networks(self, key: PRNGKey, model: Model, points: Points, data: Points, networks: Any, update: Array) -> Any:
        return networks


@partial(jax.jit, static_argnums=0)
def _unit_features(model: Model, networks: Params, x: Float[Array, "n ..."]) -> Float[Array, "n networks features"]:
    return jnp.stack([_unit(features) for features in jax.vmap(lambda params: model.embed(params, x))(networks)], axis=1)


def _unit(features: Float[Array, "n features"]) -> Float[Array, "n features"]:
    return features / jnp.sqrt(jnp.sum(features**2, axis=1, keepdims=True) + 1e-12)
