"""scikit-learn estimators: X, y and the site of each record. Each site is distilled, and the server fits the messages.

They are for trying coreshot where the data are already in one place. Inputs are scaled by `ranges`, as in a study.
Without `ranges`, the ranges of the training data are used, which a federation would not know: this leaks them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from coreshot.api import distill
from coreshot.fitted.model import FittedModel, fit
from coreshot.methods.glm import Glm
from coreshot.models.networks import Mlp
from coreshot.study import Agreement, Study
from coreshot.types import Kind, Predictive


def choose_method(may_be_missing: Bool[np.ndarray, " d"], num_features: int, max_bytes: int | None) -> Glm:
    """The default method of tables: the inputs, and products of the columns beside them."""
    columns, num_columns = tuple(range(len(may_be_missing))), len(may_be_missing)
    fills = tuple((int(entry), num_columns + place) for place, entry in enumerate(np.flatnonzero(may_be_missing)))
    dimension = num_columns + len(fills) + num_features
    return Glm(dimension=dimension, max_bytes=max_bytes, powers=columns, products=columns, fills=fills, winsorise=True)


class _SpectralEstimator(BaseEstimator):  # type: ignore[misc]
    def __init__(self, num_features: int = 64, max_bytes: int | None = None, ranges: Any = None, seed: int = 0) -> None:
        self.num_features = num_features
        self.max_bytes = max_bytes
        self.ranges = ranges
        self.seed = seed

    def __repr__(self, N_CHAR_MAX: int = 200) -> str:
        """What is not at its default, in one line; of the ranges only how many there are."""
        defaults = type(self)().get_params()
        parts = [
            f"{name}=<{len(value)} ranges>" if name == "ranges" else f"{name}={value!r}"
            for name, value in self.get_params().items()
            if value is not defaults[name] and (name == "ranges" or value != defaults[name])
        ]
        return f"{type(self).__name__}({', '.join(parts)})"[:N_CHAR_MAX]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _fit(self, x: Float[np.ndarray, "n d"], y: np.ndarray, kind: Kind, num_outputs: int, sites: Any) -> None:
        num_features = int(self.num_features)
        if num_features < 0:
            raise ValueError(f"num_features is {num_features}; give 0 for a linear model, or more.")
        self._low, self._high = _ranges(self.ranges, x)
        self._may_be_missing: Bool[np.ndarray, " d"] = np.any(np.isnan(x), axis=0)
        inputs = self._inputs(x)
        self._terms: tuple[Kind, int, int] = (kind, inputs.shape[1], num_outputs)
        study = self._study()
        names = np.zeros(len(x), int) if sites is None else np.unique(np.asarray(sites), return_inverse=True)[1]
        if len(names) != len(x):
            raise ValueError(f"sites has {len(names)} entries, X has {len(x)} records; give one for each.")
        self.messages_ = [
            distill(study, inputs[names == site], y[names == site], client=f"site-{site}") for site in np.unique(names)
        ]
        self.model_: FittedModel = fit(study, self.messages_)

    def _study(self) -> Study:
        kind, num_inputs, num_outputs = self._terms
        agreement = Agreement(
            task="estimator",
            kind=kind,
            input_shape=(num_inputs,),
            num_outputs=num_outputs,
            prior_precision=1.0,
            seed=int(self.seed),
        )
        method = choose_method(self._may_be_missing, int(self.num_features), self.max_bytes)
        return Study(agreement, Mlp(hidden=(), activation="relu"), method)

    def __getstate__(self) -> dict[str, Any]:
        """Plain values, which skops writes without pickle. The model follows from the messages, to the last bit."""
        state: dict[str, Any] = dict(super().__getstate__())
        state.pop("model_", None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "messages_" in state:
            self.model_ = fit(self._study(), self.messages_)

    def _inputs(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n inputs"]:
        """Scaled as in a study: a missing value is 0, and one more column for each input that was missing in some
        training record says whether it is.
        """
        scaled = 2 * (x - self._low) / (self._high - self._low) - 1
        is_missing = np.isnan(x)
        parts = [np.where(is_missing, 0.0, scaled), is_missing[:, self._may_be_missing]]
        return np.concatenate(parts, axis=1).astype(np.float32)

    def _predicted(self, x: Any) -> Predictive:
        check_is_fitted(self, "model_")
        checked = validate_data(self, x, reset=False, dtype=np.float64, ensure_all_finite="allow-nan")
        return self.model_.predict(self._inputs(checked))


class SpectralClassifier(ClassifierMixin, _SpectralEstimator):  # type: ignore[misc]
    """A calibrated classifier from one message a site.

    Parameters
    ----------
    num_features : int, default=64
        Products and powers of the inputs beside the inputs themselves, so that more than linear functions are
        learned. 0: a linear model.
    max_bytes : int or None, default=None
        The largest size of a site's coded sums. None: as many as its predictions need.
    ranges : array-like of shape (n_features, 2) or None, default=None
        (low, high) of each input: public knowledge, not taken from the data. None: the smallest and the largest value
        of the training data, which a federation would not know.
    seed : int, default=0
        Of the study. The default method draws nothing, so it changes no prediction.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes, sorted.
    messages_ : list of bytes
        What each site sent, in the order of the sites' names.
    model_ : coreshot.FittedModel
        The server's posterior.
    n_features_in_ : int
        The number of inputs.

    Notes
    -----
    A missing value (NaN) is allowed: it counts as the middle of its range, and for each input that some training
    record lacks, one more input says whether it is missing.

    `fit` takes `sites`, the site of each record; without it all records are of one site. Inside a pipeline or a
    cross-validation, scikit-learn passes it on with `sklearn.set_config(enable_metadata_routing=True)` and
    `set_fit_request(sites=True)`.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> x, y = load_wine(return_X_y=True)
    >>> model = SpectralClassifier(num_features=0).fit(x, y, sites=["north", "south"] * 89)
    >>> len(model.messages_), model.predict_proba(x).shape
    (2, (178, 3))
    """

    def fit(self, X: Any, y: Any, sites: Any = None) -> SpectralClassifier:
        """Distill each site's records, and fit the server's model to the messages.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Classes of any kind.
        sites : array-like of shape (n_samples,), default=None
            The site of each record, by name or number. None: all are of one site.
        """
        x, y = validate_data(self, X, y, dtype=np.float64, ensure_all_finite="allow-nan")
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y has one class, {self.classes_[0]!r}; a classifier needs at least two.")
        self._fit(x, labels, "classification", len(self.classes_), sites)
        return self

    def predict_proba(self, X: Any) -> Float[np.ndarray, "n classes"]:
        """The probability of each class, in the order of `classes_`."""
        return np.asarray(self._predicted(X).mean)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each record."""
        check_is_fitted(self, "model_")
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]


class SpectralRegressor(RegressorMixin, _SpectralEstimator):  # type: ignore[misc]
    """Mean and deviation from one message a site.

    Parameters
    ----------
    num_features : int, default=64
        Products and powers of the inputs beside the inputs themselves, so that more than linear functions are
        learned. 0: a linear model.
    max_bytes : int or None, default=None
        The largest size of a site's coded sums. None: as many as its predictions need.
    ranges : array-like of shape (n_features, 2) or None, default=None
        (low, high) of each input: public knowledge, not taken from the data. None: the smallest and the largest value
        of the training data, which a federation would not know.
    seed : int, default=0
        Of the study. The default method draws nothing, so it changes no prediction.

    Attributes
    ----------
    messages_ : list of bytes
        What each site sent, in the order of the sites' names.
    model_ : coreshot.FittedModel
        The server's posterior.
    n_features_in_ : int
        The number of inputs.

    Notes
    -----
    A missing value (NaN) is allowed: it counts as the middle of its range, and for each input that some training
    record lacks, one more input says whether it is missing.

    `fit` takes `sites`, the site of each record; without it all records are of one site. Inside a pipeline or a
    cross-validation, scikit-learn passes it on with `sklearn.set_config(enable_metadata_routing=True)` and
    `set_fit_request(sites=True)`.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> x, y = load_diabetes(return_X_y=True)
    >>> model = SpectralRegressor().fit(x, y, sites=["north", "south"] * 221)
    >>> mean, deviation = model.predict(x, return_std=True)
    >>> mean.shape, deviation.shape
    ((442,), (442,))
    """

    def fit(self, X: Any, y: Any, sites: Any = None) -> SpectralRegressor:
        """Distill each site's records, and fit the server's model to the messages.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Numbers; they are scaled by their own smallest and largest value.
        sites : array-like of shape (n_samples,), default=None
            The site of each record, by name or number. None: all are of one site.
        """
        x, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, ensure_all_finite="allow-nan")
        self._middle, self._half = float(np.min(y) + np.max(y)) / 2, max(float(np.ptp(y)) / 2, 1e-12)
        self._fit(x, (y - self._middle) / self._half, "regression", 1, sites)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The mean for each record; with return_std, also the standard deviation of its target."""
        found = self._predicted(X)
        mean = np.asarray(found.mean)[:, 0] * self._half + self._middle
        if not return_std:
            return mean
        return mean, np.hypot(np.asarray(found.epistemic)[:, 0], np.asarray(found.aleatoric)[:, 0]) * self._half


def _ranges(given: Any, x: Float[np.ndarray, "n d"]) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]]:
    if given is None:
        # An input that every record lacks has any range.
        low, high = (
            reduce(x, axis=0, where=~np.isnan(x), initial=start)
            for reduce, start in ((np.min, np.inf), (np.max, -np.inf))
        )
        low = np.where(np.isfinite(low), low, 0.0)
        return low, np.where(high > low, high, low + 1.0)
    ranges = np.asarray(given, np.float64)
    if ranges.shape != (x.shape[1], 2) or not np.all(ranges[:, 0] < ranges[:, 1]):
        raise ValueError(
            f"ranges is of shape {ranges.shape}; "
            f"give (low, high) with low below high for each of the {x.shape[1]} inputs."
        )
    return ranges[:, 0], ranges[:, 1]
