"""Vectors that were paid for already, by the hash of everything they depend on: in memory, and in one SQLite file that
processes share.

A cache never decides whether a write succeeds: one that can't be read or written is left out, with one line in the log.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["MEMORY_BYTES", "FileCache", "MemoryCache", "content_key"]

MEMORY_BYTES = 64 << 20
_log = logging.getLogger(__name__)

Vector: TypeAlias = npt.NDArray[np.float32]
Callback: TypeAlias = Callable[[sqlite3.Connection], None]


def content_key(*parts: object) -> bytes:
    """The hash of everything a vector depends on."""
    return hashlib.sha256(json.dumps(parts, ensure_ascii=False).encode("utf-8", "surrogatepass")).digest()


class MemoryCache:
    """The vectors used last, up to some bytes. Safe to share between threads."""

    def __init__(self, limit: int = MEMORY_BYTES) -> None:
        self._limit, self._held = limit, 0
        self._vectors: OrderedDict[bytes, Vector] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, keys: Sequence[bytes]) -> dict[bytes, Vector]:
        with self._lock:
            found = {}
            for key in keys:
                if key in self._vectors:
                    self._vectors.move_to_end(key)
                    found[key] = self._vectors[key]
            return found

    def put(self, vectors: Mapping[bytes, Vector]) -> None:
        with self._lock:
            for key, vector in vectors.items():
                if key not in self._vectors:
                    self._vectors[key] = vector.copy()  # a row of a batch would keep the whole batch
                    self._held += vector.nbytes + len(key)
            while self._held > self._limit and self._vectors:
                key, vector = self._vectors.popitem(last=False)
                self._held -= vector.nbytes + len(key)


class FileCache:
    """`vectors.sqlite` in a folder of this user's. Safe for threads and processes; each call opens the file anew.

    Args:
        limit: bytes of vectors kept, roughly; the oldest go first.
    """

    def __init__(self, folder: str, limit: int) -> None:
        self._folder, self._limit = folder, limit
        self._path = os.path.join(folder, "vectors.sqlite")
        self._broken = False

    def get(self, keys: Sequence[bytes], dim: int) -> dict[bytes, Vector]:
        found: dict[bytes, Vector] = {}

        def read(db: sqlite3.Connection) -> None:
            for part in _parts(keys, 500):
                marks = ",".join("?" * len(part))
                for key, data in db.execute(f"select key, vector from vectors where key in ({marks})", part):
                    vector = np.frombuffer(data, dtype="<f4")
                    if len(vector) == dim and abs(float(vector @ vector) - 1.0) < 1e-3:
                        found[key] = vector.astype(np.float32)

        return found if self._with(read) else {}

    def put(self, vectors: Mapping[bytes, Vector]) -> None:
        rows = [(key, vector.astype("<f4").tobytes()) for key, vector in vectors.items()]

        def write(db: sqlite3.Connection) -> None:
            with db:
                db.executemany("insert or ignore into vectors(key, vector) values (?, ?)", rows)
            self._trim(db)

        self._with(write)

    def _trim(self, db: sqlite3.Connection) -> None:
        """Drops the oldest tenth once the file is over its limit."""
        ((pages,), (free,), (size,)) = (
            db.execute(f"pragma {name}").fetchone() for name in ("page_count", "freelist_count", "page_size")
        )
        if (pages - free) * size <= self._limit:
            return
        with db:
            ((count,),) = db.execute("select count(*) from vectors").fetchall()
            oldest = "select number from vectors order by number limit ?"
            db.execute(f"delete from vectors where number in ({oldest})", (count // 10 + 1,))

    def _with(self, work: Callback) -> bool:
        if self._broken:
            return False
        try:
            self._run(work)
            return True
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):  # locked, full, not ours
                self._give_up(error)
                return False
            self._discard()
        except OSError as error:
            self._give_up(error)
            return False
        try:  # it was damaged, and a new one is there
            self._run(work)
            return True
        except (sqlite3.Error, OSError) as error:
            self._give_up(error)
            return False

    def _run(self, work: Callback) -> None:
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        with closing(sqlite3.connect(self._path, timeout=10)) as db:
            # A lost tail after a power cut is no loss for a cache, so nothing waits for the disk.
            db.execute("pragma journal_mode=wal")
            db.execute("pragma synchronous=normal")
            db.execute(
                "create table if not exists vectors("
                "number integer primary key, key blob not null unique, vector blob not null)"
            )
            work(db)

    def _discard(self) -> None:
        """Removes a file that SQLite calls damaged, with what belongs to it."""
        _log.warning("the cache of vectors %s was damaged and is begun anew", self._path)
        for suffix in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                os.unlink(self._path + suffix)

    def _give_up(self, error: Exception) -> None:
        self._broken = True
        _log.warning("vectors aren't cached on disk: %s: %s", self._path, error)


def _parts(keys: Sequence[bytes], size: int) -> Iterator[Sequence[bytes]]:
    for start in range(0, len(keys), size):
        yield keys[start : start + size]
