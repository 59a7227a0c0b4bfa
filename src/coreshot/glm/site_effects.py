"""A logistic head in which each site has an intercept of its own: what its features say beside the sites' base rates.

Sites differ in how often a class is there, and in what they measure. A column that one site alone lacks then stands for
that site's base rate, and is wrong at a new one. Here each site has one more feature, 1 for its own records, with a
normal prior whose variance is found by evidence with those of all other features (a generalised linear mixed model;
Breslow and Clayton, "Approximate Inference in Generalized Linear Mixed Models", JASA 1993). It follows from the sums
that the sites have sent: a site's own feature is constant at each site, so it adds nothing to a covariance.

What a new site gets are the common slopes and intercept, and a deviation that nobody knows, of this variance
(`Head.new_site_variance`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float, Int

from coreshot.glm.class_likelihood import SiteClasses
from coreshot.glm.counts import join_sites
from coreshot.glm.head import Head, inverse_factor
from coreshot.glm.logistic import PRIOR_FACTORS, find_mode, find_precisions


def fit_with_sites(head: Head, sites: Sequence[SiteClasses], groups: Int[np.ndarray, " slopes"]) -> Head:
    """`head` is that of all records alike; sites' features are raw."""
    standard = [site.in_basis(head.basis) for site in sites]
    own = [_with_own_feature(site, place, len(sites)) for place, site in enumerate(standard)]
    likelihood = join_sites(len(head.class_shares) or 1, own)
    own_group = int(groups.max()) + 1
    every = np.append(groups, np.full(len(sites), own_group))
    precisions, start = find_precisions(likelihood, every, (*PRIOR_FACTORS[:own_group], 1.0))
    mode = find_mode(likelihood, precisions[every], start)
    size = len(groups) + 1
    roots = np.stack([inverse_factor(_marginal(block, size)) for block in mode.precisions])
    return replace(
        head,
        slopes=mode.weights[1:size],
        intercepts=mode.weights[0],
        roots=roots,
        log_ridges=np.log(precisions[:own_group]),
        num_sites=len(sites),
        site_variance=float(1 / precisions[own_group]),
    )


def _with_own_feature(site: SiteClasses, place: int, num_sites: int) -> SiteClasses:
    """The last features are 1 at one site each. The gradient of a site's own one is that of its constant."""
    own = np.eye(num_sites)[place]
    means = np.concatenate([site.means, np.tile(own, (len(site.means), 1))], axis=1)
    covariances = np.pad(site.covariances, ((0, 0), (0, num_sites), (0, num_sites)))
    correction = np.concatenate([site.correction, own[:, None] * site.correction[0]])
    return replace(site, means=means, covariances=covariances, correction=correction)


def _marginal(precision: Float[np.ndarray, "all all"], size: int) -> Float[np.ndarray, "slopes slopes"]:
    """Of the slopes, whatever the intercepts are."""
    others = [0, *range(size, len(precision))]
    between = precision[np.ix_(range(1, size), others)]
    inner = precision[np.ix_(others, others)]
    return precision[1:size, 1:size] - between @ np.linalg.solve(inner, between.T)
