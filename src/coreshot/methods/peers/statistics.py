"""What the one-round peers share: a client sends statistics of its records' features, the server makes a head of them.

Most statistics are sums over records, so the server keeps their total; a method that compares clients keeps them all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from coreshot.config import Positive, settings
from coreshot.errors import CoreshotError
from coreshot.inference.protocol import Info
from coreshot.methods.one_round import OneRoundMethod, answer_each, check_arrived, exchange_once
from coreshot.methods.peers.linear_head import LinearHead
from coreshot.methods.protocol import Answers, Claim, MethodCost, OnChunk, PointInference
from coreshot.models import Model
from coreshot.privacy.guarded_records import Records
from coreshot.privacy.releases import Release
from coreshot.spectral.features import AnyFeatures, FeatureMap, feature_map
from coreshot.types import PRNGKey
from coreshot.wire.messages import Message

STATISTICS = "statistics"
Statistics = dict[str, np.ndarray]  # by name; "counts" holds the number of records of each class
Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class PeerState:
    map: FeatureMap
    kept: Mapping[str, Statistics]  # by client; or their sum, under ""
    clients: frozenset[str] = frozenset()
    is_done: bool = False


@settings
class PeerMethod(OneRoundMethod, ABC):
    """Base of the peers: subclasses say what is sent, and what head follows."""

    kind: ClassVar[str]
    content: ClassVar[str]  # in words, of the release
    is_sum: ClassVar[bool] = True

    features: AnyFeatures
    # Multiplies the scores before the softmax. The papers report accuracy alone, and their scores are not logits: a
    # study that compares probabilities says how large a score is to count.
    scale: Positive = 1.0

    @abstractmethod
    def statistics(self, features: Float[np.ndarray, "n d"], y: Float[np.ndarray, "n outputs"]) -> Statistics: ...

    @abstractmethod
    def shapes(self, dimension: int, num_outputs: int) -> Shapes:
        """Of what is sent; the dimension is with the constant."""

    @abstractmethod
    def weights(self, kept: Sequence[Statistics]) -> Float[np.ndarray, "d outputs"]:
        """The head, from the sum, or from the statistics of each client in the order of their names."""

    def releases(self, model: Model) -> tuple[Release, ...]:
        return (Release(STATISTICS, self.content),)

    def cost(self, model: Model, clients: Sequence[int]) -> MethodCost:
        size = self.features.dimension + 1
        record = self.features.operations(model.input_shape) + 2 * size * (size + model.num_outputs)
        shapes = self.shapes(size, model.num_outputs)
        example = Message(self.kind, 0, {name: jnp.zeros(shape) for name, shape in shapes.items()})
        return MethodCost(
            f"features of {max(clients):,} records and sums of them",
            [exchange_once(example)] * len(clients),
            1.0,
            operations=sum(clients) * record,
            server_operations=float(size**3),
            num_bytes=8 * size * (max(clients) + size),
            kept_in="features and sums",
        )

    def draw_map(self, model: Model, shared_key: PRNGKey) -> FeatureMap:
        return feature_map(self.features, shared_key, model.input_shape)

    def init(self, key: PRNGKey, model: Model, shared_key: PRNGKey) -> PeerState:
        if model.kind != "classification":
            raise CoreshotError(f"{self.kind}: it is for classes, and this study's task is a regression; use spectral.")
        return PeerState(self.draw_map(model, shared_key), {})

    def reply(
        self,
        key: PRNGKey,
        model: Model,
        clients: Mapping[str, Records],
        inbox: Sequence[Message],
        shared_key: PRNGKey,
        on_chunk: OnChunk,
    ) -> Answers:
        drawn, round = self.draw_map(model, shared_key), inbox[-1].round

        def answer(client: str, records: Records) -> tuple[Message, list[str]]:
            points = records.exact(STATISTICS)
            present = np.asarray(points.weight) > 0
            features = drawn(np.asarray(points.x)[present]).astype(np.float64)
            found = self.statistics(features, np.asarray(points.y, np.float64)[present])
            on_chunk(1)
            return Message(self.kind, round, {name: jnp.asarray(one, jnp.float32) for name, one in found.items()}), []

        return answer_each(clients, answer)

    def read(self, model: Model, client: str, message: Message) -> Statistics:
        where = f"client {client}, round {message.round}, {message.kind}"
        wanted = self.shapes(self.features.dimension + 1, model.num_outputs)
        found = {name: array.shape for name, array in message.arrays.items()}
        if message.kind != self.kind or found != wanted:
            raise CoreshotError(
                f"{where}: found {found or 'nothing'}, and {self.kind} wants {wanted}; both sides must use the same "
                "study."
            )
        content = {name: np.asarray(array, np.float64) for name, array in message.arrays.items()}
        if not all(np.all(np.isfinite(array)) for array in content.values()) or np.min(content["counts"]) < 0:
            raise CoreshotError(f"{where}: a number is not finite, or a count is below 0; distill it again.")
        return content

    def claim(self, content: Statistics) -> Claim:
        return Claim(float(np.sum(content["counts"])))

    def receive(self, key: PRNGKey, model: Model, state: PeerState, replies: Mapping[str, Statistics]) -> PeerState:
        names = check_arrived(replies, state.clients)
        kept = dict(state.kept)
        for name in names:
            if self.is_sum and "" in kept:
                kept[""] = {part: kept[""][part] + replies[name][part] for part in kept[""]}
            else:
                kept["" if self.is_sum else name] = replies[name]
        return PeerState(state.map, kept, state.clients | frozenset(names), is_done=True)

    def posterior(
        self, key: PRNGKey, model: Model, state: PeerState, inference: PointInference | None = None
    ) -> tuple[LinearHead, Info]:
        head = self.weights([state.kept[name] for name in sorted(state.kept)])
        return LinearHead(state.map, self.scale * head), {}

    def load_posterior(self, model: Model, shared_key: PRNGKey, arrays: Mapping[str, np.ndarray]) -> LinearHead:
        return LinearHead.from_arrays(self.draw_map(model, shared_key), arrays)


def class_statistics(features: Float[np.ndarray, "n d"], y: Float[np.ndarray, "n outputs"]) -> Statistics:
    """Sums of the features of each class, and how many records it has."""
    return {"sums": y.T @ features, "counts": np.sum(y, axis=0)}


def class_means(sums: Float[np.ndarray, "outputs d"], counts: Float[np.ndarray, " outputs"]) -> np.ndarray:
    """A class that nobody has gets a mean of zeros."""
    return sums / np.maximum(counts, 1e-12)[:, None] * (counts > 0)[:, None]


def unit_columns(weights: Float[np.ndarray, "d outputs"]) -> Float[np.ndarray, "d outputs"]:
    """Each class's weights divided by their norm; a class without weights keeps zeros."""
    return weights / np.maximum(np.linalg.norm(weights, axis=0), 1e-12)


def upper_triangle(matrix: Float[np.ndarray, "d d"]) -> Float[np.ndarray, " triangle"]:
    """A symmetric matrix without the numbers that stand twice in it."""
    return matrix[np.triu_indices(len(matrix))]


def triangle_size(dimension: int) -> int:
    return dimension * (dimension + 1) // 2
