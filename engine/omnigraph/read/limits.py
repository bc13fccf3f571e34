"""How long the question at hand may still go on.

The limits of a query hold for all that its thread does, however deep: `check` is asked between two blocks of work. A
single call of numpy, Arrow or Lance may still take long, so what has a deadline is done `apart`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Generic, TypeVar

from omnigraph.errors import BadRequest
from omnigraph.records import dataclass

__all__ = [
    "BLOCK_ROWS",
    "UNHEARD",
    "UNLIMITED",
    "Call",
    "Limits",
    "apart",
    "begin",
    "check",
    "current",
    "limited",
]

T = TypeVar("T")

BLOCK_ROWS = 1 << 16
"""Rows of a block between two checks, where a row may cost some microseconds."""

_PAUSE = 0.02  # seconds between two questions whether the caller is still there


@dataclass(frozen=True, slots=True)
class Limits:
    """Args:
    deadline: `time.monotonic()` after which the question is given up.
    cancelled: asked between blocks of work; True gives it up.
    pressing: whether somebody waits who may leave.
    """

    deadline: float | None = None
    cancelled: Callable[[], bool] | None = None
    pressing: bool = True

    def check(self) -> None:
        """Raises BadRequest once the time is over (`query_timeout`) or the caller is gone (`query_cancelled`)."""
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise BadRequest(
                "the query took longer than its time allows: narrow it, or allow more "
                "(timeout_seconds in the library and over HTTP, --timeout on the command line)",
                code="query_timeout",
            )
        if self.cancelled is not None and self.cancelled():
            raise BadRequest("the query was cancelled", code="query_cancelled")

    def wait(self, done: threading.Event) -> None:
        """Until something is done, or these limits are reached."""
        if self.deadline is None and self.cancelled is None:
            done.wait()
            return
        pause = 0.0
        while not done.wait(pause):
            self.check()
            pause = _PAUSE if self.deadline is None else min(_PAUSE, max(0.0, self.deadline - time.monotonic()))


UNLIMITED = Limits(pressing=False)
UNHEARD = Limits(cancelled=lambda: not threading.main_thread().is_alive(), pressing=False)
"""Of work whose asker may leave while others wait: it ends where the process does."""
_CURRENT: ContextVar[Limits] = ContextVar("omnigraph_limits", default=UNLIMITED)


def current() -> Limits:
    """The limits of this thread's question."""
    return _CURRENT.get()


def check() -> None:
    """See `Limits.check`."""
    _CURRENT.get().check()


@contextmanager
def limited(limits: Limits) -> Iterator[None]:
    """Let limits hold for this thread inside a block of code."""
    token = _CURRENT.set(limits)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def apart(work: Callable[[], T]) -> T:
    """Do work on a thread of its own, so that its asker, who has limits, leaves in time wherever the work may be.

    Whoever leaves is free at once; the work ends at its next check.
    """
    limits = current()
    limits.check()
    left = threading.Event()
    call = Call(work, Limits(limits.deadline, left.is_set, pressing=False))
    if not begin(call.run, "omnigraph-apart"):
        return work()
    try:
        limits.wait(call.done)
    finally:
        left.set()
    return call.value()


def begin(run: Callable[[], None], name: str) -> bool:
    """Run something on a new thread; whether there was one left."""
    try:
        threading.Thread(target=run, name=name).start()
    except RuntimeError:
        return False
    return True


class Call(Generic[T]):
    """Work on some thread, and how it ended.

    Args:
        limits: those that hold for it.
    """

    def __init__(self, work: Callable[[], T], limits: Limits) -> None:
        self._work = work
        self._limits = limits
        self._value: list[T] = []
        self.error: BaseException | None = None
        self.done = threading.Event()

    def run(self) -> None:
        """Do it."""
        try:
            with limited(self._limits):
                self._value.append(self._work())
        except BaseException as error:  # noqa: BLE001 - whoever waits hears of it
            self.error = error
        finally:
            self.done.set()

    def value(self) -> T:
        """What came out; raises what it raised."""
        if self.error is not None:
            raise self.error
        return self._value[0]
