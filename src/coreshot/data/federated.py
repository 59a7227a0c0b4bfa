"""Data as it lies in a federation: one Points per client, and test data that no client has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from coreshot.types import Points

Kind = Literal["classification", "regression"]


@dataclass(frozen=True)
class FederatedData:
    kind: Kind
    clients: dict[str, Points]
    test: Points
    truth: Points | None  # the test inputs with noise-free targets, where they are known
