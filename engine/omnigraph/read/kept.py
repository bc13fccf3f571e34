"""What this process keeps between queries: entries by key, bounded together in bytes, the least recently used dropped
first. A running query keeps what it holds."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Protocol

from omnigraph.read.settings import read_settings

__all__ = ["Kept", "Sized"]


BOUND = 512
"""Plans that are kept bound."""


class Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


class Holder(Protocol):
    """Something small that is made over entries, and holds them.

    Attributes:
        holds: the keys of the entries.
    """

    @property
    def holds(self) -> tuple[Hashable, ...]: ...


class Kept:
    """Thread-safe.

    Args:
        limit_bytes: default is the setting `cache_bytes`.
    """

    def __init__(self, limit_bytes: int | None = None) -> None:
        self._limit = limit_bytes
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, Sized] = OrderedDict()
        self._holders: OrderedDict[Hashable, Holder] = OrderedDict()
        self._last: Holder | None = None  # the holder used last, if nothing else was used since
        self.dropped = 0
        """How many entries have ever gone."""

    def get(self, key: Hashable) -> Sized | None:
        with self._lock:
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
                self._last = None
            return found

    def add(self, key: Hashable, entry: Sized) -> Sized:
        """Keep an entry; of two made at once the first one stays and is returned."""
        with self._lock:
            entry = self._entries.setdefault(key, entry)
            self._entries.move_to_end(key)
        return entry

    def replace(self, key: Hashable, entry: Sized) -> None:
        """Keep an entry, whatever was kept by its key."""
        self.drop(key)
        self.add(key, entry)

    def holder(self, key: Hashable) -> Holder | None:
        """What was kept by `hold`; its entries count as used."""
        found = self._holders.get(key)
        if found is not self._last and found is not None:
            with self._lock:
                if self._holders.get(key) is found:
                    self._holders.move_to_end(key)
                    for entry in found.holds:
                        self._entries.move_to_end(entry)
                    self._last = found
        return found

    def hold(self, key: Hashable, holder: Holder, dropped: int) -> None:
        """Keep a holder until any entry goes; not at all where one has gone since `dropped` was read."""
        with self._lock:
            if self.dropped == dropped:
                self._holders[key] = holder
                if len(self._holders) > BOUND:
                    self._holders.popitem(last=False)

    def release(self) -> None:
        """Let go of all holders: there is something new to be made over."""
        with self._lock:
            self._forget_holders()

    def drop(self, key: Hashable) -> None:
        with self._lock:
            if self._entries.pop(key, None) is not None:
                self._gone()

    def _gone(self) -> None:
        self.dropped += 1
        self._forget_holders()

    def _forget_holders(self) -> None:
        self._holders.clear()
        self._last = None

    def items(self) -> list[tuple[Hashable, Sized]]:
        """The entries, the one used last at the end."""
        with self._lock:
            return list(self._entries.items())

    def settle(self) -> None:
        """Drop what is over the limit; the newest entry stays."""
        limit = read_settings().cache_bytes if self._limit is None else self._limit
        with self._lock:
            total = sum(entry.nbytes for entry in self._entries.values())
            while total > limit and len(self._entries) > 1:
                _, dropped = self._entries.popitem(last=False)
                total -= dropped.nbytes
                self._gone()

    @property
    def nbytes(self) -> int:
        with self._lock:
            return sum(entry.nbytes for entry in self._entries.values())

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._gone()
