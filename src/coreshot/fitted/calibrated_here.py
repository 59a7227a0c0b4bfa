"""Is the model calibrated on these records with labels: the shares it expects against those that are there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.stats

from coreshot.fitted.calibration import INTERVAL
from coreshot.fitted.model import FittedModel

DEVIATIONS = 1.96  # of an interval of 95 %


@dataclass(frozen=True)
class Calibrated:
    """What is there minus what the model expects, with a 95 % interval."""

    name: str
    difference: float
    low: float
    high: float
    sentence: str


def calibration_here(model: FittedModel, x: Any, y: Any) -> list[Calibrated]:
    """Of each class, its share; of a quantity, how often an interval of 90 % holds it."""
    said = model.predict(x)
    mean = np.asarray(said.mean, np.float64)
    if model.study.agreement.kind == "regression":
        total = np.hypot(np.asarray(said.epistemic), np.asarray(said.aleatoric))
        reach = scipy.stats.norm.ppf(0.5 + INTERVAL / 2) * total
        inside = np.abs(np.asarray(y).reshape(mean.shape) - mean) <= reach
        return [_compare(f"intervals of {INTERVAL:.0%}", inside.astype(float), np.full(inside.shape, INTERVAL))]
    classes = getattr(model.study.target, "classes", None) or [str(index) for index in range(mean.shape[1])]
    labels = np.eye(mean.shape[1])[np.asarray(y, int)]
    return [_compare(f"share of {name}", labels[:, index], mean[:, index]) for index, name in enumerate(classes)]


def _compare(name: str, found: np.ndarray, expected: np.ndarray) -> Calibrated:
    """The interval is that of the difference if the model were right."""
    difference = float(np.mean(found) - np.mean(expected))
    reach = DEVIATIONS * float(np.sqrt(np.sum(expected * (1 - expected)))) / found.size
    verdict = "as expected" if abs(difference) <= reach else "not as expected: adapt the model (`coreshot adapt`)"
    words = f"{name}: {np.mean(found):.1%} here, {np.mean(expected):.1%} expected (± {reach:.1%}); {verdict}"
    return Calibrated(name, difference, difference - reach, difference + reach, words)
