"""The one thread pool: work of several clients side by side, one a core. Compiled programs and BLAS release the GIL.

BLAS has threads of its own. Beside other work they wait for each other, spinning, and what they compute depends in its
last bits on how many they are. So work that is side by side, and everything whose bytes are compared, uses one BLAS
thread a piece (`one_blas_thread`): cores are used by the pieces.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def num_cores() -> int:
    return os.cpu_count() or 1


def map_in_threads(function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """function of each item, one a core, in the order of the items."""
    with one_blas_thread(), ThreadPoolExecutor(num_cores()) as pool:
        return list(pool.map(function, items))


def as_ready(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """As `map_in_threads`, in the order in which results are ready. After an error, items that have not begun do not
    begin."""
    pool = ThreadPoolExecutor(num_cores())
    try:
        with one_blas_thread():
            for done in as_completed([pool.submit(function, item) for item in items]):
                yield done.result()
    finally:
        pool.shutdown(cancel_futures=True)


class _Limit:
    """The limit holds while anybody needs it: BLAS has one number of threads for the whole process."""

    def __init__(self) -> None:
        self.lock, self.num_users = threading.Lock(), 0
        self.limited: AbstractContextManager[Any] | None = None

    def enter(self) -> None:
        with self.lock:
            if self.num_users == 0:
                self.limited = _blas().limit(limits=1, user_api="blas")
                self.limited.__enter__()
            self.num_users += 1

    def leave(self) -> None:
        with self.lock:
            self.num_users -= 1
            if self.num_users == 0 and self.limited is not None:
                self.limited.__exit__(None, None, None)


_LIMIT = _Limit()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """NumPy's and SciPy's linear algebra in one thread a call."""
    _LIMIT.enter()
    try:
        yield
    finally:
        _LIMIT.leave()


@lru_cache(maxsize=1)
def _blas() -> Any:
    """Found once: looking through the libraries of a process takes milliseconds."""
    import scipy.linalg  # noqa: F401, its BLAS is another library than NumPy's
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
