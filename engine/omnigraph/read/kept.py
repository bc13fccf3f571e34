"""What this process keeps between queries: entries by key, bounded together in bytes, the least recently used dropped
first. A running query keeps what it holds."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Protocol

from omnigraph.read.settings import read_settings

__all__ = ["Kept", "Sized"]


class Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


class Kept:
    """Thread-safe.

    Args:
        limit_bytes: default is the setting `cache_bytes`.
    """

    def __init__(self, limit_bytes: int | None = None) -> None:
        self._limit = limit_bytes
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, Sized] = OrderedDict()

    def get(self, key: Hashable) -> Sized | None:
        with self._lock:
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
            return found

    def add(self, key: Hashable, entry: Sized) -> Sized:
        """Keep an entry; of two made at once the first one stays and is returned."""
        with self._lock:
            entry = self._entries.setdefault(key, entry)
            self._entries.move_to_end(key)
        return entry

    def drop(self, key: Hashable) -> None:
        with self._lock:
            self._entries.pop(key, None)

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

    @property
    def nbytes(self) -> int:
        with self._lock:
            return sum(entry.nbytes for entry in self._entries.values())

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
