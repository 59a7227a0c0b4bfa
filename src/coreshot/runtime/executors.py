"""Executors compute the clients' replies: threads of this process, or worker processes with a time limit.

The replies are the same bytes whichever executor computes them. Each is given as soon as it is ready, so that a run
that was killed continues after its last finished client.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from coreshot.errors import CoreshotError
from coreshot.learners.loop import clients_per_group
from coreshot.methods.protocol import OnChunk
from coreshot.models.parallel import as_ready, num_cores
from coreshot.runtime.replies import Reply, compute_replies
from coreshot.runtime.worker_main import write_job
from coreshot.runtime.worker_process import Worker
from coreshot.study import Study
from coreshot.types import Points, PRNGKey
from coreshot.wire.messages import Message

Answer = Reply | str  # or why there is no reply


class Executor(Protocol):
    """Computes client replies, or collects them from the clients' own machines."""

    @property
    def handles_all_rounds(self) -> bool:
        """Whether it is asked in every round; otherwise only for messages that are sent once: rounds are short."""

    @property
    def quorum(self) -> int:
        """Fewer usable answers are an error."""

    def answers(
        self, key: PRNGKey, study: Study, clients: Mapping[str, Points], inbox: Sequence[Message], on_chunk: OnChunk
    ) -> Iterator[tuple[str, Answer]]:
        """Each client's answer to the last message of the inbox, in the order in which they are ready."""


class Threads:
    """One client a core, in this process; where several clients are vmapped, one group of them a core."""

    handles_all_rounds: ClassVar[bool] = False
    quorum: ClassVar[int] = 1

    def answers(
        self, key: PRNGKey, study: Study, clients: Mapping[str, Points], inbox: Sequence[Message], on_chunk: OnChunk
    ) -> Iterator[tuple[str, Answer]]:
        names, size = list(clients), clients_per_group()
        groups = [names[first : first + size] for first in range(0, len(names), size)]
        num_at_once = min(num_cores(), len(groups))

        def run(group: list[str]) -> list[tuple[str, Reply]]:
            own = {name: clients[name] for name in group}
            return compute_replies(key, study, own, inbox, on_chunk, num_at_once)

        for replies in as_ready(run, groups):
            yield from replies


@dataclass(frozen=True)
class Processes:
    """Worker processes, each with one client at a time, which is stopped after `seconds_limit`."""

    num_workers: int
    seconds_limit: float | None = None

    handles_all_rounds: ClassVar[bool] = False
    quorum: ClassVar[int] = 1

    def answers(
        self, key: PRNGKey, study: Study, clients: Mapping[str, Points], inbox: Sequence[Message], on_chunk: OnChunk
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
