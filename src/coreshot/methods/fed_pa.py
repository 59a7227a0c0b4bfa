"""FedPA: clients send how far the server is from their posterior mean, in the metric of their posterior, so that their drifts cancel.

Al-Shedivat et al., "Federated Learning via Posterior Averaging: A New Perspective and Practical Algorithms", ICLR 2021 (Algorithms 3 and 4).

| paper               | here                                                       |
|---------------------|------------------------------------------------------------|
| l samples, K steps  | num_samples, of (local_steps - burn_in_steps) / num_samples steps each |
| B (client burn-in)  | burn_in_steps                                              |
| burn-in rounds      | burn_in_rounds: plain FedAvg deltas of the same local steps |
| rho, rho_t          | shrinkage                                                  |
| Sigma, mu           | never formed; the sample mean                              |
| Delta               | Sigma^-1 (server - mean), message "delta"                  |

A sample is the mean of the next K iterates of one run whose optimiser state is carried on from sample to sample.
On the wire as FedAvg; the kind of the message ("weights" or "sample") says which of the two deltas is wanted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from coreshot.config import Count, NonNegative, settings
from coreshot.errors import CoreshotError
from coreshot.inference.posterior import SamplePosterior
from coreshot.inference.protocol import Info
from coreshot.methods import rounds as _rounds
from coreshot.methods.fed_avg import local_deltas, server_step
from coreshot.methods.protocol import Answers, Invitation, OnChunk, PointInference
from coreshot.methods.rounds import RoundState, Update
from coreshot.models import Model
from coreshot.models.training import Optimizer
from coreshot.privacy.guarded_records import Records, exact_points
from coreshot.privacy.releases import Release
from coreshot.types import Params, Points, PRNGKey
from coreshot.wire.messages import Message, named_leaves


@settings
class FedPa:
    num_rounds: Count
    local_steps: Count
    batch_size: Count
    client_optimizer: Optimizer
    server_optimizer: Optimizer
    num_samples: Count
    shrinkage: NonNegative
    burn_in_rounds: int
    burn_in_steps: int = 0
    cohort_size: Count | None = None

    def __post_init__(self) -> None:
        sampling = self.local_steps - self.burn_in_steps
        if min(self.burn_in_rounds, self.burn_in_steps) < 0 or sampling <= 0 or sampling % self.num_samples:
            raise CoreshotError(
                f"fed_pa: {self.local_steps} local_steps less {self.burn_in_steps} burn_in_steps cannot be cut into {self.num_samples} samples "
                f"of as many steps each (burn_in_rounds {self.burn_in_rounds}); change one of them."
            )

    def releases(self, model: Model) -> tuple[Release, ...]:
        return (
            Release(
                "local steps",
                "how far the server is from the posterior of the records, in every round; and the number of records",
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
        is_burn_in = state.round - (state.end - self.num_rounds) < self.burn_in_rounds
        cohort = _rounds.choose_cohort(key, state.round, clients, self.cohort_size)
        return Invitation(
            cohort, Message("weights" if is_burn_in else "sample", state.round, named_leaves("params", state.params))
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
        message = inbox[-1]
        params = _rounds.read_params(model, message)
        if message.kind == "weights":
            run = partial(local_deltas, model, self.client_optimizer, params)
        else:
            run = partial(_posterior_deltas, model, self, params)
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
def _posterior_deltas(model: Model, method: FedPa, params: Params, points: Points, plans: Array) -> dict[str, Params]:
    flat, unravel = ravel_pytree(params)

    def one(points: Points, plan: Array) -> Params:
        return unravel(posterior_delta(flat, draw_samples(model, method, params, points, plan), method.shrinkage))

    return {"delta": model.each(one)(points, plans)}


def draw_samples(
    model: Model, method: FedPa, params: Params, points: Points, plan: Array
) -> Float[Array, "samples weights"]:
    """Iterate-averaged SGD: after the burn-in, each sample is the mean of the next few iterates."""
    solver = method.client_optimizer.build()
    carry = _rounds.descend(model, solver, params, solver.init(params), points, plan[: method.burn_in_steps])
    steps = plan[method.burn_in_steps :].reshape(method.num_samples, -1, plan.shape[-1])

    def sample(carry: tuple[Params, optax.OptState], plan: Array) -> tuple[tuple[Params, optax.OptState], Array]:
        def step(
            carry: tuple[tuple[Params, optax.OptState], Array], index: Array
        ) -> tuple[tuple[tuple[Params, optax.OptState], Array], None]:
            moved = _rounds.descend(model, solver, *carry[0], points, index[None])
            return (moved, carry[1] + ravel_pytree(moved[0])[0]), None

        (carry, total), _ = jax.lax.scan(step, (carry, jnp.zeros_like(ravel_pytree(params)[0])), plan)
        return carry, total / len(plan)

    return jax.lax.scan(sample, carry, steps)[1]


def posterior_delta(
    server: Float[Array, " weights"], samples: Float[Array, "samples weights"], shrinkage: float
) -> Float[Array, " weights"]:
    """Sigma^-1 (server - mean of the samples) in O(l^2 d), Sigma the shrunk sample covariance.

    Sigma = s I + (1 - s) S with s = 1 / (1 + (l - 1) rho) and S the unbiased covariance: each sample is a rank-one change, so the paper's
    dynamic programme updates the solution with Sherman and Morrison. Rows of `solved` that are still zero contribute nothing.
    """
    num_samples = len(samples)

    def add(t: Array, carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        mean, delta, solved, products = carry
        u = samples[t] - mean
        k = jnp.arange(num_samples)  # sample k + 1 of the paper; its gamma is rho k / (k + 1)
        gamma = shrinkage * k / (k + 1)

        def subtract(k: Array, v: Array) -> Array:
            return v - gamma[k] * (solved[k] @ u) / (1 + gamma[k] * products[k]) * solved[k]

        v = jax.lax.fori_loop(1, t, subtract, u)
        number, g = t + 1, gamma[t]
        uv, ud = u @ v, u @ delta
        delta = delta - (1 + g * (number * ud - uv) / (1 + g * uv)) * v / number
        return mean + u / number, delta, solved.at[t].set(v), products.at[t].set(uv)

    start = (samples[0], server - samples[0], jnp.zeros_like(samples), jnp.zeros(num_samples, samples.dtype))
    _, delta, _, _ = jax.lax.fori_loop(1, num_samples, add, start)
    return delta * (1 + (num_samples - 1) * shrinkage)
