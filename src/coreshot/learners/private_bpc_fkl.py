"""BPC-fKL with differential privacy: its experts are a few short runs of DP-SGD, and nothing else sees the records.

Symbols and settings are those of `bpc_fkl`; DP-SGD is that of Abadi et al. 2016 (`coreshot.privacy.dp_sgd`). Points
start around a constant that the study names, their labels cycle through all classes, and every client counts as the
same number of records, so none of these is a release. The coreset is post-processing of the experts' weights.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key
from pydantic import Field

from coreshot.config import Positive, settings
from coreshot.errors import CoreshotError
from coreshot.keys import fold_each
from coreshot.learners.bpc_fkl import BpcFkl
from coreshot.learners.descent import DescentState, LocalPart
from coreshot.learners.expert_store import ExpertStore
from coreshot.learners.experts import drawable_steps, start_steps
from coreshot.learners.protocol import LearningCost
from coreshot.learners.starts import public_region, public_start
from coreshot.models import Model
from coreshot.models.training import Optimizer
from coreshot.privacy.accounting import Privacy, noise_multiplier
from coreshot.privacy.dp_sgd import private_descent
from coreshot.privacy.guarded_records import Records, unstacked
from coreshot.privacy.releases import Release
from coreshot.types import Points, PRNGKey, padded_size

EXPERTS = "experts"


@settings
class PrivateBpcFkl(BpcFkl):
    """batch_size is what the experts' clipped sums are divided by: about sampling_rate times records_each."""

    privacy: Privacy
    sampling_rate: Annotated[float, Field(gt=0, le=1)]  # of each record, in each of the experts' steps
    clip_norm: Positive
    records_each: Positive  # how many records the study assumes for every client
    start_value: float = 0.0  # of every pixel or coordinate, around which points start with noise of init_scale

    def __post_init__(self) -> None:
        if self.num_held_out or self.proxy_network or self.labels != "cycle" or self.chain_state != "new":
            raise CoreshotError(
                "learner: private_bpc_fkl has labels of all classes, draws all its experts, and keeps no optimiser's "
                "state; remove labels, num_held_out, chain_state and proxy_network."
            )
        if self.start != "mean" or self.experts.store == "replay":
            raise CoreshotError(
                f"learner: private_bpc_fkl starts around start_value and keeps its experts, but start = "
                f'"{self.start}" and experts.store = "{self.experts.store}"; remove start, and '
                'set experts.store to "memory" or "disk".'
            )

    def releases(self, model: Model) -> tuple[Release, ...]:
        num_steps = self.experts.num_trajectories * self._num_steps
        multiplier = noise_multiplier(self.privacy, num_steps, self.sampling_rate)
        content = "sums of clipped gradients of single records with Gaussian noise, in every step of every expert"
        return (
            Release(
                EXPERTS,
                content,
                "dp_sgd",
                self.clip_norm,
                multiplier,
                num_steps,
                self.sampling_rate,
                self.privacy.delta,
            ),
        )

    @property
    def _num_steps(self) -> int:
        """Of each expert: no more than are kept."""
        return drawable_steps(self.experts, self.data_chain_length)[-1]

    def init(self, keys: Key[Array, " clients"], model: Model, records: Records, shared_key: PRNGKey) -> DescentState:
        self.check(model)
        if model.kind != "classification":
            raise CoreshotError(
                "learner: private_bpc_fkl's labels cycle through the classes, and regression has none; "
                "use a classification study."
            )
        num_clients, ones = len(keys), jnp.ones((len(keys), self.num_points))
        x, labels = public_start(fold_each(keys, 1), model, self.num_points, self.start_value, self.init_scale)
        mass = self.records_each / self.num_points if self.point_mass == "data" else 1.0
        coreset = Points(x, labels, mass * ones)
        region = public_region(num_clients, model, self.start_value, self.init_scale)
        no_records = Points(
            jnp.zeros((num_clients, 0, *model.input_shape)),
            jnp.zeros((num_clients, 0, model.num_outputs)),
            jnp.zeros((num_clients, 0)),
        )
        experts = self._private_experts(model, records, shared_key)
        count = jnp.full(num_clients, jnp.float32(self.records_each))
        return self.begin(coreset, region, count, LocalPart(no_records, experts))

    def cost(self, model: Model, num_examples: int) -> LearningCost:
        """A step of an expert sees sampling_rate of the records on average, not batch_size of them."""
        steps = self.experts.num_trajectories * self._num_steps
        batch = min(self.batch_size, padded_size(num_examples))
        usual = super().cost(model, num_examples)
        return replace(usual, passes=usual.passes + steps * (self.sampling_rate * num_examples - batch))

    def _private_experts(self, model: Model, records: Records, shared_key: PRNGKey) -> ExpertStore:
        """Every checkpoint that can be drawn; step 0 is the shared initial weights, which no record has seen."""
        experts, length = self.experts, self.data_chain_length
        starts = [model.init(jax.random.fold_in(shared_key, index)) for index in range(experts.num_trajectories)]
        optimizer = Optimizer(name=self.chain_optimizer, step_size=experts.step_size)
        initial = np.stack([np.asarray(jax.flatten_util.ravel_pytree(start)[0]) for start in starts])[:, None]
        kept = drawable_steps(experts, length)
        checkpoints = []
        for client in unstacked(records):
            saved = private_descent(
                client, EXPERTS, model, optimizer, starts, self._num_steps, experts.save_interval, self.batch_size
            )
            checkpoints.append(
                np.concatenate([initial, saved], axis=1)[:, [step // experts.save_interval for step in kept]]
            )
        ends = np.asarray([kept.index(start + length) for start in start_steps(experts, length)])
        return ExpertStore(model, shared_key, np.stack(checkpoints), ends)
