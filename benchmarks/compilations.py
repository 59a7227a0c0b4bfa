"""Counts what jax compiles, or loads from its cache of compiled programs."""

from __future__ import annotations

import sys
from collections.abc import Callable

import jax

COMPILED = "/jax/core/compile/backend_compile_duration"


class Compilations:
    """From when it is made."""

    def __init__(self) -> None:
        self.count = 0
        jax.monitoring.register_event_duration_secs_listener(self._hear)

    def _hear(self, event: str, duration: float, **rest: object) -> None:
        self.count += event == COMPILED


def compiled_once(work: Callable[[], object]) -> Callable[[], object]:
    """The same work; the process ends with a sentence if another call than the first compiles anything."""
    compilations, is_first = Compilations(), True

    def checked() -> object:
        nonlocal is_first
        before = compilations.count
        result = work()
        if not is_first and compilations.count > before:
            sys.exit(
                f"bench: {compilations.count - before} programs were compiled again, by work that has been done before."
            )
        is_first = False
        return result

    return checked
