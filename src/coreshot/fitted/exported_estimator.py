"""A fitted model as a scikit-learn estimator that skops can write: plain text and numbers, no pickle.

`fit` is not there: what the sites have sent is what it knows. X are records as the study encodes them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_array

from coreshot.data.schema import Classes, Quantity
from coreshot.errors import CoreshotError
from coreshot.fitted.model import FittedModel
from coreshot.fitted.posterior_file import posterior_bytes, read_posterior
from coreshot.study.file import parse_study

TRUSTED = tuple(f"coreshot.fitted.exported_estimator.{name}" for name in ("FederatedClassifier", "FederatedRegressor"))


class _Federated:
    """`study_text`: the study's file; `posterior`: the posterior's file, as bytes in an array."""

    def __init__(self, study_text: str = "", posterior: Any = None) -> None:
        self.study_text = study_text
        self.posterior = posterior

    def __sklearn_is_fitted__(self) -> bool:
        return self.posterior is not None

    def fit(self, X: Any, y: Any = None) -> Any:
        raise CoreshotError("this estimator is what sites have sent; use SpectralClassifier to fit one of your own.")

    def _model(self) -> FittedModel:
        study = parse_study(self.study_text, "this estimator's study").study
        data = np.asarray(self.posterior, np.uint8).tobytes()
        return FittedModel(study, read_posterior(study, data, "this estimator's posterior"))

    def _checked(self, X: Any) -> np.ndarray:
        return np.asarray(check_array(X, dtype=np.float32, allow_nd=True))


class FederatedClassifier(_Federated, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    @property
    def classes_(self) -> np.ndarray:
        target = parse_study(self.study_text, "this estimator's study").study.target
        assert isinstance(target, Classes)
        return np.asarray(target.classes)

    def predict_proba(self, X: Any) -> Float[np.ndarray, "n classes"]:
        return np.asarray(self._model().predict(self._checked(X)).mean)

    def predict(self, X: Any) -> np.ndarray:
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]


class FederatedRegressor(_Federated, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    def predict(self, X: Any, return_std: bool = False) -> Any:
        """In the units of the study's file."""
        model = self._model()
        target, found = model.study.target, model.predict(self._checked(X))
        assert isinstance(target, Quantity)
        mean = target.in_units(np.asarray(found.mean))[:, 0]
        if not return_std:
            return mean
        deviation = np.hypot(np.asarray(found.epistemic), np.asarray(found.aleatoric))
        return mean, target.in_units(deviation, is_deviation=True)[:, 0]


def to_skops(model: FittedModel, study_text: str) -> bytes:
    try:
        import skops.io
    except ImportError:
        raise CoreshotError(
            "export --sklearn: the package skops is not there; install it with `pip install coreshot[export]`."
        ) from None
    kind = FederatedClassifier if model.study.agreement.kind == "classification" else FederatedRegressor
    data = np.frombuffer(posterior_bytes(model.posterior), np.uint8)
    return bytes(skops.io.dumps(kind(study_text, data)))


def read_skops(data: bytes) -> Any:
    """With the types that `to_skops` writes, and no others."""
    import skops.io

    return skops.io.loads(data, trusted=list(TRUSTED))
