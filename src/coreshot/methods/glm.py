"""Generalised linear model: each site sends, once, sums over its records and its own fit; the server adds them up.

The default for tables. A quantity is predicted by Bayesian linear regression, classes by logistic regression, on the
columns and on products of them (`coreshot.glm.polynomials`). What a site sends, and what the server makes of it:

| array of a message        | meaning                                                        | coreshot.glm |
|---------------------------|----------------------------------------------------------------|--------------|
| center, scale             | mean and deviation of each input; features are of (x - center) / scale |      |
| class_0, class_1, ...     | of each class, sums of products of features, and of two        | summary,     |
|                           | classes the sums of groups with similar scores                 | score_groups |
| moments                   | or, of a quantity or many classes, sums of products of features and labels | |
| weights, gradient         | the site's own fit, and the slope of its log likelihood there  | local_fit    |
| limits                    | of each number, inside which its cells were moved              | winsorising  |
| loss                      | what rounding changes in the site's own predictions, on average | this file   |

Messages of before also have curvature, shares and offset, which are not used. Rounding is chosen by what it changes:
`tolerance` is in units of the predictions, and `max_bytes` is an upper limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from coreshot.config import Count, NonNegativeInt, Positive, settings
from coreshot.errors import CoreshotError
from coreshot.glm.counts import CountFit
from coreshot.glm.head import fit_head
from coreshot.glm.local_fit import LocalFit
from coreshot.glm.message_size import (
    BYTES_PER_ENTRY,
    choose_details,
    class_bytes,
    code_length,
    detail_of,
    fit_bytes,
    num_logits_of_classes,
)
from coreshot.glm.new_site import fit_new_site
from coreshot.glm.polynomials import Polynomials, choose_terms
from coreshot.glm.posterior import GlmPosterior
from coreshot.glm.received import LARGEST, SiteMessage, add_sites, decode_summary, find_filling, find_limits, read_site
from coreshot.glm.records import CHUNK, Prepared, prepare
from coreshot.glm.score_groups import MAX_GROUPS, MIN_RECORDS
from coreshot.glm.site import Detail, SiteSums, sum_records
from coreshot.glm.summary import Summary
from coreshot.glm.winsorising import TAIL, Limits
from coreshot.inference.protocol import Info
from coreshot.methods.one_round import OneRoundMethod, answer_each, check_arrived, exchange_once
from coreshot.methods.protocol import Answers, Claim, MethodCost, OnChunk, PointInference
from coreshot.models import Model
from coreshot.models.parallel import one_blas_thread
from coreshot.privacy.guarded_records import Records
from coreshot.privacy.releases import Release
from coreshot.types import Kind, Points, PRNGKey
from coreshot.wire.factor_coding import encode_factor, triangular_factor
from coreshot.wire.messages import Message

ADDITIONAL = 48  # features beside the inputs, at least
TYPICAL_DIMENSION = 128  # features in all, where the inputs leave room for them
COARSEST, FINEST = 2, 14  # steps are 2^-2 to 2^-14 of what is new in a column
FIRST_FINENESS = 6
LABEL_BITS = 6  # labels are so many bits finer than features: there are few, and base rates follow from them
NUMBER_BITS = 30  # the constant is so fine: all means are relative to the number of records
MAX_CHECKED = 5_000  # records on which the loss is measured
SMALLEST_SCALE = 1e-6  # of an input at a site
UNUSED = frozenset({"curvature", "shares", "offset"})  # arrays of messages of before


@dataclass(frozen=True)
class GlmState:
    """What each site said."""

    polynomials: Polynomials
    sites: Mapping[str, SiteMessage] = field(default_factory=dict)
    is_done: bool = False

    @property
    def clients(self) -> frozenset[str]:
        return frozenset(self.sites)


@settings
class Glm(OneRoundMethod):
    dimension: Count | None = None  # features in all; None: by the number of inputs
    max_bytes: Count | None = None  # of a site's coded matrices, at most; None: as many as the tolerance needs
    tolerance: Positive = 0.002  # mean change of a site's predictions by rounding: of probabilities, or deviations
    powers: tuple[NonNegativeInt, ...] | None = None  # inputs that are numbers; a study file knows them from its table
    products: tuple[NonNegativeInt, ...] | None = None  # inputs that are multiplied with others; None: all
    fills: tuple[tuple[NonNegativeInt, NonNegativeInt], ...] = ()  # inputs that are filled in, each with its indicator
    winsorise: bool = False  # whether cells of `powers` far from the others are moved to a limit
    largest_count: Positive | None = None  # the target is a count, at most so large; a study file knows it

    def releases(self, model: Model) -> tuple[Release, ...]:
        sums = "sums of products of all pairs of the records' features and labels"
        if model.kind == "classification":
            groups = (
                f"(of two classes, with the mean of each of up to {MAX_GROUPS} groups of at least {MIN_RECORDS} "
                "records with similar scores)"
            )
            sums = f"{sums}, for each class {groups}, and a logistic regression of the records with its gradient"
        if self.largest_count:
            sums += ", and a Poisson regression of the records with its gradient"
        if self.winsorise:
            sums += f"; of each number two limits, from its {TAIL:.0%} and {1 - TAIL:.0%} quantiles"
        return (Release("statistics", sums),)

    def polynomials(self, model: Model) -> Polynomials:
        num_inputs = int(np.prod(model.input_shape))
        powers = self._numbers(num_inputs)
        products = tuple(range(num_inputs)) if self.products is None else self.products
        if max((*powers, *products, *sum(self.fills, ())), default=0) >= num_inputs:
            raise CoreshotError(
                f"method glm: powers, products or fills name an input beyond the {num_inputs}; mend them."
            )
        dimension = self.dimension or self.default_dimension(model)
        return Polynomials(choose_terms(num_inputs, powers, products, dimension))

    def _numbers(self, num_inputs: int) -> tuple[int, ...]:
        return tuple(range(num_inputs)) if self.powers is None else self.powers

    def default_dimension(self, model: Model) -> int:
        """Room for all inputs and for products of them, within max_bytes. A study file settles it, so that another
        version's rule does not change what was agreed."""
        num_inputs = int(np.prod(model.input_shape))
        dimension = max(num_inputs + ADDITIONAL, TYPICAL_DIMENSION)
        if self.max_bytes is None:
            return dimension
        num_matrices = 2 if model.kind == "classification" and model.num_outputs == 2 else 1
        affordable = int(np.sqrt(2 * self.max_bytes / num_matrices / BYTES_PER_ENTRY)) - 1 - model.num_outputs
        return min(dimension, max(num_inputs, affordable))

    def cost(self, model: Model, clients: Sequence[int]) -> MethodCost:
        size = len(self.polynomials(model).terms) + 1
        columns, logits = size + model.num_outputs, self._num_logits(model)
        fit = 320.0 * logits * size if logits else 0.0  # 80 steps of L-BFGS, forward and back
        return MethodCost(
            f"sums over {max(clients):,} records",
            [exchange_once(self._example_message(size, model, count)) for count in clients],
            1.0,
            operations=sum(n * (2 * columns**2 + 2 * size**2 + fit) for n in clients),
            server_operations=200 * (1 + logits) * size**3,
            num_bytes=8 * (CHUNK + min(max(clients), 20_000)) * columns,
            kept_in="features",
        )

    def _example_message(self, size: int, model: Model, num_records: int) -> Message:
        of_classes = num_logits_of_classes(model)
        lengths = {"moments": code_length(size + model.num_outputs)}
        if of_classes == 1:
            num_groups = min(max(num_records // 2 // MIN_RECORDS, 1), MAX_GROUPS)
            lengths = dict.fromkeys(("class_0", "class_1"), code_length(size + num_groups - 1))
        elif of_classes and model.num_outputs * code_length(size) <= class_bytes(size, model):
            lengths = {f"class_{label}": code_length(size) for label in range(model.num_outputs)}
        if self.max_bytes is not None:
            lengths = {"moments": min(self.max_bytes, sum(lengths.values()))}
        plain = {
            name: jnp.zeros(shape)
            for name, shape in _shapes(size, self._num_logits(model), model, self.winsorise).items()
        }
        coded = {name: jnp.zeros(length, jnp.uint8) for name, length in lengths.items()}
        return Message("glm", 0, {**coded, **plain})

    def init(self, key: PRNGKey, model: Model, shared_key: PRNGKey) -> GlmState:
        return GlmState(self.polynomials(model))

    def reply(
        self,
        key: PRNGKey,
        model: Model,
        clients: Mapping[str, Records],
        inbox: Sequence[Message],
        shared_key: PRNGKey,
        on_chunk: OnChunk,
    ) -> Answers:
        polynomials, round = self.polynomials(model), inbox[-1].round

        def answer(client: str, records: Records) -> tuple[Message, list[str]]:
            arrays, loss, num_bytes = self._arrays(model, polynomials, records.exact("statistics"))
            on_chunk(1)
            return Message("glm", round, arrays), [_loss_remark(model, loss, num_bytes, self.tolerance)]

        return answer_each(clients, answer)

    def _arrays(self, model: Model, polynomials: Polynomials, points: Points) -> tuple[dict[str, Array], float, int]:
        x, y, limits = self.prepared_records(points)
        center, scale = x.center_and_scale()
        x = replace(x, center=center, scale=scale)  # rounding is relative to what a site's own records spread
        sums = sum_records(model, polynomials, x, y, self.largest_count)
        codes, loss = self._coded(model, polynomials, sums, x[:: -(-len(x) // MAX_CHECKED)])
        fit = sums.fit or LocalFit(*2 * (np.zeros((polynomials.dimension, 0)),))
        plain = {"weights": fit.weights, "gradient": fit.gradient, "center": center, "scale": scale}
        if self.winsorise:
            plain["limits"] = np.stack([limits.lowest, limits.highest])
        arrays = {name: jnp.asarray(np.frombuffer(code, np.uint8)) for name, code in codes.items()}
        arrays |= {name: jnp.asarray(array.astype(np.float32)) for name, array in plain.items()}
        arrays["loss"] = _one_number(loss)
        return arrays, loss, _size(codes)

    def prepared_records(self, points: Points) -> tuple[Prepared, Float[np.ndarray, "n outputs"], Limits]:
        """Moved inside the site's own limits, then filled in with the means of what was moved."""
        num_inputs = int(np.prod(points.x.shape[1:]))
        return prepare(points, self._numbers(num_inputs) if self.winsorise else (), self.fills)

    def _coded(
        self, model: Model, polynomials: Polynomials, sums: SiteSums, x: Float[np.ndarray, "n inputs"]
    ) -> tuple[dict[str, bytes], float]:
        """As much detail as has few enough bytes; and what rounding changes."""
        if model.kind == "regression":
            return self._rounded(model, polynomials, sums, "moments", x, self.max_bytes)
        most, least, limit = choose_details(polynomials.dimension, model)
        if self.max_bytes is not None:
            limit = min(limit, self.max_bytes - fit_bytes(polynomials.dimension, model))
        found = self._rounded(model, polynomials, sums, most, x, None)
        if _size(found[0]) <= limit:
            return found
        return self._rounded(model, polynomials, sums, least, x, self.max_bytes)

    def _rounded(
        self,
        model: Model,
        polynomials: Polynomials,
        sums: SiteSums,
        detail: Detail,
        x: Float[np.ndarray, "n inputs"],
        max_bytes: int | None,
    ) -> tuple[dict[str, bytes], float]:
        """The coarsest code within the tolerance, or the finest within max_bytes; and what it changes."""
        head = fit_head(polynomials, sums.summary(detail))
        truth = GlmPosterior(polynomials, model.kind, head, largest_count=self.largest_count)
        factors = {name: triangular_factor(matrix) for name, matrix in sums.matrices(detail).items()}
        correct = sums.fit.correct if sums.fit else None

        def attempt(bits: int) -> tuple[dict[str, bytes], float]:
            codes = {name: _encode(factor, bits, polynomials.dimension, detail) for name, factor in factors.items()}
            read = decode_summary(codes, polynomials, model.num_outputs, correct, "this site's message")
            changed = fit_head(polynomials, read, like=truth.head)
            return codes, float(np.mean(_changes(truth, replace(truth, head=changed), x)))

        bits = FIRST_FINENESS
        found = attempt(bits)
        while found[1] > self.tolerance and bits < FINEST:
            bits += 2
            found = attempt(bits)
        while max_bytes is not None and _size(found[0]) > max_bytes:
            bits -= 1
            if bits < COARSEST:
                raise CoreshotError(
                    f"method glm: {_size(found[0]):,} bytes are the least for these features, and "
                    f"max_bytes is {max_bytes:,}; raise it, or lower dimension."
                )
            found = attempt(bits)
        return found

    def read(self, model: Model, client: str, message: Message) -> SiteMessage:
        return self.read_with_sums(model, client, message)[0]

    def read_with_sums(self, model: Model, client: str, message: Message) -> tuple[SiteMessage, Summary]:
        where, polynomials = f"client {client}, round {message.round}, {message.kind}", self.polynomials(model)
        arrays = {name: array for name, array in message.arrays.items() if name not in UNUSED}
        shapes = _shapes(polynomials.dimension, self._num_logits(model), model, self.winsorise)
        coded = [name for name in arrays if name not in shapes]
        classes = {f"class_{label}" for label in range(model.num_outputs if num_logits_of_classes(model) else 0)}
        is_known = set(coded) == {"moments"} or (classes and set(coded) == classes)
        if message.kind != "glm" or not is_known or not set(shapes) <= set(arrays):
            raise CoreshotError(
                f"{where}: has the arrays {', '.join(sorted(arrays)) or 'none'}, not this study's; distill it again."
            )
        for name, array in arrays.items():
            right = np.uint8 if name in coded else np.float32
            if array.dtype != right or (name in shapes and array.shape != shapes[name]):
                raise CoreshotError(
                    f"{where}: {name} is {array.dtype}{list(array.shape)}, not what the study wants; distill it again."
                )
        found = {name: np.asarray(arrays[name], np.float64) for name in shapes}
        is_large = max(np.max(np.abs(array), initial=0) for array in found.values()) > LARGEST
        is_inverted = self.winsorise and np.any(found["limits"][0] > found["limits"][1])
        if is_large or is_inverted or np.min(found["scale"]) < SMALLEST_SCALE or found["loss"][0] < 0:
            raise CoreshotError(f"{where}: a number in it is out of range; distill it again.")
        fit = self._fit(found) if self._num_logits(model) else None
        codes = {name: np.asarray(arrays[name]).tobytes() for name in coded}
        return read_site(codes, found, polynomials, model.num_outputs, fit, where)

    def _fit(self, arrays: Mapping[str, np.ndarray]) -> LocalFit:
        if self.largest_count:
            return CountFit(arrays["weights"], arrays["gradient"], self.largest_count)
        return LocalFit(arrays["weights"], arrays["gradient"])

    def _num_logits(self, model: Model) -> int:
        return 1 if self.largest_count else num_logits_of_classes(model)

    def claim(self, content: SiteMessage) -> Claim:
        return Claim(content.num_examples, content.largest_input)

    def changes_by_rounding(self, model: Model, points: Points, content: SiteMessage) -> Float[np.ndarray, "n outputs"]:
        """What rounding changed in the site's own predictions, if the content is that of these records' message."""
        polynomials, (x, y, _) = self.polynomials(model), self.prepared_records(points)
        center, scale = x.center_and_scale()
        moved = replace(x, center=center, scale=scale)
        read = content.summary(polynomials)
        exact = sum_records(model, polynomials, moved, y, self.largest_count).summary(detail_of(read))
        truth = fit_head(polynomials, exact.in_inputs(polynomials, center, scale))
        changed = fit_head(polynomials, read, like=truth)
        before = GlmPosterior(polynomials, model.kind, truth, largest_count=self.largest_count)
        return _changes(before, replace(before, head=changed), x.whole)

    def receive(self, key: PRNGKey, model: Model, state: GlmState, replies: Mapping[str, SiteMessage]) -> GlmState:
        arrived = check_arrived(replies, state.clients)
        return replace(state, sites={**state.sites, **{client: replies[client] for client in arrived}}, is_done=True)

    def forget(self, model: Model, state: GlmState, client: str, content: SiteMessage) -> GlmState:
        """The state as if this client had never taken part."""
        left = {name: site for name, site in state.sites.items() if name != client}
        return replace(state, sites=left, is_done=bool(left))

    @one_blas_thread()
    def posterior(
        self, key: PRNGKey, model: Model, state: GlmState, inference: PointInference | None = None
    ) -> tuple[GlmPosterior, Info]:
        if not state.sites:
            raise CoreshotError("fit: no client is left; add one.")
        filling = find_filling(state.sites, self.fills)
        limits = find_limits(state.sites) if self.winsorise else None
        head = fit_head(state.polynomials, add_sites(state.sites, state.polynomials, filling))
        new_site = fit_new_site(head, state.sites, state.polynomials, filling)
        known = GlmPosterior(state.polynomials, model.kind, head, filling, limits, new_site)
        return replace(known, largest_count=self.largest_count), {}

    def adapt(
        self, model: Model, state: GlmState, posterior: GlmPosterior, points: Points
    ) -> tuple[GlmPosterior, float]:
        return posterior.adapted_to(model, points, add_sites(state.sites, state.polynomials, posterior.filling))

    def load_posterior(self, model: Model, shared_key: PRNGKey, arrays: Mapping[str, np.ndarray]) -> GlmPosterior:
        found = GlmPosterior.from_arrays(self.polynomials(model), model.kind, arrays, self.fills)
        return replace(found, largest_count=self.largest_count)


def _shapes(size: int, num_logits: int, model: Model, winsorise: bool) -> dict[str, tuple[int, ...]]:
    """Of the arrays of a message that are not coded."""
    each, inputs = (size, num_logits), (int(np.prod(model.input_shape)),)
    limits: dict[str, tuple[int, ...]] = {"limits": (2, *inputs)} if winsorise else {}
    return {"center": inputs, "scale": inputs, "weights": each, "gradient": each, "loss": (1,), **limits}


def _encode(factor: Float[np.ndarray, "n n"], bits: int, size: int, detail: Detail) -> bytes:
    fineness = np.full(len(factor), 2.0**-bits)
    if detail == "moments":
        fineness[:1] = 2.0**-NUMBER_BITS
        fineness[size:] *= 2.0**-LABEL_BITS
    else:
        fineness[: len(factor) - size + 1] = 2.0**-NUMBER_BITS
    return encode_factor(factor, fineness)


def _changes(
    truth: GlmPosterior, changed: GlmPosterior, x: Float[np.ndarray, "n inputs"]
) -> Float[np.ndarray, "n outputs"]:
    """Of the probabilities, or of a quantity's mean in units of its deviation."""
    before, after = truth.predict(x), changed.predict(x)
    change = np.abs(np.asarray(after.mean) - np.asarray(before.mean))
    if truth.kind == "regression":
        change = change / np.maximum(np.asarray(before.aleatoric), 1e-12)
    return change


def _size(codes: Mapping[str, bytes]) -> int:
    return sum(len(code) for code in codes.values())


def describe_loss(kind: Kind, loss: float, num_bytes: int | None = None) -> str:
    what = "probability" if kind == "classification" else "prediction, in units of the noise's deviation,"
    size = "" if num_bytes is None else f" to {num_bytes:,} bytes"
    return f"rounding{size} changes a {what} by {loss:.5f} on average"


def _loss_remark(model: Model, loss: float, num_bytes: int, tolerance: float) -> str:
    within = "" if loss <= tolerance else f"; more than the study's tolerance of {tolerance:g}, because of max_bytes"
    return describe_loss(model.kind, loss, num_bytes) + within


def _one_number(value: float) -> Float[Array, " 1"]:
    return jnp.asarray([value], jnp.float32)
