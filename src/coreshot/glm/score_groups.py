"""Groups of a class's records with similar scores, so that the scores within a group are nearly Gaussian.

The scores of a whole class often have a long tail, and then a Gaussian with their mean and variance gives wrong mean
probabilities. So the records of a class are sorted by the score of the site's own fit and cut into groups of equal
size. The site says the mean of each group; the covariance is that within groups, one for the class. A record is written
[g, phi]: g is 1 at its group and 0 at all others, in place of the constant of [1, phi].

The constants are the best, of those tried, of benchmarks/table_constants.py. Fewer records in a group are better still,
but a mean of few says much about each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

MAX_GROUPS = 16  # of a class
MIN_RECORDS = 10  # of a group


def group_by_score(
    scores: Float[np.ndarray, " n"], labels: Int[np.ndarray, " n"], num_classes: int
) -> Int[np.ndarray, " n"]:
    """The group of each record within its class. Equal scores keep the order of the records."""
    groups = np.zeros(len(scores), np.int64)
    for label in range(num_classes):
        own = np.flatnonzero(labels == label)
        num_groups = min(max(len(own) // MIN_RECORDS, 1), MAX_GROUPS)
        order = own[np.argsort(scores[own], kind="stable")]
        for group, part in enumerate(np.array_split(order, num_groups)):
            groups[part] = group
    return groups


def num_groups_of(groups: Int[np.ndarray, " n"], labels: Int[np.ndarray, " n"], num_classes: int) -> list[int]:
    return [int(np.max(groups[labels == label], initial=0)) + 1 for label in range(num_classes)]


def join_groups(moments: Float[np.ndarray, "entries entries"], size: int) -> Float[np.ndarray, "{size} {size}"]:
    """Sums of products of [1, phi], from those of [g, phi]: the constant is the sum of all g."""
    num_groups = len(moments) - size + 1
    change = np.zeros((len(moments), size))
    change[:num_groups, 0] = 1.0
    change[num_groups:, 1:] = np.eye(size - 1)
    return change.T @ moments @ change


def join_all(class_moments: Sequence[np.ndarray], size: int) -> Float[np.ndarray, "classes {size} {size}"]:
    return np.stack([join_groups(moments, size) for moments in class_moments])
