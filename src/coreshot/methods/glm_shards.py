"""The server of many sites of `glm`: each message is read once, added to its shard, and dropped (`coreshot.glm.shard`).

What a model is made of are NUM_GROUPS shards. Every sum is made in the order of names, and of the same numbers, whoever
came first: a fit from all messages, one that only made one shard anew, and one whose shards several machines have made
give the same bits.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from coreshot.glm.filling import Filling
from coreshot.glm.head import fit_head
from coreshot.glm.new_site import fit_new_site
from coreshot.glm.posterior import GlmPosterior
from coreshot.glm.received import NUM_GROUPS, SiteMessage, pool_summaries
from coreshot.glm.shard import Facts, Shard, linear_moments, make_shard
from coreshot.glm.summary import Summary, add_summaries
from coreshot.glm.winsorising import Limits
from coreshot.methods.glm import Glm
from coreshot.models import Model
from coreshot.models.parallel import one_blas_thread
from coreshot.spectral.many_clients import compare_many
from coreshot.spectral.outlier_clients import Standing
from coreshot.wire.messages import Message

ReadSite = Callable[[str], SiteMessage]  # by name, from the message that is kept


def shard_of(
    method: Glm,
    model: Model,
    messages: Iterable[tuple[str, Message, bytes]],
    check: Callable[[str, Message, SiteMessage], object],
) -> Shard:
    """From names, messages and their digests, in the order of names."""

    def read() -> Iterable[tuple[str, SiteMessage, Summary, bytes]]:
        for name, message, digest in messages:
            site, own = method.read_with_sums(model, name, message)
            check(name, message, site)
            yield name, site, own, digest

    with one_blas_thread():
        return make_shard(read(), method.polynomials(model), method.fills)


@dataclass(frozen=True)
class ShardSums:
    """What is kept of a shard while the others are read: all but the matrices of single sites."""

    names: tuple[str, ...]
    counts: np.ndarray
    centers: np.ndarray
    is_waiting: np.ndarray
    total: Summary | None
    limits: Limits | None

    @classmethod
    def of(cls, shard: Shard) -> ShardSums:
        facts = shard.facts
        return cls(shard.names, facts.counts, facts.centers, facts.is_waiting, shard.total, shard.limits)


def fit_shards(method: Glm, model: Model, shards: Sequence[ShardSums], read_site: ReadSite) -> GlmPosterior:
    """Shards in the order of their numbers. Messages are read again of sites that wait for the filling, and of those
    that are compared with each other."""
    polynomials, filling = method.polynomials(model), _filling(method, shards)
    with one_blas_thread():
        parts = []
        for shard in shards:
            total = shard.total
            for name in (one for one, waits in zip(shard.names, shard.is_waiting, strict=True) if waits):
                total = pool_summaries(total, read_site(name).summary(polynomials, filling))
            assert total is not None
            parts.append(total)
        head = fit_head(polynomials, add_summaries(parts))
        compared = sorted((name for shard in shards for name in shard.names), key=_hash)[:NUM_GROUPS]
        new_site = fit_new_site(head, {name: read_site(name) for name in compared}, polynomials, filling)
    limited = [shard.limits for shard in shards if shard.limits is not None]
    limits = Limits.of_sites(limited) if method.winsorise else None
    return GlmPosterior(polynomials, model.kind, head, filling, limits, new_site)


def _hash(name: str) -> tuple[int, str]:
    return zlib.crc32(name.encode()), name


def _filling(method: Glm, shards: Sequence[ShardSums]) -> Filling:
    """In the order of names, as for few sites."""
    order = np.argsort([name for shard in shards for name in shard.names], kind="stable")
    counts, centers = (np.concatenate([vars(shard)[what] for shard in shards])[order] for what in ("counts", "centers"))
    return Filling.of_sites(counts, centers, method.fills)


def compare_shards(
    model: Model, names: Sequence[str], read_facts: Callable[[], Iterable[Facts]]
) -> dict[str, Standing]:
    """Each site against the others; names in the order of the shards."""

    def parts() -> Iterable[tuple[np.ndarray, np.ndarray]]:
        return ((linear_moments(facts), facts.counts) for facts in read_facts())

    with one_blas_thread():
        return compare_many(model.kind, names, parts, model.num_outputs)
