"""MIME and MimeLite: local steps use the server's optimiser state, which changes only once per round.

Karimireddy et al., "Breaking the centralized barrier for cross-device federated learning", NeurIPS 2021 (Algorithm 1).

| paper                   | here                                                        |
|-------------------------|-------------------------------------------------------------|
| x, s                    | state.params, state.optimizer_state                         |
| B = (U, V)              | base_optimizer                                              |
| c                       | control: the n_m-weighted mean of full gradients at x       |
| y_i, K                  | a client's weights, local_steps                             |
| g = grad f(y) - grad f(x) + c | MIME;  g = grad f(y) in MimeLite, is_lite             |
| eta_g                   | server_step_size                                            |

A round of MIME is two exchanges. On the wire, for each of its clients: the weights, then the control and the
optimiser's state down; the full gradient, then the delta up, each with n_m. A client keeps the weights from the first
exchange to the second (its inbox), and no longer. MimeLite needs no control at the clients: in one exchange, weights
and optimiser state go down, delta and full gradient come up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import jax
import optax
from jaxtyping import Array

from coreshot.config import Count, Positive, settings
from coreshot.methods import rounds as _rounds
from coreshot.methods.protocol import Invitation
from coreshot.methods.rounds import STEPS, LocalWork, RoundMethod, RoundState, Update
from coreshot.models import Model
from coreshot.models.training import Optimizer
from coreshot.privacy.releases import Release
from coreshot.types import Params, Points, PRNGKey
from coreshot.wire.messages import Message, flatten_tree, unflatten_tree


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class MimeState(RoundState):
    """The optimiser's state is frozen within a round."""

    control: Params | None = None  # known between the two exchanges of a round
    cohort: tuple[str, ...] = field(default=(), metadata={"static": True})  # who has the weights of this round


@settings
class Mime(RoundMethod):
    base_optimizer: Optimizer
    server_step_size: Positive
    gradient_batch_size: Count  # examples at a time in the full gradient; the result does not depend on it
    is_lite: bool = False  # MimeLite

    def releases(self, model: Model) -> tuple[Release, ...]:
        content = (
            "gradients on the records and how far local steps move the weights, in every round; "
            "and the number of records"
        )
        return (Release(STEPS, content),)

    def begin(self, params: Params, first_round: int = 0) -> MimeState:
        return MimeState(params, self.base_optimizer.build().init(params), first_round, first_round + self.num_rounds)

    def send(self, key: PRNGKey, model: Model, state: MimeState, clients: Sequence[str]) -> Invitation | None:
        if state.round >= state.end:
            return None
        params, frozen = flatten_tree("params", state.params), flatten_tree("optimizer", state.optimizer_state)
        if state.control is not None:
            return Invitation(
                state.cohort, Message("control", state.round, flatten_tree("control", state.control) | frozen)
            )
        cohort = _rounds.choose_cohort(key, state.round, clients, self.cohort_size)
        return Invitation(cohort, Message("weights", state.round, params | frozen if self.is_lite else params))

    def local_work(self, model: Model, inbox: Sequence[Message]) -> LocalWork:
        message, params = inbox[-1], _rounds.read_params(model, inbox[0])
        if message.kind == "weights" and not self.is_lite:
            return partial(_full_gradients, model, self, params)
        frozen = _read_optimizer(self.base_optimizer, params, message)
        if self.is_lite:
            return partial(_lite_updates, model, self, params, frozen)
        control = unflatten_tree(message.arrays, "control", params, f"server, round {message.round}, {message.kind}")
        return partial(_corrected_deltas, model, self, params, frozen, control)

    def receive(self, key: PRNGKey, model: Model, state: MimeState, replies: Mapping[str, Update]) -> MimeState:
        control = state.control
        if control is None:
            control = _rounds.mean_update(replies, "gradient", state.round)
            if not self.is_lite:  # those whose gradient arrived take part in the second exchange
                return replace(state, control=control, cohort=tuple(sorted(replies)))
        delta = _rounds.mean_update(replies, "delta", state.round)
        params = jax.tree.map(lambda server, moved: server - self.server_step_size * moved, state.params, delta)
        _, optimizer_state = self.base_optimizer.build().update(control, state.optimizer_state, state.params)
        return MimeState(params, optimizer_state, state.round + 1, state.end)


def _read_optimizer(optimizer: Optimizer, params: Params, message: Message) -> optax.OptState:
    shapes = jax.eval_shape(optimizer.build().init, params)
    return unflatten_tree(message.arrays, "optimizer", shapes, f"server, round {message.round}, {message.kind}")


@partial(jax.jit, static_argnums=(0, 1))
def _full_gradients(model: Model, method: Mime, params: Params, points: Points, plans: Array) -> dict[str, Params]:
    each = model.each(lambda points: _rounds.full_gradient(model, params, points, method.gradient_batch_size))
    return {"gradient": each(points)}


@partial(jax.jit, static_argnums=(0, 1))
def _corrected_deltas(
    model: Model, method: Mime, params: Params, frozen: optax.OptState, control: Params, points: Points, plans: Array
) -> dict[str, Params]:
    def one(points: Points, plan: Array) -> Params:
        def gradient(current: Params, batch: Points) -> Params:
            here, there = _rounds.loss_gradient(model, current, batch), _rounds.loss_gradient(model, params, batch)
            return jax.tree.map(lambda g, g_server, c: g - g_server + c, here, there, control)

        return _rounds.difference(params, _frozen_steps(method.base_optimizer, gradient, params, frozen, points, plan))

    return {"delta": model.each(one)(points, plans)}


@partial(jax.jit, static_argnums=(0, 1))
def _lite_updates(
    model: Model, method: Mime, params: Params, frozen: optax.OptState, points: Points, plans: Array
) -> dict[str, Params]:
    def one(points: Points, plan: Array) -> Params:
        ended = _frozen_steps(
            method.base_optimizer, partial(_rounds.loss_gradient, model), params, frozen, points, plan
        )
        return _rounds.difference(params, ended)

    return {"delta": model.each(one)(points, plans), **_full_gradients(model, method, params, points, plans)}


def _frozen_steps(
    optimizer: Optimizer,
    gradient: Callable[[Params, Points], Params],
    params: Params,
    frozen: optax.OptState,
    points: Points,
    plan: Array,
) -> Params:
    """Local steps that all start from the server's optimiser state: the local change of that state is dropped."""
    solver = optimizer.build()

    def step(current: Params, index: Array) -> tuple[Params, None]:
        updates, _ = solver.update(gradient(current, _rounds.select_points(points, index)), frozen, current)
        return optax.apply_updates(current, updates), None

    return jax.lax.scan(step, params, plan)[0]
