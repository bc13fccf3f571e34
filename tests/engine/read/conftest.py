"""Snapshots for the read tests: tables held in memory, with the methods reads use of a storage snapshot."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from ulid import ULID

from omnigraph.graph import Graph
from omnigraph.schema import Catalog
from omnigraph.storage import Repository, Snapshot, Staging, TableChange, TableRef, WriterKind, table_schema

_SERIAL = itertools.count()


@dataclass
class MemorySnapshot:
    """A graph of a few rows. `scans` notes what was read."""

    catalog: Catalog
    data: dict[str, pa.Table]
    serial: int = field(default_factory=lambda: next(_SERIAL))
    scans: list[tuple[str, tuple[str, ...], Any]] = field(default_factory=list)

    @property
    def tables(self) -> dict[str, TableRef]:
        return {k: TableRef(k, k, None, 1, t.num_rows) for k, t in self.data.items()}

    def schema(self, table_key: str) -> pa.Schema:
        return self.data[table_key].schema

    def fingerprint(self, table_key: str) -> tuple[object, ...]:
        return (f"memory {self.serial} {table_key}", None, 1)

    def scan(self, table_key: str, columns: Any = None, filter: Any = None, limit: Any = None) -> pa.Table:
        """Conditions in SQL are left to the reader, which tests what comes back anyway."""
        self.scans.append((table_key, tuple(c for c in columns or () if c != "_rowid"), filter))
        table = self._numbered(table_key)
        if isinstance(filter, pc.Expression):
            table = table.filter(filter)
        return table.select(columns) if columns else table.drop_columns("_rowid")

    def take(self, table_key: str, row_ids: Any, columns: list[str]) -> pa.Table:
        table = self._numbered(table_key)
        at = pc.index_in(pa.array(row_ids, pa.uint64()), value_set=table.column("_rowid"))
        return table.take(at).select(columns)

    def indexed_rows(self, table_key: str, column: str) -> int:
        return self.data[table_key].num_rows

    def file_names(self, table_key: str) -> frozenset[str]:
        return frozenset({f"{self.serial}:{table_key}"})

    def row_changes(self, table_key: str, old: TableRef, files: frozenset[str], *, most: int) -> None:
        """Nothing tells."""

    def words_index(self, table_key: str, column: str) -> str | None:
        return None

    def vector_index(self, table_key: str, column: str) -> str | None:
        return None

    def _numbered(self, table_key: str) -> pa.Table:
        """With row ids that don't ascend."""
        table = self.data[table_key]
        row_ids = [i ^ 1 for i in range(table.num_rows)]
        return table.append_column("_rowid", pa.array(row_ids, pa.uint64()))


def table_of(schema: pa.Schema, rows: list[dict[str, Any]]) -> pa.Table:
    """Rows as a table; Arrow would cut a datetime to its day, so DateTime goes in as milliseconds."""
    columns = []
    for f in schema:
        values = [row.get(f.name) for row in rows]
        if pa.types.is_date64(f.type):
            millis = [None if v is None else round(v.timestamp() * 1000) for v in values]
            columns.append(pa.array(millis, pa.int64()).view(pa.date64()))
        else:
            columns.append(pa.array(values, f.type))
    return pa.table(columns, schema=schema)


@pytest.fixture
def memory_snapshot() -> Callable[..., MemorySnapshot]:
    def make(catalog: Catalog, rows: dict[str, list[dict[str, Any]]]) -> MemorySnapshot:
        data = {k: table_of(table_schema(t), rows.get(k, [])) for k, t in catalog.by_table_key.items()}
        return MemorySnapshot(catalog, data)

    return make


@pytest.fixture(scope="session")
def table_maker() -> Callable[..., pa.Table]:
    """(catalog, table key, rows) → the table as storage takes it."""
    return lambda catalog, table_key, rows: table_of(table_schema(catalog.by_table_key[table_key]), rows)


@pytest.fixture
def stored_snapshot(tmp_path: Path) -> Callable[..., Snapshot]:
    """(catalog, rows) → a snapshot of a new repository that holds them."""

    def make(catalog: Catalog, rows: dict[str, list[dict[str, Any]]]) -> Snapshot:
        repository = Repository.create(str(tmp_path / f"graph-{next(_SERIAL)}"), catalog)
        changes = tuple(
            TableChange(k, appends=table_of(table_schema(catalog.by_table_key[k]), r)) for k, r in rows.items() if r
        )
        if changes:
            staging = Staging("main", WriterKind.LOAD, changes, operation_id=str(ULID()))
            repository.commit(staging, repository.snapshot())
        return repository.snapshot()

    return make


@pytest.fixture
def every_state(tmp_path: Path) -> Callable[..., Iterator[tuple[str, Snapshot]]]:
    """(catalog, rows) → snapshots that all hold these rows, each with its name.

    Plain; with rows past the indexes, updated and deleted ones among them; indexed and cached columns of the version
    before; compacted; and on a branch.
    """

    def make(catalog: Catalog, rows: dict[str, list[dict[str, Any]]]) -> Iterator[tuple[str, Snapshot]]:
        yield "plain", _committed(_repository(tmp_path, catalog), "main", _changes(catalog, appends=rows))
        repository = _repository(tmp_path, catalog)
        graph = Graph(repository)
        first = {k: [_stale(catalog, k, row) for row in r[::2]] for k, r in rows.items()}
        extra = {k: _decoys(catalog, k) for k in catalog.by_table_key}
        _committed(repository, "main", _changes(catalog, appends={k: first.get(k, []) + extra[k] for k in extra}))
        graph.ensure_indices()
        graph.branches.create("draft")
        rest = _changes(
            catalog,
            appends={k: r[1::2] for k, r in rows.items()},
            upserts={k: r[::2] for k, r in rows.items()},
            deletes={k: [row["id"] for row in r] for k, r in extra.items()},
        )
        yield "partly indexed", _committed(repository, "main", rest)
        graph.ensure_indices()
        yield "indexed", repository.snapshot()
        graph.optimize()
        yield "compacted", repository.snapshot()
        yield "branch", _committed(repository, "draft", rest)
        graph.optimize(branch="draft")
        graph.ensure_indices(branch="draft")
        yield "compacted branch", repository.snapshot("draft")

    return make


def _repository(folder: Path, catalog: Catalog) -> Repository:
    return Repository.create(str(folder / f"graph-{next(_SERIAL)}"), catalog)


def _committed(repository: Repository, branch: str, changes: tuple[TableChange, ...]) -> Snapshot:
    if changes:
        staging = Staging(branch, WriterKind.LOAD, changes, operation_id=str(ULID()))
        repository.commit(staging, repository.snapshot(branch))
    return repository.snapshot(branch)


def _changes(
    catalog: Catalog,
    appends: dict[str, list[dict[str, Any]]],
    upserts: dict[str, list[dict[str, Any]]] | None = None,
    deletes: dict[str, list[str]] | None = None,
) -> tuple[TableChange, ...]:
    out = []
    for key, entity in catalog.by_table_key.items():
        schema = table_schema(entity)
        new, old, gone = appends.get(key), (upserts or {}).get(key), (deletes or {}).get(key)
        if new or old or gone:
            change = TableChange(
                key,
                appends=table_of(schema, new) if new else None,
                upserts=table_of(schema, old) if old else None,
                delete_ids=pa.array(gone, pa.string()) if gone else None,
            )
            out.append(change)
    return tuple(out)


def _stale(catalog: Catalog, table_key: str, row: dict[str, Any]) -> dict[str, Any]:
    """The row as it may have been before: null where it may be."""
    schema = table_schema(catalog.by_table_key[table_key])
    return {name: None if schema.field(name).nullable else value for name, value in row.items()}


def _decoys(catalog: Catalog, table_key: str) -> list[dict[str, Any]]:
    """Rows that are to be deleted; edges lead from decoy to decoy."""
    known = {"id": "decoy", "src": "decoy", "dst": "decoy", "name": "decoy"}
    schema = table_schema(catalog.by_table_key[table_key])
    return [{f.name: known.get(f.name, [] if pa.types.is_list(f.type) else None) for f in schema}]
