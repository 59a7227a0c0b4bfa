"""FedAvg whose clients take steps of DP-SGD, so that all rounds together keep one promise about each record: what one-shot is compared with.

Every step of every round costs some of the promise, and each client's noise is its own. Clients count alike: how many records one has is not told.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from pydantic import Field

from coreshot.config import Positive, settings
from coreshot.methods import rounds as _rounds
from coreshot.methods.fed_avg import FedAvg
from coreshot.methods.protocol import Answers, OnChunk
from coreshot.models import Model
from coreshot.privacy.accounting import Privacy, noise_multiplier
from coreshot.privacy.dp_sgd import private_descent
from coreshot.privacy.guarded_records import Records
from coreshot.privacy.releases import Release
from coreshot.types import PRNGKey
from coreshot.wire.messages import Message

STEPS = "local steps"


@settings
class PrivateFedAvg(FedAvg):
    """batch_size is what clipped sums are divided by: about sampling_rate times a usual client's number of records."""

    privacy: Privacy
    sampling_rate: Annotated[float, Field(gt=0, le=1)]  # of each record, in each step
    clip_norm: Positive

    def releases(self, model: Model) -> tuple[Release, ...]:
        num_steps = self.num_rounds * self.local_steps
        multiplier = noise_multiplier(self.privacy, num_steps, self.sampling_rate)
        content = "sums of clipped gradients of single records with Gaussian noise, in every local step of every round"
        return (
            Release(
                STEPS, content, "dp_sgd", self.clip_norm, multiplier, num_steps, self.sampling_rate, self.privacy.delta
            ),
        )

    def reply(
        self,
        key: PRNGKey,
        model: Model,
        clients: Mapping[str, Records],
        inbox: Sequence[Message],
        shared_key: PRNGKey,
        on_chunk: OnChunk,
    ) -> Answers:
        params = _rounds.read_params(model, inbox[-1])
        flat, unravel = ravel_pytree(params)

        def one(records: Records) -> Message:
            steps = self.local_steps
            ended = private_descent(
                records, STEPS, model, self.client_optimizer, [params], steps, steps, self.batch_size
            )[0, -1]
            return _rounds.update_message(inbox[-1].round, jnp.ones(()), delta=unravel(flat - jnp.asarray(ended)))

        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            return {name: (message, []) for name, message in zip(clients, pool.map(one, clients.values()), strict=True)}
