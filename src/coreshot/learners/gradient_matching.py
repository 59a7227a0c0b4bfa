"""Gradient matching: pseudo-points of a class give a network the same gradient as the client's records of that class.

Zhao, Mopuri and Bilen, "Dataset Condensation with Gradient Matching", ICLR 2021 (Algorithm 1).

| paper                 | here                                                                    |
|-----------------------|-------------------------------------------------------------------------|
| K random inits, T     | a new network every network_updates updates                             |
| sigma_theta, eta      | network_steps of SGD with network_step_size on the pseudo-points        |
| D (Eq. 10)            | `distance`: over layers, over output units, one minus the cosine        |
| B^T_c ~ T             | batch_size records of a class, drawn by weight                          |
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from coreshot.config import Count, Positive, settings
from coreshot.errors import CoreshotError
from coreshot.learners.descent import LossDescent, select_class
from coreshot.models import Model
from coreshot.models.training import ascend
from coreshot.types import Params, Points, PRNGKey


@settings
class GradientMatching(LossDescent):
    batch_size: Count = 32  # records of each class
    network_updates: Count = 10
    network_steps: Count = 10
    network_step_size: Positive = 0.01

    def networks(self, key: PRNGKey, model: Model) -> Params:
        if model.kind != "classification":
            raise CoreshotError("learner: gradient_matching goes class by class, and regression has none; use bpc_fkl.")
        return model.init(key)

    def loss(self, key: PRNGKey, model: Model, points: Points, data: Points, networks: Params) -> Float[Array, ""]:
        def of_label(key_and_label: tuple[PRNGKey, Array]) -> Array:
            key, label = key_and_label
            real, pseudo = select_class(data, label), select_class(points, label)
            is_there = (jnp.sum(real.weight) > 0) & (jnp.sum(pseudo.weight) > 0)
            gap = distance(
                _gradient(model, networks, _batch(key, real, self.batch_size)), _gradient(model, networks, pseudo)
            )
            return jnp.where(is_there, gap, 0.0)

        keys = jax.random.split(key, model.num_outputs)
        return jnp.sum(jax.lax.map(jax.checkpoint(of_label), (keys, jnp.arange(model.num_outputs))))

    def train_networks(
        self, key: PRNGKey, model: Model, points: Points, networks: Params, update: Int[Array, ""]
    ) -> Params:
        solver = optax.sgd(self.network_step_size)

        def seen(_: PRNGKey, params: Params) -> Float[Array, ""]:
            return model.log_prob(params, points) / points.num_points

        trained, _ = ascend(solver, seen, networks, solver.init(networks), jax.random.split(key, self.network_steps))
        is_over = (update + 1) % self.network_updates == 0
        return jax.tree.map(lambda new, old: jnp.where(is_over, new, old), model.init(key), trained)

    def update_passes(self, model: Model, num_records: int) -> float:
        """`loss` is checkpointed, so each class is computed again on the way back.

        On the way there, the outputs at the points are the same for all classes, and jax computes them once.
        """
        records = 2 * model.num_outputs * self.batch_size
        points = (model.num_outputs + 1 + self.network_steps) * self.num_points
        return records + points


def _batch(key: PRNGKey, points: Points, size: int) -> Points:
    """Records drawn in proportion to their weight; with none, all weights are 0 and stay so."""
    index = jax.random.categorical(key, jnp.log(points.weight), shape=(size,))
    batch = jax.tree.map(lambda array: array[index], points)
    return batch.reweighted(jnp.where(batch.weight > 0, 1.0, 0.0))


def _gradient(model: Model, params: Params, points: Points) -> Params:
    total = jnp.maximum(jnp.sum(points.weight), 1e-6)
    return jax.grad(lambda params: -model.log_prob(params, points) / total)(params)


def distance(one: Params, other: Params) -> Float[Array, ""]:
    """One minus the cosine of the gradients, summed over layers and their output units.

    Biases are left out, as in the paper's code.
    """

    def of_layer(one: Array, other: Array) -> Array:
        if one.ndim < 2:
            return jnp.zeros(())
        left, right = one.reshape(-1, one.shape[-1]), other.reshape(-1, one.shape[-1])
        # Not norms: their gradient at 0 is not a number, and a unit that never fires has gradient 0.
        scale = jnp.sqrt(jnp.sum(left**2, axis=0) * jnp.sum(right**2, axis=0) + 1e-12)
        return jnp.sum(1 - jnp.sum(left * right, axis=0) / scale)

    return jnp.sum(jnp.stack(jax.tree.leaves(jax.tree.map(of_layer, one, other))))
