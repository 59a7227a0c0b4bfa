"""DM with a promise: class sums of features under a few random networks are released once, with noise, and points are matched to them offline.

As `dm`, but the networks are fixed (they come from the study's key), features have norm one, and the records are seen only in one noisy sum
(`_class_features`). Points start around a constant that the study names and cycle through all classes; every client counts as the same number of
records.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from coreshot.config import Count, Positive, settings
from coreshot.learners.class_features import Matching, class_means, draw_networks, features_release, noisy_class_sums
from coreshot.learners.descent import DescentState
from coreshot.models import Model
from coreshot.privacy.accounting import Privacy, noise_multiplier
from coreshot.privacy.gaussian_moments import CROSS_UNIT
from coreshot.privacy.guarded_records import Records, unstacked
from coreshot.privacy.releases import Release
from coreshot.types import Params, Points, PRNGKey


@settings
class PrivateDm(Matching):
    privacy: Privacy
    num_networks: Count  # whose features are released; all of them share the noise
    records_each: Positive  # how many records every client is taken to have

    def releases(self, model: Model) -> tuple[Release, ...]:
        return (features_release(self.privacy),)

    def init(self, keys: Key[Array, " clients"], model: Model, records: Records, shared_key: PRNGKey) -> DescentState:
        networks = draw_networks(model, shared_key, self.num_networks, "learner: private_dm")
        means = [self._means(model, networks, client) for client in unstacked(records)]
        everyone = jax.tree.map(lambda *arrays: jnp.stack(arrays), *means)
        return self.begin(keys, model, networks, everyone, jnp.full(len(keys), jnp.float32(self.records_each)))

    def _means(self, model: Model, networks: Params, client: Records) -> Points:
        sums = noisy_class_sums(model, networks, client) / CROSS_UNIT
        return class_means(sums, noise_multiplier(self.privacy), self.num_networks)[0]
