"""How much the sites of a quantity differ where the model does not explain it: the variance of a site's own intercept.

A site's mean residual b_s has the variance v + noise / records. v maximises the restricted likelihood of
b_s ~ N(mean, v + noise / records) (Patterson and Thompson, "Recovery of Inter-Block Information when Block Sizes are
Unequal", Biometrika 1971). It is 0 where the sites differ no more than their numbers of records explain. The noise
within sites is less than over all of them. `site_effects` is the same for classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from coreshot.glm.head import Head
from coreshot.glm.summary import Summary

VARIANCES = np.append(0.0, np.exp(np.linspace(np.log(1e-3), np.log(100.0), 100)))  # in units of the noise


def compare_residuals(head: Head, sites: Sequence[Summary]) -> Head:
    counts = np.asarray([one.num_examples for one in sites])
    sums = np.stack([one.cross[0] - (one.gram @ head.basis)[0] @ head.weights for one in sites])
    means = sums / counts[:, None]
    explained = float(np.sum(counts[:, None] * means**2)) / (np.sum(counts) * means.shape[1])
    within = max(head.noise_variance - explained, 1e-6 * head.noise_variance)
    likelihoods = [_restricted(means, within / counts, one) for one in within * VARIANCES]
    variance = float(within * VARIANCES[int(np.argmax(likelihoods))]) if len(sites) > 1 else 0.0
    return replace(head, num_sites=len(sites), site_variance=variance, noise_within=within)


def _restricted(
    means: Float[np.ndarray, "sites outputs"], errors: Float[np.ndarray, " sites"], variance: float
) -> float:
    precisions = 1 / (errors + variance)
    center = precisions @ means / np.sum(precisions)
    fit = float(np.sum(precisions @ (means - center) ** 2))
    return 0.5 * (means.shape[1] * float(np.sum(np.log(precisions)) - np.log(np.sum(precisions))) - fit)
