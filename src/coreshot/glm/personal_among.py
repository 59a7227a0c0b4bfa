"""A site's own model among all sites: features and ridges are those of all records, the prior is that of the others.

A column that the other sites lack is constant there. Standardised by the others alone it would have no scale, and so no
prior. So features are standardised by the sums of all sites, this one's included, and the ridges are those of all.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from coreshot.glm.counts import to_counts
from coreshot.glm.head import fit_head
from coreshot.glm.personal import Personal, personalise
from coreshot.glm.polynomials import Polynomials
from coreshot.glm.site import Detail, sum_records
from coreshot.glm.summary import Summary, add_summaries
from coreshot.models import Model


def personalise_among(
    model: Model,
    polynomials: Polynomials,
    others: Summary,
    x: Float[np.ndarray, "n inputs"],
    y: Float[np.ndarray, "n outputs"],
    largest_count: float | None = None,
) -> Personal:
    """`x` as the model sees it: moved inside limits, and filled in."""
    detail: Detail = "moments" if model.kind == "regression" else "groups" if model.num_outputs == 2 else "classes"
    own = sum_records(model, polynomials, x, y, largest_count).summary(detail)
    whole = fit_head(polynomials, add_summaries([others, own]))
    prior = fit_head(polynomials, others, like=whole, same_basis=True)
    features = (polynomials(x) @ whole.basis)[:, 1:]
    if largest_count:
        return personalise("count", prior, polynomials.groups, features, to_counts(y, largest_count))
    return personalise(model.kind, prior, polynomials.groups, features, y)
