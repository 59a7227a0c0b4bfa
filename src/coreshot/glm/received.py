"""What the server keeps of a site's message, and the sums of many sites.

A message is kept as it was sent, coded, because the matrices that it stands for are many times as large. They are
decoded again whenever a model is fitted, one site after another. Only the correction (`class_likelihood`) is kept: it
is computed once, when the message is read.

Up to NUM_GROUPS sites, each is a Gaussian of its own for each class. Of more sites, those whose names have the same
hash are pooled: sizes, means and covariances of classes become those of the records of all of them, and corrections
add up. A fit then costs one pass over the messages, and from there on what NUM_GROUPS sites cost. All sums are made in
the order of names and from the messages themselves, so neither the order of arrival nor a site that was there and left
changes a bit of the result.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from coreshot.errors import CoreshotError
from coreshot.glm.class_likelihood import SiteClasses, Weights, pool
from coreshot.glm.filling import NOT_FILLED, Filling, Pairs
from coreshot.glm.local_fit import LocalFit
from coreshot.glm.polynomials import Polynomials
from coreshot.glm.score_groups import MAX_GROUPS
from coreshot.glm.summary import Correct, Summary, add_summaries
from coreshot.glm.winsorising import Limits
from coreshot.spectral.coreset import Moments
from coreshot.wire.factor_coding import coded_columns, decode_factor

NUM_GROUPS = 64  # into which the names of more sites are hashed
LARGEST = 1e15  # the largest sum, weight or gradient that is believed


@dataclass(frozen=True)
class SiteMessage:
    """What a site's message says."""

    codes: Mapping[str, bytes]  # of its matrices
    center: Float[np.ndarray, " inputs"]
    scale: Float[np.ndarray, " inputs"]
    correction: Weights | None  # for features of (x - center) / scale; None of a regression
    num_outputs: int
    loss: float  # what rounding has changed in the site's own predictions
    linear: Moments  # of the inputs, as clients are compared
    largest_input: float = 0.0  # the largest of the root mean squares of its inputs
    limits: Limits | None = None  # inside which its cells were moved; None of a study that does not winsorise

    @property
    def num_examples(self) -> float:
        return self.linear.num_examples

    def summary(self, polynomials: Polynomials, filling: Filling = NOT_FILLED) -> Summary:
        """Decoded anew, and the same bits each time."""
        correct = None if self.correction is None else self._correct
        found = decode_summary(self.codes, polynomials, self.num_outputs, correct, "this message")
        return self.in_inputs(found, polynomials, filling)

    def in_inputs(self, own: Summary, polynomials: Polynomials, filling: Filling = NOT_FILLED) -> Summary:
        """Its own sums, for features of the inputs as they are."""
        return own.in_inputs(polynomials, filling.center_of(self.center), self.scale)

    def _correct(self, site: SiteClasses) -> SiteClasses:
        assert self.correction is not None
        return replace(site, correction=self.correction)


def read_site(
    codes: Mapping[str, bytes],
    arrays: Mapping[str, np.ndarray],
    polynomials: Polynomials,
    num_outputs: int,
    fit: LocalFit | None,
    where: str,
) -> tuple[SiteMessage, Summary]:
    """And its sums, for features of (x - center) / scale."""
    own = decode_summary(codes, polynomials, num_outputs, fit.correct if fit else None, where)
    _check_weight(own, fit.largest_label if fit else 1.0, where)
    center, scale = arrays["center"], arrays["scale"]
    inputs = Polynomials(polynomials.terms[: len(center)])
    linear = own.linear_part(len(center)).in_inputs(inputs, center, scale)
    largest = float(np.sqrt(np.max(np.diag(linear.gram)[1:], initial=0.0) / linear.num_examples))
    correction = own.sites[0].correction if own.sites else None
    moments = linear.linear_moments(len(center))
    limits = Limits(*arrays["limits"]) if "limits" in arrays else None
    loss = float(arrays["loss"][0])
    return SiteMessage(codes, center, scale, correction, num_outputs, loss, moments, largest, limits), own


def decode_summary(
    codes: Mapping[str, bytes], polynomials: Polynomials, num_outputs: int, correct: Correct | None, where: str
) -> Summary:
    size = polynomials.dimension
    columns = {name: size + num_outputs if name == "moments" else _num_columns(codes[name], size) for name in codes}
    factors = {name: decode_factor(codes[name], columns[name], where) for name in codes}
    if max(np.max(np.abs(factor), initial=0) for factor in factors.values()) ** 2 > LARGEST:
        raise CoreshotError(f"{where}: its sums are larger than {LARGEST:g}; distill it again.")
    matrices = {name: factor.T @ factor for name, factor in factors.items()}
    if sum(np.trace(matrix[: columns[name] - size + 1]) for name, matrix in matrices.items()) < 0.5:
        raise CoreshotError(f"{where}: stands for no records; distill it again.")
    if "moments" in matrices:
        return Summary.from_moments(matrices["moments"], num_outputs, correct)
    assert correct is not None
    for name, factor in factors.items():
        groups = factor[: columns[name] - size + 1, : columns[name] - size + 1]
        if np.any(groups - np.diag(np.diag(groups))):
            raise CoreshotError(f"{where}: a record of it is in two groups; distill it again.")
    class_moments = [matrices[f"class_{label}"] for label in range(len(matrices))]
    return Summary.from_class_moments(class_moments, size, correct)


def _num_columns(code: bytes, size: int) -> int:
    """Of a class with groups: their number is what its columns are more than its features."""
    return int(np.clip(coded_columns(code), size, size + MAX_GROUPS - 1))


def _check_weight(summary: Summary, largest_label: float, where: str) -> None:
    """A record changes the gradient by at most its features (times a count), in the exact and in the Gaussian one."""
    count, squares = summary.num_examples, np.diag(summary.gram)
    most = (2 * np.sqrt(count * squares) + 1e-3 * count) * largest_label
    if any(np.any(np.abs(site.correction) > most[:, None]) for site in summary.sites):
        raise CoreshotError(f"{where}: its fit has more weight than {count:,.0f} records give; distill it again.")


def find_filling(sites: Mapping[str, SiteMessage], pairs: Pairs) -> Filling:
    every = [sites[name] for name in sorted(sites)]
    return Filling.of_sites([site.num_examples for site in every], [site.center for site in every], pairs)


def find_limits(sites: Mapping[str, SiteMessage]) -> Limits:
    return Limits.of_sites([site.limits for site in sites.values() if site.limits is not None])


def add_sites(sites: Mapping[str, SiteMessage], polynomials: Polynomials, filling: Filling = NOT_FILLED) -> Summary:
    """Of all these sites together."""
    names = sorted(sites)
    if not are_pooled(len(names)):
        return add_summaries([sites[name].summary(polynomials, filling) for name in names])
    groups: dict[int, list[str]] = {}
    for name in names:
        groups.setdefault(group_number(name), []).append(name)
    parts = [[sites[name] for name in groups[key]] for key in sorted(groups)]
    return add_summaries([_add_group(part, polynomials, filling) for part in parts])


def are_pooled(num_sites: int) -> bool:
    return num_sites > NUM_GROUPS


def group_number(name: str) -> int:
    return zlib.crc32(name.encode()) % NUM_GROUPS


def _add_group(group: Sequence[SiteMessage], polynomials: Polynomials, filling: Filling) -> Summary:
    """Those that are to be filled in come last: the sums of the others do not depend on what they are filled with."""
    found: Summary | None = None
    for one in sorted(group, key=lambda one: filling.is_needed(one.center)):
        found = pool_summaries(found, one.summary(polynomials, filling))
    assert found is not None
    return found


def pool_summaries(one: Summary | None, other: Summary) -> Summary:
    """Sites with a covariance for each class are pooled with one another, and so are those with one for all."""
    if one is None:
        return other
    found = {len(site.covariances): site for site in one.sites}
    for site in other.sites:
        kind = len(site.covariances)
        found[kind] = pool(found[kind], site) if kind in found else site
    return Summary(one.moments + other.moments, tuple(found[kind] for kind in sorted(found)), one.num_outputs)
