"""BPC-fKL: a pseudocoreset whose weight posterior is close, in forward KL, to that of the client's data.

Kim et al., "On Divergence Measures for Bayesian Pseudocoresets", NeurIPS 2022 (Algorithm 1), as used by d'Hondt et al.,
"One-Shot Federated Learning with Bayesian Pseudocoresets" (Algorithm 2 and its table of hyperparameters).

| paper                        | here                                    |
|------------------------------|-----------------------------------------|
| C = (Z, y-hat), K            | points, num_points                      |
| client update steps          | num_updates                             |
| L_D, L_C                     | data_chain_length, coreset_chain_length |
| weight mc samples per update | num_trajectories                        |
| S, sigma_epsilon             | num_noise_samples, noise_scale          |
| sigma_z                      | init_scale                              |
| psi (x and y)                | step_size_x, step_size_y                |
| mcmc sampler, eta            | chain_optimizer, chain_step_size        |
| pretrain ...                 | experts                                 |

Where we differ from the paper:
- the sign of its Eq. (klgradient), which is right only if its log p is a *negative* log-likelihood (see `kl_gradient`);
- the chain ascends log prior + log likelihood, as the table's prior precision asks (Algorithm 2 shows the likelihood alone);
- options that are ours: sampling, num_data_draws, point_mass, guidance, optimizer = "adam", decay = "cosine";
- when points diverge we go back and halve their step sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Key

from coreshot.config import Count, NonNegative, Positive, settings
from coreshot.errors import CoreshotError
from coreshot.keys import fold_each, named_key
from coreshot.learners.expert_store import train_experts
from coreshot.learners.experts import Experts, ExpertSource, Recipe
from coreshot.learners.protocol import COUNT, Health, make_health
from coreshot.learners.randomised_map import Sampling, noise_scale, randomised
from coreshot.learners.replay import open_pool
from coreshot.learners.starts import between_neighbours, first_labels, noise_around_mean, weighted_mean
from coreshot.models import LogDensity, Model
from coreshot.models.training import OPTIMIZERS, ascend, draw_batch
from coreshot.privacy.guarded_records import Records
from coreshot.privacy.releases import Release
from coreshot.types import Coreset, Params, Points, PRNGKey
from coreshot.wire.point_coding import PointCoding

UPDATES_PER_CHUNK = 20  # compiled together; the host looks at the points in between
DRAWN_BYTES = (
    256 << 20
)  # of experts' weights for the updates that run without a look from the host; fewer updates where models are large
NUM_CANDIDATES = 128  # places among which guided points choose their start (regression)
NUM_SHARINGS = 300  # iterations of `observations_carried`
FAR = 100.0  # points further from the client's mean than this many times its farthest input have diverged


def kl_gradient(model: Model, points: Points, data_params: Params, coreset_params: Params) -> Points:
    """The gradient of KL(p_D || q_C) in the points, from weights drawn from p_D and from q_C (leading axis: samples).

    KL = -E_{p_D}[log p(C|theta)] + log Z(C) + const, so its gradient is -E_{p_D}[grad log p(C|theta)] + E_{q_C}[grad log p(C|theta)].
    """

    def expected(samples: Params) -> Points:
        # A gradient for each sample: one through a loop over them would compute every network's outputs twice.
        each = model.each(lambda params: jax.grad(lambda points: model.log_prob(params, points))(points))(samples)
        return jax.tree.map(lambda array: jnp.mean(array, axis=0), each)

    return jax.tree.map(jnp.subtract, expected(coreset_params), expected(data_params))


@dataclass(frozen=True)
class BpcState:
    """Arrays have a leading client axis; the experts stay on the host."""

    points: Points  # their weights are those of the chain
    point_weights: Array  # over the equal share n_m / K: what the server is told
    optimizer_state: optax.OptState
    step_scale: Array  # 1, halved each time a client's points diverge
    radius: Array  # how far from `center` a client's pseudo-inputs may go
    center: Array
    data: Points  # the client's own, for the final weights; never sent
    num_examples: Array
    num_updates_done: int
    experts: ExpertSource


@settings
class BpcFkl:
    num_points: Count
    num_updates: Count
    batch_size: Count  # of the experts' and of the coreset chains' steps
    init_scale: Positive
    step_size_x: Positive
    step_size_y: NonNegative  # 0 keeps the labels fixed
    num_trajectories: Count
    experts: Experts
    chain_optimizer: Literal["adam", "sgd"]  # of the coreset chains, and of the experts that they are compared with
    chain_step_size: Positive
    data_chain_length: Count
    coreset_chain_length: Count
    num_noise_samples: Count
    noise_scale: NonNegative
    num_data_draws: Count | None = (
        None  # ours: so many more expert weights for the data term, which needs no chains; None: one per chain
    )
    optimizer: Literal["adam", "sgd"] = "sgd"  # of the pseudodata; adam is ours
    decay: Literal["none", "cosine"] = "none"  # of the pseudodata step sizes; cosine is ours
    point_mass: Literal["unit", "data"] = (
        "unit"  # in the chain a point counts as one observation (paper) or as n_m / K of them (ours)
    )
    sampling: Sampling = "map"  # of experts and chains: see coreshot.learners.randomised_map
    # ours: what the client knows says where points start. Classification: the best of many draws near its data (`best_start`).
    # Regression: where few points carry most of what its data say (`telling_places`); so also the final labels and weights.
    guidance: Literal["none", "client"] = "none"
    num_starts: Count = (
        64  # draws among which `best_start` chooses: they cost about as much as so many updates; 1 takes the first
    )
    # The gradient that step_size_x and step_size_y follow: of the points' log-likelihoods summed, or averaged over the points.
    step_of: Literal["sum", "mean"] = "sum"
    coding: PointCoding | None = None  # on the wire; ours

    @property
    def num_chunks(self) -> int:
        return -(-self.num_updates // UPDATES_PER_CHUNK)

    def releases(self, model: Model) -> tuple[Release, ...]:
        near = (
            "midpoints of records of a class, at which points start"
            if self.guidance == "client"
            else "the mean of the inputs, around which points start"
        )
        return (
            Release("start", near + "; and the farthest input from the mean"),
            Release("labels", "the classes in the order of their counts, or the mean target"),
            Release("experts", "weights of networks that were trained on the records"),
            COUNT,
        )

    def init(self, keys: Key[Array, " clients"], model: Model, records: Records, shared_key: PRNGKey) -> BpcState:
        self._check(model)
        points = records.exact("start")
        experts = self._experts(fold_each(keys, 0), model, records.exact("experts"), shared_key)
        telling = (
            experts.last() if self.guidance == "client" and model.kind == "regression" else jnp.zeros((len(keys), 0))
        )

        def start(
            key: PRNGKey, points: Points, labelled: Points, num_examples: Array, experts: Array
        ) -> tuple[Points, Array, Array]:
            labels = first_labels(model, labelled, self.num_points)
            mass = num_examples / self.num_points if self.point_mass == "data" else 1.0
            weight = jnp.full(
                self.num_points, mass, jnp.float32
            )  # its type said, or the second chunk's would differ and compile again
            if self.guidance == "client" and model.kind == "classification":
                x = best_start(self, model, points, labels, weight, key, shared_key)
            elif self.guidance == "client":
                x = telling_places(
                    model,
                    noise_around_mean(key, points, NUM_CANDIDATES, self.init_scale),
                    self.num_points,
                    points,
                    experts,
                )
            else:
                x = noise_around_mean(key, points, self.num_points, self.init_scale)
            center = weighted_mean(points.x, points.weight)
            spread = jnp.max(
                jnp.where(
                    points.weight > 0, jnp.max(jnp.abs(points.x - center).reshape(points.num_points, -1), axis=1), 0
                )
            )
            coreset = Points(x, labels, weight)
            return coreset, center, FAR * (spread + self.init_scale)

        num_examples = jnp.sum(records.exact(COUNT.name).weight, axis=1)
        coreset, center, radius = jax.vmap(start)(
            fold_each(keys, 1), points, records.exact("labels"), num_examples, telling
        )
        optimizer_state = jax.vmap(self._optimizer().init)(coreset)
        ones = jnp.ones_like(coreset.weight)
        return BpcState(
            coreset, ones, optimizer_state, ones[:, 0], radius, center, self._data(records), num_examples, 0, experts
        )

    def _data(self, records: Records) -> Points:
        """What updates see beside the experts."""
        return records.exact("experts")

    def _experts(self, keys: Key[Array, " clients"], model: Model, points: Points, shared_key: PRNGKey) -> ExpertSource:
        recipe = Recipe(
            model, self.experts, self.chain_optimizer, self.batch_size, self.data_chain_length, self.sampling
        )
        if self.experts.store == "replay":
            return open_pool(recipe, keys, points, shared_key, self.num_trajectories)
        return train_experts(recipe, keys, points, shared_key)

    def step(self, keys: Key[Array, " clients"], model: Model, state: BpcState) -> tuple[BpcState, Health]:
        """One chunk of pseudodata updates for every client of the group, in parts whose drawn experts fit a budget."""
        size = min(UPDATES_PER_CHUNK, self.num_updates - state.num_updates_done)
        of_update = (
            4
            * len(keys)
            * (self.num_trajectories + (self.num_data_draws or self.num_trajectories))
            * model.num_params()
        )
        at_once = max(1, min(size, DRAWN_BYTES // of_update))
        good, norms = [], []
        for part, first in enumerate(range(0, size, at_once)):
            part_keys = fold_each(keys, 3 + part) if part else keys
            state, is_good, gradient_norm = self._update(part_keys, model, state, min(at_once, size - first))
            good.append(is_good)
            norms.append(gradient_norm)
        health = make_health(
            np.concatenate(good, axis=1), np.concatenate(norms, axis=1), state.num_updates_done, self.num_updates
        )
        return (self._finish(model, state) if state.num_updates_done == self.num_updates else state), health

    def _update(
        self, keys: Key[Array, " clients"], model: Model, state: BpcState, num: int
    ) -> tuple[BpcState, np.ndarray, np.ndarray]:
        starts, ends, experts = state.experts.sample(fold_each(keys, 0), num, self.num_trajectories)
        if self.num_data_draws:
            ends = state.experts.sample_ends(fold_each(keys, 2), num, self.num_data_draws)
        points, optimizer_state, is_good, gradient_norm = _run_chunk(
            self,
            model,
            jax.vmap(lambda key: jax.random.split(key, num))(fold_each(keys, 1)),
            (state.points, state.optimizer_state, state.step_scale, state.radius, state.center),
            starts,
            ends,
            state.data,
        )
        done = state.num_updates_done + num
        state = replace(state, points=points, optimizer_state=optimizer_state, experts=experts, num_updates_done=done)
        return state, np.asarray(is_good), np.asarray(gradient_norm)

    def _finish(self, model: Model, state: BpcState) -> BpcState:
        """What the experts' last weights still have to say about the points, where that is asked for."""
        if self.guidance == "none" or model.kind == "classification":
            return state
        points = state.points
        labels, observations = expert_opinion(model, points, state.data, state.experts.last())
        share = state.num_examples[:, None] / self.num_points
        return replace(state, points=Points(points.x, labels, points.weight), point_weights=observations / share)

    def gradient(self, model: Model, points: Points, data: Points, key: PRNGKey, starts: Array, ends: Array) -> Points:
        """Of the KL, from trajectories (theta at r, theta at r + L_D): coreset chains run from the former, all at once."""
        key_chain, key_noise = jax.random.split(key)
        coreset_ends = jax.vmap(lambda params: ravel_pytree(params)[0])(
            chain_ends(self, model, points, key_chain, starts)
        )
        key_data, key_coreset = jax.random.split(key_noise)
        data_samples = 1 if self.num_data_draws else self.num_noise_samples
        of_data = perturbed(model, ends, key_data, data_samples, self.noise_scale)
        of_coreset = perturbed(model, coreset_ends, key_coreset, self.num_noise_samples, self.noise_scale)
        return self.scaled(kl_gradient(model, points, of_data, of_coreset))

    def scaled(self, gradient: Points) -> Points:
        return gradient if self.step_of == "sum" else jax.tree.map(lambda array: array / self.num_points, gradient)

    def slower(self, state: BpcState, clients: np.ndarray) -> BpcState:
        return replace(state, step_scale=jnp.where(clients, state.step_scale / 2, state.step_scale))

    def coreset(self, state: BpcState) -> Coreset:
        points = state.points
        return Coreset(points.reweighted(state.point_weights), state.num_examples)

    def advice(self) -> str:
        return f"Lower step_size_x (now {self.step_size_x:g}) or step_size_y (now {self.step_size_y:g})"

    def _optimizer(self) -> optax.GradientTransformation:
        def solver(step_size: float) -> optax.GradientTransformation:
            if step_size == 0:
                return optax.set_to_zero()
            schedule = optax.cosine_decay_schedule(step_size, self.num_updates) if self.decay == "cosine" else step_size
            return OPTIMIZERS[self.optimizer](schedule)

        parts = {"x": solver(self.step_size_x), "y": solver(self.step_size_y), "fixed": optax.set_to_zero()}
        return optax.partition(parts, Points("x", "y", "fixed"))  # type: ignore[arg-type]

    def _check(self, model: Model) -> None:
        experts, length = self.experts, self.data_chain_length
        if experts.first_step + length > experts.num_steps:
            raise CoreshotError(
                f"learner: a chain of data_chain_length {length} from experts.first_step {experts.first_step} on is longer than the experts' "
                f"{experts.num_steps} steps; lower it or raise experts.num_steps."
            )
        if length % experts.save_interval or experts.first_step % experts.save_interval:
            raise CoreshotError(
                f"learner: data_chain_length {length} and experts.first_step {experts.first_step} must be multiples of experts.save_interval "
                f"{experts.save_interval}, or a chain would start or end between two checkpoints; change one of them."
            )


@partial(jax.jit, static_argnums=0)
def expert_opinion(
    model: Model, points: Points, data: Points, experts: Float[Array, "clients experts weights"]
) -> tuple[Float[Array, "clients points outputs"], Float[Array, "clients points"]]:
    """The label of each point at which the KL is stationary, and the weight (in observations) with which the points carry the data's information.

    In a label u: E_C[f(z)] = E_D[f(z)], so u is the experts' mean. (Of points that meet, the learned labels only agree on average.)
    The weights are together at most n_m, and none is 0, which would make its point padding.
    """
    unravel = make_unravel(model)

    def one_client(points: Points, data: Points, experts: Array) -> tuple[Array, Array]:
        labels = jnp.mean(jax.vmap(lambda flat: model.apply(unravel(flat), points.x))(experts), axis=0)
        observations = observations_carried(*information(model, points.x, data, experts), jnp.ones(points.num_points))
        num_examples = jnp.sum(data.weight)
        observations = jnp.maximum(observations, 1e-6 * num_examples)
        return labels, observations * jnp.minimum(1.0, num_examples / jnp.sum(observations))

    return jax.vmap(one_client)(points, data, experts)


def information(
    model: Model, x: Float[Array, "places ..."], data: Points, experts: Float[Array, "experts weights"]
) -> tuple[Float[Array, "places places"], Float[Array, " places"]]:
    """What an observation at each place says, as inner products: with one at each other place, and with all of the client's data.

    In the coordinates in which the experts' covariance is the identity, f(x) is its mean plus phi(x) . e, and an observation at x adds
    phi(x) phi(x)^T / noise_scale^2 to the precision of e. Of two such matrices the inner product is, but for a constant, cov(f(x), f(x'))^2.
    """
    unravel = make_unravel(model)
    outputs = jax.vmap(lambda flat: model.apply(unravel(flat), jnp.concatenate([x, data.x])))(experts)
    deviation = outputs - jnp.mean(outputs, axis=0)
    covariance = jnp.einsum("eko,elo->kl", deviation[:, : len(x)], deviation) / deviation.shape[0] / deviation.shape[2]
    product = covariance**2 + 1e-24  # experts that agree on everything leave n_m observations to share, not 0 / 0
    return product[:, : len(x)], product[:, len(x) :] @ data.weight


def observations_carried(
    among: Float[Array, "n n"], with_data: Float[Array, " n"], start: Float[Array, " n"]
) -> Float[Array, " n"]:
    """The weights w >= 0 whose sum of w phi phi^T is nearest the data's: multiplicative least squares (Lee and Seung 2001); 0 in start stays 0."""
    return jax.lax.fori_loop(0, NUM_SHARINGS, lambda _, weight: weight * with_data / (among @ weight), start)


def telling_places(
    model: Model,
    candidates: Float[Array, "candidates ..."],
    num_points: int,
    data: Points,
    experts: Float[Array, "experts weights"],
) -> Float[Array, "points ..."]:
    """Regression: always the place that can carry most of the observations that those already chosen do not.

    So points go to where the experts agree, and there to where they err independently, which loses nothing of what the data say (on an interval
    and with straight lines: the Gauss points), rather than as far apart as possible, where the experts know least.
    """
    among, with_data = information(model, candidates, data, experts)

    def choose(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Array]:
        is_chosen, weight = carry
        merit = (with_data - among @ weight) / jnp.diag(among)
        index = jnp.argmax(jnp.where(is_chosen, -jnp.inf, merit))
        is_chosen = is_chosen.at[index].set(True)
        return (is_chosen, observations_carried(among, with_data, is_chosen.astype(merit.dtype))), index

    none = jnp.zeros(len(candidates), bool)
    _, chosen = jax.lax.scan(choose, (none, jnp.zeros(len(candidates))), length=num_points)
    return candidates[chosen]


@partial(jax.jit, static_argnums=(0, 1))
def best_start(
    learner: BpcFkl,
    model: Model,
    data: Points,
    labels: Float[Array, "points classes"],
    weight: Float[Array, " points"],
    key: PRNGKey,
    shared_key: PRNGKey,
) -> Float[Array, "points ..."]:
    """Classification: of many draws of the points' places, the one whose own chains make the client's data most likely.

    The updates move points little (moons: about 0.04 a coordinate in 100), so much depends on where they start.
    The score is E_{q_C}[log p(D|theta)], the part of the reverse KL that sees the data. It says which few points speak for the rest, and needs
    no gradient in them. Its chains start at the shared initial weights (the first of the experts'), the same for every draw.
    """
    key_chain, key_place = jax.random.split(key)
    draws = jax.vmap(lambda key: between_neighbours(key, data, labels, learner.init_scale))(
        jax.random.split(key_place, learner.num_starts)
    )
    if learner.num_starts == 1:
        return draws[0]
    initial = jax.vmap(lambda index: ravel_pytree(model.init(jax.random.fold_in(shared_key, index)))[0])(
        jnp.arange(learner.num_trajectories)
    )

    def score(places: Array) -> Array:
        ends = chain_ends(learner, model, Points(places, labels, weight), key_chain, initial)
        return jnp.mean(model.each(lambda params: model.log_prob(params, data))(ends))

    scores = jax.lax.map(score, draws)
    return draws[jnp.argmax(jnp.where(jnp.isnan(scores), -jnp.inf, scores))]


def make_unravel(model: Model) -> Callable[[Array], Params]:
    shapes = model.shapes()
    return ravel_pytree(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), shapes))[1]


@partial(jax.jit, static_argnums=(0, 1))
def _run_chunk(
    learner: BpcFkl,
    model: Model,
    keys: Key[Array, "clients updates"],
    carry: tuple[Points, optax.OptState, Array, Array, Array],
    starts: Array,
    ends: Array,
    data: Points,
) -> tuple[Points, optax.OptState, Array, Array]:
    """Scan over updates, for each client: starts and ends are [clients, updates, trajectories, weights]."""

    def one_client(  # type: ignore[no-untyped-def]
        keys: Array, carry: tuple[Points, optax.OptState, Array, Array, Array], starts: Array, ends: Array, data: Points
    ):
        points, optimizer_state, step_scale, radius, center = carry

        def update(state, draws):  # type: ignore[no-untyped-def]
            points, optimizer_state = state
            gradient = learner.gradient(model, points, data, *draws)
            updates, optimizer_state = learner._optimizer().update(gradient, optimizer_state, points)
            points = optax.apply_updates(points, jax.tree.map(lambda update: step_scale * update, updates))
            if model.kind == "classification" and learner.step_size_y > 0:
                points = Points(points.x, jax.vmap(optax.projections.projection_simplex)(points.y), points.weight)
            is_good = jnp.all(jnp.abs(points.x - center) < radius) & jnp.all(jnp.isfinite(points.y))
            return (points, optimizer_state), (is_good, optax.tree.norm((gradient.x, gradient.y)))

        (points, optimizer_state), (is_good, norm) = jax.lax.scan(
            update, (points, optimizer_state), (keys, starts, ends)
        )
        return points, optimizer_state, is_good, norm

    return model.each(one_client)(keys, carry, starts, ends, data)


def chain_ends(learner: BpcFkl, model: Model, points: Points, key: PRNGKey, starts: Array) -> Params:
    """Where the coreset's chains end, all run at once, one from each of the (flat) starts."""
    solver = OPTIMIZERS[learner.chain_optimizer](learner.chain_step_size)

    def chain(key: PRNGKey, params: Params) -> Params:
        seen = randomised(named_key(key, "randomise"), model, points) if learner.sampling == "randomised" else points

        def log_density(key: PRNGKey, params: Params) -> Float[Array, ""]:
            batch = LogDensity(model, draw_batch(key, seen, learner.batch_size))
            return batch(params) / jnp.sum(points.weight)

        langevin_scale = (
            noise_scale(learner.chain_step_size, jnp.sum(points.weight)) if learner.sampling == "langevin" else None
        )
        return ascend(
            solver,
            log_density,
            params,
            solver.init(params),
            jax.random.split(key, learner.coreset_chain_length),
            langevin_scale,
        )[0]

    return model.each(chain)(jax.random.split(key, len(starts)), jax.vmap(make_unravel(model))(starts))


def perturbed(
    model: Model, ends: Float[Array, "chains weights"], key: PRNGKey, num_samples: int, scale: float
) -> Params:
    """Weights drawn around each end, as trees with a leading axis of chains times samples."""
    noise = jax.random.normal(key, (len(ends), num_samples, ends.shape[1]))
    return jax.vmap(make_unravel(model))((ends[:, None] + scale * noise).reshape(-1, ends.shape[1]))
