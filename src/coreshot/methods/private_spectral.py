"""The spectral coreset with a promise: each client sends its second moments once, with Gaussian noise, and nothing else of its records.

`coreshot.privacy.gaussian_moments` is the one release. The noise makes every direction of feature space occupied, so all of the matrix travels, not a
few rows of it; quantised below the noise and coded, it takes about six bits a number.

With num_sharers, clients add the noise together and only their sum is seen (secure aggregation, simulated in `_noisy_numbers`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Array, Float, Int

from coreshot.config import Count, settings
from coreshot.errors import CoreshotError
from coreshot.inference.protocol import Info
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
from coreshot.models import Model
from coreshot.privacy.accounting import Privacy, noise_multiplier
from coreshot.privacy.gaussian_moments import CROSS_UNIT, UNIT, Noisy, deviations, noisy_moments, symmetric
from coreshot.privacy.guarded_records import Records
from coreshot.privacy.releases import Release, noise_share
from coreshot.spectral.features import AnyFeatures, UnitMap, unit_map
from coreshot.spectral.posterior import LinearPosterior
from coreshot.spectral.private_posterior import fit_private_head
from coreshot.types import Points, PRNGKey
from coreshot.wire.messages import Message

STATISTICS = "statistics"
CROSS_SHARE = 0.8  # of the promise that the cross moments get: chosen as the constants of `coreshot.spectral.private_posterior` are


@dataclass(frozen=True)
class PrivateState:
    """Sums of noisy moments, in units of the records."""

    map: UnitMap
    gram: Float[np.ndarray, "d d"]
    cross: Float[np.ndarray, "d outputs"]
    clients: frozenset[str] = frozenset()
    is_done: bool = False


@settings
class PrivateSpectral:
    features: AnyFeatures
    privacy: Privacy
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
        content = "second moments of the records' features (of norm one) and classes, with Gaussian noise"
        multiplier = noise_multiplier(self.privacy)
        return (
            Release(
                STATISTICS,
                content,
                "gaussian",
                1.0,
                multiplier,
                delta=self.privacy.delta,
                num_sharers=self.num_sharers or 1,
            ),
        )

    def map_of(self, model: Model, shared_key: PRNGKey) -> UnitMap:
        return unit_map(self.features, shared_key, model.input_shape)

    def init(self, key: PRNGKey, model: Model, shared_key: PRNGKey) -> PrivateState:
        if model.kind != "classification":
            raise CoreshotError(
                "private_spectral: its label rows are one-hot classes, and regression has none; use a classification study."
            )
        drawn = self.map_of(model, shared_key)
        return PrivateState(drawn, np.zeros((drawn.dimension,) * 2), np.zeros((drawn.dimension, model.num_outputs)))

    def send(self, key: PRNGKey, model: Model, state: PrivateState, clients: Sequence[str]) -> Invitation | None:
        return None if state.is_done else invite(clients, self.num_sharers, "private_spectral")

    def reply(
        self,
        key: PRNGKey,
        model: Model,
        clients: Mapping[str, Records],
        inbox: Sequence[Message],
        shared_key: PRNGKey,
        on_chunk: OnChunk,
    ) -> Answers:
        drawn = self.map_of(model, shared_key)
        answers: Answers = {}
        for name, records in clients.items():
            sharers = check_sharers(inbox[-1], name, self.num_sharers, "private_spectral") if self.num_sharers else None
            noisy = noisy_moments(records, STATISTICS, lambda points: _rows(drawn, points), CROSS_SHARE)
            arrays = self._masked(key, name, sharers, noisy) if sharers else self._coded(noisy)
            answers[name] = Message("private_spectral", inbox[-1].round, arrays), []
            on_chunk(1)
        return answers

    def _steps(self) -> tuple[float, float]:
        """Of the Gram matrix and of the cross moments on the wire, in the whole numbers of their units."""
        noise = deviations(noise_multiplier(self.privacy), CROSS_SHARE, noise_share(self.num_sharers or 1))
        return step_below(noise.off_diagonal * UNIT**2, self.num_sharers), step_below(
            noise.cross * CROSS_UNIT, self.num_sharers
        )

    def _coded(self, noisy: Noisy) -> dict[str, Array]:
        gram, cross = self._steps()
        return coded("gram", noisy.gram.reshape(1, -1), gram) | coded("cross", noisy.cross.reshape(1, -1), cross)

    def _masked(self, key: PRNGKey, client: str, sharers: Sequence[str], noisy: Noisy) -> dict[str, Array]:
        levels = [
            np.rint(part / step).astype(np.int64).ravel()
            for part, step in zip((noisy.gram, noisy.cross), self._steps(), strict=True)
        ]
        return masked(key, client, sharers, np.concatenate(levels))

    def read(self, model: Model, client: str, message: Message) -> list[np.ndarray]:
        """Masked numbers as they are, or decoded moments in units of the records."""
        where, arrays = f"client {client}, round {message.round}, {message.kind}", message.arrays
        wanted = {"masked"} if self.num_sharers else {"gram", "gram_step", "cross", "cross_step"}
        check_names(message, wanted, "private_spectral", where)
        size = self.features.dimension + 1
        sizes = size * (size + 1) // 2, size * model.num_outputs
        if self.num_sharers:
            return [masked_words(arrays, sum(sizes), where)]
        parts = zip(("gram", "cross"), sizes, (UNIT**2, CROSS_UNIT), strict=True)
        return [decoded(arrays, name, (1, count), where)[0] / unit for name, count, unit in parts]

    def receive(
        self, key: PRNGKey, model: Model, state: PrivateState, replies: Mapping[str, list[np.ndarray]]
    ) -> PrivateState:
        if not replies:
            raise CoreshotError("round 0: no client replied; ask again, or let more of them take part.")
        ordered = {name: replies[name] for name in sorted(replies)}
        if self.num_sharers:
            return self._unmasked(state, {name: numbers[0] for name, numbers in ordered.items()})
        for name, (gram, cross) in ordered.items():
            if name in state.clients:
                raise CoreshotError(
                    f"client {name}: is in the sums already; forget its first message before you add another."
                )
            state = _added(state, name, gram, cross, 1)
        return replace(state, is_done=True)

    def _unmasked(self, state: PrivateState, words: Mapping[str, Int[np.ndarray, " numbers"]]) -> PrivateState:
        total = unmasked(words, self.num_sharers)
        split, steps = len(total) - state.cross.size, self._steps()
        gram, cross = total[:split] * steps[0] / UNIT**2, total[split:] * steps[1] / CROSS_UNIT
        state = _added(state, "", gram, cross, 1)
        return replace(state, clients=frozenset(words), is_done=True)

    def forget(self, model: Model, state: PrivateState, client: str, content: list[np.ndarray]) -> PrivateState:
        """As if this client had never taken part. Of a secure sum nobody knows its part."""
        if self.num_sharers:
            raise CoreshotError(
                f"forget: client {client} is in a secure sum, from which nobody can take it; ask the others again."
            )
        gram, cross = content
        return _added(state, client, gram, cross, -1)

    def posterior(
        self, key: PRNGKey, model: Model, state: PrivateState, inference: PointInference | None = None
    ) -> tuple[LinearPosterior, Info]:
        num_noises = len(state.clients) * noise_share(self.num_sharers or 1)
        noise = deviations(noise_multiplier(self.privacy), CROSS_SHARE, num_noises)
        return fit_private_head(state.map, state.gram, state.cross, noise), {}

    def load_posterior(self, model: Model, shared_key: PRNGKey, arrays: Mapping[str, np.ndarray]) -> LinearPosterior:
        return LinearPosterior.from_arrays(self.map_of(model, shared_key), arrays)


def _rows(drawn: UnitMap, points: Points) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "n outputs"]]:
    present = np.asarray(points.weight) > 0
    return drawn(np.asarray(points.x)[present]), np.asarray(points.y)[present]


def _added(
    state: PrivateState,
    client: str,
    gram: Float[np.ndarray, " triangle"],
    cross: Float[np.ndarray, " numbers"],
    sign: int,
) -> PrivateState:
    clients = state.clients | {client} if sign > 0 else state.clients - {client}
    moved = state.gram + sign * symmetric(gram, len(state.gram)), state.cross + sign * cross.reshape(state.cross.shape)
    return replace(state, gram=moved[0], cross=moved[1], clients=clients)
