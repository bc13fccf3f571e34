"""An append or overwrite writes its data files, and looks the ends of its edges up, while its sources are still read.

One bad record ends such a load anyway, and nothing of the files is visible before the commit names them. So neither do
rows wait in memory or on disk for the judgement, nor does the disk wait for the reading. What the judgement still needs
is kept: ids, `@unique` properties, edges with `@card`, and edges whose ends haven't been read yet.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import field
from types import TracebackType

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.errors import OmniGraphError
from omnigraph.read.compute import Array
from omnigraph.read.hashing import IdIndex
from omnigraph.records import dataclass
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.storage import Repository, Snapshot, TableChange
from omnigraph.storage.arrow import moving_schema
from omnigraph.storage.layout import lance_branch
from omnigraph.storage.whole import joined
from omnigraph.write.blobs import blob_names
from omnigraph.write.embedding import made_vectors
from omnigraph.write.findings import FILE, ROW
from omnigraph.write.mapping import entity_of
from omnigraph.write.rows import TypedBatch, row_schema, table_rows
from omnigraph.write.sources import SourceFile
from omnigraph.write.spool import Spool

__all__ = ["Ahead"]

HELD_BYTES = 64 << 20
"""Rows that are few enough to travel in the commit wait in memory, up to so many bytes; more become files."""

_WAITING = 2  # batches that a table's writer hasn't come to yet; whoever reads waits for it then
_EDGE = ["id", "src", "dst", FILE, ROW]


class Ahead:
    """The tables that are written ahead. A context manager: files are deleted at its end, but for those to `keep`.

    Args:
        base: the state the load goes upon, on the branch that it goes to.
        files: the load's sources.
        spool: takes what the judgement needs.
        from_rows: so many rows of a table become data files; fewer travel in the commit.
    """

    def __init__(
        self, repository: Repository, base: Snapshot, files: Sequence[SourceFile], spool: Spool, from_rows: int
    ) -> None:
        self._repository, self._base, self._files = repository, base, files
        self._spool, self._from_rows = spool, from_rows
        self._tables: dict[str, _Table] = {}
        self._ends = _Ends(base.catalog)
        self._stopped = self._kept = False

    def __enter__(self) -> Ahead:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.close()
        for key, table in self._tables.items():
            fragments = table.writer.ended() if table.writer is not None else ()
            if not self._kept:
                with suppress(OmniGraphError):  # a later cleanup takes them
                    self._repository.drop_fragments(self._base, key, fragments)

    def __contains__(self, table_key: object) -> bool:
        return table_key in self._tables

    def __getitem__(self, table_key: str) -> _Table:
        return self._tables[table_key]

    def takes(self, table_key: str) -> bool:
        """Whether a table's rows can be written as they are read, into a folder that is there already."""
        if table_key in self._tables:
            return True
        entity = self._base.catalog.by_table_key[table_key]
        if blob_names(entity) or made_vectors(entity):
            return False
        if self._base.ref(table_key).branch != lance_branch(self._base.branch):
            return False
        files = _of(entity, self._files, self._base.catalog)
        self._tables[table_key] = _Table(entity, _judged(entity, files), max(file.index for file in files))
        return True

    def take(self, batch: TypedBatch) -> None:
        """Rows of one table, each of which is good by itself unless writing was stopped."""
        table, rows = self._tables[batch.table_key], batch.rows
        table.read += rows.num_rows
        table.generated = table.generated and batch.generated_ids
        if table.judged:
            self._spool.append(batch.table_key, rows.select(table.judged))
        if isinstance(table.entity, EdgeType):
            unknown = self._ends.unknown(table.entity, rows)
            if unknown.any():
                self._spool.append(_ends_key(batch.table_key), rows.select(_EDGE).filter(pa.array(unknown)))
        else:
            self._ends.add(table.entity, rows.column("id"))
        if not self._stopped:
            self._write(table, rows)

    def _write(self, table: _Table, rows: pa.RecordBatch) -> None:
        table.held.append(rows)
        if table.writer is None:
            table.held_rows += rows.num_rows
            table.held_bytes += rows.nbytes
            if table.held_rows < self._from_rows and table.held_bytes < HELD_BYTES:
                return
            table.writer = _Writer(self._repository, self._base, table.entity)
        for waiting in table.held:
            table.writer.put(table_rows(table.entity, waiting))
        table.held = []

    def source_read(self, index: int) -> None:
        """The source of this number is at its end: tables that no later one has rows of are finished meanwhile."""
        for table in self._tables.values():
            if table.writer is not None and table.last <= index:
                table.writer.end()

    def stop(self) -> None:
        """There is a bad record: what follows is judged, but nothing more is written."""
        self._stopped = True
        for table in self._tables.values():
            table.held = []

    def rows(self, table_key: str) -> pa.Table:
        """A table's rows as far as they are to be judged."""
        table = self._tables[table_key]
        return self._spooled(table_key, table.entity, table.judged or _EDGE)

    def unknown_ends(self, table_key: str) -> pa.Table | None:
        """The edges of a table whose ends weren't both among the nodes read before them; None for nodes."""
        entity = self._tables[table_key].entity
        return self._spooled(_ends_key(table_key), entity, _EDGE) if isinstance(entity, EdgeType) else None

    def _spooled(self, name: str, entity: NodeType | EdgeType, columns: list[str]) -> pa.Table:
        if name in self._spool:
            return self._spool.table(name)
        schema = row_schema(entity, merge=False)
        return pa.schema([schema.field(column) for column in columns]).empty_table()

    def keep(self) -> None:
        """A commit is about to name the files: they stay, whatever becomes of it."""
        self._kept = True

    def change(self, table_key: str, *, overwrite: bool) -> TableChange:
        """The table's change, once its rows are judged.

        Raises:
            OmniGraphError: a file can't be written.
        """
        table = self._tables[table_key]
        if table.writer is not None:
            return TableChange(table_key, fragments=table.writer.finished(), overwrite=overwrite)
        rows = [table_rows(table.entity, batch) for batch in table.held if batch.num_rows]
        return TableChange(table_key, appends=pa.Table.from_batches(rows) if rows else None, overwrite=overwrite)


@dataclass(slots=True)
class _Table:
    """One table: `judged` columns wait for the judgement, `held` rows to become many enough for files."""

    entity: NodeType | EdgeType
    judged: list[str]
    last: int  # the number of the last source that can have rows of it
    read: int = 0
    generated: bool = True  # every id was made by this load
    held: list[pa.RecordBatch] = field(default_factory=list)
    held_rows: int = 0
    held_bytes: int = 0
    writer: _Writer | None = None


def _ends_key(table_key: str) -> str:
    return f"{table_key} ends"


def _of(entity: NodeType | EdgeType, files: Sequence[SourceFile], catalog: Catalog) -> list[SourceFile]:
    """The files that can have rows of a type."""
    return [file for file in files if file.mapping is None or entity_of(file.mapping, catalog) is entity]


def _judged(entity: NodeType | EdgeType, files: Sequence[SourceFile]) -> list[str]:
    """The columns that are judged across rows; none of edges that can only lack their ends.

    Args:
        files: all that can have rows of the type.
    """
    parts = [part for unique in entity.uniques for part in unique]
    if isinstance(entity, NodeType):
        return list(dict.fromkeys(["id", *parts, FILE, ROW]))
    given = bool(entity.key) or any(file.mapping is None or file.mapping.id is not None for file in files)
    counted = entity.cardinality.min > 0 or entity.cardinality.max is not None
    return list(dict.fromkeys(["id", "src", "dst", *parts, FILE, ROW])) if given or counted or parts else []


class _Ends:
    """The ids of the nodes read so far, of types that edges end at."""

    def __init__(self, catalog: Catalog) -> None:
        self._ids: dict[str, list[Array]] = {n: [] for e in catalog.edges.values() for n in (e.source, e.target)}
        self._count = dict.fromkeys(self._ids, 0)
        self._index: dict[str, IdIndex] = {}
        self._pool = ThreadPoolExecutor(2)

    def add(self, node: NodeType, ids: Array) -> None:
        if node.name in self._ids:
            self._ids[node.name].append(ids)
            self._count[node.name] += len(ids) - ids.null_count

    def unknown(self, edge: EdgeType, rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Which edges have an end that isn't known to be there."""
        ends = ((self._known(edge.source), rows.column("src")), (self._known(edge.target), rows.column("dst")))
        source, target = self._pool.map(lambda end: end[0].positions(end[1]), ends)
        unknown: npt.NDArray[np.bool_] = (source < 0) | (target < 0)
        return unknown

    def _known(self, node: str) -> IdIndex:
        index = self._index.get(node)
        if index is None or self._count[node] > 2 * len(index):  # nodes and edges in turn: it is made a few times only
            ids = joined(pa.array([], pa.string()), *self._ids[node])
            index = self._index[node] = IdIndex(ids.drop_null())
        return index

    def close(self) -> None:
        self._pool.shutdown()


class _Writer:
    """A thread that writes one table's batches as data files. Lance and Arrow leave Python to the others meanwhile."""

    def __init__(self, repository: Repository, base: Snapshot, entity: NodeType | EdgeType) -> None:
        self._queue: queue.SimpleQueue[pa.RecordBatch | None] = queue.SimpleQueue()
        self._room = threading.Semaphore(_WAITING)
        self._fragments: tuple[str, ...] = ()
        self._error: BaseException | None = None
        self._told = self._ended = False  # the end is told to the thread, and reached by it
        self._thread = threading.Thread(target=self._run, args=(repository, base, entity), daemon=True)
        self._thread.start()

    def _run(self, repository: Repository, base: Snapshot, entity: NodeType | EdgeType) -> None:
        batches = self._batches()
        try:
            reader = pa.RecordBatchReader.from_batches(moving_schema(entity), batches)
            self._fragments = repository.write_fragments(base, entity.table_key, reader)
        except BaseException as error:  # noqa: BLE001  # the reading thread raises it
            self._error = error
        while not self._ended:  # whoever puts mustn't wait for ever
            self._next()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        while (batch := self._next()) is not None:
            yield batch

    def _next(self) -> pa.RecordBatch | None:
        batch = self._queue.get()
        self._ended = batch is None
        self._room.release()
        return batch

    def put(self, batch: pa.RecordBatch) -> None:
        """One more batch. Raises what writing an earlier one raised."""
        assert not self._told, "rows after the end would be lost"
        if self._error is not None:
            raise self._error
        self._room.acquire()
        self._queue.put(batch)

    def end(self) -> None:
        """Nothing more is put."""
        if not self._told:
            self._told = True
            self._queue.put(None)

    def ended(self) -> tuple[str, ...]:
        """The files of all that was put, as far as they could be written."""
        self.end()
        self._thread.join()
        return self._fragments

    def finished(self) -> tuple[str, ...]:
        """The files of all that was put. Raises what writing them raised."""
        fragments = self.ended()
        if self._error is not None:
            raise self._error
        return fragments
