"""A client's records behind a door. Methods and learners get them as `Records`, and every way to them is a release that was declared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp

from coreshot.errors import CoreshotError
from coreshot.privacy.releases import Mechanism, Release
from coreshot.types import Points, pad_points


class Records:
    """Points of one client, or of a group with a leading client axis.

    `exact` opens the door for a release that is declared as exact. A release with a mechanism is never opened: the mechanism
    takes the records, and the one who asks gets what it made of them.
    """

    def __init__(self, points: Points, releases: Sequence[Release]) -> None:
        self._points = points
        self._releases = {release.name: release for release in releases}
        self._used: set[str] = set()
        self._left = {
            release.name: release.num_steps for release in releases
        }  # of what mechanisms may still make of the records

    @property
    def num_points(self) -> int:
        """With padding: how much room there is, which every client of a group shares."""
        return self._points.num_points

    @property
    def used(self) -> frozenset[str]:
        """The releases that were asked for."""
        return frozenset(self._used)

    def exact(self, name: str) -> Points:
        release = self.declared(name)
        if not release.is_exact:
            raise CoreshotError(
                f"privacy: release {name!r} is declared as {release.mechanism}, so its records are not given out; use the mechanism."
            )
        return self._points

    def declared(self, name: str) -> Release:
        if name not in self._releases:
            known = ", ".join(sorted(self._releases)) or "none"
            raise CoreshotError(
                f"privacy: the method asks for its client's records as {name!r}, but declares {known}; declare it in `releases`."
            )
        self._used.add(name)
        return self._releases[name]

    def for_mechanism(self, name: str, mechanism: Mechanism, num_steps: int = 1) -> tuple[Points, Release]:
        """For mechanisms alone (`gaussian_moments`, `dp_sgd`): the records of a release that they are about to make noisy.

        A release is spent: what was accounted for once is not made twice.
        """
        release = self.declared(name)
        if release.mechanism != mechanism:
            raise CoreshotError(
                f"privacy: release {name!r} is declared as {release.mechanism}, so {mechanism} may not make it; declare that."
            )
        if self._left[name] < num_steps:
            raise CoreshotError(
                f"privacy: release {name!r} was accounted for {release.num_steps} steps, of which {self._left[name]} are left, not {num_steps}; "
                "declare all of them in `releases`."
            )
        self._left[name] -= num_steps
        return self._points, release


def stacked(parts: Sequence[Records], size: int) -> Records:
    """A group of clients of one method, padded to the same room."""
    points = jax.tree.map(lambda *arrays: jnp.stack(arrays), *[pad_points(part._points, size) for part in parts])
    return Records(points, list(parts[0]._releases.values()))


def guard_records(clients: Mapping[str, Points], releases: Sequence[Release]) -> dict[str, Records]:
    return {name: Records(points, releases) for name, points in clients.items()}


def exact_points(clients: Mapping[str, Records], name: str) -> dict[str, Points]:
    """Of several clients, each its own."""
    return {client: records.exact(name) for client, records in clients.items()}


def unstacked(group: Records) -> list[Records]:
    """The clients of a group, one by one; what each uses counts as used by the group."""
    points = group._points
    releases = list(group._releases.values())
    parts = [
        Records(jax.tree.map(lambda array, index=index: array[index], points), releases)
        for index in range(len(points.weight))
    ]
    for part in parts:
        part._used = group._used
    return parts
