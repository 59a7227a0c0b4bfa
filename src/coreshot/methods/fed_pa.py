"""FedPA: FedAvg whose clients send their distance from the server in the metric of their posterior.

Al-Shedivat et al., "Federated Learning via Posterior Averaging: A New Perspective and Practical Algorithms", ICLR 2021
(Algorithms 3 and 4).

| paper               | here                                                                   |
|---------------------|------------------------------------------------------------------------|
| l samples, K steps  | num_samples, of (local_steps - burn_in_steps) / num_samples steps each |
| B (client burn-in)  | burn_in_steps                                                          |
| burn-in rounds      | burn_in_rounds: plain FedAvg deltas of the same local steps            |
| rho, rho_t          | shrinkage                                                              |
| Sigma, mu           | never formed; the sample mean                                          |
| Delta               | Sigma^-1 (server - mean), message "delta"                              |

A sample is the mean of the next K iterates of one run; the optimiser's state is carried from sample to sample.
The messages are those of FedAvg; their kind ("weights" or "sample") says which of the two deltas the server wants.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from coreshot.config import Count, NonNegative, settings
from coreshot.errors import CoreshotError
from coreshot.methods import rounds as _rounds
from coreshot.methods.fed_avg import FedAvg
from coreshot.methods.rounds import STEPS, LocalWork, RoundState
from coreshot.models import Model
from coreshot.privacy.releases import Release
from coreshot.types import Params, Points
from coreshot.wire.messages import Message


@settings
class FedPa(FedAvg):
    num_samples: Count
    shrinkage: NonNegative
    burn_in_rounds: int
    burn_in_steps: int = 0

    def __post_init__(self) -> None:
        sampling = self.local_steps - self.burn_in_steps
        if min(self.burn_in_rounds, self.burn_in_steps) < 0 or sampling <= 0 or sampling % self.num_samples:
            raise CoreshotError(
                f"fed_pa: {self.local_steps} local_steps less {self.burn_in_steps} burn_in_steps cannot be cut into "
                f"{self.num_samples} samples of as many steps each (burn_in_rounds {self.burn_in_rounds}); "
                "change one of them."
            )

    def releases(self, model: Model) -> tuple[Release, ...]:
        content = "how far the server is from the posterior of the records, in every round; and the number of records"
        return (Release(STEPS, content),)

    def message_kind(self, state: RoundState) -> str:
        is_burn_in = state.round - (state.end - self.num_rounds) < self.burn_in_rounds
        return "weights" if is_burn_in else "sample"

    def local_work(self, model: Model, inbox: Sequence[Message]) -> LocalWork:
        if inbox[-1].kind == "weights":
            return super().local_work(model, inbox)
        return partial(_posterior_deltas, model, self, _rounds.read_params(model, inbox[-1]))


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

    Sigma = s I + (1 - s) S with s = 1 / (1 + (l - 1) rho) and S the unbiased covariance. Each sample is a rank-one
    change, so the paper's dynamic programme updates the solution by the Sherman-Morrison formula. Rows of `solved`
    that are still zero contribute nothing.
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
