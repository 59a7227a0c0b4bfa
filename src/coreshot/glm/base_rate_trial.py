"""Would class shares that are estimated without labels have helped at the sites that took part?

For each site, a model of the others meets this site's records as if they had no labels. What the site has sent says how
they look to that model: the logits of each group of a class are about Gaussian, so records are drawn from there. Shares
are estimated from them, and a part of the correction is applied, `trust`. The labels then say what it would have cost.
The largest part that makes no site worse is what a new place gets. Where even a quarter makes one worse, sites differ
in more than their shares, and nothing is corrected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.special
from jaxtyping import Float, Int

from coreshot.glm.base_rates import estimate_shares
from coreshot.glm.class_likelihood import SiteClasses
from coreshot.glm.head import Head, fit_head
from coreshot.glm.polynomials import Polynomials
from coreshot.glm.summary import Summary, add_summaries

TRUSTS = (0.25, 0.5, 0.75, 1.0)
WORSE = 0.01  # nats: a site that loses more has become worse
MAX_WORSE = 0.1  # the share of the sites that may become worse
MAX_RECORDS = 2_000  # that are drawn of a site
MAX_SITES = 16  # that are tried: each needs a fit


@dataclass(frozen=True)
class Trial:
    """Mean change of a site's NLL by each part of the correction: below 0 it is better."""

    trust: float  # 0: nothing is corrected
    changes: Float[np.ndarray, "sites trusts"]


def try_at_sites(polynomials: Polynomials, sites: Sequence[Summary]) -> Trial:
    """Of all sites; the first MAX_SITES of them are tried."""
    if len(sites) < 2:
        return Trial(0.0, np.zeros((0, len(TRUSTS))))
    changes = []
    for place, site in enumerate(sites[:MAX_SITES]):
        others = fit_head(polynomials, add_summaries([one for index, one in enumerate(sites) if index != place]))
        changes.append(_changes(others, site.sites[0]))
    found = np.stack(changes)
    is_fine = np.mean(found > WORSE, axis=0) <= MAX_WORSE
    helps = is_fine & (np.mean(found, axis=0) < 0)
    best = int(np.argmin(np.where(helps, np.mean(found, axis=0), np.inf)))
    return Trial(TRUSTS[best] if helps[best] else 0.0, found)


def _changes(others: Head, site: SiteClasses) -> Float[np.ndarray, " trusts"]:
    logits, labels = _draw(site.in_basis(others.basis), others)
    log_probs = scipy.special.log_softmax(logits, axis=1)
    rates = estimate_shares(np.exp(log_probs), np.asarray(others.class_shares))

    def nll(trust: float) -> float:
        moved = scipy.special.log_softmax(log_probs + trust * rates.log_ratios, axis=1)
        return -float(np.mean(moved[np.arange(len(labels)), labels]))

    return np.asarray([nll(trust) for trust in TRUSTS]) - nll(0.0)


def _draw(site: SiteClasses, head: Head) -> tuple[Float[np.ndarray, "n classes"], Int[np.ndarray, " n"]]:
    """Logits of records of the site, in the numbers of its groups."""
    draws, weights = np.random.default_rng(0), head.weights
    scale = min(1.0, MAX_RECORDS / float(np.sum(site.sizes)))
    logits, labels = [], []
    for label, size, mean in zip(site.labels, site.sizes, site.means, strict=True):
        count = round(scale * size)
        if count == 0:
            continue
        within = site.covariances[min(label, len(site.covariances) - 1)]
        values, vectors = np.linalg.eigh(weights.T @ within @ weights)
        noise = draws.normal(size=(count, weights.shape[1])) @ (vectors * np.sqrt(np.maximum(values, 0.0))).T
        logits.append(mean @ weights + noise)
        labels.append(np.full(count, label))
    found = np.concatenate(logits)
    if weights.shape[1] == 1:
        found = np.concatenate([np.zeros_like(found), found], axis=1)
    return found, np.concatenate(labels)
