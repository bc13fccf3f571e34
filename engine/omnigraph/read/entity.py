"""Single rows as Python values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from omnigraph.arguments import expect_text, is_text
from omnigraph.errors import BadRequest, NotFound
from omnigraph.schema.catalog import EdgeType, NodeType
from omnigraph.storage import Snapshot
from omnigraph.storage.layout import quoted

__all__ = ["entity", "named_type", "plain_rows", "with_id"]


def entity(snapshot: Snapshot, type: str, id: str) -> dict[str, Any] | None:
    """The node or edge of this id, without its blobs; None where there is none.

    Raises:
        NotFound: no such type.
        BadRequest: the id is stored more than once (graphs of other makers).
    """
    found = named_type(snapshot, type)
    if found is None:
        raise NotFound(f"type {type!r} isn't declared", details={"type": type})
    blobs = {p.name for p in found.properties.values() if p.type.base == "Blob"}
    columns = [name for name in snapshot.schema(found.table_key).names if name not in blobs]
    rows = plain_rows(with_id(snapshot, found, id, columns))
    if len(rows) > 1:
        raise BadRequest(f"{type} {id!r} is stored {len(rows)} times: run verify", code="duplicate_id")
    return rows[0] if rows else None


def named_type(snapshot: Snapshot, type: str) -> NodeType | EdgeType | None:
    """The node or edge type of a name."""
    expect_text("type", type)
    return snapshot.catalog.nodes.get(type) or snapshot.catalog.edge(type)


def with_id(snapshot: Snapshot, entity: NodeType | EdgeType, id: str, columns: Sequence[str]) -> pa.Table:
    """The rows of an id: one, none, or several in graphs of other makers."""
    expect_text("id", id)
    return snapshot.scan(entity.table_key, columns, filter=f"id = {quoted(id)}" if is_text(id) else "false")


def plain_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows as Python values; DateTimes, stored as date64, with their time of day and in UTC."""
    columns = []
    for column in rows.columns:
        if pa.types.is_date64(column.type):
            milliseconds = pa.chunked_array([chunk.view(pa.int64()) for chunk in column.chunks], pa.int64())
            column = milliseconds.cast(pa.timestamp("ms", "UTC"))
        columns.append(column)
    out: list[dict[str, Any]] = pa.table(columns, names=rows.schema.names).to_pylist()
    return out
