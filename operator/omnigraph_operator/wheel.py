"""One requeue wheel for every object: due times in one place instead of a timer for each.

An object is worked on by one worker at a time. Waking it while it is worked on means one more pass afterwards, since
that pass may have looked before the cause.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

__all__ = ["Wheel"]

Key = TypeVar("Key")


class Wheel(Generic[Key]):
    """Calls `work(key)` when a key is due, on a fixed number of workers.

    Args:
        work: one pass; returns the seconds until the next one, or None for none without a cause.
        workers: passes at the same time.
        jitter: the share by which a delay is stretched at random, so that what began together doesn't stay together.
    """

    def __init__(
        self, work: Callable[[Key], Awaitable[float | None]], *, workers: int = 4, jitter: float = 0.1
    ) -> None:
        self._work = work
        self._workers = workers
        self._jitter = jitter
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._count = 0  # breaks ties in the heap
        self._busy: set[Key] = set()
        self._again: set[Key] = set()
        self._changed = asyncio.Event()

    def wake(self, key: Key, after_seconds: float = 0.0) -> None:
        """Have a pass for this key not later than after so many seconds."""
        if key in self._busy and after_seconds <= 0:
            self._again.add(key)
            return
        if after_seconds > 0:
            after_seconds *= 1 + random.random() * self._jitter
        at = asyncio.get_running_loop().time() + after_seconds
        if key in self._due and self._due[key] <= at:
            return
        self._due[key] = at
        self._count += 1
        heapq.heappush(self._heap, (at, self._count, key))
        self._changed.set()

    @property
    def depth(self) -> int:
        """How many keys are due now or worked on."""
        now = asyncio.get_running_loop().time()
        return len(self._busy) + sum(at <= now for at in self._due.values())

    async def run(self) -> None:
        """Turn until cancelled; an error of `work` ends the wheel (it is expected to handle its own)."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._worker())

    async def _worker(self) -> None:
        while True:
            key = await self._next()
            self._busy.add(key)
            try:
                again = await self._work(key)
            finally:
                self._busy.discard(key)
            if key in self._again:
                self._again.discard(key)
                again = 0.0
            if again is not None:
                self.wake(key, again)

    async def _next(self) -> Key:
        while True:
            self._changed.clear()
            now = asyncio.get_running_loop().time()
            held: list[tuple[float, int, Key]] = []
            found: Key | None = None
            while self._heap and self._heap[0][0] <= now:
                entry = heapq.heappop(self._heap)
                if self._due.get(entry[2]) != entry[0]:
                    continue  # replaced by an earlier time
                if entry[2] in self._busy:
                    held.append(entry)
                    continue
                del self._due[entry[2]]
                found = entry[2]
                break
            for entry in held:  # their worker runs them again itself
                del self._due[entry[2]]
                self._again.add(entry[2])
            if found is not None:
                return found
            wait = self._heap[0][0] - now if self._heap else None
            try:
                await asyncio.wait_for(self._changed.wait(), wait)
            except TimeoutError:
                continue
