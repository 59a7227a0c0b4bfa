"""coreshot's side: pseudodata updates of BPC-fKL, as every run makes them, clients beside each other in threads."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
from compilations import compiled_once
from turns import serve
from updates import CHANNELS, DENSE, MOONS_GROUPS, MOONS_HIDDEN, UPDATES, Update

from coreshot.learners import BpcFkl
from coreshot.learners.descent import DescentState
from coreshot.learners.experts import Experts
from coreshot.models import Model
from coreshot.models.networks import ConvNet, Mlp, Network
from coreshot.privacy.guarded_records import Records
from coreshot.types import Points, make_points

NUM_EXAMPLES = 200


def network_of(update: Update) -> Network:
    if len(update.input_shape) == 1:
        return Mlp(hidden=MOONS_HIDDEN, activation="relu", norm_groups=MOONS_GROUPS)
    return ConvNet(channels=CHANNELS, dense=DENSE)


def model_of(update: Update, network: Network | None = None) -> Model:
    return Model(
        network or network_of(update),
        "classification",
        update.input_shape,
        update.num_outputs,
        update.prior_precision,
        1.0,
    )


def learner_of(update: Update, num_updates: int = 1) -> BpcFkl:
    """The experts are as short as can be: they are not what is timed, and an update costs the same whatever their
    weights.
    """
    return BpcFkl(
        num_points=update.num_points,
        num_updates=num_updates,
        batch_size=update.batch_size,
        init_scale=0.1,
        step_size_x=update.step_size_x,
        step_size_y=0.0,
        num_trajectories=update.num_trajectories,
        experts=Experts(num_trajectories=update.num_trajectories, num_steps=1, save_interval=1, step_size=1e-2),
        chain_optimizer=update.chain_optimizer,
        chain_step_size=update.chain_step_size,
        data_chain_length=1,
        coreset_chain_length=update.chain_length,
        num_noise_samples=update.num_noise_samples,
        noise_scale=update.noise_scale,
        step_of=update.step_of,
    )


def some_data(update: Update, seed: int) -> Points:
    draws = np.random.default_rng(seed)
    x = draws.random((NUM_EXAMPLES, *update.input_shape), np.float32)
    return make_points(x, np.eye(update.num_outputs, dtype=np.float32)[np.arange(NUM_EXAMPLES) % update.num_outputs])


class Clients:
    """Each with its own data and state; `update` lets all of them make the learner's first updates, as often as
    it is called.
    """

    def __init__(self, learner: BpcFkl, update: Update, num_clients: int, network: Network | None = None) -> None:
        self.learner, self.model = learner, model_of(update, network)
        self.states = [self._begin(some_data(update, client), jax.random.key(client)) for client in range(num_clients)]

    def _begin(self, data: Points, key: jax.Array) -> DescentState:
        records = Records(jax.tree.map(lambda array: array[None], data), self.learner.releases(self.model))
        return self.learner.init(key[None], self.model, records, jax.random.key(0))

    def _update_one(self, state: DescentState) -> None:
        after, _ = self.learner.step(jax.random.key(1)[None], self.model, state)
        jax.block_until_ready(after.points)

    def update(self) -> None:
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            list(pool.map(self._update_one, self.states))


def main(name: str, num_updates: int) -> None:
    update = UPDATES[name]
    serve(compiled_once(Clients(learner_of(update, num_updates), update, update.num_clients).update))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
