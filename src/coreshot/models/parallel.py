"""The one thread pool: work of several clients side by side, one a core. Compiled programs and BLAS release the GIL."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def num_cores() -> int:
    return os.cpu_count() or 1


def map_in_threads(function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """function of each item, one a core, in the order of the items."""
    with ThreadPoolExecutor(num_cores()) as pool:
        return list(pool.map(function, items))


def as_ready(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """As `map_in_threads`, in the order in which results are ready. After an error, items that have not begun do not
    begin."""
    pool = ThreadPoolExecutor(num_cores())
    try:
        for done in as_completed([pool.submit(function, item) for item in items]):
            yield done.result()
    finally:
        pool.shutdown(cancel_futures=True)
