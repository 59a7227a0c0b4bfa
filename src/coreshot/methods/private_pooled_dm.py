"""Private DM on pooled sums: clients send noisy class sums of features, and the server matches points to their sum.

Zhao and Bilen, "Dataset Condensation with Distribution Matching", WACV 2023, with the Gaussian mechanism.

| paper                    | here                                                      |
|--------------------------|-----------------------------------------------------------|
| psi_v, v random          | draw_networks: num_networks of them, the same for all     |
| mean of psi_v over class | class_means, from the noisy sums of all clients           |
| S, eta                   | the points that the server learns, step_size_x            |

The release is that of the learner `private_dm` (`coreshot.learners.class_features`). There, each client matches points
to its own sums, with its own noise. Here, the server first adds the sums: for M clients the records add up, but the
noise grows only by sqrt(M). All that follows is post-processing: points are matched to the pooled class means, weighted
by the noisy class counts, and a MAP estimate is made from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from coreshot.config import Count, Positive, settings
from coreshot.inference.map_estimate import MapEstimate
from coreshot.inference.posterior import SamplePosterior
from coreshot.inference.protocol import Info
from coreshot.keys import named_key
from coreshot.learners.class_features import (
    Matching,
    class_means,
    draw_networks,
    features_release,
    noisy_class_sums,
    sums_shape,
)
from coreshot.learners.loop import learn
from coreshot.methods.noisy_sum import NoisySumMethod, NoisySumState, Part
from coreshot.methods.protocol import PointInference
from coreshot.models import LogDensity, Model
from coreshot.privacy.gaussian_moments import CROSS_UNIT
from coreshot.privacy.guarded_records import Records
from coreshot.privacy.releases import Release
from coreshot.types import Params, Points, PRNGKey


@dataclass(frozen=True)
class PooledState(NoisySumState):
    """Sums of noisy class sums, in the mechanism's units, in which a record has norm at most one."""

    @property
    def networks(self) -> Params:
        networks: Params = self.public
        return networks

    @property
    def sums(self) -> Float[np.ndarray, "d classes"]:
        return self.totals[0]


@settings
class PrivatePooledDm(NoisySumMethod):
    kind: ClassVar[str] = "private_pooled_dm"
    num_networks: Count  # whose features are released; all of them share the noise
    points_per_class: Count
    num_updates: Count  # of the points, at the server
    step_size_x: Positive
    inference: MapEstimate  # of the model, from the points
    init_scale: Positive = 0.1
    start_value: float = 0.0  # of every pixel or coordinate, around which points start with noise of init_scale

    def releases(self, model: Model) -> tuple[Release, ...]:
        return (features_release(self.privacy, self.num_sharers or 1),)

    def draw_public(self, model: Model, shared_key: PRNGKey) -> Params:
        return draw_networks(model, shared_key, self.num_networks, self.kind)

    def init(self, key: PRNGKey, model: Model, shared_key: PRNGKey) -> PooledState:
        return PooledState(self.draw_public(model, shared_key), self.begin_sums(model))

    def parts(self, model: Model) -> tuple[Part, ...]:
        deviation = self.noise_multiplier * float(np.sqrt(self.noise_share))
        return (Part("sums", sums_shape(model, self.num_networks), CROSS_UNIT, deviation),)

    def noisy_statistics(
        self, model: Model, public: Params, records: Records
    ) -> tuple[Int[np.ndarray, "d classes"], ...]:
        return (noisy_class_sums(model, public, records),)

    def class_means(self, state: PooledState) -> tuple[Points, Float[np.ndarray, " classes"]]:
        """Mean features of all clients' classes, weighted by their trust, and how many records each class has."""
        deviation = self.noise_multiplier * float(np.sqrt(len(state.clients) * self.noise_share))
        return class_means(state.sums, deviation, self.num_networks)

    def match_points(self, key: PRNGKey, model: Model, state: PooledState) -> Points:
        """Points matched to the class means. Those of a class share the weight of its records times their trust."""
        means, counts = self.class_means(state)
        matching = Matching(
            num_points=self.points_per_class * model.num_outputs,
            num_updates=self.num_updates,
            step_size_x=self.step_size_x,
            init_scale=self.init_scale,
            start_value=self.start_value,
        )
        keys, alone = key[None], jax.tree.map(lambda array: array[None], means)
        start = matching.begin_matching(keys, model, state.networks, alone, jnp.ones(1))
        found, _ = learn(model, matching, ["server, round 0"], keys, start, lambda clients: None)
        x, y = found.points.x[0], found.points.y[0]
        # A class that holds only noise still counts as one record, so that there is always an observation.
        each = np.maximum(counts * np.asarray(means.weight), 1.0) / self.points_per_class
        return Points(x, y, y @ jnp.asarray(each, jnp.float32))

    def posterior(
        self, key: PRNGKey, model: Model, state: PooledState, inference: PointInference | None = None
    ) -> tuple[SamplePosterior, Info]:
        points = self.match_points(named_key(key, "match"), model, state)
        init = jax.vmap(model.init)(jax.random.split(named_key(key, "start"), self.inference.num_chains))
        return self.inference(named_key(key, "sample"), LogDensity(model, points), init)

    def load_posterior(self, model: Model, shared_key: PRNGKey, arrays: Mapping[str, np.ndarray]) -> SamplePosterior:
        return SamplePosterior.from_arrays(model, arrays)
