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
- the chain ascends log prior + log likelihood, as the table's prior precision asks (Algorithm 2 shows the likelihood
  alone);
- options that are ours: sampling, num_data_draws, point_mass, start, optimizer = "adam", decay = "cosine",
  chain_state, bounds, proxy_network, num_held_out, soft_labels, and the augmentation that a study may ask for;
- when points diverge we go back and halve their step sizes.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Key, PyTree
from pydantic import Field

from coreshot.config import Count, NonNegative, NonNegativeInt, Positive, settings
from coreshot.errors import CoreshotError
from coreshot.keys import fold_each, named_key
from coreshot.learners.coreset_chains import chain_ends, flat_chain_ends, perturbed
from coreshot.learners.descent import Descent, DescentState, LocalPart
from coreshot.learners.expert_labels import mean_predictions
from coreshot.learners.expert_store import train_experts
from coreshot.learners.experts import (
    Experts,
    ExpertSource,
    Recipe,
    bytes_needed,
    expert_steps,
)
from coreshot.learners.informative_start import (
    NUM_CANDIDATES,
    select_informative_inputs,
    stationary_labels_and_weights,
)
from coreshot.learners.protocol import COUNT, LearningCost
from coreshot.learners.randomised_map import Sampling
from coreshot.learners.replay import open_pool
from coreshot.learners.starts import (
    START_CONTENT,
    between_neighbours,
    check_start,
    draw_start,
    first_labels,
    input_region,
    noise_around_mean,
    proportional_labels,
)
from coreshot.models import LogDensity, Model
from coreshot.privacy.guarded_records import Local, Records
from coreshot.privacy.releases import Release
from coreshot.types import Params, Points, PRNGKey, padded_size

# Of experts' weights that are drawn at once; where models are large, fewer updates share a draw.
DRAWN_BYTES = 256 << 20


def kl_gradient(
    model: Model, points: Points, data_params: Params, coreset_params: Params, key: PRNGKey | None = None
) -> Points:
    """The gradient of KL(p_D || q_C) in the points, from weights drawn from p_D and from q_C (leading axis: samples).

    KL = -E_{p_D}[log p(C|theta)] + log Z(C) + const, so its gradient is
    -E_{p_D}[grad log p(C|theta)] + E_{q_C}[grad log p(C|theta)]. With a key, both terms see the points under the same
    augmentation.
    """

    def log_prob(params: Params, points: Points) -> Float[Array, ""]:
        return model.log_prob(params, points if key is None else model.augment(key, points))

    def expected(samples: Params) -> Points:
        # A gradient for each sample: one through a loop over them would compute every network's outputs twice.
        each = model.each(lambda params: jax.grad(lambda points: log_prob(params, points))(points))(samples)
        return jax.tree.map(lambda array: jnp.mean(array, axis=0), each)

    return jax.tree.map(jnp.subtract, expected(coreset_params), expected(data_params))


@settings
class BpcFkl(Descent):
    batch_size: Count  # of the experts' and of the coreset chains' steps
    num_trajectories: Count
    experts: Experts
    chain_optimizer: Literal["adam", "sgd"]  # of the coreset chains, and of the experts that they are compared with
    chain_step_size: Positive
    data_chain_length: Count
    coreset_chain_length: Count
    num_noise_samples: Count
    noise_scale: NonNegative
    optimizer: Literal["adam", "sgd"] = "sgd"  # of the pseudo-points; adam is ours
    # Ours: how many expert weights the data term draws, since it needs no chains; None: one per chain.
    num_data_draws: Count | None = None
    decay: Literal["none", "cosine"] = "none"  # of the step sizes of pseudo-points; cosine is ours
    # In the chain a point counts as one observation (paper) or as n_m / K of them (ours).
    point_mass: Literal["unit", "data"] = "unit"
    sampling: Sampling = "map"  # of experts and chains: see coreshot.learners.randomised_map
    # Of start = "between": `best_start` chooses among so many draws, which cost as many updates; 1 takes the first.
    num_starts: Count = 64
    # The gradient that step sizes are for: of the points' log-likelihoods summed, or averaged over the points.
    step_of: Literal["sum", "mean"] = "sum"
    # Of the optimiser, where a chain starts: new (paper), or the expert's at that step (ours).
    chain_state: Literal["new", "expert"] = "new"
    # Labels cycle through the classes (paper), or each class has points and weight in proportion to its records (ours).
    labels: Literal["cycle", "proportional"] = "cycle"
    # Ours: so many of the experts' trajectories are not drawn. From them the coreset's chains are judged after each
    # chunk of updates by how likely they make the client's data; the best points are kept, and the updates stop when
    # there are no better ones. 0: all updates are made.
    num_held_out: NonNegativeInt = 0
    # Ours, of classes: the share of the experts' mean prediction in the labels that are sent, after the last update.
    # The KL is stationary in a label that equals this mean; the rest is the label that the point began with.
    soft_labels: Annotated[float, Field(ge=0, le=1)] = 0.0

    @property
    def can_resume(self) -> bool:
        """Replayed experts move on as they are drawn, so `init` cannot make them again."""
        return self.experts.store != "replay"

    def releases(self, model: Model) -> tuple[Release, ...]:
        return (
            Release("start", START_CONTENT[self.start] + "; and the farthest input from the mean"),
            Release(
                "labels",
                "the classes in the order of their counts, or the mean target"
                if self.labels == "cycle"
                else "the share of each class in the records",
            ),
            Release(
                "experts",
                "weights of networks that were trained on the records"
                + ("; and how likely the points' chains make the records" if self.num_held_out else ""),
            ),
            COUNT,
        )

    def init(self, keys: Key[Array, " clients"], model: Model, records: Records, shared_key: PRNGKey) -> DescentState:
        model = self.client_model(model)
        self.check(model)
        experts = self._make_experts(fold_each(keys, 0), model, records.exact("experts"), shared_key)
        last = experts.last() if self.start == "informative" else jnp.zeros((len(keys), 0))

        def start(
            key: PRNGKey, data: Points, labelled: Points, num_examples: Array, last: Array
        ) -> tuple[Points, Array, tuple[Array, Array]]:
            labels, share = first_labels(model, labelled, self.num_points), jnp.ones(self.num_points)
            if self.labels == "proportional":
                labels, share = proportional_labels(model, labelled, self.num_points)
            mass = num_examples / self.num_points if self.point_mass == "data" else 1.0
            # With its type: otherwise the second chunk's would differ, and it would be compiled again.
            weight = jnp.asarray(mass * share, jnp.float32)
            if self.start == "between":
                x = best_start(self, model, data, labels, weight, key, shared_key)
            elif self.start == "informative":
                candidates = noise_around_mean(key, data, NUM_CANDIDATES, self.init_scale)
                x = select_informative_inputs(model, candidates, self.num_points, data, last)
            else:
                x = draw_start(self.start, key, model, data, labels, self.init_scale)
            return Points(x, labels, weight), share, input_region(data, self.init_scale)

        num_examples = jnp.sum(records.exact(COUNT.name).weight, axis=1)
        coreset, share, region = jax.vmap(start)(
            fold_each(keys, 1), records.exact("start"), records.exact("labels"), num_examples, last
        )
        state = self.begin(coreset, region, num_examples, LocalPart(self.seen_data(records), experts))
        return self.judge(model, replace(state, point_weights=share))

    def seen_data(self, records: Records) -> Points:
        """What updates see beside the experts."""
        return records.exact("experts")

    def _make_experts(
        self, keys: Key[Array, " clients"], model: Model, points: Points, shared_key: PRNGKey
    ) -> ExpertSource:
        recipe = Recipe(
            model,
            self.experts,
            self.chain_optimizer,
            self.batch_size,
            self.data_chain_length,
            self.sampling,
            self.chain_state == "expert",
        )
        if self.experts.store == "replay":
            return open_pool(recipe, keys, points, shared_key, self.num_trajectories)
        return train_experts(recipe, keys, points, shared_key, self.num_held_out)

    def held_out_score(self, model: Model, state: DescentState) -> Float[Array, " clients"] | None:
        """The mean of log p(D|theta) at the ends of the coreset's chains: what the reverse KL has of the data."""
        if not self.num_held_out:
            return None
        local = state.local.value
        return _score(self, model, state.points, local.data, local.experts.held_out_starts())

    def updates_at_once(self, model: Model, num_clients: int) -> int:
        starts = 3 if self.chain_state == "expert" else 1  # with the optimiser's state
        num_drawn = starts * self.num_trajectories + (self.num_data_draws or self.num_trajectories)
        return DRAWN_BYTES // (4 * num_clients * num_drawn * model.num_params())

    def draw(
        self, keys: Key[Array, " clients"], model: Model, state: DescentState, num_updates: int
    ) -> tuple[Key[Array, "clients updates"], PyTree[Array], DescentState]:
        """Weights of experts: starts and ends are [clients, updates, trajectories, weights]."""
        local = state.local.value
        starts, ends, experts = local.experts.sample(fold_each(keys, 0), num_updates, self.num_trajectories)
        if self.num_data_draws:
            ends = local.experts.sample_ends(fold_each(keys, 2), num_updates, self.num_data_draws)
        update_keys = jax.vmap(lambda key: jax.random.split(key, num_updates))(fold_each(keys, 1))
        return update_keys, (starts, ends), replace(state, local=Local(replace(local, experts=experts)))

    def gradient(
        self, key: PRNGKey, model: Model, points: Points, data: Points, networks: PyTree[Array], drawn: PyTree[Array]
    ) -> Points:
        """Of the KL. Drawn are weights of experts at steps r and r + L_D; the coreset's chains start at r."""
        (starts, ends), (key_chain, key_noise) = drawn, jax.random.split(key)
        coreset_ends = flat_chain_ends(self, model, points, key_chain, starts)
        key_data, key_coreset = jax.random.split(key_noise)
        data_samples = 1 if self.num_data_draws else self.num_noise_samples
        of_data = perturbed(model, ends, key_data, data_samples, self.noise_scale)
        of_coreset = perturbed(model, coreset_ends, key_coreset, self.num_noise_samples, self.noise_scale)
        return self.scaled(kl_gradient(model, points, of_data, of_coreset, named_key(key, "augment")))

    def scaled(self, gradient: Points) -> Points:
        return gradient if self.step_of == "sum" else jax.tree.map(lambda array: array / self.num_points, gradient)

    def schedule(self, step_size: float) -> float | optax.Schedule:
        return optax.cosine_decay_schedule(step_size, self.num_updates) if self.decay == "cosine" else step_size

    def finish(self, model: Model, state: DescentState) -> DescentState:
        """The experts' last weights give the final labels: a share of them, or with the informative start all, and then
        the weights too."""
        points, local = state.points, state.local.value
        if self.soft_labels:
            predicted = mean_predictions(model, points, local.experts.last())
            labels = (1 - self.soft_labels) * points.y + self.soft_labels * predicted
            return replace(state, points=Points(points.x, labels, points.weight))
        if self.start != "informative":
            return state
        labels, observations = stationary_labels_and_weights(model, points, local.data, local.experts.last())
        share = state.num_examples[:, None] / self.num_points
        return replace(state, points=Points(points.x, labels, points.weight), point_weights=observations / share)

    def cost(self, model: Model, num_examples: int) -> LearningCost:
        chain_steps = self.num_updates * self.num_trajectories * self.coreset_chain_length
        experts = expert_steps(self.experts, self.data_chain_length, self.num_updates * self.num_trajectories)
        passes = (
            min(self.batch_size, padded_size(num_examples)) * experts
            + min(self.batch_size, self.num_points) * chain_steps
            + self.num_updates * self.gradient_passes(padded_size(num_examples))
            + self._start_passes(padded_size(num_examples))
        )
        return LearningCost(
            passes,
            f"{experts:,} expert steps, {self.num_updates:,} updates, {chain_steps:,} chain steps",
            bytes_needed(
                self.experts,
                self.data_chain_length,
                1,
                self.client_model(model).num_params(),
                self.chain_optimizer,
                self.chain_state == "expert",
            ),
            kept_in=f"experts, {self.experts.store}",
            num_networks=self.num_trajectories,
            batch_size=self.batch_size,
            model=self.client_model(model),
            has_soft_labels=self.step_size_y > 0 or self.soft_labels > 0,
            has_point_weights=self.start == "informative" or self.labels == "proportional",
        )

    def gradient_passes(self, num_records: int) -> int:
        """Points that one update sends through networks, apart from its chains; num_records counts the padding."""
        of_coreset = self.num_trajectories * self.num_noise_samples
        return self.num_points * (of_coreset + (self.num_data_draws or of_coreset))

    def _start_passes(self, num_records: int) -> int:
        if self.start == "informative":
            at_start, at_end = NUM_CANDIDATES + num_records, 2 * self.num_points + num_records
            return self.experts.num_trajectories * (at_start + at_end)
        if self.start != "between" or self.num_starts == 1:
            return 0
        chain = min(self.batch_size, self.num_points) * self.coreset_chain_length
        return self.num_starts * self.num_trajectories * (chain + num_records)

    def check(self, model: Model) -> None:
        check_start(self.start, model, has_experts=True)
        if self.labels == "proportional" and model.kind == "regression":
            raise CoreshotError('learner: labels = "proportional" counts classes, and regression has none; remove it.')
        if self.soft_labels and model.kind == "regression":
            raise CoreshotError(
                "learner: soft_labels is a share of class probabilities, and regression has none; remove it."
            )
        experts, length = self.experts, self.data_chain_length
        if self.soft_labels and experts.store == "replay":
            raise CoreshotError(
                'learner: soft_labels needs the experts\' last weights, which experts.store = "replay" does not keep; '
                'set experts.store to "memory" or "disk".'
            )
        if experts.last_step is not None and (experts.store == "replay" or experts.last_step < experts.first_step):
            raise CoreshotError(
                f"learner: experts.last_step {experts.last_step} is for stored experts, and is not before "
                f'experts.first_step {experts.first_step}; raise it, and set experts.store to "memory" or "disk".'
            )
        if experts.first_step + length > experts.num_steps:
            raise CoreshotError(
                f"learner: a chain of data_chain_length {length} from experts.first_step {experts.first_step} on is "
                f"longer than the experts' {experts.num_steps} steps; lower it or raise experts.num_steps."
            )
        if self.num_held_out and (experts.store == "replay" or self.num_held_out >= experts.num_trajectories):
            raise CoreshotError(
                f"learner: num_held_out = {self.num_held_out} of the {experts.num_trajectories} stored trajectories "
                'are kept from the updates; lower it, and set experts.store to "memory" or "disk".'
            )
        if self.chain_state == "expert" and experts.coding == "float16":
            raise CoreshotError(
                'learner: chain_state = "expert" keeps an optimiser\'s state, which is too small for experts.coding = '
                '"float16"; use "float32".'
            )
        if length % experts.save_interval or experts.first_step % experts.save_interval:
            raise CoreshotError(
                f"learner: data_chain_length {length} and experts.first_step {experts.first_step} must be multiples of "
                f"experts.save_interval {experts.save_interval}, or a chain would start or end between two "
                "checkpoints; change one of them."
            )


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
    """Classification: of num_starts draws of the inputs, the one whose own chains make the client's data most likely.

    The updates move points little (moons: about 0.04 a coordinate in 100), so much depends on where they start.
    The score is E_{q_C}[log p(D|theta)], the part of the reverse KL that sees the data. It needs no gradient in the
    points. Its chains start at the shared initial weights (the first of the experts'), the same for every draw.
    """
    key_chain, key_inputs = jax.random.split(key)
    draws = jax.vmap(lambda key: between_neighbours(key, data, labels, learner.init_scale))(
        jax.random.split(key_inputs, learner.num_starts)
    )
    if learner.num_starts == 1:
        return draws[0]
    initial = jax.vmap(lambda index: ravel_pytree(model.init(jax.random.fold_in(shared_key, index)))[0])(
        jnp.arange(learner.num_trajectories)
    )

    def score(inputs: Array) -> Array:
        ends = chain_ends(learner, model, Points(inputs, labels, weight), key_chain, initial)
        return jnp.mean(model.each(lambda params: model.log_prob(params, data))(ends))

    scores = jax.lax.map(score, draws)
    return draws[jnp.argmax(jnp.where(jnp.isnan(scores), -jnp.inf, scores))]


@partial(jax.jit, static_argnums=(0, 1))
def _score(
    learner: BpcFkl,
    model: Model,
    points: Points,
    data: Points,
    starts: Float[Array, "clients trajectories numbers"],
) -> Float[Array, " clients"]:
    """The same chains at every call, from the same starts and with the same batches, so that scores can be compared."""

    def one(points: Points, data: Points, starts: Array) -> Array:
        ends = chain_ends(learner, model, points, jax.random.key(0), starts)
        return jnp.mean(model.each(LogDensity(model, data))(ends))

    return jax.vmap(one)(points, data, starts)
