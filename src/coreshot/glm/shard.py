"""The sites whose names have the same hash: the sum of what they said, and what a fit wants to know of each of them.

A model of many sites is made of NUM_GROUPS shards. A shard follows from the messages of its own sites alone, in the
order of their names, so it stays, bit for bit, when a site of another shard comes or leaves. A site that has no cell of
some column is filled in with the mean of all sites, and so it is added at each fit (`waiting`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, UInt8

from coreshot.glm.class_likelihood import SiteClasses
from coreshot.glm.filling import Filling, Pairs
from coreshot.glm.polynomials import Polynomials
from coreshot.glm.received import SiteMessage, pool_summaries
from coreshot.glm.summary import Summary
from coreshot.glm.winsorising import Limits

NUM_SAMPLED = 64  # numbers of a message that tell whether two sites sent almost the same
_OF_CLASSES = ("labels", "places", "sizes", "means", "covariances", "correction")


@dataclass(frozen=True)
class Facts:
    """Of each site, in the order of names. A symmetric matrix is its lower triangle."""

    counts: Float[np.ndarray, " sites"]
    losses: Float[np.ndarray, " sites"]
    centers: Float[np.ndarray, "sites inputs"]
    linear: Float[np.ndarray, "sites entries"]  # moments of the inputs, as sites are compared
    samples: Float[np.ndarray, "sites sampled"]
    digests: UInt8[np.ndarray, "sites 32"]  # of all arrays: who sent the same
    is_waiting: np.ndarray


@dataclass(frozen=True)
class Shard:
    names: tuple[str, ...]
    facts: Facts
    total: Summary | None  # of the sites that do not wait; None: all wait
    limits: Limits | None  # the widest

    def arrays(self) -> dict[str, np.ndarray]:
        found = {f"facts.{name}": np.asarray(array) for name, array in vars(self.facts).items()}
        if self.limits is not None:
            found["limits"] = np.stack([self.limits.lowest, self.limits.highest])
        if self.total is not None:
            found["total.moments"] = self.total.moments
            for site in self.total.sites:
                kind = len(site.covariances)
                found |= {f"total.{kind}.{name}": np.asarray(vars(site)[name]) for name in _OF_CLASSES}
        return found

    @classmethod
    def from_arrays(cls, names: Iterable[str], arrays: Mapping[str, np.ndarray], num_outputs: int) -> Shard:
        facts = {name.removeprefix("facts."): one for name, one in arrays.items() if name.startswith("facts.")}
        limits = Limits(*arrays["limits"]) if "limits" in arrays else None
        total: Summary | None = None
        if "total.moments" in arrays:
            kinds = sorted(int(name.split(".")[1]) for name in arrays if name.endswith(".covariances"))
            parts = [{name: arrays[f"total.{kind}.{name}"] for name in _OF_CLASSES} for kind in kinds]
            total = Summary(arrays["total.moments"], tuple(SiteClasses(**part) for part in parts), num_outputs)
        return cls(tuple(names), Facts(**facts), total, limits)


def make_shard(
    sites: Iterable[tuple[str, SiteMessage, Summary, bytes]], polynomials: Polynomials, pairs: Pairs
) -> Shard:
    """From each site's name, message, own sums and digest, in the order of names; one after the other is dropped."""
    names, rows, limits = list[str](), list[tuple[np.ndarray, ...]](), list[Limits]()
    total, filling = None, Filling(pairs, (0.0,) * len(pairs))
    for name, site, own, digest in sites:
        waits = filling.is_needed(site.center)
        if not waits:
            total = pool_summaries(total, site.in_inputs(own, polynomials))
        if site.limits is not None:
            limits.append(site.limits)
        names.append(name)
        numbers = (np.asarray(site.num_examples), np.asarray(site.loss), site.center, lower_triangle(site.linear.joint))
        rows.append((*numbers, _sample(site), np.frombuffer(digest, np.uint8), np.asarray(waits)))
    facts = Facts(*(np.stack(column) for column in zip(*rows, strict=True)))
    return Shard(tuple(names), facts, total, Limits.of_sites(limits) if limits else None)


def _sample(site: SiteMessage) -> Float[np.ndarray, " sampled"]:
    parts = [site.center, site.scale, site.linear.joint.ravel()]
    parts += [] if site.correction is None else [site.correction.ravel()]
    numbers = np.concatenate(parts)
    return numbers[np.linspace(0, len(numbers) - 1, NUM_SAMPLED).astype(int)]


def lower_triangle(matrix: Float[np.ndarray, "n n"]) -> Float[np.ndarray, " entries"]:
    return matrix[np.tril_indices(len(matrix))]


def linear_moments(facts: Facts) -> Float[np.ndarray, "sites n n"]:
    """The matrices of all sites."""
    size = int((np.sqrt(8 * facts.linear.shape[1] + 1) - 1) / 2)
    rows, columns = np.tril_indices(size)
    found = np.zeros((len(facts.linear), size, size))
    found[:, rows, columns] = facts.linear
    found[:, columns, rows] = facts.linear
    return found
