"""DM with differential privacy: class sums of features under random networks are released once, with noise.

Zhao and Bilen, "Dataset Condensation with Distribution Matching", WACV 2023; symbols as in `dm`. Where we differ: the
networks are fixed (they come from the study's key), features have norm one, and one noisy sum is all that sees the
records (`class_features`). Points start around a constant that the study names, their labels cycle through all
classes, and every client counts as the same number of records.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from coreshot.config import Count, Positive, settings
from coreshot.learners.class_features import Matching, class_means, draw_networks, features_release, noisy_class_sums
from coreshot.learners.descent import DescentState
from coreshot.learners.protocol import LearningCost
from coreshot.models import Model
from coreshot.privacy.accounting import Privacy, noise_multiplier
from coreshot.privacy.fixed_batches import BATCH
from coreshot.privacy.gaussian_moments import CROSS_UNIT
from coreshot.privacy.guarded_records import Records, unstacked
from coreshot.privacy.releases import Release
from coreshot.types import Params, Points, PRNGKey


@settings
class PrivateDm(Matching):
    privacy: Privacy
    num_networks: Count  # whose features are released; all of them share the noise
    records_each: Positive  # how many records the study assumes for every client

    def releases(self, model: Model) -> tuple[Release, ...]:
        return (features_release(self.privacy),)

    def init(self, keys: Key[Array, " clients"], model: Model, records: Records, shared_key: PRNGKey) -> DescentState:
        networks = self.networks(shared_key, model)
        means = [self._means(model, networks, client) for client in unstacked(records)]
        everyone = jax.tree.map(lambda *arrays: jnp.stack(arrays), *means)
        count = jnp.full(len(keys), jnp.float32(self.records_each))
        return self.begin_matching(keys, model, networks, everyone, count)

    def networks(self, key: PRNGKey, model: Model) -> Params:
        return draw_networks(model, key, self.num_networks, "learner: private_dm")

    def cost(self, model: Model, num_examples: int) -> LearningCost:
        """The features of all records, in batches of a fixed size, come before the updates."""
        features = self.num_networks * BATCH * max(1, -(-num_examples // BATCH))
        usual = super().cost(model, num_examples)
        return replace(usual, passes=usual.passes + features)

    def _means(self, model: Model, networks: Params, client: Records) -> Points:
        sums = noisy_class_sums(model, networks, client) / CROSS_UNIT
        return class_means(sums, noise_multiplier(self.privacy), self.num_networks)[0]
