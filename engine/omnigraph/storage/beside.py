"""One more thread, for work of a write that may go on while the write waits for Lance."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

__all__ = ["Beside"]

T = TypeVar("T")


class Beside:
    """Started with the first job; the interpreter waits for it before it exits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._pid = 0

    def begin(self, job: Callable[[], T]) -> Future[T] | None:
        """Begin the job; None where no thread can be had any more."""
        with self._lock:
            try:
                if self._pool is None or self._pid != os.getpid():  # a forked child has no threads
                    from concurrent.futures import ThreadPoolExecutor

                    self._pool = ThreadPoolExecutor(1, thread_name_prefix="omnigraph-beside")
                    self._pid = os.getpid()
                return self._pool.submit(job)
            except RuntimeError:  # the interpreter is shutting down, or the system has no more threads
                return None
