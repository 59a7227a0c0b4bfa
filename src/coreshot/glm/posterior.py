"""What a fitted head says about new records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.special
from jaxtyping import Array, Float

from coreshot.errors import CoreshotError
from coreshot.glm.count_predictions import log_prob_of_counts, predict_counts
from coreshot.glm.filling import NOT_FILLED, Filling, Pairs
from coreshot.glm.head import Head
from coreshot.glm.logistic import damp
from coreshot.glm.onnx_head import add_count, add_features, add_probabilities, add_quantity, add_scores
from coreshot.glm.personal_among import personalise_among
from coreshot.glm.polynomials import Polynomials
from coreshot.glm.site import sorted_records
from coreshot.glm.summary import Summary
from coreshot.glm.winsorising import Limits
from coreshot.models import Model
from coreshot.models.onnx_graph import Graph, Outputs
from coreshot.types import Kind, Points, Predictive

CHUNK = 8192  # records at once

_ARRAYS = ("basis", "slopes", "intercepts", "roots", "usual_variances", "leverage_root")
_NUMBERS = ("noise_variance", "usual_novelty")
_NEW_ARRAYS = ("slopes", "intercepts", "roots", "log_ridges")  # in which the head of a new site differs
_NEW_NUMBERS = ("num_sites", "site_variance", "noise_within")


@dataclass(frozen=True)
class GlmPosterior:
    """A Gaussian posterior of the slopes of a linear or logistic head on polynomials."""

    polynomials: Polynomials
    kind: Kind
    head: Head
    filling: Filling = NOT_FILLED
    limits: Limits | None = None  # inside which new records are moved
    new_site: Head | None = None  # the head for a site that did not take part; None: a model of before
    largest_count: float | None = None  # the target is a count, at most so large on the study's scale
    is_at_new_site: bool = False  # it is this one's, and intervals and probabilities allow for how sites differ

    @classmethod
    def from_arrays(
        cls, polynomials: Polynomials, kind: Kind, arrays: Mapping[str, np.ndarray], fills: Pairs = ()
    ) -> GlmPosterior:
        """The inverse of `arrays`."""
        known = {"usual_variances": np.zeros(len(arrays["roots"])), **arrays}  # a model of before has none
        values: dict[str, Any] = {name: np.asarray(known[name], np.float64) for name in _ARRAYS}
        values |= {name: float(arrays[name]) for name in _NUMBERS}
        if "class_shares" in arrays:
            values["class_shares"] = tuple(np.atleast_1d(arrays["class_shares"]).tolist())
        head = Head(**values, log_ridges=arrays["log_ridges"])
        filled_with = tuple(arrays["fill_values"].tolist()) if fills else ()
        limits = Limits(*arrays["limits"]) if "limits" in arrays else None
        return cls(polynomials, kind, head, Filling(fills, filled_with), limits, _read_new_site(head, arrays))

    def arrays(self) -> dict[str, np.ndarray]:
        """All but the polynomials, which the study names."""
        named = {name: np.asarray(vars(self.head)[name]) for name in _ARRAYS}
        numbers = {name: np.asarray(vars(self.head)[name]) for name in (*_NUMBERS, "log_ridges")}
        fills = {"fill_values": np.asarray(self.filling.values)} if self.filling.pairs else {}
        limits = {"limits": np.stack([self.limits.lowest, self.limits.highest])} if self.limits is not None else {}
        shares = {"class_shares": np.asarray(self.head.class_shares)} if self.head.class_shares else {}
        new = {} if self.new_site is None else vars(self.new_site)
        of_new = {f"new_site.{name}": np.asarray(new[name]) for name in (*_NEW_ARRAYS, *_NEW_NUMBERS) if new}
        return {**named, **numbers, **fills, **limits, **shares, **of_new}

    def at_new_site(self) -> GlmPosterior:
        """As a site sees it that did not take part: it does not know how it differs from those that did."""
        if self.new_site is None:
            raise CoreshotError("this model does not know how its sites differ; fit it again from its coresets.")
        return replace(self, head=self.new_site, is_at_new_site=True)

    @property
    def _new_site_variance(self) -> float:
        return self.head.new_site_variance if self.is_at_new_site else 0.0

    @property
    def is_point_estimate(self) -> bool:
        return False

    def sample_outputs(self, x: Float[Array | np.ndarray, "n ..."]) -> None:
        """None: a closed form has no samples."""

    def novelty(self, x: Float[Array | np.ndarray, "n ..."]) -> Float[np.ndarray, " n"]:
        """How far an input is from the clients' records: the deviation of a linear fit there over that of a label.

        Of the record as it is: one that is moved inside the limits would look like the others."""
        return np.concatenate(
            [np.linalg.norm(part @ self.head.leverage_root.T, axis=1) for part in self._features(np.asarray(x), None)]
        )

    def usual_novelty(self) -> float:
        """The root mean square novelty of the records that it was fitted to."""
        return self.head.usual_novelty

    def _features(self, x: Float[np.ndarray, "n ..."], limits: Limits | None) -> list[Float[np.ndarray, "_ slopes"]]:
        """Standardised, in chunks."""
        starts = range(0, max(len(x), 1), CHUNK)
        flat = x.reshape(len(x), -1)
        filled = self.filling(flat if limits is None else limits(flat))
        return [(self.polynomials(filled[first : first + CHUNK]) @ self.head.basis)[:, 1:] for first in starts]

    def seen(self, x: Float[Array | np.ndarray, "n ..."]) -> Float[np.ndarray, "n inputs"]:
        """Inputs, moved inside the limits and filled in."""
        flat = np.asarray(x, np.float64).reshape(len(x), -1)
        return self.filling(flat if self.limits is None else self.limits(flat))

    def scores(
        self, x: Float[np.ndarray, "n ..."]
    ) -> tuple[Float[np.ndarray, "n logits"], Float[np.ndarray, "n logits"]]:
        """Mean and variance of each logit, or of each quantity."""
        means, variances = [], []
        for features in self._features(np.asarray(x), self.limits):
            means.append(features @ self.head.slopes + self.head.intercepts)
            variances.append(np.stack([np.sum((features @ root.T) ** 2, axis=1) for root in self.head.roots], axis=1))
        mean, variance = np.concatenate(means), np.concatenate(variances) + self._new_site_variance
        return mean, np.broadcast_to(variance, mean.shape)

    @property
    def _noise_variance(self) -> float:
        return self.head.noise_within if self.is_at_new_site else self.head.noise_variance

    def _log_probabilities(
        self, mean: Float[np.ndarray, "n logits"], variance: Float[np.ndarray, "n logits"]
    ) -> Float[np.ndarray, "n classes"]:
        logits = mean * damp(variance, self.head.usual_variances, self._new_site_variance)
        if logits.shape[1] == 1:
            return -np.logaddexp(0, np.concatenate([logits, -logits], axis=1))
        return scipy.special.log_softmax(logits, axis=1)

    def adapted_to(self, model: Model, points: Points, others: Summary) -> tuple[GlmPosterior, float]:
        """At a site that has these records; `others` are the sums of all other sites."""
        x, y = sorted_records(points)
        seen = self.seen(x)
        found = personalise_among(model, self.polynomials, others, seen, y, self.largest_count)
        return replace(self, head=found.head, new_site=None), found.own_share

    def add_to_graph(self, graph: Graph, x: str) -> Outputs:
        flat, size = graph.flatten(x), int(np.prod(graph.input_shape))
        features = add_features(graph, flat, size, self.polynomials, self.filling, self.limits, self.head)
        mean, variance = add_scores(graph, features, self.head, self._new_site_variance)
        if self.largest_count:
            return add_count(graph, mean, variance, self._new_site_variance, self.largest_count)
        if self.kind == "regression":
            return add_quantity(graph, mean, variance, self._noise_variance)
        return add_probabilities(graph, mean, variance, self.head, self._new_site_variance)

    def predict(self, x: Float[Array | np.ndarray, "n ..."]) -> Predictive:
        mean, variance = self.scores(np.asarray(x))
        if self.largest_count:
            return predict_counts(mean, variance, self._new_site_variance, self.largest_count)
        if self.kind == "regression":
            noise = np.full_like(mean, np.sqrt(self._noise_variance))
            return Predictive(mean, np.sqrt(variance), noise)
        probabilities = np.exp(self._log_probabilities(mean, variance))
        # To first order, d p_c = p_c (d l_c - sum_j p_j d l_j). Of two classes, the first has the logit 0.
        deviations = np.sqrt(variance)
        if mean.shape[1] == 1:
            epistemic = np.repeat(probabilities[:, :1] * probabilities[:, 1:] * deviations, 2, axis=1)
        else:
            slopes = probabilities[:, :, None] * (np.eye(mean.shape[1]) - probabilities[:, None])
            epistemic = np.sqrt(np.einsum("ncl,nl->nc", slopes**2, variance))
        return Predictive(probabilities, epistemic, np.sqrt(probabilities * (1 - probabilities)))

    def log_predictive(self, points: Points) -> Float[np.ndarray, " n"]:
        mean, variance = self.scores(np.asarray(points.x))
        y = np.asarray(points.y, np.float64)
        if self.kind == "classification":
            return np.sum(y * self._log_probabilities(mean, variance), axis=1)
        if self.largest_count:
            return log_prob_of_counts(y, mean, variance, self._new_site_variance, self.largest_count)
        total = variance + self._noise_variance
        return np.sum(-0.5 * (np.log(2 * np.pi * total) + (y - mean) ** 2 / total), axis=1)


def _read_new_site(head: Head, arrays: Mapping[str, np.ndarray]) -> Head | None:
    if "new_site.slopes" not in arrays:
        return None
    changed: dict[str, Any] = {name: np.asarray(arrays[f"new_site.{name}"]) for name in _NEW_ARRAYS}
    changed |= {name: float(arrays[f"new_site.{name}"]) for name in _NEW_NUMBERS}
    return replace(head, **changed | {"num_sites": int(changed["num_sites"])})


def as_glm(posterior: Any) -> GlmPosterior | None:
    """A posterior of this package, or None."""
    return posterior if isinstance(posterior, GlmPosterior) else None
