"""What is made once for all queries: by one of those who ask, while the others wait, each within its own limits.

A query that has limits leaves what takes long to a thread of its own. When its time is over it goes, and the work goes
on: for the others who wait, or for whoever asks next.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Generic, TypeVar, cast, overload

from omnigraph.read import limits
from omnigraph.read.limits import Call, begin

__all__ = ["BUILDS", "Builds", "Built", "built"]

S = TypeVar("S")
T = TypeVar("T")

_QUICK = 100_000
"""Values up to which work isn't worth a thread: it takes some hundredths of a second."""


class Builds:
    """What is being made now, by key. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[Hashable, Call[Any]] = {}

    def share(self, key: Hashable, work: Callable[[], T], *, size: int) -> T:
        """Do the work, or wait for whoever is doing it.

        Args:
            key: the same for the same work.
            work: keeps what it makes, and gives what is kept already: it may be asked for just after it was done.
            size: about how many values it goes over.

        Raises:
            BadRequest: the asker's limits are reached. The work goes on.
        """
        here = limits.current()
        while True:
            with self._lock:
                found = self._running.get(key)
                call = self._running[key] = found or Call(work, limits.UNHEARD)
            if found is None:
                aside = size > _QUICK and here.pressing
                if not (aside and begin(partial(self._run, key, call), "omnigraph-build")):
                    self._run(key, call)
            here.wait(call.done)
            if found is None or call.error is None or isinstance(call.error, Exception):
                return cast("T", call.value())
            # The thread that did it was interrupted: somebody else has to.

    def _run(self, key: Hashable, call: Call[Any]) -> None:
        try:
            call.run()
        finally:
            with self._lock:
                del self._running[key]


BUILDS = Builds()
"""What this process is making."""


def built(size: Callable[[Any], int]) -> Callable[[Callable[[S], T]], Built[S, T]]:
    """Decorates a method: a property made when first asked for and kept with its object, through `BUILDS`.

    `functools.cached_property` has one lock for all objects: whoever asks of a small one waits for a big one.

    Args:
        size: about how many values of an object the work goes over.
    """
    return lambda make: Built(make, size)


class Built(Generic[S, T]):
    """See `built`."""

    def __init__(self, make: Callable[[S], T], size: Callable[[Any], int]) -> None:
        self._make = make
        self._size = size
        self._name = ""
        self.__doc__ = make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Built[S, T]: ...
    @overload
    def __get__(self, instance: S, owner: type) -> T: ...
    def __get__(self, instance: S | None, owner: type) -> Built[S, T] | T:
        if instance is None:
            return self
        key = (id(instance), self._name)
        return BUILDS.share(key, lambda: self._kept(instance), size=self._size(instance))

    def _kept(self, instance: S) -> T:
        kept = instance.__dict__  # it has precedence over this, so the next question doesn't come here
        if self._name not in kept:
            kept[self._name] = self._make(instance)
        return cast("T", kept[self._name])
