"""The study: the public agreement that server and clients share. Its hash travels with every message."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax

from coreshot.config import Count, NonNegative, Positive, decode, decode_named, encode, encode_named, settings
from coreshot.data.schema import Classes, Images, Quantity, Table, parse_inputs, parse_target
from coreshot.data.validate import check_fits_learner
from coreshot.errors import CoreshotError
from coreshot.learners import LEARNERS, Learner
from coreshot.methods import METHODS
from coreshot.methods.protocol import Method
from coreshot.models import Model
from coreshot.models.networks import NETWORKS, Network
from coreshot.privacy.releases import Release
from coreshot.types import Kind, Points, PRNGKey


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

    def model(self, network: Network) -> Model:
        return Model(network, self.kind, self.input_shape, self.num_outputs, self.prior_precision, self.noise_scale)


@dataclass(frozen=True)
class Study:
    """What a client does is part of the agreement: the learner of a one-shot study, the method of any other."""

    agreement: Agreement
    network: Network
    learner: Learner | None = None
    method: Method | None = None
    inputs: Table | Images | None = None  # how records become inputs; None: they are arrays already
    target: Classes | Quantity | None = None

    def __post_init__(self) -> None:
        if (self.learner is None) == (self.method is None):
            raise CoreshotError(
                "study: has a learner (one shot) or a method (many rounds), not both and not neither; give one of them."
            )

    @property
    def model(self) -> Model:
        return self.agreement.model(self.network)

    @property
    def releases(self) -> tuple[Release, ...]:
        """What clients let out of their records."""
        return (self.method or self.learner).releases(self.model)  # type: ignore[union-attr]

    def check_fits(self, points: Points, client: str) -> None:
        """What its learner needs of a client's records. A private one needs nothing: a refusal that hangs on one record would tell of it."""
        if self.learner is not None and any(release.is_exact for release in self.releases):
            check_fits_learner(points, kind=self.agreement.kind, num_points=self.learner.num_points, client=client)

    @property
    def shared_key(self) -> PRNGKey:
        return jax.random.key(self.agreement.seed)

    def to_dict(self) -> dict[str, Any]:
        work = (
            {"learner": encode_named(LEARNERS, self.learner)}
            if self.learner
            else {"method": encode_named(METHODS, self.method)}
        )
        form = {
            key: encode(value) for key, value in (("inputs", self.inputs), ("target", self.target)) if value is not None
        }
        return {**encode(self.agreement), "network": encode_named(NETWORKS, self.network), **work, **form}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str = "study") -> Study:
        terms = {
            key: value
            for key, value in values.items()
            if key not in ("network", "learner", "method", "inputs", "target")
        }
        return cls(
            decode(Agreement, terms, where),
            decode_named(NETWORKS, values.get("network", {}), f"{where}.network", "network"),
            decode_named(LEARNERS, values["learner"], f"{where}.learner", "learner") if "learner" in values else None,
            decode_named(METHODS, values["method"], f"{where}.method", "method") if "method" in values else None,
            parse_inputs(values["inputs"], f"{where}.inputs") if "inputs" in values else None,
            parse_target(values["target"], f"{where}.target") if "target" in values else None,
        )

    @property
    def hash(self) -> str:
        """SHA-256 of the canonical JSON: two sides that compute the same hash have agreed on every setting."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":")).encode()).hexdigest()
