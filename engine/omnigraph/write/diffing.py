"""`diff`: what changed between two states of a graph, entry by entry (03 §3.4).

Three levels: a table that both states pin alike isn't opened; of one whose versions have grown from a common one only
the touched rows are read; else every row is compared by its id. An entry is what the two states differ in: a row that
was changed and changed back is none. Entries come as Arrow batches, by table and then by id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.errors import BadRequest
from omnigraph.read.compute import Array, pc
from omnigraph.records import dataclass
from omnigraph.storage import Repository, Snapshot
from omnigraph.write.across import Pair, pairs
from omnigraph.write.columns import one_chunk
from omnigraph.write.committed import Committed
from omnigraph.write.merge_step import same_rows

__all__ = ["KINDS", "OPS", "SCHEMA", "Diff"]

KINDS = ("node", "edge")
OPS = ("insert", "update", "delete")
_FIELDS: list[pa.Field[Any]] = [
    pa.field("table_key", pa.string(), nullable=False),
    pa.field("kind", pa.string(), nullable=False),
    pa.field("type", pa.string(), nullable=False),
    pa.field("id", pa.string(), nullable=False),
    pa.field("op", pa.string(), nullable=False),
    pa.field("version", pa.int64()),
    pa.field("src", pa.string()),
    pa.field("dst", pa.string()),
]
SCHEMA = pa.schema(_FIELDS)
_VERSION = "_row_last_updated_at_version"

PORTION = 100_000
"""Rows compared at a time."""


@dataclass(frozen=True)
class Diff:
    """The changes that lead from one state to another; nothing is read before they are asked for.

    Args:
        from_, to: the two states; where they go on from is `to.head.id`.
        kinds, types, ops: what to leave in; None is everything.

    An entry has `table_key`, `kind`, `type`, `id`, `op`, `version` (of the table: in which `to` got the row as it is;
    of a delete, that `to` has) and, of an edge, its ends `src` and `dst`.
    """

    repository: Repository
    from_: Snapshot
    to: Snapshot
    kinds: Collection[str] | None = None
    types: Collection[str] | None = None
    ops: Collection[str] | None = None

    def __post_init__(self) -> None:
        for given, known, word in (
            (self.kinds, KINDS, "kind"),
            (self.ops, OPS, "operation"),
            (self.types, self._declared(), "type"),
        ):
            unknown = sorted(set(given or ()) - set(known))
            if unknown:
                raise BadRequest(f"no such {word}: {', '.join(unknown)}; there are: {', '.join(sorted(known))}")

    def _declared(self) -> set[str]:
        return {e.name for s in (self.from_, self.to) for e in s.catalog.by_table_key.values()}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Entries as dictionaries; `endpoints` holds an edge's ends."""
        for batch in self.batches():
            for row in batch.to_pylist():
                ends = {"src": row.pop("src"), "dst": row.pop("dst")}
                yield row | ({"endpoints": ends} if row["kind"] == "edge" else {})

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Entries with the columns of `SCHEMA`; no batch is empty."""
        for pair in pairs(self.from_, self.to):
            kind = pair.entity.table_key.partition(":")[0]
            names = {key.partition(":")[2] for key in (pair.before, pair.after) if key}
            if (self.kinds is None or kind in self.kinds) and (self.types is None or names & set(self.types)):
                yield from self._table(kind, pair)

    def table(self) -> pa.Table:
        """All entries at once."""
        return pa.Table.from_batches(list(self.batches()), SCHEMA)

    def stats(self) -> dict[str, dict[str, int]]:
        """How many inserts, updates and deletes there are per table; tables without any are left out."""
        out: dict[str, Counter[str]] = {}
        for batch in self.batches():
            counts = out.setdefault(batch.column("table_key")[0].as_py(), Counter())
            for entry in pc.value_counts(batch.column("op")).to_pylist():
                counts[entry["values"]] += entry["counts"]
        return {key: {op: counts[op] for op in OPS} for key, counts in out.items()}

    def _table(self, kind: str, pair: Pair) -> Iterator[pa.RecordBatch]:
        refs = [s.tables.get(key) if key else None for s, key in ((self.from_, pair.before), (self.to, pair.after))]
        if refs[0] == refs[1]:
            return
        touched = self.repository.touched_ids(*refs)
        touched = touched.take(pc.sort_indices(touched))
        sides = _Side(self.from_, pair.before), _Side(self.to, pair.after)
        for start in range(0, len(touched), PORTION):
            ids = touched.slice(start, PORTION)
            before, after = (side.rows(ids) for side in sides)
            batch = self._entries(kind, pair, ids, before, after)
            if batch.num_rows:
                yield batch

    def _entries(self, kind: str, pair: Pair, ids: Array, before: pa.Table, after: pa.Table) -> pa.RecordBatch:
        entity = pair.entity
        old, new = (np.asarray(pc.fill_null(pc.index_in(ids, value_set=_ids(rows)), -1)) for rows in (before, after))
        both = (old >= 0) & (new >= 0)
        changed = np.zeros(len(ids), dtype=bool)
        changed[both] = ~same_rows(*_aligned(*pair.align(before.take(old[both]), after.take(new[both]))))
        changed |= _repeated(ids, *pair.align(before, after))
        op = np.full(len(ids), "", dtype=object)
        op[(old < 0) & (new >= 0)] = "insert"
        op[(old >= 0) & (new < 0)] = "delete"
        op[both & changed] = "update"
        chosen = np.flatnonzero(np.isin(op, list(self.ops if self.ops is not None else OPS)))
        picked_new = pa.array(new[chosen], mask=new[chosen] < 0)
        picked_old = pa.array(old[chosen], mask=old[chosen] < 0)
        ref = self.to.tables.get(entity.table_key)
        versions = one_chunk(after.column(_VERSION)).take(picked_new).cast(pa.int64())
        columns: dict[str, Any] = {
            "table_key": [entity.table_key] * len(chosen),
            "kind": [kind] * len(chosen),
            "type": [entity.name] * len(chosen),
            "id": ids.take(pa.array(chosen)),
            "op": pa.array(op[chosen].tolist(), pa.string()),
            "version": pc.coalesce(versions, pa.scalar(ref.version if ref else None, pa.int64())),
        }
        for end in ("src", "dst"):
            columns[end] = pa.array([None] * len(chosen), pa.string())
            if kind == "edge":
                now, then = (one_chunk(rows.column(end)) for rows in (after, before))
                columns[end] = pc.coalesce(now.take(picked_new), then.take(picked_old))
        return pa.record_batch([pa.array(v, SCHEMA.field(k).type) if isinstance(v, list) else v
                                for k, v in columns.items()], schema=SCHEMA)  # fmt: skip


class _Side:
    """One state's rows of a table, as far as they are asked for."""

    def __init__(self, snapshot: Snapshot, table_key: str | None) -> None:
        self.key = table_key or ""
        self.there = table_key in snapshot.tables
        self.committed = Committed(snapshot)
        entity = snapshot.catalog.by_table_key.get(self.key)
        self.blobs = [p.name for p in entity.properties.values() if p.type.base == "Blob"] if entity else []
        self.names = [*snapshot.schema(self.key).names, _VERSION] if self.there else []

    def rows(self, ids: Array) -> pa.Table:
        """The rows of these ids with their version; a Blob as its digest."""
        if not self.there:
            nothing = {name: pa.array([], pa.string()) for name in ("id", "src", "dst")}
            return pa.table(nothing | {_VERSION: pa.array([], pa.uint64())})
        if not self.blobs:
            return self._matching(ids, self.names)
        rows = self._matching(ids, [*self.names, "_rowid"])
        for name in self.blobs:
            data = self.committed.snapshot.blob_digests(self.key, name, one_chunk(rows.column("_rowid")))
            rows = rows.set_column(rows.schema.get_field_index(name), name, data)
        return rows.drop_columns(["_rowid"])

    def _matching(self, ids: Array, names: list[str]) -> pa.Table:
        snapshot = self.committed.snapshot
        if not snapshot.tables[self.key].row_count:
            return snapshot.scan(self.key, names, limit=0)
        return self.committed.matching(self.key, "id", ids, names)


def _ids(rows: pa.Table) -> Array:
    return one_chunk(rows.column("id"))


def _aligned(before: pa.Table, after: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Both with the same columns and without the versions; a column that one state lacks is null there."""
    out = []
    for rows, other in ((before, after), (after, before)):
        for field in other.schema:
            if field.name not in rows.schema.names:
                nulls: Any = pa.nulls
                rows = rows.append_column(field, nulls(rows.num_rows, field.type))
        out.append(rows.drop_columns([_VERSION]))
    for name in out[0].schema.names:  # a type that a schema apply changed: compared as text
        if out[0].schema.field(name).type != out[1].schema.field(name).type:
            out = [_as_text(rows, name) for rows in out]
    return out[0], out[1]


def _as_text(rows: pa.Table, name: str) -> pa.Table:
    texts = pa.array([None if v is None else str(v) for v in rows[name].to_pylist()], pa.string())
    return rows.set_column(rows.schema.get_field_index(name), name, texts)


def _repeated(ids: Array, before: pa.Table, after: pa.Table) -> Any:
    """Ids that stand at several rows (graphs of other makers), and not at the same rows in both states."""
    mask = np.zeros(len(ids), dtype=bool)
    several: set[str] = set()
    for rows in (before, after):
        if pc.count_distinct(_ids(rows)).as_py() != rows.num_rows:
            several |= {c["values"] for c in pc.value_counts(_ids(rows)).to_pylist() if c["counts"] > 1}
    for one in several:
        sides = [rows.filter(pc.equal(rows.column("id"), one)).drop_columns([_VERSION]) for rows in (before, after)]
        if sides[0].num_rows and sides[1].num_rows:
            texts = [sorted(map(repr, rows.to_pylist())) for rows in sides]
            mask |= np.asarray(pc.equal(ids, one)) & (texts[0] != texts[1])
    return mask
