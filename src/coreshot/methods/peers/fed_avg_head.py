"""FedAvg of a linear head on the study's features, over many rounds: what one round of closed form is compared with.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017; see
`methods/fed_avg.py`, which this is, for a model without hidden layers whose inputs are features. On frozen features it
is the linear probe of federated learning with pre-trained networks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from coreshot.config import settings
from coreshot.inference.protocol import Info
from coreshot.methods.fed_avg import FedAvg
from coreshot.methods.peers.linear_head import LinearHead
from coreshot.methods.protocol import Answers, Invitation, MethodCost, OnChunk, PointInference
from coreshot.methods.rounds import STEPS, RoundState, Update, answer_in_groups
from coreshot.models import Model
from coreshot.models.networks import Mlp
from coreshot.privacy.guarded_records import Records, exact_points
from coreshot.spectral.features import AnyFeatures, FeatureMap, feature_map
from coreshot.types import Points, PRNGKey
from coreshot.wire.messages import Message

LINEAR = Mlp(hidden=(), activation="relu")
MAX_CLIENTS = 300  # whose features are kept from round to round


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class HeadState(RoundState):
    """The study's key as numbers, because a checkpoint holds arrays: the head's inputs are drawn from it."""

    shared: Array


@settings
class FedAvgHead(FedAvg):
    features: AnyFeatures

    def head_model(self, model: Model) -> Model:
        return replace(model, network=LINEAR, input_shape=(self.features.dimension,), max_shift=0)

    def cost(self, model: Model, clients: Sequence[int]) -> MethodCost:
        """A client computes its features once. Steps of the head are operations, not passes of the study's network."""
        found = super().cost(self.head_model(model), clients)
        steps = 6 * found.passes * self.features.dimension * model.num_outputs  # forwards and backwards
        operations = sum(clients) * self.features.operations(model.input_shape) + steps
        return replace(found, passes=0.0, operations=operations)

    def init(self, key: PRNGKey, model: Model, shared_key: PRNGKey) -> HeadState:
        begun = super().init(key, self.head_model(model), shared_key)
        return HeadState(**vars(begun), shared=jax.random.key_data(shared_key))

    def send(self, key: PRNGKey, model: Model, state: RoundState, clients: Sequence[str]) -> Invitation | None:
        return super().send(key, self.head_model(model), state, clients)

    def reply(
        self,
        key: PRNGKey,
        model: Model,
        clients: Mapping[str, Records],
        inbox: Sequence[Message],
        shared_key: PRNGKey,
        on_chunk: OnChunk,
    ) -> Answers:
        drawn, head = feature_map(self.features, shared_key, model.input_shape), self.head_model(model)
        seen = {name: _featured(drawn, points) for name, points in exact_points(clients, STEPS).items()}
        run = self.local_work(head, inbox)
        return answer_in_groups(head, run, key, inbox[-1].round, seen, self.batch_size, self.local_steps)

    def read(self, model: Model, client: str, message: Message) -> Update:
        return super().read(self.head_model(model), client, message)

    def posterior(  # type: ignore[override]  # a head instead of a network's weights
        self, key: PRNGKey, model: Model, state: HeadState, inference: PointInference | None = None
    ) -> tuple[LinearHead, Info]:
        shared_key = jax.random.wrap_key_data(jnp.asarray(state.shared, jnp.uint32))
        drawn, (layer,) = feature_map(self.features, shared_key, model.input_shape), state.params.values()
        weights = np.concatenate([np.asarray(layer["kernel"]), np.asarray(layer["bias"])[None]])
        return LinearHead(drawn, weights.astype(np.float64)), {}

    def load_posterior(  # type: ignore[override]
        self, model: Model, shared_key: PRNGKey, arrays: Mapping[str, np.ndarray]
    ) -> LinearHead:
        return LinearHead.from_arrays(feature_map(self.features, shared_key, model.input_shape), arrays)


# By the identity of the records' array and of the map, both of which are held, so that neither number is used again.
_KEPT: OrderedDict[tuple[int, int], tuple[Array, FeatureMap, Points]] = OrderedDict()
_LOCK = Lock()


def _featured(drawn: FeatureMap, points: Points) -> Points:
    """A client's features without the constant, computed once in a process: they are the same in every round."""
    name = id(points.x), id(drawn)
    with _LOCK:
        if name in _KEPT:
            return _KEPT[name][2]
    found = Points(jnp.asarray(drawn(np.asarray(points.x))[:, :-1]), points.y, points.weight)
    with _LOCK:
        _KEPT[name] = points.x, drawn, found
        while len(_KEPT) > MAX_CLIENTS:
            _KEPT.popitem(last=False)
    return found
