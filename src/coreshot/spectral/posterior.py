"""The posterior of a Bayesian linear head on fixed features, in closed form from second moments.

| symbol   | here                                                                              |
|----------|-----------------------------------------------------------------------------------|
| phi      | feature_map                                                                       |
| W        | the head's weights: prior N(0, sigma^2 / ridge), posterior mean `mean`            |
| sigma^2  | noise_variance of targets or centred one-hot labels: y ~ N(W^T phi(x), sigma^2)   |

The steps, in the order of the files: `coreset` (moments), `evidence` (ridge, mean, covariance), `calibration` (from
scores to class probabilities), and this one. Mean, variance and evidence are exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.optimize
import scipy.special
from jaxtyping import Array, Float

from coreshot.models.onnx_graph import Graph, Outputs
from coreshot.spectral.blocked import invert_factor
from coreshot.spectral.calibration import GroupedClassMeans, Link, fit_link
from coreshot.spectral.coreset import Moments, sum_of
from coreshot.spectral.evidence import best_ridge, solve_ridge
from coreshot.spectral.features import BIAS, FeatureMap, UnitMap
from coreshot.spectral.onnx_features import add_link, add_map
from coreshot.spectral.personal import personalise
from coreshot.types import Kind, Points, Predictive


@dataclass(frozen=True)
class LinearPosterior:
    """The exact posterior of a linear head on a feature map."""

    feature_map: FeatureMap | UnitMap
    kind: Kind
    mean: Float[np.ndarray, "d outputs"]
    root: Float[np.ndarray, "d d"]  # inverse Cholesky factor: a point's variance is noise_variance * |root phi|^2
    ridge: float
    noise_variance: float
    link: Link | None  # None: regression

    @classmethod
    def from_arrays(cls, feature_map: FeatureMap | UnitMap, arrays: Mapping[str, np.ndarray]) -> LinearPosterior:
        """The inverse of `arrays`."""
        parts = {name.removeprefix("link."): array for name, array in arrays.items() if name.startswith("link.")}
        numbers: dict[str, Any] = {name: array if array.ndim else float(array) for name, array in parts.items()}
        kind: Kind = "classification" if numbers else "regression"
        link = Link(**numbers) if numbers else None
        ridge, noise_variance = float(arrays["ridge"]), float(arrays["noise_variance"])
        return cls(feature_map, kind, arrays["mean"], arrays["root"], ridge, noise_variance, link)

    def arrays(self) -> dict[str, np.ndarray]:
        """All but the feature map, which the study draws again."""
        numbers = {"ridge": np.asarray(self.ridge), "noise_variance": np.asarray(self.noise_variance)}
        link = {f"link.{name}": np.asarray(value) for name, value in vars(self.link).items()} if self.link else {}
        return {"mean": self.mean, "root": self.root.astype(np.float32), **numbers, **link}

    @property
    def is_point_estimate(self) -> bool:
        return False

    def sample_outputs(self, x: Float[Array | np.ndarray, "n ..."]) -> None:
        """None: a closed form has no samples."""

    def scores(self, x: Float[np.ndarray, "n ..."]) -> tuple[Float[np.ndarray, "n outputs"], Float[np.ndarray, " n"]]:
        """Mean and variance of W^T phi(x); the variance is the same for all outputs."""
        features = self.feature_map(x)
        leverage = np.sum((features @ self.root.T.astype(np.float32)) ** 2, axis=1)
        # The mean in float64: in float32, the last digits of a record's score would depend on the size of its batch.
        return features.astype(np.float64) @ self.mean, self.noise_variance * leverage.astype(np.float64)

    def novelty(self, x: Float[Array | np.ndarray, "n ..."]) -> Float[np.ndarray, " n"]:
        """How far an input is from the clients' records: the head's standard deviation there over the noise's."""
        return np.sqrt(self.scores(np.asarray(x))[1] / self.noise_variance)

    def usual_novelty(self) -> float:
        """The root mean square novelty of the records that it was fitted to, in closed form.

        With A = G + ridge and root^T root = A^-1, the mean of phi^T A^-1 phi over N records is tr(A^-1 G) / N, and
        tr(A^-1 G) = d - ridge tr(A^-1). N is G's entry of the constant feature c, divided by c^2.
        """
        root = self.root.astype(np.float64)
        constant = BIAS if isinstance(self.feature_map, UnitMap) else 1.0
        last = np.eye(len(root))[-1]
        num_records = (np.sum(np.linalg.solve(root.T, last) ** 2) - self.ridge) / constant**2
        used_dimensions = len(root) - self.ridge * np.sum(root**2)
        # Rounding, or the noise of a private study, can make either of them too small.
        return float(np.sqrt(max(used_dimensions, 1.0) / max(num_records, 1.0)))

    def seen(self, x: Float[Array | np.ndarray, "n ..."]) -> Float[np.ndarray, "n features"]:
        """Features, without the constant."""
        return np.asarray(self.feature_map(x))[:, :-1]

    def adapted_to(self, points: Points) -> tuple[LinearPosterior, float]:
        """At a site that has these records, and is not among those that this posterior is of."""
        found = personalise(self, np.asarray(points.x), np.asarray(points.y))
        return found.posterior, found.own_share

    def add_to_graph(self, graph: Graph, x: str) -> Outputs:
        features = add_map(graph, self.feature_map, x)
        scores = graph.add("MatMul", features, graph.constant(self.mean))
        rooted = graph.add("MatMul", features, graph.constant(self.root.T))
        leverage = graph.sum_rows(graph.add("Mul", rooted, rooted))
        variance = graph.add("Mul", leverage, graph.constant(self.noise_variance))
        if self.link is not None:
            return {"probabilities": graph.softmax(add_link(graph, self.link, scores, variance))}
        total = graph.add("Sqrt", graph.add("Add", variance, graph.constant(self.noise_variance)))
        return {"mean": scores, "deviation": graph.add("Add", total, graph.constant(np.zeros((1, self.mean.shape[1]))))}

    def predict(self, x: Float[Array | np.ndarray, "n ..."]) -> Predictive:
        scores, variance = self.scores(np.asarray(x))
        deviation = np.sqrt(variance)[:, None]
        if self.link is None:
            return Predictive(
                scores, np.broadcast_to(deviation, scores.shape), np.full_like(scores, np.sqrt(self.noise_variance))
            )
        probabilities = scipy.special.softmax(self.link.logits(scores, variance), axis=1)
        # Softmax to first order: d p_c = p_c (d l_c - sum_j p_j d l_j), with d l = slopes ds and independent ds.
        slopes = self.link.slopes(scores, variance)
        relative = slopes - np.einsum("nj,njs->ns", probabilities, slopes)[:, None]
        epistemic = deviation * probabilities * np.sqrt(np.sum(relative**2, axis=2))
        return Predictive(probabilities, epistemic, np.sqrt(probabilities * (1 - probabilities)))

    def log_predictive(self, points: Points) -> Float[np.ndarray, " n"]:
        scores, variance = self.scores(np.asarray(points.x))
        y = np.asarray(points.y, np.float64)
        if self.link is not None:
            return np.sum(y * scipy.special.log_softmax(self.link.logits(scores, variance), axis=1), axis=1)
        total = (variance + self.noise_variance)[:, None]
        return np.sum(-0.5 * (np.log(2 * np.pi * total) + (y - scores) ** 2 / total), axis=1)


def fit_posterior(
    feature_map: FeatureMap,
    kind: Kind,
    groups: Sequence[Moments],
    means: Sequence[GroupedClassMeans] = (),
    *,
    ridge: float | None,
    ridge_factor: float = 1.0,
) -> LinearPosterior:
    """From the moments of groups of clients, and the class means of some clients.

    ridge None: the ridge of maximal evidence times ridge_factor.
    """
    total = sum_of(groups)
    if ridge is None:
        ridge = best_ridge(total) * ridge_factor
    solution = solve_ridge(total, ridge)
    link = fit_link(groups, means, ridge, total) if kind == "classification" else None
    root = invert_factor(solution.factor)
    return LinearPosterior(feature_map, kind, solution.mean, root, solution.ridge, solution.noise_variance, link)
