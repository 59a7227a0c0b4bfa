"""The start of a learner without its updates: the null baseline that shows what the updates are worth."""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from coreshot.config import Count, Positive, settings
from coreshot.learners.protocol import COUNT, Immediate, LearningCost
from coreshot.learners.starts import START_CONTENT, Start, check_start, draw_start, first_labels, proportional_labels
from coreshot.models import Model
from coreshot.privacy.guarded_records import Records
from coreshot.privacy.releases import Release
from coreshot.types import Coreset, Points, PRNGKey
from coreshot.wire.point_coding import PointCoding


@settings
class StartOnly(Immediate):
    """Points where a learner of points would begin, with hard labels; settings as those of BPC-fKL."""

    num_points: Count
    init_scale: Positive
    start: Start = "mean"
    labels: Literal["cycle", "proportional"] = "cycle"
    bounds: tuple[float, float] | None = None
    coding: PointCoding | None = None

    def releases(self, model: Model) -> tuple[Release, ...]:
        return Release("start", START_CONTENT[self.start]), Release("labels", "the classes by their counts"), COUNT

    def init(self, keys: Key[Array, " clients"], model: Model, records: Records, shared_key: PRNGKey) -> Coreset:
        check_start(self.start, model)

        def one(key: PRNGKey, data: Points, labelled: Points) -> Points:
            labels, share = first_labels(model, labelled, self.num_points), jnp.ones(self.num_points)
            if self._is_proportional(model):
                labels, share = proportional_labels(model, labelled, self.num_points)
            x = draw_start(self.start, key, model, data, labels, self.init_scale)
            return Points(x if self.bounds is None else jnp.clip(x, *self.bounds), labels, share)

        points = jax.vmap(one)(keys, records.exact("start"), records.exact("labels"))
        return Coreset(points, jnp.sum(records.exact(COUNT.name).weight, axis=1))

    def _is_proportional(self, model: Model) -> bool:
        return self.labels == "proportional" and model.kind == "classification"

    def cost(self, model: Model, num_examples: int) -> LearningCost:
        return LearningCost(0, "no training", has_point_weights=self._is_proportional(model))
