"""The study: the public agreement that server and clients share. Its hash travels with every message."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax

from coreshot.config import (
    Count,
    NonNegative,
    NonNegativeInt,
    Positive,
    canonical,
    decode,
    decode_named,
    encode,
    encode_named,
    settings,
)
from coreshot.data.schema import Classes, Images, Quantity, Table, parse_inputs, parse_target
from coreshot.errors import CoreshotError, check_text
from coreshot.learners import LEARNERS, Learner
from coreshot.methods import METHODS, OneShot
from coreshot.methods.protocol import Claims, Content, Method, OneRound
from coreshot.models import NETWORKS, Model, Network
from coreshot.privacy.releases import Release, check_releases
from coreshot.study.limits import check_limits
from coreshot.types import Kind, Points, PRNGKey
from coreshot.wire.messages import Message

HASH_FORMAT = 2  # raised when the canonical form, or a default of an existing setting, changes
SCALED, UNSCALED = 10.0, 1e6  # the largest input that is believed: where the study scales inputs, and elsewhere
ROUNDING = 1e-6  # of a number of records that is a sum of float32 numbers
PARTS = ("network", "learner", "method", "inputs", "target")


@settings
class Agreement:
    """The plain settings of a study."""

    task: str  # a name for people; it does not change what is computed
    kind: Kind
    input_shape: tuple[Count, ...]
    num_outputs: Count  # classes, or target dimensions
    prior_precision: NonNegative  # of the isotropic Gaussian over the weights
    noise_scale: Positive = 1.0  # of the Gaussian likelihood; unused in classification
    seed: int = 0  # of the initial weights that all clients share
    max_records: Count = 10_000_000  # of one client: what it says is not believed beyond this
    max_input: Positive | None = None  # of the numbers in a client's points; None: see Study.largest_input
    max_shift: NonNegativeInt = 0  # augmentation: random shifts of images in training, in pixels

    def __post_init__(self) -> None:
        if self.max_shift and (len(self.input_shape) != 3 or self.max_shift >= min(self.input_shape[:2])):
            raise CoreshotError(
                f"study: max_shift = {self.max_shift} moves images (height, width, channels) by less than their size, "
                f"and input_shape is {list(self.input_shape)}; set it to 0 or lower it."
            )

    def model(self, network: Network) -> Model:
        return Model(
            network,
            self.kind,
            self.input_shape,
            self.num_outputs,
            self.prior_precision,
            self.noise_scale,
            self.max_shift,
        )


@dataclass(frozen=True)
class Study:
    """The public agreement of a federation. Its hash travels with every message.

    What a client computes and sends is the method, and so part of the agreement. How the server infers is not.

    Attributes
    ----------
    agreement : Agreement
        Task, kind, shapes, prior and limits.
    network : Network
        Of a method that trains or infers one; glm and spectral studies build none.
    method : Method
        What a client computes and sends.
    inputs, target
        How records become arrays; None where they are arrays already.

    Examples
    --------
    >>> study = coreshot.table_study("tumours", num_inputs=30, num_classes=2)
    >>> coreshot.Study.from_dict(study.to_dict()).hash == study.hash
    True
    """

    agreement: Agreement
    network: Network
    method: Method
    inputs: Table | Images | None = None  # how records become inputs; None: they are arrays already
    target: Classes | Quantity | None = None

    def __post_init__(self) -> None:
        check_limits(self.agreement, self.network, self.method)

    @property
    def model(self) -> Model:
        return self.agreement.model(self.network)

    @property
    def releases(self) -> tuple[Release, ...]:
        """What clients release of their records."""
        return self.method.releases(self.model)

    @property
    def learner(self) -> Learner | None:
        """The learner of a one-shot study of points; None for every other method."""
        return self.method.learner if isinstance(self.method, OneShot) else None

    @property
    def one_round(self) -> OneRound:
        """The method, where it has one exchange, so that its messages can be files."""
        if self.method.num_rounds != 1 or not isinstance(self.method, OneRound):
            raise CoreshotError(
                "study: its method has many rounds, so there is no one message to make or to fit; use a one-shot study."
            )
        return self.method

    def check_records(self, points: Points, client: str) -> None:
        """A CoreshotError where the method cannot work with this client's records."""
        releases = self.releases
        check_releases(releases, f"study {self.agreement.task!r}")
        is_exact = any(release.is_exact for release in releases)
        if is_exact and points.num_points > self.agreement.max_records:  # of a private one the number is private
            raise CoreshotError(
                f"client {client}: has {points.num_points:,} records, and the study's max_records is "
                f"{self.agreement.max_records:,}; agree on a higher limit."
            )
        if isinstance(self.method, OneShot):
            self.method.check_records(self.model, points, client)

    @property
    def largest_input(self) -> float:
        """Where the study scales the inputs, to -1 to 1, learned points may leave that range by a factor of ten."""
        return self.agreement.max_input or (SCALED if self.inputs is not None else UNSCALED)

    def read(self, client: str, message: Message) -> Content:
        """What a client's message says, or a CoreshotError where it cannot be used or claims more than is believed."""
        return self.check_claim(client, message, self.method.read(self.model, client, message))

    def check_claim(self, client: str, message: Message, content: Content) -> Content:
        method = self.method
        if not isinstance(method, Claims):
            return content
        claim, where = method.claim(content), f"client {client}, round {message.round}, {message.kind}"
        if claim.num_records is not None and claim.num_records > (1 + ROUNDING) * self.agreement.max_records:
            raise CoreshotError(
                f"{where}: speaks for {claim.num_records:,.8g} records, and the study believes no client beyond "
                f"max_records = {self.agreement.max_records:,}; ask who sent it, or agree on a higher limit."
            )
        if claim.largest_input > self.largest_input:
            raise CoreshotError(
                f"{where}: its points go up to {claim.largest_input:.3g}, and the study's limit is "
                f"{self.largest_input:g}; ask who sent it, or agree on another max_input."
            )
        return content

    @property
    def shared_key(self) -> PRNGKey:
        return jax.random.key(self.agreement.seed)

    def to_dict(self) -> dict[str, Any]:
        """All settings, defaults included; the inverse of `from_dict`."""
        form = {key: encode(value) for key, value in self._form().items()}
        network, method = encode_named(NETWORKS, self.network), encode_named(METHODS, self.method)
        return {**encode(self.agreement), "network": network, "method": method, **form}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str = "study") -> Study:
        """A study from plain values, as a TOML or JSON file has them.

        Parameters
        ----------
        values : mapping
            The settings of `Agreement`, and the tables `network`, and `method` or `learner`: a learner is short for the
            method one_shot with that learner.
        where : str
            How the values are called in errors.
        """
        check_text(values, where)
        if ("learner" in values) == ("method" in values):
            raise CoreshotError(f"{where}: has a learner (one shot) or a method, not both and not neither; give one.")
        terms = {key: value for key, value in values.items() if key not in PARTS}
        return cls(
            decode(Agreement, terms, where),
            decode_named(NETWORKS, values.get("network", {}), f"{where}.network", "network"),
            decode_work(values, where),
            parse_inputs(values["inputs"], f"{where}.inputs") if "inputs" in values else None,
            parse_target(values["target"], f"{where}.target") if "target" in values else None,
        )

    def _form(self) -> dict[str, Any]:
        return {key: value for key, value in (("inputs", self.inputs), ("target", self.target)) if value is not None}

    def canonical(self) -> dict[str, Any]:
        """What was agreed, without settings at their defaults: a later version's new setting changes nothing."""
        return {
            "format": HASH_FORMAT,
            **canonical(self.agreement),
            "network": encode_named(NETWORKS, self.network, canonical),
            "method": encode_named(METHODS, self.method, canonical),
            **{key: canonical(value) for key, value in self._form().items()},
        }

    @property
    def hash(self) -> str:
        """SHA-256 of the canonical form: two sides that compute the same hash have agreed on every setting."""
        text = json.dumps(self.canonical(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def decode_work(values: Mapping[str, Any], where: str, separator: str = ".") -> Method:
    """The method of plain values that have a table `method`, or `learner` as the short form of one_shot."""
    if "learner" in values:
        learner = decode_named(LEARNERS, values["learner"], f"{where}{separator}learner", "learner")
        return OneShot(learner=learner)
    method: Method = decode_named(METHODS, values["method"], f"{where}{separator}method", "method")
    return method
