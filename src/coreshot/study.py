"""The study: the public agreement that server and clients share. Its hash travels with every message."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax

from coreshot.config import Count, NonNegative, Positive, decode, decode_named, encode, encode_named, settings
from coreshot.data import Kind
from coreshot.learners import LEARNERS, Learner
from coreshot.models import NETWORKS, Model, Network
from coreshot.types import PRNGKey


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


@dataclass(frozen=True)
class Study:
    agreement: Agreement
    network: Network
    learner: Learner

    @property
    def model(self) -> Model:
        terms = self.agreement
        return Model(self.network, terms.kind, terms.input_shape, terms.num_outputs, terms.prior_precision, terms.noise_scale)

    @property
    def shared_key(self) -> PRNGKey:
        return jax.random.key(self.agreement.seed)

    def to_dict(self) -> dict[str, Any]:
        return {**encode(self.agreement), "network": encode_named(NETWORKS, self.network), "learner": encode_named(LEARNERS, self.learner)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str = "study") -> Study:
        terms = {key: value for key, value in values.items() if key not in ("network", "learner")}
        return cls(
            decode(Agreement, terms, where),
            decode_named(NETWORKS, values.get("network", {}), f"{where}.network", "network"),
            decode_named(LEARNERS, values.get("learner", {}), f"{where}.learner", "learner"),
        )

    @property
    def hash(self) -> str:
        """SHA-256 of the canonical JSON: two sides that compute the same hash have agreed on every setting."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":")).encode()).hexdigest()
