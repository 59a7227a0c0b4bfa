"""The spectral coreset: each client sends, once, rows of feature space; the server adds them up to an exact posterior.

It is the closed-form case of BPC-FL's local objective (d'Hondt et al., "One-Shot Federated Learning with Bayesian
Pseudocoresets"; docs/spectral.md): the study fixes the features, and the model is a Bayesian linear head on them.

| docs/spectral.md  | here                                                |
|-------------------|-----------------------------------------------------|
| K, s              | num_points, label_scale                             |
| (Z_m, s U_m)      | the array "rows" of a client's message              |
| S                 | the sum of `Moments` over clients                   |

There are no iterations, no step sizes, and nothing can diverge. The server only adds what arrives, so neither the order
nor the number of clients matters, a late client is added, and one that leaves is subtracted again (`forget`).
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from coreshot.config import Count, Positive, settings
from coreshot.errors import CoreshotError
from coreshot.inference.protocol import Info
from coreshot.methods.one_round import OneRoundMethod, answer_each, check_arrived, exchange_once
from coreshot.methods.protocol import Answers, Claim, MethodCost, OnChunk, PointInference
from coreshot.models import Model
from coreshot.models.parallel import one_blas_thread
from coreshot.privacy.guarded_records import Records
from coreshot.privacy.releases import Release
from coreshot.spectral.calibration import ClassMeans
from coreshot.spectral.coreset import Moments, rows_of_gram, rows_operations, spectral_rows, sum_of_chunks
from coreshot.spectral.evidence import MAX_EVALUATIONS
from coreshot.spectral.features import AnyFeatures, FeatureMap, feature_map
from coreshot.spectral.posterior import LinearPosterior, fit_posterior
from coreshot.spectral.received import ReceivedRows, sum_moments
from coreshot.types import Points, PRNGKey
from coreshot.wire.coding import decode_rows, find_finest_step
from coreshot.wire.messages import Message

# The link is calibrated on one group of clients with the head of the others. Up to NUM_GROUPS clients are a group each;
# beyond that, names are hashed into NUM_GROUPS groups.
NUM_GROUPS = 4
RECORDS_AT_ONCE = 4096  # whose features are in memory together, where there are more than columns
FINEST_BITS = 14  # of the largest entry, if max_bytes does not ask for fewer; within int16
# Clients whose class means the server keeps for calibration: those whose names have the smallest hashes.
NUM_CALIBRATION_CLIENTS = 64
ARRAYS = {"rows": (np.uint8, np.float32), "step": (np.float32,), "num_examples": (np.float32,)}


@dataclass(frozen=True)
class SpectralState:
    """Sums of moments, class means of some clients, and names. Its size does not grow with the number of clients."""

    map: FeatureMap
    groups: Mapping[str | int, Moments]  # by the client's name if each client is a group, else by number
    class_means: Mapping[str, ClassMeans]  # of at most NUM_CALIBRATION_CLIENTS clients
    clients: frozenset[str] = frozenset()  # whose rows are in the sums
    is_done: bool = False


@settings
class Spectral(OneRoundMethod):
    features: AnyFeatures
    num_points: Count | None = None  # rows a client sends, K; None: all that are not rounding errors
    max_bytes: Count | None = None  # of a client's coded rows, rounded as finely as fits; None: float32, not coded
    label_scale: Positive = 16.0  # s: the weight of labels over features in the truncation
    ridge: Positive | None = None  # prior precision times noise variance; None: by evidence
    # Multiplies the evidence's ridge in classification, because labels are not Gaussian. Chosen on EMNIST-62, which a
    # table reports: there, 0.1 is 0.7 % more accurate than 1, with the same NLL. To be chosen on other data.
    ridge_factor: Positive = 0.1

    def releases(self, model: Model) -> tuple[Release, ...]:
        content = (
            "second moments of the records' features and labels, or the largest part of them; and the number of records"
        )
        return (Release("statistics", content),)

    def cost(self, model: Model, clients: Sequence[int]) -> MethodCost:
        """The messages are the largest possible ones: coded rows may take fewer bytes, and data of low rank fewer rows.

        The server multiplies the rows of each client, and then factorises a matrix for each ridge and group.
        """
        columns = self.features.dimension + 1 + model.num_outputs
        features = self.features.operations(model.input_shape)
        num_rows = [min(self.num_points or columns, columns, num_examples) for num_examples in clients]
        num_solutions = MAX_EVALUATIONS + NUM_GROUPS + 2
        return MethodCost(
            f"features and second moments of {max(clients):,} records",
            [exchange_once(self._example_message(rows, columns)) for rows in num_rows],
            1.0,
            operations=sum(n * features + rows_operations(n, columns) for n in clients),
            server_operations=sum(2 * rows * columns**2 for rows in num_rows) + num_solutions * columns**3,
            num_bytes=8 * max(clients) * columns,
            kept_in="features",
        )

    def _example_message(self, num_rows: int, columns: int) -> Message:
        coded = jnp.zeros(self.max_bytes or 0, jnp.uint8)
        rows = jnp.zeros((num_rows, columns)) if self.max_bytes is None else coded
        return Message("spectral", 0, {"rows": rows, "step": _one_number(0.0), "num_examples": _one_number(1.0)})

    def draw_map(self, model: Model, shared_key: PRNGKey) -> FeatureMap:
        return feature_map(self.features, shared_key, model.input_shape)

    def init(self, key: PRNGKey, model: Model, shared_key: PRNGKey) -> SpectralState:
        return SpectralState(self.draw_map(model, shared_key), {}, {})

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
            message = self._message(model, drawn, records.exact("statistics"), round)
            on_chunk(1)
            return message, []

        return answer_each(clients, answer)

    def _message(self, model: Model, drawn: FeatureMap, points: Points, round: int) -> Message:
        present = np.asarray(points.weight) > 0
        x, labels = np.asarray(points.x)[present], center_labels(model, np.asarray(points.y)[present])
        size = drawn.dimension + model.num_outputs
        if len(x) <= max(size, RECORDS_AT_ONCE):
            rows = spectral_rows(drawn(x), labels, self.num_points, self.label_scale)
        else:
            parts = [slice(first, first + RECORDS_AT_ONCE) for first in range(0, len(x), RECORDS_AT_ONCE)]
            gram = sum_of_chunks(((drawn(x[part]), labels[part]) for part in parts), size, self.label_scale)
            rows = rows_of_gram(gram, drawn.dimension, self.num_points, self.label_scale)
        joint = np.concatenate([rows.features, self.label_scale * rows.labels], axis=1).astype(np.float32)
        return Message("spectral", round, {**self._coded(joint), "num_examples": _one_number(len(x))})

    def _coded(self, joint: Float[np.ndarray, "rows columns"]) -> dict[str, Array]:
        """The rows as they are sent; step 0 means that they are float32."""
        if self.max_bytes is None:
            return {"rows": jnp.asarray(joint), "step": _one_number(0.0)}
        finest = float(np.float32(np.max(np.abs(joint)) / 2**FINEST_BITS))
        step, coded = find_finest_step(joint, finest, self.max_bytes)
        return {"rows": jnp.asarray(np.frombuffer(coded, np.uint8)), "step": _one_number(step)}

    def read(self, model: Model, client: str, message: Message) -> ReceivedRows:
        sent, count = self._read_sent(model, client, message)
        column = sent[:, self.features.dimension].astype(np.float64)
        constant = float(column @ column)  # a sum of ones over records, up to the rounding of rows
        if constant > 2 * count + 1:
            raise CoreshotError(
                f"client {client}, round {message.round}, {message.kind}: its rows are those of {constant:,.0f} "
                f"records, and it says that it has {count:,.0f}; distill it again."
            )
        return ReceivedRows(sent, self.label_scale, count, model.num_outputs)

    def claim(self, content: ReceivedRows) -> Claim:
        return Claim(content.num_examples)

    def read_rows(self, model: Model, client: str, message: Message) -> tuple[Float[np.ndarray, "rows columns"], float]:
        """Rows [Z, U] and n_m of a message, checked."""
        sent, count = self._read_sent(model, client, message)
        return ReceivedRows(sent, self.label_scale, count, model.num_outputs).rows, count

    def _read_sent(
        self, model: Model, client: str, message: Message
    ) -> tuple[Float[np.ndarray, "rows columns"], float]:
        """Rows [Z, s U] and n_m."""
        where, arrays = f"client {client}, round {message.round}, {message.kind}", message.arrays
        if message.kind != "spectral" or set(arrays) != set(ARRAYS):
            raise CoreshotError(
                f"{where}: a spectral coreset has {', '.join(ARRAYS)}; found {', '.join(sorted(arrays)) or 'none'}; "
                "distill it again."
            )
        for name, allowed in ARRAYS.items():
            if arrays[name].dtype not in allowed or (name != "rows" and arrays[name].shape != (1,)):
                raise CoreshotError(
                    f"{where}: {name} is {arrays[name].dtype}{list(arrays[name].shape)}, not what the study wants; "
                    "distill it again."
                )
        step, count = float(arrays["step"][0]), float(arrays["num_examples"][0])
        if step < 0 or count < 1:
            raise CoreshotError(f"{where}: step {step:g} or num_examples {count:g} is out of range; distill it again.")
        columns = self.features.dimension + 1 + model.num_outputs
        raw = np.asarray(arrays["rows"])
        if (raw.dtype == np.uint8) != (step > 0):
            raise CoreshotError(
                f"{where}: coded rows have a step above 0, float32 rows have 0; found {raw.dtype} and {step:g}; "
                "distill it again."
            )
        # S has at most as many nonzero eigenvalues as columns or as records, so no client sends more rows.
        joint = decode_rows(raw.tobytes(), step, columns, int(min(count, columns)), where) if step > 0 else raw
        if joint.ndim != 2 or joint.shape[1] != columns or not 0 < len(joint) <= min(count, columns):
            raise CoreshotError(
                f"{where}: rows have shape {joint.shape}, the study wants (1 to {min(count, columns):g}, {columns}); "
                "distill again."
            )
        return joint, count

    @one_blas_thread()
    def receive(
        self, key: PRNGKey, model: Model, state: SpectralState, replies: Mapping[str, ReceivedRows]
    ) -> SpectralState:
        arrived = check_arrived(replies, state.clients)
        groups = _add_to_groups(state, {client: replies[client] for client in arrived})
        kept = sorted({*state.class_means, *arrived}, key=_hash)[:NUM_CALIBRATION_CLIENTS]
        means = {
            name: state.class_means[name] if name in state.class_means else ClassMeans.from_rows(replies[name])
            for name in (kept if model.kind == "classification" else [])
        }
        return replace(state, groups=groups, class_means=means, clients=state.clients | set(arrived), is_done=True)

    @one_blas_thread()
    def forget(self, model: Model, state: SpectralState, client: str, content: ReceivedRows) -> SpectralState:
        """The state as if this client had never taken part; content is what its message said."""
        groups = _remove_from_groups(state, client, content.moments)
        means = {name: one for name, one in state.class_means.items() if name != client}
        return replace(state, groups=groups, class_means=means, clients=state.clients - {client})

    @one_blas_thread()
    def posterior(
        self, key: PRNGKey, model: Model, state: SpectralState, inference: PointInference | None = None
    ) -> tuple[LinearPosterior, Info]:
        order = sorted(state.groups, key=str)
        means = [(order.index(_find_group(state, name)), state.class_means[name]) for name in sorted(state.class_means)]
        factor = self.ridge_factor if model.kind == "classification" else 1.0
        groups = [state.groups[name] for name in order]
        return fit_posterior(state.map, model.kind, groups, means, ridge=self.ridge, ridge_factor=factor), {}

    def adapt(
        self, model: Model, state: SpectralState, posterior: LinearPosterior, points: Points
    ) -> tuple[LinearPosterior, float]:
        return posterior.adapted_to(points)

    def load_posterior(self, model: Model, shared_key: PRNGKey, arrays: Mapping[str, np.ndarray]) -> LinearPosterior:
        return LinearPosterior.from_arrays(self.draw_map(model, shared_key), arrays)


def _add_to_groups(state: SpectralState, replies: Mapping[str, ReceivedRows]) -> dict[str | int, Moments]:
    """Each client is a group, until there are more than NUM_GROUPS: then all are summed into groups by hashed name."""
    old = dict(state.groups)
    if _is_each_a_group(state):
        if len(old) + len(replies) <= NUM_GROUPS:
            return {**old, **{client: rows.moments for client, rows in replies.items()}}
        groups: dict[str | int, Moments] = {}
        for name in sorted(old, key=str):
            number = _group_number(str(name))
            groups[number] = groups[number] + old[name] if number in groups else old[name]
        old = groups
    arrived = dict[int, list[ReceivedRows]]()
    for client, rows in replies.items():
        arrived.setdefault(_group_number(client), []).append(rows)
    found: dict[str | int, Moments] = {**old}
    for number in sorted(arrived):
        found[number] = sum_moments(arrived[number], old.get(number))
    return found


def _remove_from_groups(state: SpectralState, client: str, moments: Moments) -> dict[str | int, Moments]:
    if _is_each_a_group(state):
        return {name: group for name, group in state.groups.items() if name != client}
    number = _group_number(client)
    return {**state.groups, number: state.groups[number] - moments}


def _is_each_a_group(state: SpectralState) -> bool:
    return set(state.groups) == set(state.clients)


def _find_group(state: SpectralState, client: str) -> str | int:
    return client if _is_each_a_group(state) else _group_number(client)


def _group_number(client: str) -> int:
    return _hash(client) % NUM_GROUPS


def _hash(client: str) -> int:
    return zlib.crc32(client.encode())


def center_labels(model: Model, y: Float[np.ndarray, "n outputs"]) -> Float[np.ndarray, "n outputs"]:
    """One-hot or soft labels minus 1 / classes, a constant that needs no data; targets as they are."""
    return y - 1 / model.num_outputs if model.kind == "classification" else y


def _one_number(value: float) -> Float[Array, " 1"]:
    return jnp.asarray([value], jnp.float32)
