"""The spectral coreset with a promise: each client sends its second moments once, with Gaussian noise, and nothing else of its records.

`coreshot.privacy.gaussian_moments` is the one release. The noise makes every direction of feature space occupied, so all of the matrix travels, not a
few rows of it; quantised below the noise and coded, it takes about six bits a number.

With num_sharers, clients add the noise together and only their sum is seen (secure aggregation). Here the sum is simulated as it would be done:
clients answer with whole numbers modulo 2^32, under masks that they share in pairs and that cancel in the sum of all of them (Bonawitz et al. 2017).
The agreement on keys and the rescue of a sum whose client is missing are not simulated: without all of them there is no sum.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from coreshot.coding import MAX_LEVEL, decode_rows, encode_rows
from coreshot.config import Count, settings
from coreshot.errors import CoreshotError
from coreshot.features import AnyFeatures, UnitMap, unit_map
from coreshot.head import HeadPosterior
from coreshot.inference.protocol import Info
from coreshot.keys import named_key
from coreshot.methods.protocol import Answers, Invitation, OnChunk
from coreshot.models import Model
from coreshot.privacy.accounting import Privacy, noise_multiplier
from coreshot.privacy.gaussian_moments import LABEL_UNIT, UNIT, Noisy, deviations, noisy_moments, symmetric
from coreshot.privacy.records import Records
from coreshot.private_head import fit_private_head
from coreshot.release import Release
from coreshot.types import Message, Points, PRNGKey

STATISTICS = "statistics"
CROSS_SHARE = 0.8  # of the promise that the cross moments get: found on UNIPEN-62
STEPS_PER_DEVIATION = 8  # how finely a client's own noise is kept on the wire
STEPS_OF_SHARE = 64  # and a share of a common noise, whose roundings add up
WORD = 2**32  # of the masked numbers


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
    num_sharers: Count | None = None  # clients of the secure sum, all of whom must answer; None: each adds noise enough for itself

    @property
    def num_rounds(self) -> int:
        return 1

    @property
    def num_chunks(self) -> int:
        return 1

    def releases(self, model: Model) -> tuple[Release, ...]:
        content = "second moments of the records' features (of norm one) and classes, with Gaussian noise"
        multiplier = noise_multiplier(self.privacy)
        return (Release(STATISTICS, content, "gaussian", 1.0, multiplier, delta=self.privacy.delta, num_sharers=self.num_sharers or 1),)

    def map_of(self, model: Model, shared_key: PRNGKey) -> UnitMap:
        return unit_map(self.features, shared_key, model.input_shape)

    def init(self, key: PRNGKey, model: Model, shared_key: PRNGKey) -> PrivateState:
        if model.kind != "classification":
            raise CoreshotError("private_spectral: its label rows are one-hot classes, and regression has none; use a classification study.")
        drawn = self.map_of(model, shared_key)
        return PrivateState(drawn, np.zeros((drawn.dimension,) * 2), np.zeros((drawn.dimension, model.num_outputs)))

    def send(self, key: PRNGKey, model: Model, state: PrivateState, clients: Sequence[str]) -> Invitation | None:
        if state.is_done:
            return None
        if self.num_sharers and len(clients) != self.num_sharers:
            raise CoreshotError(f"private_spectral: num_sharers is {self.num_sharers}, but there are {len(clients)} clients; make them agree.")
        names = json.dumps(sorted(clients)).encode() if self.num_sharers else b""
        return Invitation(tuple(clients), Message("invitation", 0, {"sharers": jnp.asarray(np.frombuffer(names, np.uint8))} if names else {}))

    def reply(
        self, key: PRNGKey, model: Model, clients: Mapping[str, Records], inbox: Sequence[Message], shared_key: PRNGKey, on_chunk: OnChunk
    ) -> Answers:
        drawn = self.map_of(model, shared_key)
        answers: Answers = {}
        for name, records in clients.items():
            noisy = noisy_moments(records, STATISTICS, lambda points: _rows(drawn, points), CROSS_SHARE)
            arrays = self._masked(key, name, inbox[-1], noisy) if self.num_sharers else self._coded(noisy)
            answers[name] = Message("private_spectral", inbox[-1].round, arrays), []
            on_chunk(1)
        return answers

    def _steps(self) -> tuple[float, float]:
        """Of the Gram matrix and of the cross moments on the wire, in the whole numbers of their units."""
        sharers = self.num_sharers or 1
        noise = deviations(noise_multiplier(self.privacy), CROSS_SHARE, 1 / sharers)
        finer = STEPS_OF_SHARE if self.num_sharers else STEPS_PER_DEVIATION
        return float(np.float32(noise.beside * UNIT**2 / finer)), float(np.float32(noise.cross * UNIT * LABEL_UNIT / finer))

    def _coded(self, noisy: Noisy) -> dict[str, jnp.ndarray]:
        """Whole numbers in steps below the noise; larger steps where numbers are so large that the code has no levels for them."""
        arrays: dict[str, jnp.ndarray] = {}
        for name, numbers, finest in zip(("gram", "cross"), (noisy.gram, noisy.cross), self._steps(), strict=True):
            step = float(np.float32(max(finest, np.max(np.abs(numbers)) / (MAX_LEVEL - 1))))
            code = encode_rows(numbers.reshape(1, -1).astype(np.float64), step, keep_zeros=True)
            arrays |= {name: jnp.asarray(np.frombuffer(code, np.uint8)), f"{name}_step": jnp.asarray([step], jnp.float32)}
        return arrays

    def _masked(self, key: PRNGKey, client: str, invitation: Message, noisy: Noisy) -> dict[str, jnp.ndarray]:
        if "sharers" not in invitation.arrays:
            raise CoreshotError("private_spectral: a secure sum needs all its clients at once; run it over a network, or leave num_sharers out.")
        sharers = json.loads(np.asarray(invitation.arrays["sharers"]).tobytes())
        numbers = [np.rint(part / step).astype(np.int64).ravel() for part, step in zip((noisy.gram, noisy.cross), self._steps(), strict=True)]
        total = (np.concatenate(numbers) % WORD).astype(np.uint32)
        for other in sharers:
            if other != client:
                mask = _pair_mask(key, min(client, other), max(client, other), len(total))
                total = total + mask if client < other else total - mask
        return {"masked": jnp.asarray(total.view(np.int32))}

    def check(self, model: Model, client: str, message: Message) -> None:
        self._numbers(model, client, message)

    def _numbers(self, model: Model, client: str, message: Message) -> list[np.ndarray]:
        """Masked numbers as they are, or decoded moments in units of the records."""
        where, arrays = f"client {client}, round {message.round}, {message.kind}", message.arrays
        wanted = {"masked"} if self.num_sharers else {"gram", "gram_step", "cross", "cross_step"}
        if message.kind != "private_spectral" or set(arrays) != wanted:
            raise CoreshotError(
                f"{where}: found {', '.join(sorted(arrays)) or 'none'}, the study wants {', '.join(sorted(wanted))}; distill it again."
            )
        size = self.features.dimension + 1
        sizes = size * (size + 1) // 2, size * model.num_outputs
        if self.num_sharers:
            masked = np.asarray(arrays["masked"])
            if masked.shape != (sum(sizes),) or masked.dtype != np.int32:
                raise CoreshotError(f"{where}: masked is {masked.dtype}{list(masked.shape)}, not int32[{sum(sizes)}]; distill it again.")
            return [masked.view(np.uint32)]
        parts = []
        for name, count, unit in zip(("gram", "cross"), sizes, (UNIT**2, UNIT * LABEL_UNIT), strict=True):
            step = np.asarray(arrays[f"{name}_step"])
            if step.shape != (1,) or step.dtype != np.float32 or not step[0] > 0 or arrays[name].dtype != np.uint8:
                raise CoreshotError(f"{where}: {name} is not a code with one step above 0; distill it again.")
            rows = decode_rows(np.asarray(arrays[name]).tobytes(), float(step[0]), count, 1, where)
            if len(rows) != 1:
                raise CoreshotError(f"{where}: {name} has {len(rows)} rows, not one; distill it again.")
            parts.append(rows[0].astype(np.float64) / unit)
        return parts

    def receive(self, key: PRNGKey, model: Model, state: PrivateState, replies: Mapping[str, Message]) -> PrivateState:
        if not replies:
            raise CoreshotError("round 0: no client replied; ask again, or let more of them take part.")
        ordered = {name: self._numbers(model, name, replies[name]) for name in sorted(replies)}
        if self.num_sharers:
            return self._unmasked(state, {name: numbers[0] for name, numbers in ordered.items()})
        for name, (gram, cross) in ordered.items():
            if name in state.clients:
                raise CoreshotError(f"client {name}: is in the sums already; forget its first message before you add another.")
            state = _added(state, name, gram, cross, 1)
        return replace(state, is_done=True)

    def _unmasked(self, state: PrivateState, masked: Mapping[str, Int[np.ndarray, " numbers"]]) -> PrivateState:
        if len(masked) != self.num_sharers:
            raise CoreshotError(
                f"round 0: {len(masked)} of {self.num_sharers} sharers answered, so their masks do not cancel; ask all of them again."
            )
        total = np.stack(list(masked.values())).sum(axis=0, dtype=np.uint32).view(np.int32).astype(np.float64)
        split, steps = len(total) - state.cross.size, self._steps()
        gram, cross = total[:split] * steps[0] / UNIT**2, total[split:] * steps[1] / (UNIT * LABEL_UNIT)
        state = _added(state, "", gram, cross, 1)
        return replace(state, clients=frozenset(masked), is_done=True)

    def forget(self, model: Model, state: PrivateState, client: str, message: Message) -> PrivateState:
        """As if this client had never taken part. Of a secure sum nobody knows its part."""
        if self.num_sharers:
            raise CoreshotError(f"forget: client {client} is in a secure sum, from which nobody can take it; ask the others again.")
        gram, cross = self._numbers(model, client, message)
        return _added(state, client, gram, cross, -1)

    def posterior(self, key: PRNGKey, model: Model, state: PrivateState) -> tuple[HeadPosterior, Info]:
        num_noises = 1.0 if self.num_sharers else float(len(state.clients))
        noise = deviations(noise_multiplier(self.privacy), CROSS_SHARE, num_noises)
        return fit_private_head(state.map, state.gram, state.cross, noise), {}


def _rows(drawn: UnitMap, points: Points) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "n outputs"]]:
    present = np.asarray(points.weight) > 0
    return drawn(np.asarray(points.x)[present]), np.asarray(points.y)[present]


def _added(state: PrivateState, client: str, gram: Float[np.ndarray, " triangle"], cross: Float[np.ndarray, " numbers"], sign: int) -> PrivateState:
    clients = state.clients | {client} if sign > 0 else state.clients - {client}
    moved = state.gram + sign * symmetric(gram, len(state.gram)), state.cross + sign * cross.reshape(state.cross.shape)
    return replace(state, gram=moved[0], cross=moved[1], clients=clients)


def _pair_mask(key: PRNGKey, first: str, second: str, size: int) -> Int[np.ndarray, " numbers"]:
    """What two clients would draw from a key that they have agreed on and nobody else has; here it comes from the simulation's."""
    words = np.asarray(jax.random.key_data(named_key(named_key(key, f"mask {first}"), second))).tolist()
    return np.random.Generator(np.random.Philox(words)).integers(WORD, size=size, dtype=np.uint32)
