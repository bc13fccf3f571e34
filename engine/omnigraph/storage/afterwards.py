"""Work that follows an acknowledged write: done by a thread beside it, and waited for at the end.

A write is durable once the manifest names it (07 §12). Its history rows and the upkeep of the system tables come after
the answer; if the process dies first, the next writer does them.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

__all__ = ["Afterwards", "Later"]


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


class Later:
    """Does one job for several calls: when none has come for a while, or at once where that is asked for.

    The thread waits on an event meanwhile, and ends when nothing is left. It is no reason for the interpreter to stay:
    that one does at its exit what is left.

    Args:
        quiet_seconds: how long no call has come before the job is done.
    """

    def __init__(self, quiet_seconds: float) -> None:
        self._quiet = quiet_seconds
        self._pid = os.getpid()
        self._ready = threading.Condition()
        self._thread: threading.Thread | None = None
        self._job: Callable[[], None] | None = None
        self._calls = 0
        self._last = 0.0
        self._now = False
        _all.add(self)

    def call(self, job: Callable[[], None], *, now: bool = False) -> None:
        """There is something to do. The job, always the same, does all there is, maybe nothing. It must not raise."""
        with self._ready:
            self._job = job
            self._calls += 1
            self._last = time.monotonic()
            if now:
                self._now = True
                self._ready.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, args=(job,), name="omnigraph-later", daemon=True)
                try:
                    self._thread.start()
                except RuntimeError:  # the interpreter is shutting down: it does the job at the very end
                    self._thread = None

    def done(self) -> None:
        """Nothing is left to do: the thread needn't wait any longer."""
        with self._ready:
            if self._thread is not None:
                self._now = True
                self._ready.notify()

    def _run(self, job: Callable[[], None]) -> None:
        calls = -1
        try:
            while True:
                with self._ready:
                    if calls == self._calls:
                        self._thread = self._job = None
                        return
                    while not self._now and (left := self._last + self._quiet - time.monotonic()) > 0:
                        self._ready.wait(left)
                    calls = self._calls
                job()
                with self._ready:
                    self._now = False  # those that came meanwhile may still grow in number
        except BaseException:
            with self._ready:
                self._thread = None
            raise

    def at_exit(self) -> None:
        job = self._job
        if job is not None and self._pid == os.getpid():  # in a forked child a lock may be held for ever
            job()


_all: weakref.WeakSet[Later] = weakref.WeakSet()


@atexit.register
def _finish() -> None:
    for later in tuple(_all):
        later.at_exit()
