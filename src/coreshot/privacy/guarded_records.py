"""Guarded record access: methods and learners get a client's records as `Records`, through declared releases alone.

Two types keep records and what was trained on them out of files. `Records.exact` gives `RecordPoints`, which a
checkpoint refuses wherever it finds them. What a state needs of them goes into a `Local`, which is never written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NoReturn, TypeVar

import jax
import jax.numpy as jnp

from coreshot.errors import CoreshotError
from coreshot.privacy.releases import Mechanism, Release
from coreshot.types import Points, pad_points

T = TypeVar("T")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RecordPoints(Points):
    """Points that are a client's own records: a checkpoint refuses them."""


@dataclass(frozen=True, repr=False)
class Local(Generic[T]):
    """A value that stays in this process, such as records or networks trained on them: no array tree, never
    serialised.
    """

    value: T

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Local holds what must not leave this process, and cannot be serialised; compute it again")


class Records:
    """Points of one client, or of a group with a leading client axis.

    `exact` returns the records for a release that is declared as exact. For a release with a mechanism, only the
    mechanism gets the records, and the caller gets its result.
    """

    def __init__(self, points: Points, releases: Sequence[Release], taken: Mapping[str, int] | None = None) -> None:
        """`taken` are the steps of each release that were taken before, in earlier answers of the same study."""
        self._points = points
        self._releases = {release.name: release for release in releases}
        self._used: set[str] = set()
        # How many steps mechanisms may still take.
        self._left = {release.name: release.num_steps - (taken or {}).get(release.name, 0) for release in releases}
        self._left_before = dict(self._left)

    @property
    def steps_taken(self) -> dict[str, int]:
        """By release: how many steps mechanisms have taken on this object; zero is left out."""
        taken = {name: before - self._left[name] for name, before in self._left_before.items()}
        return {name: steps for name, steps in taken.items() if steps}

    @property
    def num_points(self) -> int:
        """With padding, which makes it the same for every client of a group."""
        return self._points.num_points

    @property
    def used(self) -> frozenset[str]:
        """The releases that were asked for."""
        return frozenset(self._used)

    def exact(self, name: str) -> RecordPoints:
        release = self.declared(name)
        if not release.is_exact:
            raise CoreshotError(
                f"privacy: release {name!r} is declared as {release.mechanism}, so its records are not given out; "
                "use the mechanism."
            )
        return RecordPoints(self._points.x, self._points.y, self._points.weight)

    def declared(self, name: str) -> Release:
        if name not in self._releases:
            known = ", ".join(sorted(self._releases)) or "none"
            raise CoreshotError(
                f"privacy: the method asks for its client's records as {name!r}, but declares {known}; "
                "declare it in `releases`."
            )
        self._used.add(name)
        return self._releases[name]

    def for_mechanism(self, name: str, mechanism: Mechanism, num_steps: int = 1) -> tuple[Points, Release]:
        """For mechanisms alone (`gaussian_moments`, `dp_sgd`): the records, to which the mechanism adds noise.

        It uses up num_steps of the release, so that nothing is computed more often than was accounted for.
        """
        release = self.declared(name)
        if release.mechanism != mechanism:
            raise CoreshotError(
                f"privacy: release {name!r} is declared as {release.mechanism}, so {mechanism} may not make it; "
                "declare that mechanism."
            )
        if self._left[name] < num_steps:
            raise CoreshotError(
                f"privacy: release {name!r} was accounted for {release.num_steps} steps, of which "
                f"{self._left[name]} are left, not {num_steps}; declare all of them in `releases`."
            )
        self._left[name] -= num_steps
        return self._points, release


def stacked(parts: Sequence[Records], size: int) -> Records:
    """A group of clients of one method, padded to the same size."""
    points = jax.tree.map(lambda *arrays: jnp.stack(arrays), *[pad_points(part._points, size) for part in parts])
    return Records(points, list(parts[0]._releases.values()))


def guard_records(clients: Mapping[str, Points], releases: Sequence[Release]) -> dict[str, Records]:
    return {name: Records(points, releases) for name, points in clients.items()}


def exact_points(clients: Mapping[str, Records], name: str) -> dict[str, RecordPoints]:
    """The records of several clients, for an exact release."""
    return {client: records.exact(name) for client, records in clients.items()}


def unstacked(group: Records) -> list[Records]:
    """The clients of a group, one by one; a release that one of them uses counts as used by the group."""
    points = group._points
    releases = list(group._releases.values())
    parts = [
        Records(jax.tree.map(lambda array, index=index: array[index], points), releases)
        for index in range(len(points.weight))
    ]
    for part in parts:
        part._used = group._used
    return parts
