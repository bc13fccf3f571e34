"""Snapshots for the read tests: tables held in memory, with the methods reads use of a storage snapshot."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from ulid import ULID

from omnigraph.schema import Catalog
from omnigraph.storage import Repository, Snapshot, Staging, TableChange, TableRef, WriterKind, table_schema
from tests.engine.read.oracle.states import table_of

_SERIAL = itertools.count()


@dataclass
class MemorySnapshot:
    """A graph of a few rows. `scans` notes what was read."""

    catalog: Catalog
    data: dict[str, pa.Table]
    serial: int = field(default_factory=lambda: next(_SERIAL))
    scans: list[tuple[str, tuple[str, ...], Any]] = field(default_factory=list)

    @property
    def state(self) -> object:
        return self

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
