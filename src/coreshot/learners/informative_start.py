"""Regression with experts: inputs that determine what a client's data say, and the labels and weights that go with
them.

This start is ours. It treats the experts (weights trained on the client's data) as draws from the client's posterior,
and asks of an input how much an observation there says about them. `select_informative_inputs` chooses where points
start; `stationary_labels_and_weights` gives the labels and weights of the points after the last update.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from coreshot.learners.experts import make_unravel
from coreshot.models import Model
from coreshot.types import Points

NUM_CANDIDATES = 128  # inputs among which the start is chosen
NUM_ITERATIONS = 300  # of `fit_point_weights`


@partial(jax.jit, static_argnums=0)
def stationary_labels_and_weights(
    model: Model, points: Points, data: Points, experts: Float[Array, "clients experts weights"]
) -> tuple[Float[Array, "clients points outputs"], Float[Array, "clients points"]]:
    """The label of each point at which the KL is stationary, and how many observations each point stands for.

    In a label u the KL is stationary where E_C[f(z)] = E_D[f(z)], so u is the mean of the experts' outputs. (Where
    points meet, learned labels are right on average only.) The weights add up to at most n_m. None is 0, because a
    point of weight 0 is padding.
    """
    unravel = make_unravel(model)

    def one_client(points: Points, data: Points, experts: Array) -> tuple[Array, Array]:
        labels = jnp.mean(jax.vmap(lambda flat: model.apply(unravel(flat), points.x))(experts), axis=0)
        observations = fit_point_weights(*information(model, points.x, data, experts), jnp.ones(points.num_points))
        num_examples = jnp.sum(data.weight)
        observations = jnp.maximum(observations, 1e-6 * num_examples)
        return labels, observations * jnp.minimum(1.0, num_examples / jnp.sum(observations))

    return jax.vmap(one_client)(points, data, experts)


def information(
    model: Model, x: Float[Array, "inputs ..."], data: Points, experts: Float[Array, "experts weights"]
) -> tuple[Float[Array, "inputs inputs"], Float[Array, " inputs"]]:
    """Inner products of what an observation at each input says: with one at each other input, and with all the data.

    In the coordinates in which the experts' covariance is the identity, f(x) is its mean plus phi(x) . e, and an
    observation at x adds phi(x) phi(x)^T / noise_scale^2 to the precision of e. The inner product of two such matrices
    is cov(f(x), f(x'))^2, up to a constant factor.
    """
    unravel = make_unravel(model)
    outputs = jax.vmap(lambda flat: model.apply(unravel(flat), jnp.concatenate([x, data.x])))(experts)
    deviation = outputs - jnp.mean(outputs, axis=0)
    covariance = jnp.einsum("eko,elo->kl", deviation[:, : len(x)], deviation) / deviation.shape[0] / deviation.shape[2]
    product = covariance**2 + 1e-24  # not 0 / 0 where all experts agree: the points then share n_m equally
    return product[:, : len(x)], product[:, len(x) :] @ data.weight


def fit_point_weights(
    among: Float[Array, "n n"], with_data: Float[Array, " n"], start: Float[Array, " n"]
) -> Float[Array, " n"]:
    """The weights w >= 0 whose sum of w phi phi^T is nearest that of the data, by multiplicative least squares.

    Lee and Seung, "Algorithms for Non-negative Matrix Factorization", NIPS 2001. A 0 in `start` stays 0.
    """
    return jax.lax.fori_loop(0, NUM_ITERATIONS, lambda _, weight: weight * with_data / (among @ weight), start)


def select_informative_inputs(
    model: Model,
    candidates: Float[Array, "candidates ..."],
    num_points: int,
    data: Points,
    experts: Float[Array, "experts weights"],
) -> Float[Array, "{num_points} ..."]:
    """Greedy choice: each time the candidate that can stand for most of the observations that the chosen ones cannot.

    So points start where the experts agree, and there where their errors are independent, which loses nothing of what
    the data say (for straight lines on an interval these are the Gauss points). Points as far apart as possible would
    start where the experts know least.
    """
    among, with_data = information(model, candidates, data, experts)

    def choose(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Array]:
        is_chosen, weight = carry
        merit = (with_data - among @ weight) / jnp.diag(among)
        index = jnp.argmax(jnp.where(is_chosen, -jnp.inf, merit))
        is_chosen = is_chosen.at[index].set(True)
        return (is_chosen, fit_point_weights(among, with_data, is_chosen.astype(merit.dtype))), index

    none = jnp.zeros(len(candidates), bool)
    _, chosen = jax.lax.scan(choose, (none, jnp.zeros(len(candidates))), length=num_points)
    return candidates[chosen]
