"""A model of classes with other base rates: its probabilities times a ratio for each class, made to add up to 1."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.special
from jaxtyping import Array, Float

from coreshot.errors import CoreshotError
from coreshot.models.onnx_graph import Exports, Graph, Outputs
from coreshot.types import Points, Posterior, Predictive

ARRAY = "base_rates.log_ratios"  # in the posterior's file
SMALLEST = 1e-30  # the least probability whose logarithm is taken


@dataclass(frozen=True)
class BaseRatePosterior:
    """Whatever the model is: only what it says changes."""

    inner: Posterior
    log_ratios: Float[np.ndarray, " classes"]

    @property
    def is_point_estimate(self) -> bool:
        return self.inner.is_point_estimate

    def _log_probabilities(self, probabilities: Float[np.ndarray, "n classes"]) -> Float[np.ndarray, "n classes"]:
        logs = np.log(np.maximum(probabilities.astype(np.float64), SMALLEST))
        return scipy.special.log_softmax(logs + self.log_ratios, axis=1)

    def predict(self, x: Float[Array | np.ndarray, "n ..."]) -> Predictive:
        said = self.inner.predict(x)
        before = np.asarray(said.mean)
        mean = np.exp(self._log_probabilities(before))
        # A probability's deviation changes with the slope of the new one by the old, q (1 - q) / (p (1 - p)).
        slope = mean * (1 - mean) / np.maximum(before * (1 - before), 1e-12)
        return Predictive(mean, np.asarray(said.epistemic) * slope, np.sqrt(mean * (1 - mean)))

    def add_to_graph(self, graph: Graph, x: str) -> Outputs:
        if not isinstance(self.inner, Exports):
            raise CoreshotError("export --onnx: a model of this kind cannot be written; use --sklearn.")
        said = graph.add("Max", self.inner.add_to_graph(graph, x)["probabilities"], graph.constant(SMALLEST))
        moved = graph.add("Add", graph.add("Log", said), graph.constant(self.log_ratios[None]))
        return {"probabilities": graph.softmax(moved)}

    def log_predictive(self, points: Points) -> Float[np.ndarray, " n"]:
        mean = np.asarray(self.inner.predict(np.asarray(points.x)).mean)
        return np.sum(np.asarray(points.y) * self._log_probabilities(mean), axis=1)

    def sample_outputs(self, x: Float[Array | np.ndarray, "n ..."]) -> None:
        """None: outputs of single samples are not corrected."""

    def novelty(self, x: Float[Array | np.ndarray, "n ..."]) -> Float[np.ndarray, " n"]:
        return self.inner.novelty(x)

    def usual_novelty(self) -> float | None:
        return self.inner.usual_novelty()

    def arrays(self) -> dict[str, np.ndarray]:
        return {**self.inner.arrays(), ARRAY: self.log_ratios}
