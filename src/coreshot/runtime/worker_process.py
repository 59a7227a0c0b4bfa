"""The parent's handle of a worker process (such as `runtime.worker_main`), and the frames between the two.

It imports nothing heavy; only the child process does.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO, Any


def write_frame(file: IO[bytes], head: Mapping[str, Any], parts: Sequence[bytes] = ()) -> None:
    file.write(json.dumps({**head, "sizes": [len(part) for part in parts]}).encode() + b"\n")
    for part in parts:
        file.write(part)
    file.flush()


def read_frame(file: IO[bytes]) -> tuple[dict[str, Any], list[bytes]] | None:
    """None where the other side has ended."""
    line = file.readline()
    if not line.endswith(b"\n"):
        return None
    head = json.loads(line)
    return head, [file.read(size) for size in head["sizes"]]


class Worker:
    """A process that is started when there is work, and again after it was stopped."""

    def __init__(self, program: str = "coreshot.runtime.worker_main") -> None:
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None

    def ask(
        self,
        write: Callable[[IO[bytes]], None],
        seconds_limit: float | None,
        on_chunk: Callable[[int], None] = lambda clients: None,
    ) -> tuple[dict[str, Any], list[bytes]] | str:
        """The answer to the job that is written, or why there is none."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self._program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        process, is_late = self._process, threading.Event()
        assert process.stdin is not None
        assert process.stdout is not None

        def stop_late() -> None:
            is_late.set()
            process.kill()

        timer = threading.Timer(seconds_limit, stop_late) if seconds_limit else None
        if timer:
            timer.start()
        try:
            write(process.stdin)
            while (frame := read_frame(process.stdout)) is not None and frame[0]["kind"] == "chunk":
                on_chunk(1)
        except BrokenPipeError:
            frame = None
        finally:
            if timer:
                timer.cancel()
        if frame is not None:
            return frame
        code = process.wait()
        self._forget()
        if is_late.is_set():
            return f"it took longer than {seconds_limit:g} s and was stopped; allow more, or make its work smaller"
        return f"its worker process ended with code {code} (-9: out of memory, or killed); use fewer workers"

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._forget()

    def _forget(self) -> None:
        """Its pipes too: what was still to be written to it no longer matters."""
        assert self._process is not None
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()
        self._process = None
