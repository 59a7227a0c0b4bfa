"""Federated data: the points of each client, and test points that no client has."""

from __future__ import annotations

from dataclasses import dataclass

from coreshot.types import Kind, Points


@dataclass(frozen=True)
class FederatedData:
    kind: Kind
    clients: dict[str, Points]
    test: Points
    truth: Points | None  # the test inputs with noise-free targets, where they are known
