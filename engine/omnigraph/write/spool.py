"""Rows that wait for the whole load to be judged: in memory while they are few, then in a file mapped into memory."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from types import TracebackType

import pyarrow as pa

__all__ = ["MEMORY_BYTES", "Spool"]

MEMORY_BYTES = 256 << 20


class Spool:
    """Rows per table. Past `limit` bytes of all tables together they go to disk; `table` is then a view of the file.

    A context manager; leaving it removes the files.
    """

    def __init__(self, limit: int = MEMORY_BYTES) -> None:
        self._limit = limit
        self._held = 0
        self._memory: dict[str, list[pa.RecordBatch]] = {}
        self._schemas: dict[str, pa.Schema] = {}
        self._writers: dict[str, pa.ipc.RecordBatchFileWriter] = {}
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._memory.clear()
        for writer in self._writers.values():
            writer.close()
        if self._folder is not None:
            self._folder.cleanup()

    def __iter__(self) -> Iterator[str]:
        return iter(self._schemas)

    def __contains__(self, table_key: object) -> bool:
        return table_key in self._schemas

    def append(self, table_key: str, rows: pa.RecordBatch) -> None:
        self._schemas.setdefault(table_key, rows.schema)
        if self._folder is None:
            self._memory.setdefault(table_key, []).append(rows)
            self._held += rows.nbytes
            if self._held <= self._limit:
                return
            self._folder = tempfile.TemporaryDirectory(prefix="omnigraph-load-", ignore_cleanup_errors=True)
            waiting, self._memory = self._memory, {}
            for key, batches in waiting.items():
                for batch in batches:
                    self._write(key, batch)
            return
        self._write(table_key, rows)

    def _path(self, table_key: str) -> str:
        assert self._folder is not None
        number = list(self._schemas).index(table_key)
        return os.path.join(self._folder.name, f"{number}.arrow")

    def _write(self, table_key: str, rows: pa.RecordBatch) -> None:
        writer = self._writers.get(table_key)
        if writer is None:
            writer = pa.ipc.new_file(self._path(table_key), self._schemas[table_key])
            self._writers[table_key] = writer
        writer.write_batch(rows)

    def table(self, table_key: str) -> pa.Table:
        """All rows of a table; no more may be appended to it once they went to disk."""
        schema = self._schemas[table_key]
        if self._folder is None:
            return pa.Table.from_batches(self._memory[table_key], schema)
        writer = self._writers.get(table_key)
        if writer is None:
            return schema.empty_table()
        writer.close()
        return pa.ipc.open_file(pa.memory_map(self._path(table_key))).read_all()
