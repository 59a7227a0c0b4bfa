"""A linear head on a feature map whose probabilities are the softmax of its scores: what all peers end with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import scipy.special
from jaxtyping import Array, Float

from coreshot.errors import CoreshotError
from coreshot.spectral.features import FeatureMap
from coreshot.types import Points, Predictive


@dataclass(frozen=True)
class LinearHead:
    """logits = features @ weights; the last feature is the constant, whose weights are the offsets."""

    feature_map: FeatureMap
    weights: Float[np.ndarray, "d outputs"]

    @classmethod
    def from_arrays(cls, feature_map: FeatureMap, arrays: Mapping[str, np.ndarray]) -> LinearHead:
        """The inverse of `arrays`."""
        return cls(feature_map, np.asarray(arrays["weights"]))

    def arrays(self) -> dict[str, np.ndarray]:
        return {"weights": self.weights}

    @property
    def is_point_estimate(self) -> bool:
        return True

    def logits(self, x: Float[Array | np.ndarray, "n ..."]) -> Float[np.ndarray, "n outputs"]:
        return self.feature_map(np.asarray(x)).astype(np.float64) @ self.weights

    def predict(self, x: Float[Array | np.ndarray, "n ..."]) -> Predictive:
        probabilities = scipy.special.softmax(self.logits(x), axis=1)
        spread = np.sqrt(probabilities * (1 - probabilities))
        return Predictive(probabilities, np.zeros_like(probabilities), spread)

    def log_predictive(self, points: Points) -> Float[np.ndarray, " n"]:
        y = np.asarray(points.y, np.float64)
        return np.sum(y * scipy.special.log_softmax(self.logits(points.x), axis=1), axis=1)

    def sample_outputs(self, x: Float[Array | np.ndarray, "n ..."]) -> None:
        """None: one head, no samples."""

    def novelty(self, x: Float[Array | np.ndarray, "n ..."]) -> Float[np.ndarray, " n"]:
        raise CoreshotError("novelty: only a spectral study has it; look at the probabilities.")

    def usual_novelty(self) -> None:
        """None: a head alone does not say where the clients' records are."""
