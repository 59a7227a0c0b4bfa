"""The paper's synthetic tasks: a function seen on three intervals, and two moons; with few clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from coreshot.config import Count, NonNegative, settings
from coreshot.data.display import CurvePlane, Display, FieldPlane, SummaryColumn
from coreshot.data.federated import FederatedData
from coreshot.types import Kind, Points, make_points

INTERVALS = np.array([(-0.8, -0.6), (-0.2, 0.0), (0.5, 0.8)])
BETWEEN = np.array([-0.4, 0.25])  # half-way between neighbouring intervals: no client has data there
TEST_STREAM = 2**31  # far from any client index, so test data never repeat a client's draws


def true_function(x: np.ndarray) -> np.ndarray:
    return 1.5 * np.sin(0.4 * np.pi * x) + 1.5 * np.cos(2 * np.pi * x)


@settings
class Regression:
    """y = 1.5 sin(0.4 pi x) + 1.5 cos(2 pi x) + noise; a Dirichlet(1, 1, 1) draw weights a client's three intervals."""

    num_clients: Count
    points_per_client: Count
    noise_scale: NonNegative  # the paper's N(0, 0.3), read as a standard deviation
    num_test: Count = 2000

    kind: ClassVar[Kind] = "regression"
    input_shape: ClassVar[tuple[int, ...]] = (1,)
    num_outputs: ClassVar[int] = 1
    display: ClassVar[Display] = Display(
        plane=CurvePlane(
            "Regression",
            x=(-1.2, 1.2),
            y=(-4.0, 4.0),
            y_ticks=(-3.0, 0.0, 3.0),
            true_function=true_function,
            data_intervals=tuple((low, high) for low, high in INTERVALS.tolist()),
        ),
        columns=(
            SummaryColumn("epistemic_inside", "epistemic inside", ".3f"),
            SummaryColumn("epistemic_between", "epistemic between", ".3f"),
            SummaryColumn("epistemic_between", "between / inside", ".2f", divisor="epistemic_inside"),
        ),
        columns_note=(
            "Epistemic: standard deviation of the function over posterior samples, averaged inside the three intervals "
            "with data and at the two midpoints between them. It is 0 for a MAP arm, which has one sample."
        ),
    )

    def make(self, seed: int) -> FederatedData:
        clients = {f"client-{index}": self._client(seed, index) for index in range(self.num_clients)}
        draws = np.random.default_rng([seed, TEST_STREAM])
        # A test point falls on each interval with probability proportional to its length.
        lengths = INTERVALS[:, 1] - INTERVALS[:, 0]
        test, truth = self._draw(draws, lengths / lengths.sum(), self.num_test)
        return FederatedData(self.kind, clients, test, truth)

    def summaries(self, predict: Callable[[np.ndarray], Any]) -> dict[str, float]:
        """The deviation of the function (epistemic part), inside the intervals and half-way between them."""
        inside = np.concatenate([np.linspace(low, high, 50) for low, high in INTERVALS])[:, None]
        return {
            "epistemic_inside": float(np.mean(predict(inside).epistemic)),
            "epistemic_between": float(np.mean(predict(BETWEEN[:, None]).epistemic)),
        }

    def _client(self, seed: int, index: int) -> Points:
        draws = np.random.default_rng([seed, index])
        return self._draw(draws, draws.dirichlet(np.ones(len(INTERVALS))), self.points_per_client)[0]

    def _draw(self, draws: np.random.Generator, shares: np.ndarray, size: int) -> tuple[Points, Points]:
        interval = draws.choice(len(INTERVALS), size, p=shares)
        x = draws.uniform(INTERVALS[interval, 0], INTERVALS[interval, 1])[:, None]
        y = true_function(x)
        return make_points(x, y + self.noise_scale * draws.normal(size=y.shape)), make_points(x, y)


@settings
class Moons:
    """scikit-learn's two interleaving half circles; each client has its own draw of points, so class counts differ."""

    num_clients: Count
    points_per_client: Count
    noise_scale: NonNegative
    num_test: Count = 2000

    kind: ClassVar[Kind] = "classification"
    input_shape: ClassVar[tuple[int, ...]] = (2,)
    num_outputs: ClassVar[int] = 2
    display: ClassVar[Display] = Display(plane=FieldPlane("Two moons", x=(-1.7, 2.7), y=(-1.35, 1.75)))

    def make(self, seed: int) -> FederatedData:
        clients = {
            f"client-{index}": self._draw([seed, index], self.points_per_client) for index in range(self.num_clients)
        }
        return FederatedData(self.kind, clients, self._draw([seed, TEST_STREAM], self.num_test), None)

    def summaries(self, predict: Callable[[np.ndarray], Any]) -> dict[str, float]:
        return {}

    def _draw(self, stream: list[int], size: int) -> Points:
        from sklearn.datasets import make_moons  # takes a second, which other tasks do not need

        draws = np.random.default_rng(stream)
        # make_moons spaces its points evenly; a random subset of a larger set has the randomness of a sample.
        x, label = make_moons(10 * size, noise=self.noise_scale, random_state=int(draws.integers(2**31)))
        keep = draws.choice(10 * size, size, replace=False)
        return make_points(x[keep], np.eye(2)[label[keep]])
