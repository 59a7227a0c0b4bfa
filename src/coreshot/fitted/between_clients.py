"""How the clients of a model differ where it does not explain it: what each has seen, beside what the model expects.

It follows from the sums that the clients have sent; no record is needed. Of classes it is the share of the last class,
of a quantity its mean, of a time to an event the share of periods with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coreshot.data.schema import Quantity
from coreshot.fitted.model import Contents, FittedModel
from coreshot.glm.counts import CountLikelihood, join_sites
from coreshot.glm.posterior import GlmPosterior, as_glm
from coreshot.methods.glm import Glm, SiteMessage


@dataclass(frozen=True)
class ClientDifference:
    client: str
    records: float
    seen: float
    expected: float


def between_clients(model: FittedModel, contents: Contents) -> list[ClientDifference]:
    """Empty where the messages do not say it."""
    posterior, method = as_glm(model.posterior), model.study.method
    if not isinstance(method, Glm) or posterior is None:
        return []
    return [_difference(model, posterior, name, contents[name]) for name in sorted(contents)]


def _difference(model: FittedModel, posterior: GlmPosterior, name: str, content: SiteMessage) -> ClientDifference:
    summary = content.summary(posterior.polynomials, posterior.filling)
    weights = posterior.head.basis @ posterior.head.weights  # of raw features
    seen, count = float(summary.cross[0, -1] / summary.num_examples), summary.num_examples
    if not summary.sites:
        expected = float(summary.gram[0] @ weights[:, -1] / count)
    else:
        likelihood = join_sites(summary.num_outputs, list(summary.sites))
        found = likelihood.at(weights).probabilities[:, -1]
        if isinstance(likelihood, CountLikelihood):
            assert posterior.largest_count is not None
            expected = 2 * float(np.sum(found)) / count / posterior.largest_count - 1
        else:
            expected = float(likelihood.sizes @ found / np.sum(likelihood.sizes))
    target = model.study.target
    if isinstance(target, Quantity):
        seen, expected = target.in_units(np.asarray([[seen], [expected]]))[:, 0].tolist()
    return ClientDifference(name, count, seen, expected)
