"""FedAvg whose clients take steps of DP-SGD, so that all rounds together give one privacy guarantee for each record.

Abadi et al., "Deep Learning with Differential Privacy", CCS 2016, inside FedAvg (`coreshot.methods.fed_avg`). It is the
baseline that private one-shot methods are compared with. Every step of every round uses a part of the privacy budget,
and each client adds its own noise. All clients have the same weight, because a client's number of records is private.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from pydantic import Field

from coreshot.config import Positive, settings
from coreshot.errors import CoreshotError
from coreshot.methods import rounds as _rounds
from coreshot.methods.fed_avg import FedAvg
from coreshot.methods.protocol import Answers, Claim, OnChunk
from coreshot.methods.rounds import STEPS, Update
from coreshot.models import Model
from coreshot.models.parallel import map_in_threads
from coreshot.privacy.accounting import Privacy, noise_multiplier
from coreshot.privacy.dp_sgd import private_descent
from coreshot.privacy.guarded_records import Records
from coreshot.privacy.releases import Release
from coreshot.types import PRNGKey
from coreshot.wire.messages import Message


@settings
class PrivateFedAvg(FedAvg):
    """Sums of clipped gradients are divided by batch_size: about sampling_rate times a typical client's records."""

    privacy: Privacy
    sampling_rate: Annotated[float, Field(gt=0, le=1)]  # of each record, in each step
    clip_norm: Positive

    def releases(self, model: Model) -> tuple[Release, ...]:
        num_steps = self.num_rounds * self.local_steps
        multiplier = noise_multiplier(self.privacy, num_steps, self.sampling_rate)
        content = "sums of clipped gradients of single records with Gaussian noise, in every local step of every round"
        accounting = self.clip_norm, multiplier, num_steps, self.sampling_rate, self.privacy.delta
        return (Release(STEPS, content, "dp_sgd", *accounting),)

    def read(self, model: Model, client: str, message: Message) -> Update:
        update = super().read(model, client, message)
        if update.num_examples != 1:
            raise CoreshotError(
                f"client {client}, round {message.round}, {message.kind}: counts itself as "
                f"{float(update.num_examples):g} clients, and in this study each counts as one; send it again."
            )
        return update

    def claim(self, content: Update) -> Claim:
        return Claim(None)

    def passes(self, num_examples: int) -> float:
        """In each step, a record is drawn with probability sampling_rate."""
        return self.local_steps * self.sampling_rate * num_examples

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

        def answer(records: Records) -> tuple[Message, list[str]]:
            steps = self.local_steps
            ended = private_descent(
                records, STEPS, model, self.client_optimizer, [params], steps, steps, self.batch_size
            )[0, -1]
            delta = unravel(flat - jnp.asarray(ended))
            return _rounds.update_message(inbox[-1].round, jnp.ones(()), delta=delta), []

        return dict(zip(clients, map_in_threads(answer, clients.values()), strict=True))
