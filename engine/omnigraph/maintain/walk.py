"""What `verify` has found so far, and reads that end in a finding where they fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from typing import Any, TypeVar

import pyarrow as pa

from omnigraph.errors import Internal, OmniGraphError
from omnigraph.records import dataclass
from omnigraph.schema.catalog import EdgeType, NodeType
from omnigraph.storage import Snapshot

__all__ = ["Walk", "columns_of", "ends_of", "whole"]

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)


@dataclass(slots=True)
class Walk:
    """Findings and counts of one run.

    Args:
        damaged: of each version of a table that could not be read, the columns that are the reason.
    """

    findings: list[dict[str, Any]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    seen: set[Hashable] = field(default_factory=set)
    damaged: dict[Hashable, Mapping[str, str]] = field(default_factory=dict)

    def add(self, kind: str, message: str, *, severity: str = "error", **where: Any) -> None:
        self.findings.append({"kind": kind, "severity": severity, "message": message, **where})

    def first(self, *identity: Hashable) -> bool:
        """Whether this combination of table versions comes for the first time."""
        if identity in self.seen:
            return False
        self.seen.add(identity)
        return True

    @contextmanager
    def guarded(self, kind: str, doing: str, **where: Any) -> Iterator[None]:
        """What fails here ends here, as a finding."""
        try:
            yield
        except OmniGraphError as error:
            self.add(kind, f"{doing}: {error.message}", **where)

    def readable(self, snapshot: Snapshot, table_key: str, columns: Iterable[str]) -> list[str]:
        """These columns, each once, but those that are known to be damaged."""
        damaged = self.damaged.get(snapshot.fingerprint(table_key), {})
        return [name for name in dict.fromkeys(columns) if name not in damaged]

    @contextmanager
    def reading(self, snapshot: Snapshot, entity: NodeType | EdgeType) -> Iterator[None]:
        """A read that fails ends here, with a finding for each column that is the reason, once a version of a table."""
        try:
            yield
        except OmniGraphError as error:
            key = entity.table_key
            if (content := snapshot.fingerprint(key)) in self.damaged:
                return
            lost = self.damaged[content] = _unreadable(snapshot, entity)
            at, where = f"version {snapshot.ref(key).version}", {"branch": snapshot.branch, "table_key": key}
            if len(lost) in (0, len(columns_of(entity))):
                self.add("unreadable_table", f"{at} can't be read: {error.message}", **where)
                return
            for name, why in lost.items():
                self.add("unreadable_column", f"{name} of {at} can't be read: {why}", column=name, **where)


def ends_of(entity: NodeType | EdgeType) -> list[str]:
    return ["src", "dst"] if isinstance(entity, EdgeType) else []


def columns_of(entity: NodeType | EdgeType) -> list[str]:
    return ["id", *ends_of(entity), *entity.properties]


def whole(table_key: str, rows: Rows) -> Rows:
    """The rows, unless their bytes make no sense: damage may well be read, as a text that is no UTF-8.

    Raises:
        Internal: they make none.
    """
    for column in rows.columns:
        kind = column.type.value_type if pa.types.is_list(column.type) else column.type
        try:
            column.validate(full=pa.types.is_string(kind))  # of a date64 Arrow would ask that it is a whole day
        except pa.ArrowInvalid as error:
            raise Internal(f"reading {table_key}: {error}", code="storage_error") from error
    return rows


def _unreadable(snapshot: Snapshot, entity: NodeType | EdgeType) -> dict[str, str]:
    """The columns that can't be read each by itself, and why."""
    out = {}
    for name in columns_of(entity):
        try:
            for batch in snapshot.scan_batches(entity.table_key, [name]):
                whole(entity.table_key, batch)
        except OmniGraphError as error:
            out[name] = error.message
    return out
