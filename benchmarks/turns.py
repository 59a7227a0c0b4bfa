"""Sides of a comparison take turns, so that a busy machine slows all of them alike.

A side is a process of its own, in an environment of its own: it does its work once each time a line arrives, and
answers with the seconds
that it took. This file runs in every environment, so it imports nothing but Python's own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence

NUM_WARM = 2  # turns that warm up: compilation, and the allocator


def serve(work: Callable[[], object]) -> None:
    """A side's loop."""
    for _ in sys.stdin:
        began = time.perf_counter()
        work()
        print(time.perf_counter() - began, flush=True)


def take_turns(
    what: str, commands: Mapping[str, Sequence[str]], num_timed: int, num_warm: int = NUM_WARM
) -> dict[str, list[float]]:
    """The seconds of each side's turns after the first ones, which warm up."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    sides = {
        name: subprocess.Popen(list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        for name, command in commands.items()
    }
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    try:
        for turn in range(num_warm + num_timed):
            for name, side in sides.items():
                took = _turn(name, side)
                print(
                    f"  {what}, {name}, turn {turn}: {took:.3f} s{' (warming up)' if turn < num_warm else ''}",
                    flush=True,
                )
                if turn >= num_warm:
                    seconds[name].append(took)
    finally:
        for side in sides.values():
            side.communicate()  # no more lines: the side's loop ends
    return seconds


def _turn(name: str, side: subprocess.Popen[str]) -> float:
    assert side.stdin is not None
    assert side.stdout is not None
    try:
        side.stdin.write("\n")
        side.stdin.flush()
    except BrokenPipeError:
        pass  # it has ended: the next line says so
    line = side.stdout.readline()
    if not line:
        sys.exit(f"bench: {name} ended with {side.wait()}; its own words are above.")
    return float(line)
