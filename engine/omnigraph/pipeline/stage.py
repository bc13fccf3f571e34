"""What an executor does with one split: read, type and check its rows, then write them where the driver wants them.

Runs on Spark workers, so everything that comes in and goes out is plain data, and importing this module starts nothing.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import field
from functools import lru_cache
from types import TracebackType
from typing import Literal
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.errors import BadRequest, OmniGraphError
from omnigraph.records import dataclass
from omnigraph.schema import compile_schema
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.storage import TableRef, scan_table, write_fragments
from omnigraph.write.blobs import BlobSpool, Waiting, blob_names
from omnigraph.write.constraints import unique_tokens
from omnigraph.write.embedding import FILL_ROWS, fill_batch, made_vectors, provider, unfilled
from omnigraph.write.findings import FILE, ROW, Findings
from omnigraph.write.loader import table_rows
from omnigraph.write.pool import system_pool
from omnigraph.write.quarantine import without
from omnigraph.write.rows import Reading
from omnigraph.write.sources import SourceFile, Split, read_batches

__all__ = [
    "CommittedTask",
    "StageTask",
    "Staged",
    "StagedTable",
    "WriteTask",
    "key_columns",
    "stage",
    "unique_column",
    "write_committed",
    "write_kept",
]


@dataclass(frozen=True, slots=True)
class StageTask:
    """One split and where its rows go.

    Args:
        part: the split's number in the whole load; orders what comes back.
        refs: the tables' pins, for writing data files beside them; None stages whole rows as Parquet instead, which
            are written later, without those that the checks put aside, or by the driver (merge).
        folder: shared by driver and executors.
        fills: make the vectors of `@embed` that records omit, with the provider of the executor's environment.
        findings: an empty collection that keeps as much as the driver wants of bad records.
    """

    part: int
    file: SourceFile
    split: Split | None
    schema: str
    operation_id: str
    uri: str
    folder: str
    refs: tuple[TableRef, ...] | None
    fills: bool = False
    merge: bool = False
    findings: Findings = field(default_factory=Findings)


@dataclass(frozen=True, slots=True)
class WriteTask:
    """What one split staged as whole rows, to be written at last.

    Args:
        refs: the pins of the tables it has rows of.
        bad: (file, rows) of the records put aside.
        fills, findings: as in `StageTask`.
    """

    part: int
    file: int
    schema: str
    uri: str
    folder: str
    refs: tuple[TableRef, ...]
    bad: tuple[tuple[int, npt.NDArray[np.int64]], ...]
    fills: bool
    findings: Findings


@dataclass(frozen=True, slots=True)
class StagedTable:
    """`vectors`: made here; `unfilled`: per property, rows with a text and no vector."""

    table_key: str
    rows: int
    generated_ids: bool
    fragments: tuple[str, ...] = ()
    vectors: int = 0
    unfilled: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Staged:
    """What became of one split; `file` is its source's number."""

    part: int
    file: int
    tables: tuple[StagedTable, ...]
    findings: Findings
    error: OmniGraphError | None = None


@dataclass(frozen=True, slots=True)
class CommittedTask:
    """The key columns of one committed table, wanted as Parquet; `kind` says whether its rows stay."""

    uri: str
    ref: TableRef
    schema: str
    folder: str
    kind: Literal["committed", "replaced"] = "committed"


@lru_cache(maxsize=4)
def _catalog(source: str) -> Catalog:
    return compile_schema(source, accepted=True)


def unique_column(number: int) -> str:
    """The column that holds the tokens of the type's n-th `@unique`."""
    return f"__unique_{number}"


def key_columns(entity: NodeType | EdgeType, rows: pa.RecordBatch | pa.Table) -> pa.Table:
    """What the checks across rows need: `id` (edges also `src`, `dst`), unique parts and tokens, and the origin."""
    ends = ("id", "src", "dst") if isinstance(entity, EdgeType) else ("id",)
    parts = [p for unique in entity.uniques for p in unique]
    names = [n for n in dict.fromkeys((*ends, *parts, FILE, ROW)) if n in rows.schema.names]
    out = pa.table({name: rows.column(name) for name in names})
    for number, unique in enumerate(entity.uniques):
        out = out.append_column(unique_column(number), unique_tokens(rows, unique))
    return out


def table_folder(folder: str, kind: str, table_key: str) -> str:
    """`kind` is `keys`, `rows`, `committed` or `replaced`."""
    return os.path.join(folder, kind, table_key.replace(":", "-"))


def part_file(folder: str, kind: str, table_key: str, part: int) -> str:
    """The file of one split in a `table_folder`."""
    return os.path.join(table_folder(folder, kind, table_key), f"part-{part:06d}.parquet")


def blob_folder(folder: str) -> str:
    """Where the bytes of Blobs wait, one file a split."""
    return os.path.join(folder, "blobs")


class _Parts:
    """Parquet files of one split, one a table. Each has its name once it is whole, whichever attempt of a task that was
    tried again, or that runs twice, writes it: all write the same."""

    def __init__(self, folder: str, kind: str, part: int) -> None:
        self._folder, self._kind, self._part = folder, kind, part
        self._attempt = uuid4().hex
        self._writers: dict[str, pq.ParquetWriter] = {}

    def write(self, table_key: str, table: pa.Table) -> None:
        writer = self._writers.get(table_key)
        if writer is None:
            path = part_file(self._folder, self._kind, table_key, self._part)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            writer = pq.ParquetWriter(self._unfinished(path), table.schema)
            self._writers[table_key] = writer
        writer.write_table(table)

    def _unfinished(self, path: str) -> str:
        return os.path.join(os.path.dirname(path), f".{self._attempt}.{os.path.basename(path)}")  # Spark reads no .name

    def __enter__(self) -> _Parts:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for table_key, writer in self._writers.items():
            writer.close()
            path = part_file(self._folder, self._kind, table_key, self._part)
            if kind is None:
                os.replace(self._unfinished(path), path)
            else:
                os.unlink(self._unfinished(path))


def stage(task: StageTask) -> Staged:
    """Read one split. Bad records come back as findings; an unusable file as `error`. Nothing becomes visible."""
    catalog = _catalog(task.schema)
    # Rows that are written later, perhaps elsewhere, have their Blobs read from the shared folder.
    with (
        system_pool(),
        BlobSpool(blob_folder(task.folder) if task.refs is None else None, task.part) as blobs,
    ):
        return _staged(task, catalog, blobs)


def _staged(task: StageTask, catalog: Catalog, blobs: BlobSpool) -> Staged:
    findings = task.findings.like()
    reading = Reading(catalog, task.operation_id, merge=task.merge, fills=task.fills, findings=findings, blobs=blobs)
    refs = {ref.table_key: ref for ref in task.refs or ()}
    counts: dict[str, int] = {}
    generated: dict[str, bool] = {}
    pending: dict[str, list[pa.RecordBatch]] = {}
    try:
        with _Parts(task.folder, "keys", task.part) as keys, _Parts(task.folder, "rows", task.part) as whole:
            for batch in read_batches(task.file, reading, task.split):
                key = batch.table_key
                counts[key] = counts.get(key, 0) + batch.rows.num_rows
                generated[key] = generated.get(key, True) and batch.generated_ids
                if not task.merge:
                    keys.write(key, key_columns(catalog.by_table_key[key], batch.rows))
                if task.refs is None:
                    whole.write(key, pa.Table.from_batches([batch.rows]))
                else:
                    pending.setdefault(key, []).append(batch.rows)
                if findings.full:
                    break  # too many to be put aside: the load is refused
    except BadRequest as error:
        return Staged(task.part, task.file.index, (), findings, error)
    tables = []
    for key, rows in counts.items():
        # A split with a bad record can't be loaded any more: its data files would be orphans.
        if task.refs is not None and not findings:
            entity, batches = catalog.by_table_key[key], pending.pop(key)
            try:
                batches, vectors = _with_vectors(entity, batches, findings, task.fills)
            except OmniGraphError as error:
                return Staged(task.part, task.file.index, (), findings, error)
            if findings:
                continue
            tables.append(_written(task.uri, refs[key], entity, batches, generated[key], vectors, blobs))
        else:
            tables.append(StagedTable(key, rows, generated[key]))
    return Staged(task.part, task.file.index, tuple(tables), findings)


def _written(
    uri: str,
    ref: TableRef,
    entity: NodeType | EdgeType,
    batches: list[pa.RecordBatch],
    generated: bool,
    vectors: int,
    blobs: BlobSpool,
) -> StagedTable:
    """Rows as data files of their table."""
    lacking = Counter[str]()
    for part in batches:
        lacking.update({f"{entity.name}.{p.name}": n for p, n in unfilled(entity, pa.Table.from_batches([part]))})
    source = Waiting(blobs) if blob_names(entity) else None
    fragments = write_fragments(uri, ref, _reader(entity, batches), blobs=source)
    rows = sum(part.num_rows for part in batches)
    return StagedTable(ref.table_key, rows, generated, fragments, vectors, tuple(lacking.items()))


def write_kept(task: WriteTask) -> Staged:
    """Write what a split staged, without the records put aside, as data files that nobody sees yet."""
    catalog, findings = _catalog(task.schema), task.findings.like()
    tables = []
    with BlobSpool(blob_folder(task.folder), task.part) as blobs:
        for ref in task.refs:
            entity = catalog.by_table_key[ref.table_key]
            with pq.ParquetFile(part_file(task.folder, "rows", ref.table_key, task.part)) as file:
                batches = [kept for b in file.iter_batches() if (kept := without(b, dict(task.bad))).num_rows]
            if not batches:
                continue
            try:
                batches, vectors = _with_vectors(entity, batches, findings, task.fills)
            except OmniGraphError as error:
                return Staged(task.part, task.file, (), findings, error)
            if findings:
                continue  # judged again without these records
            tables.append(_written(task.uri, ref, entity, batches, False, vectors, blobs))
    return Staged(task.part, task.file, tuple(tables), findings)


def _with_vectors(
    entity: NodeType | EdgeType, batches: list[pa.RecordBatch], findings: Findings, fills: bool
) -> tuple[list[pa.RecordBatch], int]:
    """The batches with the vectors they lack, and how many were made."""
    if not fills or not made_vectors(entity):
        return batches, 0
    embedder = provider("now", [entity])
    if embedder is None:
        raise BadRequest(
            f"{entity.name}: vectors are to be made, and the executors' environment sets up no embedding provider: set "
            "it there (spark.executorEnv.…), load with embed later, or load in process",
            code="no_embedder",
        )
    filled, made = [], 0
    for batch in batches:
        for start in range(0, batch.num_rows, FILL_ROWS):
            rows, count = fill_batch(entity, batch.slice(start, FILL_ROWS), embedder, findings)
            filled.append(rows)
            made += count.total()
    return filled, made


def _reader(entity: NodeType | EdgeType, batches: list[pa.RecordBatch]) -> pa.RecordBatchReader:
    def rows() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from table_rows(entity, pa.Table.from_batches([batch])).to_batches()

    schema = table_rows(entity, pa.Table.from_batches([batches[0].slice(0, 0)])).schema
    return pa.RecordBatchReader.from_batches(schema, rows())


def write_committed(task: CommittedTask) -> str:
    """Write the key columns of a committed table as Parquet; returns its table key."""
    entity = _catalog(task.schema).by_table_key[task.ref.table_key]
    ends = ("id", "src", "dst") if isinstance(entity, EdgeType) else ("id",)
    names = list(dict.fromkeys((*ends, *(p for unique in entity.uniques for p in unique))))
    with _Parts(task.folder, task.kind, 0) as parts:
        for batch in scan_table(task.uri, task.ref, names):
            parts.write(task.ref.table_key, key_columns(entity, batch))
    return task.ref.table_key
