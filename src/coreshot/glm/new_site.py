"""The head for a site that did not take part: what all sites have in common, and how much they differ."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from coreshot.glm.between_sites import compare_residuals
from coreshot.glm.filling import NOT_FILLED, Filling
from coreshot.glm.head import Head
from coreshot.glm.polynomials import Polynomials
from coreshot.glm.received import NUM_GROUPS, SiteMessage
from coreshot.glm.site_effects import fit_with_sites


def fit_new_site(
    head: Head, sites: Mapping[str, SiteMessage], polynomials: Polynomials, filling: Filling = NOT_FILLED
) -> Head:
    """The head for a site that is none of these. Of many sites NUM_GROUPS are compared, those whose names have the
    smallest hashes: they tell how sites differ well enough."""
    names = sorted(sites, key=lambda name: (zlib.crc32(name.encode()), name))[:NUM_GROUPS]
    parts = [sites[name].summary(polynomials, filling) for name in sorted(names)]
    if not parts[0].sites:
        return compare_residuals(head, parts)
    return fit_with_sites(head, [part.sites[0] for part in parts], polynomials.groups)
