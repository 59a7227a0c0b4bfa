"""The spectral coreset: each client sends, once, the rows of feature space that say what its data say; the server adds them up and has the posterior.

The closed-form case of BPC-FL's local objective (docs/spectral.md): features that the study fixes, a Bayesian linear head on them. No iteration,
nothing to tune, nothing that diverges. What arrives is only ever summed, so neither order nor number of clients matters, a late one is added, and
one that leaves is taken away again (`forget`).
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from coreshot.config import Count, Positive, settings
from coreshot.errors import CoreshotError
from coreshot.inference.protocol import Info
from coreshot.methods.protocol import Answers, Invitation, OnChunk, PointInference
from coreshot.models import Model
from coreshot.privacy.guarded_records import Records
from coreshot.privacy.releases import Release
from coreshot.spectral.calibration import ClassMeans
from coreshot.spectral.coreset import Moments, spectral_rows
from coreshot.spectral.features import AnyFeatures, FeatureMap, feature_map
from coreshot.spectral.posterior import LinearPosterior, fit_head
from coreshot.types import Points, PRNGKey
from coreshot.wire.coding import decode_rows, finest_step
from coreshot.wire.messages import Message

NUM_GROUPS = 4  # of clients: each of so few is one, more fall into these by name. The link is measured on one with the head of the others
FINEST_BITS = 14  # of the largest entry, where bytes do not ask for less: within int16
NUM_SPEAKERS = (
    64  # clients whose class means the server keeps, to find how sure to be: those whose names have the smallest hashes
)
ARRAYS = {"rows": (np.uint8, np.float32), "step": (np.float32,), "num_examples": (np.float32,)}


@dataclass(frozen=True)
class SpectralState:
    """Sums, the class means of at most NUM_SPEAKERS clients, and names: as large for a thousand clients as for 64."""

    map: FeatureMap
    groups: Mapping[str | int, Moments]  # by the client's name where each is a group of its own, else by number
    speakers: Mapping[str, ClassMeans]
    clients: frozenset[str] = frozenset()  # whose rows are in the sums
    is_done: bool = False


@settings
class Spectral:
    features: AnyFeatures
    num_points: Count | None = None  # rows a client sends, K; None: all that carry anything
    max_bytes: Count | None = None  # of a client's coded rows, as fine as fits; None: float32, not coded
    label_scale: Positive = 16.0  # s: how much the truncation cares for labels over features
    ridge: Positive | None = None  # prior precision times noise variance; None: by evidence
    # Of the evidence's ridge, in classification: labels are not Gaussian, and on EMNIST-62 a tenth is 0.7 % more accurate, with as good an NLL.
    ridge_factor: Positive = 0.1

    @property
    def num_rounds(self) -> int:
        return 1

    @property
    def num_chunks(self) -> int:
        return 1

    def releases(self, model: Model) -> tuple[Release, ...]:
        return (
            Release(
                "statistics",
                "second moments of the records' features and labels, or the largest part of them; and the number of records",
            ),
        )

    def map_of(self, model: Model, shared_key: PRNGKey) -> FeatureMap:
        return feature_map(self.features, shared_key, model.input_shape)

    def init(self, key: PRNGKey, model: Model, shared_key: PRNGKey) -> SpectralState:
        drawn = self.map_of(model, shared_key)
        return SpectralState(drawn, {}, {})

    def send(self, key: PRNGKey, model: Model, state: SpectralState, clients: Sequence[str]) -> Invitation | None:
        return None if state.is_done else Invitation(tuple(clients), Message("invitation", 0, {}))

    def reply(
        self,
        key: PRNGKey,
        model: Model,
        clients: Mapping[str, Records],
        inbox: Sequence[Message],
        shared_key: PRNGKey,
        on_chunk: OnChunk,
    ) -> Answers:
        drawn, round = self.map_of(model, shared_key), inbox[-1].round

        def answer(records: Records) -> tuple[Message, list[str]]:
            message = self._message(model, drawn, records.exact("statistics"), round)
            on_chunk(1)
            return message, []

        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            return dict(zip(clients, pool.map(answer, clients.values()), strict=True))

    def _message(self, model: Model, drawn: FeatureMap, points: Points, round: int) -> Message:
        present = np.asarray(points.weight) > 0
        features, labels = drawn(np.asarray(points.x)[present]), centred(model, np.asarray(points.y)[present])
        rows = spectral_rows(features, labels, self.num_points, self.label_scale)
        joint = np.concatenate([rows.features, self.label_scale * rows.labels], axis=1).astype(np.float32)
        return Message("spectral", round, {**self._coded(joint), "num_examples": _number(len(features))})

    def _coded(self, joint: Float[np.ndarray, "rows columns"]) -> dict[str, jnp.ndarray]:
        """The rows as they travel; step 0 says that they are float32."""
        if self.max_bytes is None:
            return {"rows": jnp.asarray(joint), "step": _number(0.0)}
        finest = float(np.float32(np.max(np.abs(joint)) / 2**FINEST_BITS))
        step, coded = finest_step(joint, finest, self.max_bytes)
        return {"rows": jnp.asarray(np.frombuffer(coded, np.uint8)), "step": _number(step)}

    def read(self, model: Model, client: str, message: Message) -> Moments:
        rows, count = self._rows(model, client, message)
        split = self.features.dimension + 1
        return Moments.of(rows[:, :split], rows[:, split:], count)

    def _rows(self, model: Model, client: str, message: Message) -> tuple[Float[np.ndarray, "rows columns"], float]:
        """Rows [Z, U] and n_m of a message, with everything checked that a later computation relies on."""
        where, arrays = f"client {client}, round {message.round}, {message.kind}", message.arrays
        if message.kind != "spectral" or set(arrays) != set(ARRAYS):
            raise CoreshotError(
                f"{where}: a spectral coreset has {', '.join(ARRAYS)}; found {', '.join(sorted(arrays)) or 'none'}; distill it again."
            )
        for name, allowed in ARRAYS.items():
            if arrays[name].dtype not in allowed or (name != "rows" and arrays[name].shape != (1,)):
                raise CoreshotError(
                    f"{where}: {name} is {arrays[name].dtype}{list(arrays[name].shape)}, not what the study wants; distill it again."
                )
        step, count = float(arrays["step"][0]), float(arrays["num_examples"][0])
        if step < 0 or count < 1:
            raise CoreshotError(f"{where}: step {step:g} or num_examples {count:g} is out of range; distill it again.")
        columns = self.features.dimension + 1 + model.num_outputs
        raw = np.asarray(arrays["rows"])
        if (raw.dtype == np.uint8) != (step > 0):
            raise CoreshotError(
                f"{where}: coded rows have a step above 0, float32 rows have 0; found {raw.dtype} and {step:g}; distill it again."
            )
        # More rows than columns say nothing new, and no client sends them.
        joint = decode_rows(raw.tobytes(), step, columns, int(min(count, columns)), where) if step > 0 else raw
        if joint.ndim != 2 or joint.shape[1] != columns or not 0 < len(joint) <= min(count, columns):
            raise CoreshotError(
                f"{where}: rows have shape {joint.shape}, the study wants (1 to {min(count, columns):g}, {columns}); distill again."
            )
        return joint / np.where(np.arange(columns) > self.features.dimension, self.label_scale, 1.0), count

    def receive(
        self, key: PRNGKey, model: Model, state: SpectralState, replies: Mapping[str, Moments]
    ) -> SpectralState:
        if not replies:
            raise CoreshotError("round 0: no client replied; ask again, or let more of them take part.")
        for client in sorted(replies):
            if client in state.clients:
                raise CoreshotError(
                    f"client {client}: is in the sums already; forget its first message before you add another."
                )
            state = self._add(model, state, client, replies[client], 1)
        return replace(state, is_done=True)

    def forget(self, model: Model, state: SpectralState, client: str, content: Moments) -> SpectralState:
        """As if this client had never taken part; its message, which the server has kept or asks for again, says what to take away."""
        return self._add(model, state, client, content, -1)

    def _add(self, model: Model, state: SpectralState, client: str, moments: Moments, sign: int) -> SpectralState:
        speakers = {name: one for name, one in state.speakers.items() if name != client}
        if sign > 0 and model.kind == "classification":
            speakers[client] = ClassMeans.of(moments)
        kept = sorted(speakers, key=_hash)[:NUM_SPEAKERS]
        clients = state.clients | {client} if sign > 0 else state.clients - {client}
        groups = _with(state, client, moments) if sign > 0 else _without(state, client, moments)
        return replace(state, groups=groups, speakers={name: speakers[name] for name in kept}, clients=clients)

    def posterior(
        self, key: PRNGKey, model: Model, state: SpectralState, inference: PointInference | None = None
    ) -> tuple[LinearPosterior, Info]:
        order = sorted(state.groups, key=str)
        means = [(order.index(_group_of(state, name)), state.speakers[name]) for name in sorted(state.speakers)]
        factor = self.ridge_factor if model.kind == "classification" else 1.0
        return fit_head(
            state.map, model.kind, [state.groups[name] for name in order], means, ridge=self.ridge, ridge_factor=factor
        ), {}

    def load_posterior(self, model: Model, shared_key: PRNGKey, arrays: Mapping[str, np.ndarray]) -> LinearPosterior:
        return LinearPosterior.from_arrays(self.map_of(model, shared_key), arrays)


def _with(state: SpectralState, client: str, moments: Moments) -> dict[str | int, Moments]:
    """While clients are few each is a group; the one that makes them many lets all fall together by name."""
    if len(state.clients) < NUM_GROUPS and _is_each_its_own(state):
        return {**state.groups, client: moments}
    groups: dict[str | int, Moments] = {} if _is_each_its_own(state) else dict(state.groups)
    alone: dict[str | int, Moments] = (
        {**state.groups, client: moments} if _is_each_its_own(state) else {client: moments}
    )
    for name in sorted(alone, key=str):
        number = _number_of(str(name))
        groups[number] = groups[number] + alone[name] if number in groups else alone[name]
    return groups


def _without(state: SpectralState, client: str, moments: Moments) -> dict[str | int, Moments]:
    if _is_each_its_own(state):
        return {name: group for name, group in state.groups.items() if name != client}
    number = _number_of(client)
    return {**state.groups, number: state.groups[number] - moments}


def _is_each_its_own(state: SpectralState) -> bool:
    return set(state.groups) == set(state.clients)


def _group_of(state: SpectralState, client: str) -> str | int:
    return client if _is_each_its_own(state) else _number_of(client)


def _number_of(client: str) -> int:
    return _hash(client) % NUM_GROUPS


def _hash(client: str) -> int:
    return zlib.crc32(client.encode())


def centred(model: Model, y: Float[np.ndarray, "n outputs"]) -> Float[np.ndarray, "n outputs"]:
    """One-hot or soft labels less 1 / classes, which needs no data; targets as they are."""
    return y - 1 / model.num_outputs if model.kind == "classification" else y


def _number(value: float) -> jnp.ndarray:
    return jnp.asarray([value], jnp.float32)
