"""Work that follows an acknowledged write: done in order by one thread, waited for by the next write and at the end.

A write is durable once the manifest names it (07 §12). Its history rows and the upkeep of the system tables come after
the answer; if the process dies first, the next writer does them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

__all__ = ["Afterwards"]


class Afterwards:
    """One thread, started with the first job; the interpreter waits for it before it exits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._pid = 0
        self._waiting: set[Future[None]] = set()

    def do(self, job: Callable[[], None]) -> None:
        """Run the job soon. It must not raise."""
        with self._lock:
            try:
                if self._pool is None or self._pid != os.getpid():  # a forked child has no threads
                    from concurrent.futures import ThreadPoolExecutor

                    self._pool = ThreadPoolExecutor(1, thread_name_prefix="omnigraph-afterwards")
                    self._pid, self._waiting = os.getpid(), set()
                future = self._pool.submit(job)
            except RuntimeError:  # the interpreter is shutting down and takes no new work
                job()
                return
            self._waiting.add(future)
        future.add_done_callback(self._forget)

    def _forget(self, future: Future[None]) -> None:
        with self._lock:
            self._waiting.discard(future)

    def settle(self) -> None:
        """Wait until every job so far is done. Never called by a job."""
        with self._lock:
            waiting = set() if self._pid != os.getpid() else set(self._waiting)
        if waiting:
            from concurrent.futures import wait

            wait(waiting)
