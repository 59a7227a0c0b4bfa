"""The privacy guarantee that follows from declared releases, in one sentence; it is computed from their noise."""

from __future__ import annotations

from collections.abc import Sequence

from coreshot.privacy.accounting import compute_epsilon
from coreshot.privacy.releases import Release


def promised_epsilon(releases: Sequence[Release]) -> float | None:
    """Epsilon at the delta for which the noise was made; None: there is no guarantee."""
    deltas = [release.delta for release in releases]
    if not releases or any(release.is_exact for release in releases) or None in deltas:
        return None
    return compute_epsilon(tuple(releases), max(delta for delta in deltas if delta is not None))


def promise(releases: Sequence[Release]) -> str:
    epsilon = promised_epsilon(releases)
    if epsilon is None:
        exact = [release.name for release in releases if release.is_exact]
        what = (
            f"what is named {', '.join(exact)} was computed from the records without noise"
            if exact
            else "it does not say what it was computed from"
        )
        return f"No promise of privacy is made for this message: {what}, and may reveal single records."
    delta = max(release.delta or 0.0 for release in releases)
    sharers = max(release.num_sharers for release in releases)
    alone = (
        f"of this message nothing but its sum with those of {sharers - 1} other clients, "
        "all of whom add their share of noise,"
    )
    return (
        f"Whoever sees {'this message' if sharers == 1 else alone} and whatever else they know, "
        f"learns about any single record of this client no more than differential privacy with epsilon = {epsilon:.3g} "
        f"and delta = {delta:.3g} allows (one record added or removed), because all of it that was computed "
        "from the records carries Gaussian noise made for that bound."
    )
