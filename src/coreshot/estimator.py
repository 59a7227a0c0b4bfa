"""scikit-learn estimators: X, y and the site of each record. Each site is distilled, and the server fits the messages.

They are for trying coreshot where the data are already in one place. Inputs are scaled by `ranges`, as in a study.
Without `ranges`, the ranges of the training data are used, which a federation would not know: this leaks them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from coreshot.api import distill
from coreshot.fitted.model import FittedModel, fit
from coreshot.methods.spectral import Spectral
from coreshot.models.networks import Mlp
from coreshot.spectral.features import RandomVector
from coreshot.study import Agreement, Study
from coreshot.types import Predictive


class _SpectralEstimator(BaseEstimator):  # type: ignore[misc]
    def __init__(self, num_features: int = 64, max_bytes: int | None = None, ranges: Any = None, seed: int = 0) -> None:
        self.num_features = num_features  # random ones, beside the inputs themselves
        self.max_bytes = max_bytes  # of a site's message; None: all of it, as float32
        self.ranges = ranges  # [(low, high), ...] of the inputs
        self.seed = seed

    def _fit(self, x: Float[np.ndarray, "n d"], y: np.ndarray, kind: Any, num_outputs: int, sites: Any) -> None:
        self._low, self._high = _ranges(self.ranges, x)
        dimension = x.shape[1] + self.num_features
        features = RandomVector(dimension=dimension, nonlinearity="relu", input_scale=3.0, with_inputs=True)
        agreement = Agreement(
            task="estimator",
            kind=kind,
            input_shape=(x.shape[1],),
            num_outputs=num_outputs,
            prior_precision=1.0,
            seed=int(self.seed),
        )
        method = Spectral(features=features, max_bytes=self.max_bytes)
        study = Study(agreement, Mlp(hidden=(), activation="relu"), method)
        names = np.zeros(len(x), int) if sites is None else np.unique(np.asarray(sites), return_inverse=True)[1]
        if len(names) != len(x):
            raise ValueError(f"sites has {len(names)} entries, X has {len(x)} records; give one for each.")
        scaled = self._scaled(x)
        self.messages_ = [
            distill(study, scaled[names == site], y[names == site], client=f"site-{site}") for site in np.unique(names)
        ]
        self.model_: FittedModel = fit(study, self.messages_)

    def _scaled(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        return (2 * (x - self._low) / (self._high - self._low) - 1).astype(np.float32)

    def _predicted(self, x: Any) -> Predictive:
        check_is_fitted(self, "model_")
        return self.model_.predict(self._scaled(validate_data(self, x, reset=False, dtype=np.float64)))


class SpectralClassifier(ClassifierMixin, _SpectralEstimator):  # type: ignore[misc]
    """A calibrated classifier from one message a site."""

    def fit(self, X: Any, y: Any, sites: Any = None) -> SpectralClassifier:
        x, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y has one class, {self.classes_[0]!r}; a classifier needs at least two.")
        self._fit(x, labels, "classification", len(self.classes_), sites)
        return self

    def predict_proba(self, X: Any) -> Float[np.ndarray, "n classes"]:
        return np.asarray(self._predicted(X).mean)

    def predict(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "model_")
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]


class SpectralRegressor(RegressorMixin, _SpectralEstimator):  # type: ignore[misc]
    """Mean and deviation from one message a site."""

    def fit(self, X: Any, y: Any, sites: Any = None) -> SpectralRegressor:
        x, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        self._middle, self._half = float(np.min(y) + np.max(y)) / 2, max(float(np.ptp(y)) / 2, 1e-12)
        self._fit(x, (y - self._middle) / self._half, "regression", 1, sites)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        found = self._predicted(X)
        mean = np.asarray(found.mean)[:, 0] * self._half + self._middle
        if not return_std:
            return mean
        return mean, np.sqrt(
            np.asarray(found.epistemic)[:, 0] ** 2 + np.asarray(found.aleatoric)[:, 0] ** 2
        ) * self._half


def _ranges(given: Any, x: Float[np.ndarray, "n d"]) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]]:
    if given is None:
        low, high = np.min(x, axis=0), np.max(x, axis=0)
        return low, np.where(high > low, high, low + 1.0)
    ranges = np.asarray(given, np.float64)
    if ranges.shape != (x.shape[1], 2) or not np.all(ranges[:, 0] < ranges[:, 1]):
        raise ValueError(
            f"ranges is of shape {ranges.shape}; "
            f"give (low, high) with low below high for each of the {x.shape[1]} inputs."
        )
    return ranges[:, 0], ranges[:, 1]
