"""Run a command; print its wall time and the peak memory of all its processes, as `make test` and `make quick` do.

    python benchmarks/watch.py COMMAND ARGUMENT ...

Memory is the proportional set size: pages that several processes share are counted once.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import psutil

INTERVAL = 2.0  # seconds between two samples


@dataclass
class Memory:
    """Bytes of processes. Proportional sizes are read only where they may be a new peak: that takes time itself."""

    peak: int = 0
    last: int = 0  # proportional sizes, when they were read
    resident: dict[psutil.Process, int] = field(default_factory=dict)  # what each process had then

    def look(self, processes: set[psutil.Process]) -> None:
        now = {process: read_memory(process, lambda one: one.memory_info().rss) for process in processes}
        # Since the last time they have grown by no more than this; a new process has grown by all that it has.
        growth = sum(max(0, size - self.resident.get(process, 0)) for process, size in now.items())
        if self.last + growth > self.peak:
            self.last = sum(read_memory(process, lambda one: one.memory_full_info().pss) for process in processes)
            self.resident, self.peak = now, max(self.peak, self.last)


def read_memory(process: psutil.Process, read: Callable[[psutil.Process], int]) -> int:
    with suppress(psutil.Error):
        return read(process)
    return 0


def watch(command: list[str]) -> tuple[int, float, int]:
    """The exit code, the wall time in seconds, and the peak memory in bytes."""
    start, memory = time.monotonic(), Memory()
    seen: set[psutil.Process] = set()  # a process stays here when its parent ends before it, as a daemon's does
    with psutil.Popen(command) as running:
        seen.add(psutil.Process(running.pid))
        while True:
            seen = with_descendants({process for process in seen if process.is_running()})
            memory.look(seen)
            try:
                return running.wait(timeout=INTERVAL), time.monotonic() - start, memory.peak
            except psutil.TimeoutExpired:
                continue
            except KeyboardInterrupt:
                return running.wait(), time.monotonic() - start, memory.peak


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
