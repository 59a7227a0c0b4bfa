"""DOSFL: each client distils its data into a few batches and step sizes, so that SGD on them fits the data.

Zhou et al., "Distilled One-Shot Federated Learning", 2020.

| paper                          | here                                                                 |
|--------------------------------|----------------------------------------------------------------------|
| theta_0                        | model.init of the study's shared key; the result needs these weights |
| x_j, y_j, eta_j, j = 1..S_d    | Distilled.x, .y, .step_size: [steps, batch, ...]                     |
| S_d, E_d, distillation batch   | distill_steps, distill_epochs, distill_batch_size                    |
| soft reset                     | soft_reset_scale: each update starts from theta_0 + noise            |
| random masking                 | mask_probability: each update leaves out some of the steps           |

The gradient goes through the whole unrolled run. Each step is checkpointed, so memory grows by one copy of the weights
per step and not by its activations, for about twice the compute. The server replays the steps of all clients
interleaved: step j of every client, then step j + 1.
Different from the paper: the number of updates and the batch of real data, which the paper does not state;
max_gradient_norm, because long runs diverge without it; an update whose run diverged is left out and noted; and a
masked step is left out of that update's run in all its epochs.
On the wire: an invitation without content down; x, y, step sizes and n_m up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Shaped
from pydantic import Field

from coreshot.config import Count, NonNegative, Positive, settings
from coreshot.errors import CoreshotError
from coreshot.inference.posterior import SamplePosterior
from coreshot.inference.protocol import Info
from coreshot.keys import client_key
from coreshot.learners.starts import first_labels, noise_around_mean
from coreshot.methods.one_round import OneRoundMethod, answer_each, exchange_once
from coreshot.methods.protocol import Answers, Claim, MethodCost, OnChunk, PointInference
from coreshot.models import Model
from coreshot.models.training import Optimizer, draw_batch
from coreshot.privacy.guarded_records import Records
from coreshot.privacy.releases import Release
from coreshot.types import Params, Points, PRNGKey
from coreshot.wire.messages import Message

UPDATES_PER_CHUNK = 10


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Distilled:
    """What a client learns and sends; the server stacks those of all clients along the steps."""

    x: Float[Array, "steps batch ..."]
    y: Float[Array, "steps batch outputs"]
    step_size: Float[Array, " steps"]


@dataclass(frozen=True)
class DosflState:
    start: Params  # theta_0
    distilled: dict[str, Distilled] = field(default_factory=dict)
    is_done: bool = False


@settings
class Dosfl(OneRoundMethod):
    distill_steps: Count
    distill_epochs: Count
    distill_batch_size: Count
    num_updates: Count
    batch_size: Count  # of real data in the loss of an update
    init_scale: Positive  # of x around the mean of the client's inputs
    initial_step_size: Positive
    x_optimizer: Optimizer
    y_optimizer: Optimizer | None = None  # None keeps the labels
    step_size_optimizer: Optimizer | None = None  # None keeps the step sizes
    soft_reset_scale: NonNegative = 0.0
    mask_probability: Annotated[float, Field(ge=0, lt=1)] = 0.0
    max_gradient_norm: Positive = 1.0  # of each of x, y and step sizes

    @property
    def num_chunks(self) -> int:
        return -(-self.num_updates // UPDATES_PER_CHUNK)

    def releases(self, model: Model) -> tuple[Release, ...]:
        content = (
            "the mean of the inputs, classes by count, the loss on the records after the distilled steps; "
            "and their number"
        )
        return (Release("records", content),)

    def cost(self, model: Model, clients: Sequence[int]) -> MethodCost:
        """An update runs all steps, runs them again for the gradient (they are checkpointed), and differentiates them,
        which is as much work as two more runs; then comes the loss on a batch of records."""
        run = self.distill_steps * self.distill_epochs * self.distill_batch_size
        passes = self.num_updates * (4 * run + self.batch_size)
        shapes = self._shapes(model)
        message = Message("distilled", 0, {name: jnp.zeros(shape) for name, shape in shapes.items()})
        return MethodCost(
            f"{self.num_updates:,} updates through {self.distill_steps * self.distill_epochs:,} steps",
            [exchange_once(message)] * len(clients),
            1.0,
            passes * len(clients),
            server_passes=run * len(clients),
            num_bytes=4 * self.distill_steps * self.distill_epochs * model.num_params(),
            kept_in="weights of the unrolled run",
            batch_size=self.distill_batch_size,
        )

    def init(self, key: PRNGKey, model: Model, shared_key: PRNGKey) -> DosflState:
        return DosflState(model.init(shared_key))

    def reply(
        self,
        key: PRNGKey,
        model: Model,
        clients: Mapping[str, Records],
        inbox: Sequence[Message],
        shared_key: PRNGKey,
        on_chunk: OnChunk,
    ) -> Answers:
        start = model.init(shared_key)

        def answer(client: str, records: Records) -> tuple[Message, list[str]]:
            points = records.exact("records")
            distilled, num_left_out = self._distill(client_key(key, 0, client), model, points, start, on_chunk)
            if num_left_out == self.num_updates:
                raise CoreshotError(
                    f"client {client}, round 0, distilled: all {num_left_out} updates blew up, so nothing was learned; "
                    "lower initial_step_size."
                )
            left_out = f"{num_left_out} of {self.num_updates} updates were left out: the unrolled run blew up"
            arrays = {"x": distilled.x, "y": distilled.y, "step_size": distilled.step_size}
            message = Message("distilled", 0, {**arrays, "num_examples": jnp.sum(points.weight).reshape(1)})
            return message, [left_out] if num_left_out else []

        return answer_each(clients, answer)

    def _distill(
        self, key: PRNGKey, model: Model, points: Points, start: Params, on_chunk: OnChunk
    ) -> tuple[Distilled, int]:
        """What was learned, and how many updates had to be left out."""
        distilled = self.initial_batches(jax.random.fold_in(key, 0), model, points)
        state, num_left_out = self.optimizer().init(distilled), 0
        for first in range(0, self.num_updates, UPDATES_PER_CHUNK):
            size = min(UPDATES_PER_CHUNK, self.num_updates - first)
            keys = jax.random.split(jax.random.fold_in(key, 1 + first), size)
            distilled, state, is_finite = _update(self, model, keys, points, start, distilled, state)
            num_left_out += int(jnp.sum(~is_finite))
            on_chunk(1)
        return distilled, num_left_out

    def initial_batches(self, key: PRNGKey, model: Model, points: Points) -> Distilled:
        shape = (self.distill_steps, self.distill_batch_size)
        num = shape[0] * shape[1]
        x = noise_around_mean(key, points, num, self.init_scale).reshape(*shape, *model.input_shape)
        y = first_labels(model, points, num).reshape(*shape, model.num_outputs)
        return Distilled(x, y, jnp.full(self.distill_steps, self.initial_step_size))

    def optimizer(self) -> optax.GradientTransformation:
        def solver(settings: Optimizer | None) -> optax.GradientTransformation:
            if settings is None:
                return optax.set_to_zero()
            return optax.chain(optax.clip_by_global_norm(self.max_gradient_norm), settings.build())

        parts = {
            "x": solver(self.x_optimizer),
            "y": solver(self.y_optimizer),
            "step_size": solver(self.step_size_optimizer),
        }
        return optax.partition(parts, Distilled("x", "y", "step_size"))  # type: ignore[arg-type]

    def receive(self, key: PRNGKey, model: Model, state: DosflState, replies: Mapping[str, Distilled]) -> DosflState:
        if not replies:
            raise CoreshotError("round 0: no client's reply can be used; lower the optimisers' step sizes.")
        return replace(state, distilled=dict(replies), is_done=True)

    def _shapes(self, model: Model) -> dict[str, tuple[int, ...]]:
        """Of a message's arrays."""
        shape = (self.distill_steps, self.distill_batch_size)
        labels = (*shape, model.num_outputs)
        return {"x": (*shape, *model.input_shape), "y": labels, "step_size": shape[:1], "num_examples": (1,)}

    def read(self, model: Model, client: str, message: Message) -> Distilled:
        wanted = self._shapes(model)
        found = {name: array.shape for name, array in message.arrays.items()}
        if found != wanted:
            raise CoreshotError(
                f"client {client}, round 0, {message.kind}: arrays are {found}, the study wants {wanted}; "
                "distill it again."
            )
        return Distilled(message.arrays["x"], message.arrays["y"], message.arrays["step_size"])

    def claim(self, content: Distilled) -> Claim:
        """The server does not use the number of records."""
        return Claim(None, float(np.max(np.abs(np.asarray(content.x)), initial=0.0)))

    def posterior(
        self, key: PRNGKey, model: Model, state: DosflState, inference: PointInference | None = None
    ) -> tuple[SamplePosterior, Info]:
        ordered = [state.distilled[name] for name in sorted(state.distilled)]
        # Interleaved: [steps, clients, ...] flattened, so that step j of every client comes before step j + 1 of any.
        everyone = jax.tree.map(lambda *arrays: jnp.stack(arrays, axis=1).reshape(-1, *arrays[0].shape[1:]), *ordered)
        return SamplePosterior.single(model, _replay(model, self.distill_epochs, state.start, everyone)), {}

    def load_posterior(self, model: Model, shared_key: PRNGKey, arrays: Mapping[str, np.ndarray]) -> SamplePosterior:
        return SamplePosterior.from_arrays(model, arrays)


def replay(
    model: Model, num_epochs: int, params: Params, distilled: Distilled, mask: Shaped[Array, " steps"] | None = None
) -> Params:
    """SGD over the distilled batches in order, num_epochs times. Its gradient keeps a copy of the weights per step."""
    if mask is not None:
        distilled = replace(distilled, step_size=distilled.step_size * mask)

    @jax.checkpoint
    def step(params: Params, one: Distilled) -> tuple[Params, None]:
        batch = Points(one.x, one.y, jnp.ones(one.x.shape[0]))
        gradient = jax.grad(lambda params: -model.log_prob(params, batch) / one.x.shape[0])(params)
        return jax.tree.map(lambda weight, slope: weight - one.step_size * slope, params, gradient), None

    def epoch(params: Params, _: None) -> tuple[Params, None]:
        return jax.lax.scan(step, params, distilled)[0], None

    return jax.lax.scan(epoch, params, None, length=num_epochs)[0]


_replay = partial(jax.jit, static_argnums=(0, 1))(replay)


def distilled_loss(
    method: Dosfl, model: Model, key: PRNGKey, points: Points, start: Params, distilled: Distilled
) -> Float[Array, ""]:
    """Minus the mean log-likelihood of a batch of the client's data after the run."""
    key_batch, key_reset, key_mask = jax.random.split(key, 3)
    if method.soft_reset_scale:
        flat, unravel = ravel_pytree(start)
        start = unravel(flat + method.soft_reset_scale * jax.random.normal(key_reset, flat.shape))
    mask = (
        jax.random.bernoulli(key_mask, 1 - method.mask_probability, (method.distill_steps,))
        if method.mask_probability
        else None
    )
    batch = draw_batch(key_batch, points, method.batch_size)
    return -model.log_prob(replay(model, method.distill_epochs, start, distilled, mask), batch) / jnp.sum(batch.weight)


@partial(jax.jit, static_argnums=(0, 1))
def _update(
    method: Dosfl, model: Model, keys: Array, points: Points, start: Params, distilled: Distilled, state: optax.OptState
) -> tuple[Distilled, optax.OptState, Bool[Array, " updates"]]:
    def step(carry: tuple[Distilled, optax.OptState], key: PRNGKey) -> tuple[tuple[Distilled, optax.OptState], Array]:
        distilled, state = carry
        gradient = jax.grad(lambda distilled: distilled_loss(method, model, key, points, start, distilled))(distilled)
        updates, moved = method.optimizer().update(gradient, state, distilled)
        # A run that diverged has no finite gradient: that update is left out.
        is_finite = jnp.isfinite(optax.tree.norm(gradient))
        after = (optax.apply_updates(distilled, updates), moved)
        return jax.tree.map(partial(jnp.where, is_finite), after, carry), is_finite

    (distilled, state), is_finite = jax.lax.scan(step, (distilled, state), keys)
    return distilled, state, is_finite
