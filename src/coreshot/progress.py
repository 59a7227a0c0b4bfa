"""How far a job is and how long it still takes: a bar in a terminal, lines of text elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Protocol, TextIO, runtime_checkable

from coreshot.errors import visible

SECONDS_BETWEEN_LINES = 10.0


@runtime_checkable
class Progress(Protocol):
    def begin(self, what: str, total: int) -> None: ...

    def advance(self, amount: int = 1) -> None: ...

    def end(self) -> None: ...

    def say(self, line: str) -> None: ...


class Silent:
    """Shows nothing: for library use and tests."""

    def begin(self, what: str, total: int) -> None: ...

    def advance(self, amount: int = 1) -> None: ...

    def end(self) -> None: ...

    def say(self, line: str) -> None: ...


@contextmanager
def show_progress(file: TextIO) -> Iterator[Progress]:
    """A bar if the file is a terminal, otherwise lines."""
    if not file.isatty():
        yield Lines(file)
        return
    with Bar(file) as bar:
        yield bar


class Lines:
    """For logs: a line every ten seconds and a line when a job ends. Several threads may advance it."""

    def __init__(self, file: TextIO) -> None:
        self._file, self._lock = file, threading.Lock()
        self._what, self._total, self._done, self._began, self._last_line = "", 0, 0, 0.0, 0.0
        self._first: tuple[int, float] | None = None

    def begin(self, what: str, total: int) -> None:
        self._what, self._total, self._done, self._first = what, total, 0, None
        self._began = self._last_line = time.monotonic()

    def advance(self, amount: int = 1) -> None:
        with self._lock:
            self._done += amount
            now = time.monotonic()
            # The speed is measured from the first advance: what precedes it (experts, compilation) happens once.
            self._first = self._first or (self._done, now)
            if now - self._last_line < SECONDS_BETWEEN_LINES or self._done == self._first[0]:
                return
            self._last_line = now
            left = (now - self._first[1]) / (self._done - self._first[0]) * (self._total - self._done)
            self.say(f"{self._what}: {self._done} of {self._total}, about {left:.0f} s left")

    def end(self) -> None:
        self.say(f"{self._what}: done in {time.monotonic() - self._began:.0f} s")

    def say(self, line: str) -> None:
        print(visible(line), file=self._file, flush=True)


class Bar:
    """For a terminal; use it as a context manager."""

    def __init__(self, file: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        self._bar = RichProgress(*columns, console=Console(file=file), transient=True)
        self._task = self._bar.add_task("", total=None, visible=False)
        self._what, self._began = "", 0.0

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def begin(self, what: str, total: int) -> None:
        self._what, self._began = what, time.monotonic()
        self._bar.reset(self._task, description=visible(what), total=total, visible=True)

    def advance(self, amount: int = 1) -> None:
        self._bar.advance(self._task, amount)

    def end(self) -> None:
        self._bar.update(self._task, visible=False)
        self.say(f"{self._what}: done in {time.monotonic() - self._began:.0f} s")

    def say(self, line: str) -> None:
        self._bar.console.print(visible(line), highlight=False, markup=False, emoji=False, soft_wrap=True)
