"""What a site could do alone and what pooling would give, with scikit-learn's defaults; the same numbers for all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

LEAST_PROBABILITY = 1e-12


@dataclass(frozen=True)
class Data:
    """Inputs as the study encodes them; y is classes as numbers, or targets in their units."""

    sites: list[tuple[np.ndarray, np.ndarray]]
    test_x: np.ndarray
    test_y: np.ndarray


@dataclass(frozen=True)
class Forecast:
    """Probabilities [records, classes], or means and deviations [records]."""

    mean: np.ndarray
    deviation: np.ndarray | None = None


def score(test: Forecast, test_y: np.ndarray, train: Forecast | None, train_y: np.ndarray) -> dict[str, Any]:
    """`offset_train` and `offset_test`: for each class the mean probability less the base rate, on the records of all
    sites and on the test; of a regression the mean forecast less the mean target, in deviations of the targets."""
    found = _regression(test, test_y, train_y) if test.mean.ndim == 1 else _classification(test.mean, test_y)
    found["offset_test"] = _offset(test.mean, test_y, train_y)
    if train is not None:
        found["offset_train"] = _offset(train.mean, train_y, train_y)
    return {name: np.round(value, 5).tolist() for name, value in found.items()}


def _offset(mean: np.ndarray, y: np.ndarray, train_y: np.ndarray) -> list[float]:
    if mean.ndim == 1:
        return [float((mean.mean() - y.mean()) / train_y.std())]
    return (mean.mean(axis=0) - np.bincount(y, minlength=mean.shape[1]) / len(y)).tolist()


def _regression(forecast: Forecast, y: np.ndarray, train_y: np.ndarray) -> dict[str, Any]:
    """The density is that of targets in units of their deviation, so that tables can be compared."""
    errors = y - forecast.mean
    found = {"rmse": np.sqrt(np.mean(errors**2))}
    if forecast.deviation is not None:
        scale = forecast.deviation
        density = -0.5 * (errors / scale) ** 2 - np.log(scale / train_y.std()) - 0.5 * np.log(2 * np.pi)
        found["nll"] = -np.mean(density)
    return found


def _classification(probabilities: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    own = probabilities[np.arange(len(y)), y]
    # Sums of float32 probabilities are not exactly 1, which roc_auc_score of several classes wants.
    shares = probabilities / probabilities.sum(axis=1, keepdims=True)
    auc = roc_auc_score(y, shares[:, 1]) if shares.shape[1] == 2 else roc_auc_score(y, shares, multi_class="ovr")
    return {
        "accuracy": np.mean(np.argmax(probabilities, axis=1) == y),
        "nll": -np.mean(np.log(np.maximum(own, LEAST_PROBABILITY))),
        "auc": auc,
    }


def run_peers(is_regression: bool, data: Data, num_classes: int) -> dict[str, Any]:
    """linear and boosting: pooled. alone: the mean over the sites of a linear model of each."""
    x, y = (np.concatenate(parts) for parts in zip(*data.sites, strict=True))
    fit = _fit_ridge if is_regression else lambda x, y: fit_logistic(x, y, num_classes)
    linear = fit(x, y)
    alone = [score(fit(*site)(data.test_x), data.test_y, None, y) for site in data.sites]
    means = {name: float(np.mean([found[name] for found in alone])) for name in alone[0] if name != "offset_test"}
    return {
        "linear": score(linear(data.test_x), data.test_y, linear(x), y),
        "boosting": score(_fit_boosting(x, y, is_regression)(data.test_x), data.test_y, None, y),
        "alone": {name: round(value, 5) for name, value in means.items()},
    }


def fit_logistic(x: np.ndarray, y: np.ndarray, num_classes: int) -> Any:
    """A class that the records lack has one record among them in the forecast; with one class there is nothing else."""
    present, counts = np.unique(y, return_counts=True)
    absent = num_classes - len(present)
    model = None
    if len(present) > 1:
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=5_000)).fit(x, y)

    def predict(inputs: np.ndarray) -> Forecast:
        known = model.predict_proba(inputs) if model is not None else np.ones((len(inputs), 1))
        share = 1 / (counts.sum() + absent)
        found = np.full((len(inputs), num_classes), share)
        found[:, present] = known * (1 - absent * share)
        return Forecast(found)

    return predict


def _fit_ridge(x: np.ndarray, y: np.ndarray) -> Any:
    model = make_pipeline(StandardScaler(), Ridge()).fit(x, y)
    deviation = float(np.std(y - model.predict(x)))
    return lambda inputs: Forecast(model.predict(inputs), np.full(len(inputs), max(deviation, 1e-3 * float(y.std()))))


def _fit_boosting(x: np.ndarray, y: np.ndarray, is_regression: bool) -> Any:
    if is_regression:
        model = HistGradientBoostingRegressor(random_state=0).fit(x, y)
        return lambda inputs: Forecast(model.predict(inputs))
    model = HistGradientBoostingClassifier(random_state=0).fit(x, y)
    return lambda inputs: Forecast(model.predict_proba(inputs))
