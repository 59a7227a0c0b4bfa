"""What a site says about its records, and the sums of that over sites.

| symbol         | here                                                                                     |
|----------------|------------------------------------------------------------------------------------------|
| [1, phi, y]    | a record: the constant, its features, its one-hot label or target                        |
| S              | moments: the sum of products of all entries of [1, phi, y]                               |
| P_k, b_k       | precisions, shift: the quadratic of logit k over slopes, the site's intercept maximised out |

Sums of several sites are added, and a site's can be subtracted again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from coreshot.glm.intercepts import offsets_shape
from coreshot.glm.local_fit import LocalFit
from coreshot.glm.polynomials import Polynomials
from coreshot.spectral.coreset import Moments

MIN_CLASS_SHARE = 1e-6  # of the largest class; a smaller class counts as absent


@dataclass(frozen=True)
class Summary:
    """Of one site or of several. A regression has no logits."""

    moments: Float[np.ndarray, "entries entries"]
    precisions: Float[np.ndarray, "logits slopes slopes"]
    shift: Float[np.ndarray, "slopes logits"]
    offset: Float[
        np.ndarray, "spreads rates logits"
    ]  # this weight times what is to be added to intercepts (`glm.intercepts`)
    between: Float[np.ndarray, "d d"]  # sum over sites and classes of products of mean features, times records
    offset_weight: Float[np.ndarray, " logits"]  # records of a class times the share of the others
    num_outputs: int

    @classmethod
    def from_parts(
        cls,
        moments: np.ndarray,
        fit: LocalFit,
        num_outputs: int,
        offset: Float[np.ndarray, "spreads rates logits"] | None = None,
    ) -> Summary:
        """The quadratic of each logit, without the site's intercept."""
        sizes = moments[0, len(moments) - num_outputs :][num_outputs - len(fit.shares) :]
        weight = np.maximum(sizes * (moments[0, 0] - sizes) / moments[0, 0], 0.0) * (fit.shares > 0)
        known = np.zeros(offsets_shape(len(weight))) if offset is None else offset
        rest = (weight * known, _between(moments, num_outputs), weight, num_outputs)
        if not np.any(fit.shares):
            size, num_logits = len(fit.weights) - 1, fit.weights.shape[1]
            return cls(moments, np.zeros((num_logits, size, size)), np.zeros((size, num_logits)), *rest)
        slope = fit.curvature[1:, 0] / fit.curvature[0, 0]
        precision = fit.curvature[1:, 1:] - np.outer(slope, fit.curvature[0, 1:])
        shift = fit.shares * (precision @ fit.weights[1:]) + fit.gradient[1:] - np.outer(slope, fit.gradient[0])
        return cls(moments, fit.shares[:, None, None] * precision, shift, *rest)

    def in_inputs(
        self, polynomials: Polynomials, center: Float[np.ndarray, " inputs"], scale: Float[np.ndarray, " inputs"]
    ) -> Summary:
        """The same sums for features of x, where these are for features of (x - center) / scale."""
        change = polynomials.shifted_basis(-center / scale, 1 / scale)
        whole = np.eye(len(self.moments))
        whole[: self.dimension, : self.dimension] = change
        slopes = change[1:, 1:]
        return replace(
            self,
            moments=whole.T @ self.moments @ whole,
            precisions=slopes.T @ self.precisions @ slopes,
            shift=slopes.T @ self.shift,
            between=change.T @ self.between @ change,
        )

    def __add__(self, other: Summary) -> Summary:
        return Summary(
            self.moments + other.moments,
            self.precisions + other.precisions,
            self.shift + other.shift,
            self.offset + other.offset,
            self.between + other.between,
            self.offset_weight + other.offset_weight,
            self.num_outputs,
        )

    def __sub__(self, other: Summary) -> Summary:
        return Summary(
            self.moments - other.moments,
            self.precisions - other.precisions,
            self.shift - other.shift,
            self.offset - other.offset,
            self.between - other.between,
            self.offset_weight - other.offset_weight,
            self.num_outputs,
        )

    @property
    def num_examples(self) -> float:
        return float(self.moments[0, 0])

    @property
    def dimension(self) -> int:
        return len(self.moments) - self.num_outputs

    @property
    def gram(self) -> Float[np.ndarray, "d d"]:
        return self.moments[: self.dimension, : self.dimension]

    @property
    def cross(self) -> Float[np.ndarray, "d outputs"]:
        return self.moments[: self.dimension, self.dimension :]

    def linear_moments(self, num_inputs: int) -> Moments:
        """Of the inputs alone, as `spectral.outlier_clients` compares clients: the constant last, centred labels."""
        order = [*range(1, num_inputs + 1), 0, *range(self.dimension, len(self.moments))]
        joint = self.moments[np.ix_(order, order)]
        if self.shift.shape[1]:
            change = np.eye(len(joint))
            change[num_inputs, num_inputs + 1 :] = -1 / self.num_outputs
            joint = change.T @ joint @ change
        return Moments(joint, self.num_examples, self.num_outputs)


def collect_moments(
    features: Float[np.ndarray, "n d"], labels: Float[np.ndarray, "n outputs"]
) -> Float[np.ndarray, "entries entries"]:
    joint = np.concatenate([features, labels], axis=1)
    return joint.T @ joint


def _between(moments: Float[np.ndarray, "entries entries"], num_outputs: int) -> Float[np.ndarray, "d d"]:
    """Products of the mean features of each class; rounded labels are not quite one-hot, so by regression on them."""
    size = len(moments) - num_outputs
    inverse = np.linalg.pinv(moments[size:, size:], MIN_CLASS_SHARE, hermitian=True)
    return moments[:size, size:] @ inverse @ moments[size:, :size]
