"""Snapshots for the read tests: tables held in memory, with the methods reads use of a storage snapshot."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.schema import Catalog
from omnigraph.storage.arrow import table_schema
from omnigraph.storage.types import TableRef

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
        return ("memory", self.serial, table_key)

    def scan(self, table_key: str, columns: Any = None, filter: Any = None, limit: Any = None) -> pa.Table:
        self.scans.append((table_key, tuple(columns or ()), filter))
        table = self.data[table_key]
        return table.select(columns) if columns else table


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
