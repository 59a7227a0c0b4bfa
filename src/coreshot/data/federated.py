"""Federated data: the points of each client, test points that no client has, and the tasks that make them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from coreshot.data.display import Display
from coreshot.types import Kind, Points


@dataclass(frozen=True)
class FederatedData:
    kind: Kind
    clients: dict[str, Points]
    test: Points
    truth: Points | None  # the test inputs with noise-free targets, where they are known


class Task(Protocol):
    """Settings from which a federated data set is made, one for each seed."""

    @property
    def kind(self) -> Kind: ...

    @property
    def input_shape(self) -> tuple[int, ...]: ...

    @property
    def num_outputs(self) -> int: ...

    @property
    def num_clients(self) -> int: ...

    @property
    def display(self) -> Display:
        """What a report needs to draw and label this task."""

    def make(self, seed: int) -> FederatedData: ...

    def summaries(self, predict: Callable[[np.ndarray], Any]) -> dict[str, float]:
        """Numbers about a fitted model that only this task has; `display.columns` says how tables show them."""
