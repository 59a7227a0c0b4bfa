"""BPC-fKL with a promise: experts are a few short runs of DP-SGD, and nothing else sees the records.

Points start around a constant that the study names, their labels cycle through all classes, and every client counts as the same number of
records: none of these is a release. The coreset is post-processing of the experts' weights.
"""

from __future__ import annotations

from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key
from pydantic import Field

from coreshot.config import Positive, settings
from coreshot.errors import CoreshotError
from coreshot.keys import fold_each
from coreshot.learners.bpc_fkl import FAR, BpcFkl, BpcState
from coreshot.learners.expert_store import ExpertStore
from coreshot.learners.experts import drawable_steps, start_steps
from coreshot.learners.starts import public_start
from coreshot.models import Model
from coreshot.models.optimizers import Optimizer
from coreshot.privacy.accounting import Privacy, noise_multiplier
from coreshot.privacy.dp_sgd import private_descent
from coreshot.privacy.guarded_records import Records, unstacked
from coreshot.privacy.releases import Release
from coreshot.types import Points, PRNGKey

EXPERTS = "experts"


@settings
class PrivateBpcFkl(BpcFkl):
    """batch_size is what the experts' clipped sums are divided by: about sampling_rate times records_each."""

    privacy: Privacy
    sampling_rate: Annotated[float, Field(gt=0, le=1)]  # of each record, in each of the experts' steps
    clip_norm: Positive
    records_each: Positive  # how many records every client is taken to have
    start_value: float = 0.0  # of every pixel or coordinate, around which points start with noise of init_scale

    def __post_init__(self) -> None:
        if self.guidance != "none" or self.experts.store == "replay":
            raise CoreshotError(
                'learner: private_bpc_fkl has guidance = "none" and keeps its experts; set guidance and experts.store accordingly.'
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
        """Of each expert: no more than can be drawn."""
        return start_steps(self.experts, self.data_chain_length)[-1] + self.data_chain_length

    def init(self, keys: Key[Array, " clients"], model: Model, records: Records, shared_key: PRNGKey) -> BpcState:
        self._check(model)
        if model.kind != "classification":
            raise CoreshotError(
                "learner: private_bpc_fkl's labels cycle through the classes, and regression has none; use a classification study."
            )
        num_clients, ones = len(keys), jnp.ones((len(keys), self.num_points))
        x, labels = public_start(fold_each(keys, 1), model, self.num_points, self.start_value, self.init_scale)
        mass = self.records_each / self.num_points if self.point_mass == "data" else 1.0
        coreset = Points(x, labels, mass * ones)
        center = jnp.full((num_clients, *model.input_shape), self.start_value)
        radius = jnp.full(num_clients, FAR * (1 + self.init_scale))
        nobody = Points(
            jnp.zeros((num_clients, 0, *model.input_shape)),
            jnp.zeros((num_clients, 0, model.num_outputs)),
            jnp.zeros((num_clients, 0)),
        )
        experts = self._private_experts(model, records, shared_key)
        optimizer_state = jax.vmap(self._optimizer().init)(coreset)
        count = jnp.full(num_clients, jnp.float32(self.records_each))
        return BpcState(coreset, ones, optimizer_state, ones[:, 0], radius, center, nobody, count, 0, experts)

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
