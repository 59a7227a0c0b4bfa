"""Who does the clients' work in a simulation: threads of this process, or worker processes with a time limit. The answers are the same bytes.

Each client's answer is given as soon as it is there, so that a run that is killed goes on from its last finished client.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from coreshot.errors import CoreshotError
from coreshot.learners.loop import clients_per_group
from coreshot.methods.protocol import OnChunk
from coreshot.privacy.guarded_records import behind_doors
from coreshot.runtime.worker_main import write_job
from coreshot.runtime.worker_process import Worker
from coreshot.study import Study
from coreshot.types import Points, PRNGKey
from coreshot.wire.messages import Message, encode_message


@dataclass(frozen=True)
class Reply:
    """A client's answer as it crossed the wire, and what the simulation knows about how it was made."""

    data: bytes
    seconds: float  # of the whole machine: with several clients beside each other, a share of the clock's
    notes: list[str] = field(default_factory=list)


Answer = Reply | str  # or why there is none


class Crew(Protocol):
    """Whoever answers in the place of the clients, or for them."""

    every_round: ClassVar[
        bool
    ]  # whether it is asked in every round of a method, or, since rounds are short, only for what is sent once

    @property
    def quorum(self) -> int:
        """Fewer answers that can be used are an error."""

    def answers(
        self,
        key: PRNGKey,
        study: Study,
        clients: Mapping[str, Points],
        inbox: Sequence[Message],
        on_chunk: OnChunk,
    ) -> Iterator[tuple[str, Answer]]:
        """Each client's answer to the last message of the inbox, in the order in which they are ready."""


class Threads:
    """One client a core, in this process; where several are vmapped, one group of them a core."""

    every_round: ClassVar[bool] = False
    quorum: ClassVar[int] = 1

    def answers(
        self,
        key: PRNGKey,
        study: Study,
        clients: Mapping[str, Points],
        inbox: Sequence[Message],
        on_chunk: OnChunk,
    ) -> Iterator[tuple[str, Answer]]:
        names, size = list(clients), clients_per_group()
        groups = [names[first : first + size] for first in range(0, len(names), size)]
        num_threads = min(os.cpu_count() or 1, len(groups))

        def run(group: list[str]) -> list[tuple[str, Answer]]:
            began = time.perf_counter()
            asked = behind_doors({name: clients[name] for name in group}, study.releases)
            answers = study.method.reply(key, study.model, asked, inbox, study.shared_key, on_chunk)
            seconds = (time.perf_counter() - began) / num_threads / len(group)
            return [
                (
                    name,
                    Reply(
                        encode_message(message, study_hash=study.hash, client=name, releases=study.releases),
                        seconds,
                        notes,
                    ),
                )
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

    every_round: ClassVar[bool] = False
    quorum: ClassVar[int] = 1

    def answers(
        self,
        key: PRNGKey,
        study: Study,
        clients: Mapping[str, Points],
        inbox: Sequence[Message],
        on_chunk: OnChunk,
    ) -> Iterator[tuple[str, Answer]]:
        waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
        for name in clients:
            waiting.put(name)
        ready: queue.SimpleQueue[tuple[str, Answer] | BaseException] = queue.SimpleQueue()
        stop = threading.Event()

        def work() -> None:
            worker = Worker()
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

    def _one(
        self,
        worker: Worker,
        key: PRNGKey,
        study: Study,
        name: str,
        points: Points,
        inbox: Sequence[Message],
        on_chunk: OnChunk,
    ) -> Answer:
        began = time.perf_counter()
        frame = worker.ask(lambda pipe: write_job(pipe, key, study, name, points, inbox), self.seconds_limit, on_chunk)
        if isinstance(frame, str):
            return frame
        head, parts = frame
        if head["kind"] == "error":
            raise CoreshotError(head["error"])
        return Reply(parts[0], (time.perf_counter() - began) / self.num_workers, head["notes"])
