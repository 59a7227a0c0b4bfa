"""One exchange: every client sends a coreset, and the server infers from the weighted points of all. BPC-FL is one.

d'Hondt et al., "One-Shot Federated Learning with Bayesian Pseudocoresets" (Algorithm 1).

| paper              | here                             |
|--------------------|----------------------------------|
| (Z_m, y-hat_m)     | the message "coreset" of a client |
| n_m / N            | PointInference.weighting = "paper" |
| p(theta, C)        | LogDensity of the pooled points  |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from pydantic import PlainValidator

from coreshot.config import decode_named, encode_named, settings
from coreshot.data.validate import check_fits_learner
from coreshot.errors import CoreshotError
from coreshot.inference.posterior import SamplePosterior
from coreshot.inference.protocol import Info
from coreshot.keys import client_key, named_key
from coreshot.learners import LEARNERS, Learner
from coreshot.learners.loop import distill
from coreshot.learners.protocol import CountsAlike, LearningCost
from coreshot.methods.one_round import OneRoundMethod, exchange_once
from coreshot.methods.protocol import Answers, Claim, MethodCost, OnChunk, PointInference, Weighting
from coreshot.models import LogDensity, Model
from coreshot.privacy.guarded_records import Records
from coreshot.privacy.releases import Release
from coreshot.types import Coreset, Points, PRNGKey, concatenate_points, make_points
from coreshot.wire.messages import Message
from coreshot.wire.point_coding import PointCoding

TYPES = {"labels": jnp.int32, "code": jnp.uint8}  # of a message's arrays; all others are float32


def point_weights(
    weighting: Weighting, num_examples: Float[Array, " clients"], num_points: Float[Array, " clients"]
) -> Float[Array, " clients"]:
    """What each point of a client counts for.

    mass: n_m / K_m, so that all points together stand for N observations; paper: n_m / N as printed, which sums to
    about K; size: n_m / mean n, so that the weights sum to the number of points; none: 1.
    """
    choices = {
        "mass": num_examples / num_points,
        "paper": num_examples / jnp.sum(num_examples),
        "size": num_examples / jnp.mean(num_examples),
        "none": jnp.ones_like(num_examples),
    }
    return choices[weighting]


def pool_coresets(coresets: Mapping[str, Coreset], weighting: Weighting) -> Points:
    """All points in the order of the clients' names, so that the order of arrival does not matter.

    A coreset's own weights, of mean at most one, say how its points share what the weighting gives to the client.
    """
    ordered = [coresets[name] for name in sorted(coresets)]
    examples = jnp.stack([jnp.asarray(coreset.num_examples, jnp.float32) for coreset in ordered])
    sizes = jnp.asarray([coreset.points.num_points for coreset in ordered], jnp.float32)
    weights = point_weights(weighting, examples, sizes)
    return concatenate_points(
        [
            coreset.points.reweighted(weight * coreset.points.weight)
            for coreset, weight in zip(ordered, weights, strict=True)
        ]
    )


def coreset_message(coreset: Coreset, model: Model, round: int, coding: PointCoding | None = None) -> Message:
    """Inputs (coded where the study says so), labels, n_m, and point weights where they differ.

    One-hot labels travel as class numbers: one number a point, not one a class.
    """
    points = coreset.points
    # By NumPy, here and in message_coreset: JAX would compile these lines for each client's own number of points.
    y, weight = np.asarray(points.y), np.asarray(points.weight)
    arrays = {"num_examples": jnp.asarray(coreset.num_examples, jnp.float32).reshape(1)}
    if coding is None:
        arrays["x"] = points.x
    else:
        code, step = coding.encode(np.asarray(points.x))
        arrays |= {"code": jnp.asarray(np.frombuffer(code, np.uint8)), "step": jnp.asarray([step], jnp.float32)}
    is_hard = model.kind == "classification" and bool(np.all((y == 0) | (y == 1)))
    if is_hard:
        arrays["labels"] = jnp.asarray(y.argmax(axis=1).astype(np.int32))
    else:
        arrays["y"] = points.y
    if np.any(weight != 1):
        arrays["weight"] = points.weight
    return Message("coreset", round, arrays)


def message_coreset(message: Message, model: Model, client: str, coding: PointCoding | None = None) -> Coreset:
    """The coreset in a message, with everything checked that a later computation relies on."""
    where, arrays = f"client {client}, round {message.round}, {message.kind}", message.arrays
    inputs = {"x"} if coding is None else {"code", "step"}
    if (
        message.kind != "coreset"
        or not {*inputs, "num_examples"} <= set(arrays) <= {*inputs, "num_examples", "labels", "y", "weight"}
        or ("y" in arrays) == ("labels" in arrays)
    ):
        raise CoreshotError(
            f"{where}: a coreset has {' and '.join(sorted(inputs))}, num_examples, labels or y, and perhaps weight; "
            f"found {', '.join(sorted(arrays)) or 'none'}; distill it again."
        )
    wrong = [name for name, array in arrays.items() if array.dtype != TYPES.get(name, jnp.float32)]
    if wrong:
        raise CoreshotError(
            f"{where}: array {wrong[0]!r} is of type {arrays[wrong[0]].dtype}; "
            "labels are int32, all else float32; distill it again."
        )
    x, count = _inputs(arrays, model, coding, where), arrays["num_examples"]
    if x.ndim == 0 or x.shape[1:] != model.input_shape or len(x) == 0:
        raise CoreshotError(
            f"{where}: x has shape {x.shape}, the study wants (points, {_list(model.input_shape)}); distill it again."
        )
    if count.shape != (1,) or float(count[0]) < 1:
        raise CoreshotError(
            f"{where}: num_examples is {np.asarray(count).tolist()}, not one number of at least 1; distill it again."
        )
    weight = np.asarray(arrays["weight"]) if "weight" in arrays else np.ones(len(x), np.float32)
    if weight.shape != (len(x),) or not np.all(weight > 0) or np.mean(weight) > 1.001:
        raise CoreshotError(f"{where}: weight is not {len(x)} positive numbers of mean at most 1; distill it again.")
    return Coreset(
        Points(x, jnp.asarray(_labels(arrays, len(x), model, where)), jnp.asarray(weight)), count[0].astype(jnp.float32)
    )


def _inputs(
    arrays: Mapping[str, Array], model: Model, coding: PointCoding | None, where: str
) -> Float[Array, "*points"]:
    """The pseudo-inputs as they arrived; their shape is checked by the caller."""
    if coding is None:
        return arrays["x"]
    labels = arrays["labels" if "labels" in arrays else "y"]
    step = float(arrays["step"][0]) if arrays["step"].shape == (1,) else 0.0
    if not step > 0 or labels.ndim == 0:
        raise CoreshotError(f"{where}: the code has no step above 0, or no labels; distill it again.")
    return jnp.asarray(coding.decode(np.asarray(arrays["code"]).tobytes(), step, len(labels), model.input_shape, where))


def _labels(
    arrays: Mapping[str, Array], num_points: int, model: Model, where: str
) -> Float[np.ndarray, "points outputs"]:
    if "labels" in arrays:
        labels = np.asarray(arrays["labels"])
        if (
            model.kind != "classification"
            or labels.shape != (num_points,)
            or not np.all((labels >= 0) & (labels < model.num_outputs))
        ):
            raise CoreshotError(
                f"{where}: labels are not {num_points} classes from 0 to {model.num_outputs - 1}; distill it again."
            )
        return np.eye(model.num_outputs, dtype=np.float32)[labels]
    y = np.asarray(arrays["y"])
    if y.shape != (num_points, model.num_outputs):
        raise CoreshotError(
            f"{where}: y has shape {y.shape}, the study wants ({num_points}, {model.num_outputs}); distill it again."
        )
    on_simplex = np.all(y >= 0) and np.all(np.abs(np.sum(y, axis=1) - 1) < 1e-4)
    if model.kind == "classification" and not on_simplex:
        raise CoreshotError(f"{where}: soft labels are not probabilities that sum to 1; distill it again.")
    return y


def _list(shape: tuple[int, ...]) -> str:
    return ", ".join(map(str, shape))


def example_coreset(cost: LearningCost, model: Model, size: int) -> Coreset:
    """A coreset of the size and kind that a learner sends: hard labels or soft ones, with point weights or without."""
    hard = jax.nn.one_hot(jnp.zeros(size, int), model.num_outputs)
    labels = jnp.full((size, model.num_outputs), 0.5) if cost.has_soft_labels else hard
    points = make_points(jnp.zeros((size, *model.input_shape)), labels)
    return Coreset(points.reweighted(jnp.full(size, 0.5)) if cost.has_point_weights else points, jnp.asarray(1.0))


@dataclass(frozen=True)
class OneShotState:
    coresets: dict[str, Coreset] = field(default_factory=dict)
    is_done: bool = False


def _learner(value: Any) -> Any:
    """A learner, or its settings with its registered name."""
    return decode_named(LEARNERS, value, "method.learner", "learner") if isinstance(value, Mapping) else value


@settings
class OneShot(OneRoundMethod):
    learner: Annotated[Learner, PlainValidator(_learner)]  # a study file's [learner] is short for this method

    @property
    def num_chunks(self) -> int:
        return max(1, self.learner.num_chunks)

    def releases(self, model: Model) -> tuple[Release, ...]:
        return self.learner.releases(model)

    def encode_settings(self, encode_part: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        return {"learner": encode_named(LEARNERS, self.learner, encode_part)}

    def cost(self, model: Model, clients: Sequence[int]) -> MethodCost:
        """Of the clients; the server's inference is not part of the study."""
        learner = self.learner
        costs = [learner.cost(model, num_examples) for num_examples in clients]
        coresets = [
            example_coreset(cost, model, learner.num_points or num_examples)
            for cost, num_examples in zip(costs, clients, strict=True)
        ]
        largest = max(costs, key=lambda cost: cost.passes)
        return MethodCost(
            f"{largest.work} x {len(costs)} clients" if largest.passes else largest.work,
            [exchange_once(coreset_message(coreset, model, 0, learner.coding)) for coreset in coresets],
            1.0,
            sum(cost.passes for cost in costs),
            num_bytes=largest.num_bytes,
            kept_in=largest.kept_in,
            num_networks=largest.num_networks,
            batch_size=largest.batch_size,
            model=largest.model,
        )

    def check_records(self, model: Model, points: Points, client: str) -> None:
        """What the learner needs of a client's records. A private one needs nothing: a refusal that depends on one
        record would tell of it."""
        if any(release.is_exact for release in self.releases(model)):
            check_fits_learner(points, kind=model.kind, num_points=self.learner.num_points, client=client)

    def init(self, key: PRNGKey, model: Model, shared_key: PRNGKey) -> OneShotState:
        return OneShotState()

    def reply(
        self,
        key: PRNGKey,
        model: Model,
        clients: Mapping[str, Records],
        inbox: Sequence[Message],
        shared_key: PRNGKey,
        on_chunk: OnChunk,
    ) -> Answers:
        """Each client's coreset as a message, with notes on how it went; clients are learned together, none sees
        another."""
        message = inbox[-1]
        keys = {name: client_key(key, message.round, name) for name in clients}
        where = f"round {message.round}"
        learned = distill(model, self.learner, clients, keys, shared_key, on_chunk=on_chunk, where=where)
        return {
            name: (coreset_message(one.coreset, model, message.round, self.learner.coding), one.notes)
            for name, one in learned.items()
        }

    def read(self, model: Model, client: str, message: Message) -> Coreset:
        coreset = message_coreset(message, model, client, self.learner.coding)
        where, found = f"client {client}, round {message.round}, {message.kind}", coreset.points.num_points
        if self.learner.num_points not in (None, found):
            raise CoreshotError(
                f"{where}: has {found:,} points, and every client of the study sends {self.learner.num_points:,}; "
                "distill it again."
            )
        if isinstance(self.learner, CountsAlike) and coreset.num_examples != np.float32(self.learner.records_each):
            raise CoreshotError(
                f"{where}: says that it stands for {float(coreset.num_examples):g} records, and the study counts every "
                f"client as {self.learner.records_each:g}; distill it again."
            )
        return coreset

    def claim(self, content: Coreset) -> Claim:
        largest = float(np.max(np.abs(np.asarray(content.points.x)), initial=0.0))
        return Claim(None if isinstance(self.learner, CountsAlike) else float(content.num_examples), largest)

    def receive(self, key: PRNGKey, model: Model, state: OneShotState, replies: Mapping[str, Coreset]) -> OneShotState:
        if not replies:
            raise CoreshotError("round 0: no client replied; ask again, or let more of them take part.")
        return replace(state, coresets={**state.coresets, **replies}, is_done=True)

    def posterior(
        self, key: PRNGKey, model: Model, state: OneShotState, inference: PointInference | None = None
    ) -> tuple[SamplePosterior, Info]:
        if inference is None:
            raise CoreshotError("fit: a study with a learner needs an inference, such as MapEstimate or Hmc; give one.")
        sampler = inference.inference
        init = jax.vmap(model.init)(jax.random.split(named_key(key, "start"), sampler.num_chains))
        points = pool_coresets(state.coresets, inference.weighting)
        return sampler(named_key(key, "sample"), LogDensity(model, points), init)

    def load_posterior(self, model: Model, shared_key: PRNGKey, arrays: Mapping[str, np.ndarray]) -> SamplePosterior:
        return SamplePosterior.from_arrays(model, arrays)
