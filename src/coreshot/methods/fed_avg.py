"""FedAvg: clients run an optimiser for some local steps; the server's optimiser takes the mean of what they moved as its gradient.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017; with optimisers on both sides,
Reddi et al., "Adaptive Federated Optimization", ICLR 2021.

| paper              | here                          |
|--------------------|-------------------------------|
| theta_server       | state.params                  |
| C K, E or tau      | cohort_size, local_steps      |
| B                  | batch_size                    |
| ClientOpt, eta_l   | client_optimizer              |
| ServerOpt, eta     | server_optimizer              |
| Delta_m            | server - client, message "delta" |
| n_m / n            | the weights of `mean_update`  |

Local steps are counted rather than epochs, so that every client does the same work. A client's optimiser starts anew in each round.
On the wire, for each client of a round: the weights down; a delta and n_m up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import jax
import numpy as np
import optax
from jaxtyping import Array

from coreshot.config import Count, settings
from coreshot.inference.posterior import SamplePosterior
from coreshot.inference.protocol import Info
from coreshot.methods import rounds as _rounds
from coreshot.methods.protocol import Answers, Invitation, OnChunk, PointInference
from coreshot.methods.rounds import RoundState, Update
from coreshot.models import Model
from coreshot.models.training import Optimizer
from coreshot.privacy.guarded_records import Records, exact_points
from coreshot.privacy.releases import Release
from coreshot.types import Params, Points, PRNGKey
from coreshot.wire.messages import Message, named_leaves


@settings
class FedAvg:
    num_rounds: Count
    local_steps: Count
    batch_size: Count
    client_optimizer: Optimizer
    server_optimizer: Optimizer
    cohort_size: Count | None = None  # clients asked in a round; None: all

    def releases(self, model: Model) -> tuple[Release, ...]:
        return (
            Release(
                "local steps",
                "how far local steps on the records move the weights, in every round; and the number of records",
            ),
        )

    def init(self, key: PRNGKey, model: Model, shared_key: PRNGKey) -> RoundState:
        return self.begin(_rounds.fresh_start(key, model))

    def begin(self, params: Params, first_round: int = 0) -> RoundState:
        return RoundState(
            params, self.server_optimizer.build().init(params), first_round, first_round + self.num_rounds
        )

    def send(self, key: PRNGKey, model: Model, state: RoundState, clients: Sequence[str]) -> Invitation | None:
        if state.round >= state.end:
            return None
        cohort = _rounds.choose_cohort(key, state.round, clients, self.cohort_size)
        return Invitation(cohort, Message("weights", state.round, named_leaves("params", state.params)))

    def reply(
        self,
        key: PRNGKey,
        model: Model,
        clients: Mapping[str, Records],
        inbox: Sequence[Message],
        shared_key: PRNGKey,
        on_chunk: OnChunk,
    ) -> Answers:
        message = inbox[-1]
        run = partial(local_deltas, model, self.client_optimizer, _rounds.read_params(model, message))
        return _rounds.answer(
            model, run, key, message.round, exact_points(clients, "local steps"), self.batch_size, self.local_steps
        )

    def read(self, model: Model, client: str, message: Message) -> Update:
        return _rounds.read_update(model, client, message)

    def receive(self, key: PRNGKey, model: Model, state: RoundState, replies: Mapping[str, Update]) -> RoundState:
        return server_step(self.server_optimizer, state, _rounds.mean_update(replies, "delta", state.round))

    def posterior(
        self, key: PRNGKey, model: Model, state: RoundState, inference: PointInference | None = None
    ) -> tuple[SamplePosterior, Info]:
        return SamplePosterior.single(model, state.params), {}

    def load_posterior(self, model: Model, shared_key: PRNGKey, arrays: Mapping[str, np.ndarray]) -> SamplePosterior:
        return SamplePosterior.from_arrays(model, arrays)


@partial(jax.jit, static_argnums=(0, 1))
def local_deltas(model: Model, optimizer: Optimizer, params: Params, points: Points, plans: Array) -> dict[str, Params]:
    """Server minus client, for a group of clients."""

    def one(points: Points, plan: Array) -> Params:
        solver = optimizer.build()
        ended, _ = _rounds.descend(model, solver, params, solver.init(params), points, plan)
        return _rounds.difference(params, ended)

    return {"delta": model.each(one)(points, plans)}


def server_step(optimizer: Optimizer, state: RoundState, delta: Params) -> RoundState:
    updates, optimizer_state = optimizer.build().update(delta, state.optimizer_state, state.params)
    return replace(
        state, params=optax.apply_updates(state.params, updates), optimizer_state=optimizer_state, round=state.round + 1
    )
