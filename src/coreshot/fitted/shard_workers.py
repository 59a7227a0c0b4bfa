"""Shards of many clients made side by side: this process makes some, and worker processes the others.

Reading messages is mostly Python, which keeps one core busy in a process. A shard follows from its own messages alone,
so it has the same bytes whoever makes it. The workers' program is `shard_worker_main`.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from coreshot.errors import CoreshotError
from coreshot.models.parallel import num_cores
from coreshot.runtime.worker_process import Worker, write_frame
from coreshot.study import Study

MESSAGES_EACH = 1_000  # for each process, at least: a worker takes two seconds to start
PROGRAM = "coreshot.fitted.shard_worker_main"
MOST_PROCESSES = 8  # each takes 0.4 GB

Messages = Mapping[str, bytes]
Made = TypeVar("Made")


def make_side_by_side(
    study: Study,
    numbers: Iterable[int],
    num_messages: int,
    read: Callable[[int], Messages],
    make: Callable[[Study, Messages], bytes],
    write: Callable[[int, bytes], Made],
) -> dict[int, Made]:
    """What was written, by number. Of several errors, that of the smallest number."""
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in numbers:
        waiting.put(number)
    found, failed, is_over = dict[int, Made](), dict[int, CoreshotError](), threading.Event()

    def work(make_one: Callable[[Messages], bytes]) -> None:
        while not (failed or is_over.is_set()):
            try:
                number = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                found[number] = write(number, make_one(read(number)))
            except CoreshotError as error:
                failed[number] = error

    workers = [Worker(PROGRAM) for _ in range(min(num_cores(), MOST_PROCESSES, num_messages // MESSAGES_EACH) - 1)]
    try:
        with ThreadPoolExecutor(max(len(workers), 1)) as pool:
            others = [pool.submit(work, partial(_ask, worker, study)) for worker in workers]
            try:
                work(partial(make, study))
            finally:  # of an interrupt, too: then nobody begins another shard
                is_over.set()
            for other in others:
                other.result()
    finally:
        for worker in workers:
            worker.stop()
    if failed:
        raise failed[min(failed)]
    return dict(sorted(found.items()))


def _ask(worker: Worker, study: Study, messages: Messages) -> bytes:
    head = {"study": study.to_dict(), "names": list(messages)}
    frame = worker.ask(lambda pipe: write_frame(pipe, head, list(messages.values())), None)
    if isinstance(frame, str):
        raise CoreshotError(f"fit: {frame}.")
    if frame[0]["kind"] == "error":
        raise CoreshotError(frame[0]["error"])
    return frame[1][0]
