"""Run a command; print its wall time and the peak memory of all its processes, as `make test` and `make quick` do.

    python benchmarks/watch.py COMMAND ARGUMENT ...

Memory is the proportional set size: pages that several processes share are counted once.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress

import psutil

INTERVAL = 2.0  # seconds between two samples; reading the memory of all processes takes time itself


def memory(processes: set[psutil.Process], at_least: int = 0) -> int:
    """Bytes of those that still live. A bound that costs little is enough where all together cannot exceed at_least."""
    resident = sum(read_memory(process, lambda one: one.memory_info().rss) for process in processes)
    if resident <= at_least:
        return resident
    return sum(read_memory(process, lambda one: one.memory_full_info().pss) for process in processes)


def read_memory(process: psutil.Process, read: Callable[[psutil.Process], int]) -> int:
    with suppress(psutil.Error):
        return read(process)
    return 0


def watch(command: list[str]) -> tuple[int, float, int]:
    """The exit code, the wall time in seconds, and the peak memory in bytes."""
    start, peak = time.monotonic(), 0
    seen: set[psutil.Process] = set()  # a process stays here when its parent ends before it, as a daemon's does
    with psutil.Popen(command) as running:
        seen.add(psutil.Process(running.pid))
        while True:
            seen = with_descendants({process for process in seen if process.is_running()})
            peak = max(peak, memory(seen, peak))
            try:
                return running.wait(timeout=INTERVAL), time.monotonic() - start, peak
            except psutil.TimeoutExpired:
                continue
            except KeyboardInterrupt:
                return running.wait(), time.monotonic() - start, peak


def with_descendants(roots: set[psutil.Process]) -> set[psutil.Process]:
    """These processes and all that they have started, by one look at all processes of the machine."""
    children: dict[int, list[psutil.Process]] = {}
    for process in psutil.process_iter(["ppid"]):
        children.setdefault(process.info["ppid"], []).append(process)
    found, waiting = set(roots), list(roots)
    while waiting:
        new = [child for child in children.get(waiting.pop().pid, []) if child not in found]
        found.update(new)
        waiting += new
    return found


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(f"no command; write: python {sys.argv[0]} COMMAND ARGUMENT ...")
    code, seconds, peak_bytes = watch(sys.argv[1:])
    print(f"{seconds:.0f} s of wall time, at most {peak_bytes / 1e9:.2f} GB of memory in all processes", flush=True)
    sys.exit(code)
