"""Class sums of features under random networks, and the points that are matched to them.

The learner `private_dm` and the method `private_pooled_dm` share it. A record adds y (x) a to the sum, where a = [its
features under each network, scaled to norm one, and a 1] / sqrt(networks + 1) and y is its one-hot class. Both have
norm at most one, so one record moves the sum by at most 1. Noise whose standard deviation is the multiplier makes the
sum one Gaussian mechanism, and all that follows is post-processing.
"""

from __future__ import annotations

import math
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from coreshot.config import settings
from coreshot.errors import CoreshotError
from coreshot.keys import fold_each, named_key
from coreshot.learners.descent import DescentState, LocalPart, LossDescent
from coreshot.learners.starts import public_region, public_start
from coreshot.models import Model
from coreshot.privacy.accounting import Privacy, noise_multiplier
from coreshot.privacy.fixed_batches import in_fixed_batches
from coreshot.privacy.gaussian_moments import noisy_cross
from coreshot.privacy.guarded_records import Records
from coreshot.privacy.releases import Release
from coreshot.types import Params, Points, PRNGKey

FEATURES = "class features"


def features_release(privacy: Privacy, num_sharers: int = 1) -> Release:
    content = (
        "for each class the sum of its records' features under random networks (of norm one), and their number, "
        "with Gaussian noise"
    )
    return Release(
        FEATURES, content, "gaussian", 1.0, noise_multiplier(privacy), delta=privacy.delta, num_sharers=num_sharers
    )


def draw_networks(model: Model, shared_key: PRNGKey, num_networks: int, who: str) -> Params:
    """The networks of the study's key, the same for all clients and for the server."""
    if model.kind != "classification":
        raise CoreshotError(f"{who} matches the means of classes, and regression has none; use a classification study.")
    return _drawn(model, jax.random.split(named_key(shared_key, "dm networks"), num_networks))


@partial(jax.jit, static_argnums=0)
def _drawn(model: Model, keys: Key[Array, " networks"]) -> Params:
    return jax.vmap(model.init)(keys)


@lru_cache(maxsize=32)  # every message is checked against it, and tracing is slow
def sums_shape(model: Model, num_networks: int) -> tuple[int, int]:
    inputs = jax.ShapeDtypeStruct((1, *model.input_shape), jnp.float32)
    return num_networks * jax.eval_shape(model.embed, model.shapes(), inputs).shape[1] + 1, model.num_outputs


def feature_rows(model: Model, networks: Params, x: Float[np.ndarray, "n ..."]) -> Float[np.ndarray, "n d"]:
    """Rows of norm at most one: the features under each network, and a 1, whose sum is the number of records."""
    features = in_fixed_batches(partial(_unit_features, model, networks), x)
    num_networks, width = features.shape[1:]
    return np.concatenate([features.reshape(len(x), num_networks * width), np.ones((len(x), 1))], axis=1) / math.sqrt(
        num_networks + 1
    )


def noisy_class_sums(model: Model, networks: Params, records: Records) -> Int[np.ndarray, "d classes"]:
    """The one release, in the whole numbers of `gaussian_moments`."""

    def rows(points: Points) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "n classes"]]:
        present = np.asarray(points.weight) > 0
        return feature_rows(model, networks, np.asarray(points.x)[present]), np.asarray(points.y)[present]

    return noisy_cross(records, FEATURES, rows)


def class_means(
    sums: Float[np.ndarray, "d classes"], deviation: float, num_networks: int
) -> tuple[Points, Float[np.ndarray, " classes"]]:
    """From noisy sums, in units of `feature_rows`: one point per class, and how many records each class has.

    A point's x is the mean of its class's features, [networks, features]; its weight is the share of signal in that
    mean.
    """
    share = math.sqrt(num_networks + 1)
    counts = share * sums[-1]
    means = share * sums[:-1].T.reshape(sums.shape[1], num_networks, -1) / np.maximum(counts, 1.0)[:, None, None]
    # With c records against noise of this deviation, a class mean is c^2 / (c^2 + deviation^2) signal.
    squares = np.maximum(counts, 0.0) ** 2
    trust = squares / (squares + (share * deviation) ** 2)
    return Points(jnp.asarray(means, jnp.float32), jnp.eye(len(means)), jnp.asarray(trust, jnp.float32)), counts


@settings
class Matching(LossDescent):
    """Points of all classes are matched to class means that were computed before; no record is seen."""

    start_value: float = 0.0  # of every pixel or coordinate, around which points start with noise of init_scale

    def __post_init__(self) -> None:
        if self.start != "mean":
            raise CoreshotError(
                f'learner: private points start around start_value, but start = "{self.start}"; remove start.'
            )
        if self.proxy_network is not None:
            raise CoreshotError(
                "learner: the features of private points are those of the study's network; remove proxy_network."
            )

    def begin_matching(
        self,
        keys: Key[Array, " clients"],
        model: Model,
        networks: Params,
        means: Points,
        num_examples: Float[Array, " clients"],
    ) -> DescentState:
        num_clients = len(keys)
        x, labels = public_start(fold_each(keys, 1), model, self.num_points, self.start_value, self.init_scale)
        coreset = Points(x, labels, jnp.ones((num_clients, self.num_points)))
        everyone = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num_clients, *leaf.shape)), networks)
        region = public_region(num_clients, model, self.start_value, self.init_scale)
        return self.begin(coreset, region, num_examples, LocalPart(means), everyone)

    def loss(self, key: PRNGKey, model: Model, points: Points, data: Points, networks: Any) -> Float[Array, ""]:
        index = jax.random.randint(key, (), 0, data.x.shape[1])
        ours = _unit(model.embed(jax.tree.map(lambda leaf: leaf[index], networks), points.x))
        share = points.weight[:, None] * points.y
        means = (share.T @ ours) / jnp.maximum(jnp.sum(share, axis=0), 1e-6)[:, None]
        is_there = jnp.sum(share, axis=0) > 0
        return jnp.sum(jnp.where(is_there, data.weight * jnp.sum((data.x[:, index] - means) ** 2, axis=1), 0.0))

    def train_networks(self, key: PRNGKey, model: Model, points: Points, networks: Any, update: Int[Array, ""]) -> Any:
        return networks

    def update_passes(self, model: Model, num_records: int) -> float:
        return self.num_points


@partial(jax.jit, static_argnums=0)
def _unit_features(model: Model, networks: Params, x: Float[Array, "n ..."]) -> Float[Array, "n networks features"]:
    return jax.vmap(lambda params: _unit(model.embed(params, x)), out_axes=1)(networks)


def _unit(features: Float[Array, "n features"]) -> Float[Array, "n features"]:
    return features / jnp.sqrt(jnp.sum(features**2, axis=1, keepdims=True) + 1e-12)
