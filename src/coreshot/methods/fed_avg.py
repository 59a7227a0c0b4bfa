"""FedAvg: clients take local optimiser steps; the server's optimiser uses the mean of their changes as its gradient.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017; with
optimisers on both sides, Reddi et al., "Adaptive Federated Optimization", ICLR 2021.

| paper              | here                             |
|--------------------|----------------------------------|
| theta_server       | state.params                     |
| C K, E or tau      | cohort_size, local_steps         |
| B                  | batch_size                       |
| ClientOpt, eta_l   | client_optimizer                 |
| ServerOpt, eta     | server_optimizer                 |
| Delta_m            | server - client, message "delta" |
| n_m / n            | the weights of `mean_update`     |

Different from the paper: local steps are counted instead of epochs, so that every client does the same work.
A client's optimiser starts anew in each round.
On the wire, for each client of a round: the weights down; a delta and n_m up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import jax
import optax
from jaxtyping import Array

from coreshot.config import settings
from coreshot.methods import rounds as _rounds
from coreshot.methods.protocol import Invitation
from coreshot.methods.rounds import STEPS, LocalWork, RoundMethod, RoundState, Update
from coreshot.models import Model
from coreshot.models.training import Optimizer
from coreshot.privacy.releases import Release
from coreshot.types import Params, Points, PRNGKey
from coreshot.wire.messages import Message, flatten_tree


@settings
class FedAvg(RoundMethod):
    client_optimizer: Optimizer
    server_optimizer: Optimizer

    def releases(self, model: Model) -> tuple[Release, ...]:
        content = "how far local steps on the records move the weights, in every round; and the number of records"
        return (Release(STEPS, content),)

    def begin(self, params: Params, first_round: int = 0) -> RoundState:
        return RoundState(
            params, self.server_optimizer.build().init(params), first_round, first_round + self.num_rounds
        )

    def message_kind(self, state: RoundState) -> str:
        """What this round's message asks of a client."""
        return "weights"

    def send(self, key: PRNGKey, model: Model, state: RoundState, clients: Sequence[str]) -> Invitation | None:
        if state.round >= state.end:
            return None
        cohort = _rounds.choose_cohort(key, state.round, clients, self.cohort_size)
        message = Message(self.message_kind(state), state.round, flatten_tree("params", state.params))
        return Invitation(cohort, message)

    def local_work(self, model: Model, inbox: Sequence[Message]) -> LocalWork:
        return partial(local_deltas, model, self.client_optimizer, _rounds.read_params(model, inbox[-1]))

    def receive(self, key: PRNGKey, model: Model, state: RoundState, replies: Mapping[str, Update]) -> RoundState:
        delta = _rounds.mean_update(replies, "delta", state.round)
        updates, optimizer_state = self.server_optimizer.build().update(delta, state.optimizer_state, state.params)
        params = optax.apply_updates(state.params, updates)
        return replace(state, params=params, optimizer_state=optimizer_state, round=state.round + 1)


@partial(jax.jit, static_argnums=(0, 1))
def local_deltas(model: Model, optimizer: Optimizer, params: Params, points: Points, plans: Array) -> dict[str, Params]:
    """Server minus client, for a group of clients."""

    def one(points: Points, plan: Array) -> Params:
        solver = optimizer.build()
        ended, _ = _rounds.descend(model, solver, params, solver.init(params), points, plan)
        return _rounds.difference(params, ended)

    return {"delta": model.each(one)(points, plans)}
