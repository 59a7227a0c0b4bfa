"""DM with a promise, on pooled sums: each client sends noisy class sums of features once, and the server matches points to the sum of all of them.

The release is that of the learner `private_dm` (`coreshot.learners.class_features`). There each client matches points to its own sums, and its noise
goes into them; here the server adds the sums first: of M clients the records add up, and the noise only by sqrt(M). From the pooled class means on
all is post-processing: points are matched, weighted by the noisy class counts, and a MAP estimate is made of them.

With num_sharers, clients add the noise together and only their sum is seen (secure aggregation, simulated in `_noisy_numbers`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from coreshot.config import Count, Positive, settings
from coreshot.errors import CoreshotError
from coreshot.inference.map_estimate import MapEstimate
from coreshot.inference.posterior import SamplePosterior
from coreshot.inference.protocol import Info
from coreshot.keys import named_key
from coreshot.learners.class_features import (
    Matching,
    class_means,
    draw_networks,
    features_release,
    noisy_class_sums,
    sums_shape,
)
from coreshot.learners.loop import learn
from coreshot.methods.protocol import Answers, Invitation, OnChunk, PointInference
from coreshot.methods.secure_sum import (
    check_names,
    check_sharers,
    coded,
    decoded,
    invite,
    masked,
    masked_words,
    step_below,
    unmasked,
)
from coreshot.models import LogDensity, Model
from coreshot.privacy.accounting import Privacy, noise_multiplier
from coreshot.privacy.gaussian_moments import CROSS_UNIT
from coreshot.privacy.guarded_records import Records
from coreshot.privacy.releases import Release, noise_share
from coreshot.types import Params, Points, PRNGKey
from coreshot.wire.messages import Message

KIND = "private_pooled_dm"


@dataclass(frozen=True)
class PooledState:
    """Sums of noisy class sums: in the mechanism's units, in which a record has norm at most one."""

    networks: Params
    sums: Float[np.ndarray, "d classes"]
    clients: frozenset[str] = frozenset()
    is_done: bool = False


@settings
class PrivatePooledDm:
    privacy: Privacy
    num_networks: Count  # whose features are released; all of them share the noise
    points_per_class: Count
    num_updates: Count  # of the points, at the server
    step_size_x: Positive
    inference: MapEstimate  # of the model, from the points
    init_scale: Positive = 0.1
    start_value: float = 0.0  # of every pixel or coordinate, around which points start with noise of init_scale
    num_sharers: Count | None = (
        None  # clients of the secure sum, all of whom must answer; None: each adds noise enough for itself
    )

    @property
    def num_rounds(self) -> int:
        return 1

    @property
    def num_chunks(self) -> int:
        return 1

    def releases(self, model: Model) -> tuple[Release, ...]:
        return (features_release(self.privacy, self.num_sharers or 1),)

    def networks_of(self, model: Model, shared_key: PRNGKey) -> Params:
        return draw_networks(model, shared_key, self.num_networks, KIND)

    def init(self, key: PRNGKey, model: Model, shared_key: PRNGKey) -> PooledState:
        return PooledState(self.networks_of(model, shared_key), np.zeros(sums_shape(model, self.num_networks)))

    def send(self, key: PRNGKey, model: Model, state: PooledState, clients: Sequence[str]) -> Invitation | None:
        return None if state.is_done else invite(clients, self.num_sharers, KIND)

    def reply(
        self,
        key: PRNGKey,
        model: Model,
        clients: Mapping[str, Records],
        inbox: Sequence[Message],
        shared_key: PRNGKey,
        on_chunk: OnChunk,
    ) -> Answers:
        networks, answers = self.networks_of(model, shared_key), {}
        for name, records in clients.items():
            sharers = check_sharers(inbox[-1], name, self.num_sharers, KIND) if self.num_sharers else None
            arrays = self._arrays(key, name, sharers, noisy_class_sums(model, networks, records))
            answers[name] = Message(KIND, inbox[-1].round, arrays), list[str]()
            on_chunk(1)
        return answers

    def _step(self) -> float:
        """On the wire, in the whole numbers of the sums."""
        deviation = noise_multiplier(self.privacy) * np.sqrt(noise_share(self.num_sharers or 1))
        return step_below(deviation * CROSS_UNIT, self.num_sharers)

    def _arrays(
        self, key: PRNGKey, client: str, sharers: Sequence[str] | None, sums: Int[np.ndarray, "d classes"]
    ) -> dict[str, Array]:
        if sharers is None:
            return coded("sums", sums, self._step())
        return masked(key, client, sharers, np.rint(sums / self._step()).astype(np.int64).ravel())

    def read(self, model: Model, client: str, message: Message) -> np.ndarray:
        """Masked words as they are, or decoded sums."""
        where, shape = f"client {client}, round {message.round}, {message.kind}", sums_shape(model, self.num_networks)
        check_names(message, {"masked"} if self.num_sharers else {"sums", "sums_step"}, KIND, where)
        if self.num_sharers:
            return masked_words(message.arrays, shape[0] * shape[1], where)
        return decoded(message.arrays, "sums", shape, where) / CROSS_UNIT

    def receive(self, key: PRNGKey, model: Model, state: PooledState, replies: Mapping[str, np.ndarray]) -> PooledState:
        """Also late ones, on top of those that are there."""
        if not replies:
            raise CoreshotError("round 0: no client replied; ask again, or let more of them take part.")
        # By name: a sum of floats must not depend on who was first.
        arrived = {name: replies[name] for name in sorted(replies)}
        if twice := sorted(arrived.keys() & state.clients):
            raise CoreshotError(
                f"client {twice[0]}: is in the sums already; forget its first message before you add another."
            )
        if self.num_sharers:
            total = unmasked(arrived, self.num_sharers).reshape(state.sums.shape) * self._step() / CROSS_UNIT
        else:
            total = sum(arrived.values(), np.zeros_like(state.sums))
        return replace(state, sums=state.sums + total, clients=state.clients | arrived.keys(), is_done=True)

    def forget(self, model: Model, state: PooledState, client: str, content: np.ndarray) -> PooledState:
        """As if this client had never taken part. Of a secure sum nobody knows its part."""
        if self.num_sharers:
            raise CoreshotError(
                f"forget: client {client} is in a secure sum, from which nobody can take it; ask the others again."
            )
        return replace(state, sums=state.sums - content, clients=state.clients - {client})

    def class_means(self, state: PooledState) -> tuple[Points, Float[np.ndarray, " classes"]]:
        """Of all clients: mean features with their trust, and how many records each class has."""
        num_noises = len(state.clients) * noise_share(self.num_sharers or 1)
        return class_means(state.sums, noise_multiplier(self.privacy) * float(np.sqrt(num_noises)), self.num_networks)

    def points(self, key: PRNGKey, model: Model, state: PooledState) -> Points:
        """Matched to the class means; those of a class share its records, as many of them as can be trusted."""
        means, counts = self.class_means(state)
        matching = Matching(
            num_points=self.points_per_class * model.num_outputs,
            num_updates=self.num_updates,
            step_size_x=self.step_size_x,
            init_scale=self.init_scale,
            start_value=self.start_value,
        )
        keys, alone = key[None], jax.tree.map(lambda array: array[None], means)
        start = matching.begin_matching(keys, model, state.networks, alone, jnp.ones(1))
        found, _ = learn(model, matching, ["server, round 0"], keys, start, lambda clients: None)
        x, y = found.points.x[0], found.points.y[0]
        # A class that is empty but for noise still counts as a record, or there might be no observation at all.
        each = np.maximum(counts * np.asarray(means.weight), 1.0) / self.points_per_class
        return Points(x, y, y @ jnp.asarray(each, jnp.float32))

    def posterior(
        self, key: PRNGKey, model: Model, state: PooledState, inference: PointInference | None = None
    ) -> tuple[SamplePosterior, Info]:
        points = self.points(named_key(key, "match"), model, state)
        init = jax.vmap(model.init)(jax.random.split(named_key(key, "start"), self.inference.num_chains))
        return self.inference(named_key(key, "sample"), LogDensity(model, points), init)

    def load_posterior(self, model: Model, shared_key: PRNGKey, arrays: Mapping[str, np.ndarray]) -> SamplePosterior:
        return SamplePosterior.from_arrays(model, arrays)
