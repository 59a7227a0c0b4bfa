"""Who does the clients' work in a simulation: threads of this process, or worker processes with a time limit. The answers are the same bytes.

Each client's answer is given as soon as it is there, so that a run that is killed goes on from its last finished client.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from coreshot.errors import CoreshotError
from coreshot.learners.distill import clients_per_group
from coreshot.methods.protocol import Method, OnChunk
from coreshot.privacy.records import behind_doors
from coreshot.study import Study
from coreshot.types import Message, Points, PRNGKey
from coreshot.wire import encode_message
from coreshot.worker import read_frame, write_job


@dataclass(frozen=True)
class Reply:
    """A client's answer as it crossed the wire, and what the simulation knows about how it was made."""

    data: bytes
    seconds: float  # of the whole machine: with several clients beside each other, a share of the clock's
    notes: list[str] = field(default_factory=list)


Answer = Reply | str  # or why there is none


class Crew(Protocol):
    def answers(
        self, key: PRNGKey, study: Study, method: Method, clients: Mapping[str, Points], inbox: Sequence[Message], on_chunk: OnChunk
    ) -> Iterator[tuple[str, Answer]]:
        """Each client's answer to the last message of the inbox, in the order in which they are ready."""


class Threads:
    """One client a core, in this process; where several are vmapped, one group of them a core."""

    def answers(
        self, key: PRNGKey, study: Study, method: Method, clients: Mapping[str, Points], inbox: Sequence[Message], on_chunk: OnChunk
    ) -> Iterator[tuple[str, Answer]]:
        names, size = list(clients), clients_per_group()
        groups = [names[first : first + size] for first in range(0, len(names), size)]
        num_threads = min(os.cpu_count() or 1, len(groups))

        def run(group: list[str]) -> list[tuple[str, Answer]]:
            began = time.perf_counter()
            asked = behind_doors({name: clients[name] for name in group}, study.releases)
            answers = method.reply(key, study.model, asked, inbox, study.shared_key, on_chunk)
            seconds = (time.perf_counter() - began) / num_threads / len(group)
            return [
                (name, Reply(encode_message(message, study_hash=study.hash, client=name, releases=study.releases), seconds, notes))
                for name, (message, notes) in answers.items()
            ]

        pool = ThreadPoolExecutor(num_threads)
        try:
            for done in as_completed([pool.submit(run, group) for group in groups]):
                yield from done.result()
        finally:
            pool.shutdown(cancel_futures=True)  # after an error, clients that have not begun do not begin


@dataclass(frozen=True)
class Processes:
    """So many processes of their own, each with one client at a time, which is stopped after so many seconds."""

    num_workers: int
    seconds_limit: float | None = None

    def answers(
        self, key: PRNGKey, study: Study, method: Method, clients: Mapping[str, Points], inbox: Sequence[Message], on_chunk: OnChunk
    ) -> Iterator[tuple[str, Answer]]:
        waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
        for name in clients:
            waiting.put(name)
        ready: queue.SimpleQueue[tuple[str, Answer] | BaseException] = queue.SimpleQueue()
        stop = threading.Event()

        def work() -> None:
            worker = _Worker()
            try:
                while not stop.is_set():
                    name = waiting.get_nowait()
                    ready.put((name, self._one(worker, key, study, name, clients[name], inbox, on_chunk)))
            except queue.Empty:
                pass
            except BaseException as error:  # handed to the thread that waits
                ready.put(error)
            finally:
                worker.stop()

        threads = [threading.Thread(target=work, daemon=True) for _ in range(min(self.num_workers, len(clients)))]
        for thread in threads:
            thread.start()
        try:
            for _ in clients:
                answer = ready.get()
                if isinstance(answer, BaseException):
                    raise answer
                yield answer
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    def _one(self, worker: _Worker, key: PRNGKey, study: Study, name: str, points: Points, inbox: Sequence[Message], on_chunk: OnChunk) -> Answer:
        began = time.perf_counter()
        frame = worker.ask(self.seconds_limit, on_chunk, key, study, name, points, inbox)
        if isinstance(frame, str):
            return frame
        head, parts = frame
        if head["kind"] == "error":
            raise CoreshotError(head["error"])
        return Reply(parts[0], (time.perf_counter() - began) / self.num_workers, head["notes"])


class _Worker:
    """A process that is started when there is work, and again after it was stopped."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, seconds_limit: float | None, on_chunk: OnChunk, *job: Any) -> tuple[dict[str, Any], list[bytes]] | str:
        if self._process is None:
            self._process = subprocess.Popen([sys.executable, "-m", "coreshot.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
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
            write_job(process.stdin, *job)
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
