"""What a site says about its records, and that of several sites together.

| symbol         | here                                                                                     |
|----------------|------------------------------------------------------------------------------------------|
| [1, phi, y]    | a record: the constant, its features, its one-hot label or target                        |
| S              | moments: the sum of products of all entries of [1, phi, y]                               |
| S_c            | class moments: the same of [1, phi], or of [g, phi] (`score_groups`), for each class       |

Moments of several sites are added. Of classes, what each site says is kept beside that of the others: the
groups of its records are the Gaussians of a mixture.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from coreshot.glm.class_likelihood import SiteClasses
from coreshot.glm.counts import site_of_counts
from coreshot.glm.polynomials import Polynomials
from coreshot.glm.score_groups import join_all
from coreshot.spectral.coreset import Moments

Correct = Callable[[SiteClasses], SiteClasses]  # makes the gradient at the site's own fit exact


@dataclass(frozen=True)
class Summary:
    """Of one site or of several."""

    moments: Float[np.ndarray, "entries entries"]
    sites: tuple[SiteClasses, ...]  # none of a regression
    num_outputs: int

    @classmethod
    def from_class_moments(cls, class_moments: Sequence[np.ndarray], size: int, correct: Correct) -> Summary:
        """Of one site: a covariance for each class, and perhaps groups."""
        site = correct(SiteClasses.from_class_moments(class_moments, size))
        return cls(join_class_moments(join_all(class_moments, size)), (site,), len(class_moments))

    @classmethod
    def from_moments(
        cls, moments: Float[np.ndarray, "entries entries"], num_outputs: int, correct: Correct | None
    ) -> Summary:
        """Of one site: one covariance for all classes, counts, or a quantity, which has nothing to correct."""
        if correct is None:
            return cls(moments, (), num_outputs)
        if num_outputs == 1:
            return cls(moments, (correct(site_of_counts(moments)),), num_outputs)
        return cls(moments, (correct(SiteClasses.from_moments(moments, num_outputs)),), num_outputs)

    def in_inputs(
        self, polynomials: Polynomials, center: Float[np.ndarray, " inputs"], scale: Float[np.ndarray, " inputs"]
    ) -> Summary:
        """The same sums for features of x, where these are for features of (x - center) / scale."""
        change = polynomials.shifted_basis(-center / scale, 1 / scale)
        whole = np.eye(len(self.moments))
        whole[: self.dimension, : self.dimension] = change
        sites = tuple(site.in_basis(change) for site in self.sites)
        return replace(self, moments=whole.T @ self.moments @ whole, sites=sites)

    def linear_part(self, num_inputs: int) -> Summary:
        """Of the constant and the inputs, which are the first features."""
        order = [*range(num_inputs + 1), *range(self.dimension, len(self.moments))]
        sites = tuple(site.linear_part(num_inputs) for site in self.sites)
        return replace(self, moments=self.moments[np.ix_(order, order)], sites=sites)

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
        if self.num_outputs > 1 and self.sites:  # classes
            change = np.eye(len(joint))
            change[num_inputs, num_inputs + 1 :] = -1 / self.num_outputs
            joint = change.T @ joint @ change
        return Moments(joint, self.num_examples, self.num_outputs)


def collect_moments(
    features: Float[np.ndarray, "n d"], labels: Float[np.ndarray, "n outputs"]
) -> Float[np.ndarray, "entries entries"]:
    joint = np.concatenate([features, labels], axis=1)
    return joint.T @ joint


def collect_class_moments(
    features: Float[np.ndarray, "n d"],
    labels: Int[np.ndarray, " n"],
    groups: Int[np.ndarray, " n"],
    num_groups: Sequence[int],  # of each class
) -> list[np.ndarray]:
    """Of each class, the sum of products of [g, phi]."""
    found = []
    for label, count in enumerate(num_groups):
        own = labels == label
        written = np.concatenate([np.eye(count)[groups[own]], features[own, 1:]], axis=1)
        found.append(written.T @ written)
    return found


def join_class_moments(class_moments: Float[np.ndarray, "classes d d"]) -> Float[np.ndarray, "entries entries"]:
    """The moments of all records, from those of each class: labels are one-hot."""
    cross = class_moments[:, 0]
    label_gram = np.diag(class_moments[:, 0, 0])
    return np.block([[np.sum(class_moments, axis=0), cross.T], [cross, label_gram]])


def add_summaries(summaries: Sequence[Summary]) -> Summary:
    moments = np.sum([summary.moments for summary in summaries], axis=0)
    sites = tuple(site for summary in summaries for site in summary.sites)
    return Summary(moments, sites, summaries[0].num_outputs)
