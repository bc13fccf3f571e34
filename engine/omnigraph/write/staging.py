"""What a mutation has changed so far, per table, and the graph as its next statement sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa

from omnigraph.errors import Internal
from omnigraph.read.compute import Array, Chunked, pc
from omnigraph.schema.catalog import EdgeType, NodeType
from omnigraph.storage import Snapshot, TableChange
from omnigraph.storage.arrow import loose_schema, moving_schema
from omnigraph.storage.whole import among, joined
from omnigraph.write.blobs import BlobSpool, Tickets, blob_names, same_bytes, ticketed
from omnigraph.write.columns import one_chunk, shaped
from omnigraph.write.committed import Committed, pieces, refuse_repeated
from omnigraph.write.constraints import Column

__all__ = ["MutationStaging"]

_NO_IDS = pa.array([], pa.string())
_ID, _ENDS = ["id"], ["id", "src", "dst"]
_ROWADDR = pa.field("_rowaddr", pa.uint64())


class MutationStaging:
    """Pending rows and deletes over one pinned snapshot. Nothing of it is visible to anyone else."""

    def __init__(self, snapshot: Snapshot, blobs: BlobSpool | None = None) -> None:
        self.snapshot = snapshot
        self.blobs = blobs
        self.committed = Committed(snapshot)
        self._rows: dict[str, pa.Table] = {}
        self._deleted: dict[str, Array] = {}

    @property
    def touched(self) -> frozenset[str]:
        """Tables that have pending rows or deletes."""
        return frozenset(self._rows) | frozenset(self._deleted)

    def pending(self, entity: NodeType | EdgeType) -> pa.Table:
        """Rows to be written, in the table's schema (but for nullability)."""
        found = self._rows.get(entity.table_key)
        return found if found is not None else loose_schema(entity).empty_table()

    def deleted(self, table_key: str) -> Array:
        """Ids to be removed."""
        return self._deleted.get(table_key, _NO_IDS)

    def rows(self, entity: NodeType | EdgeType, ids: Column) -> pa.Table:
        """The present rows of these ids: pending ones first, then committed ones that aren't deleted."""
        stored = self.committed.rows(entity.table_key, ids)
        return self._over(entity, stored, "id", ids)

    def present(self, entity: NodeType | EdgeType, ids: Column) -> Chunked:
        """The ids among these that present rows have, once for each row."""
        stored = self.committed.matching(entity.table_key, "id", ids, _ID)
        return self._over(entity, stored, "id", ids, _ID).column("id")

    def passing(
        self,
        entity: NodeType | EdgeType,
        names: Sequence[str],
        test: Callable[[pa.Table], pa.Table],
        filter: str | None,
        *,
        whole: bool,
    ) -> pa.Table:
        """The present rows that pass a test, whole or by `id` alone.

        Committed rows are tested batch by batch, so that memory holds those that pass and no others.

        Args:
            names: the columns that the test reads.
            test: gives those of some rows that pass.
            filter: in SQL; narrows the committed part only, and what it leaves is tested too.
        """
        found = self._passing(entity, names, test, filter)
        pending = test(self.pending(entity))
        if not whole:
            return pa.concat_tables([found.select(_ID), pending.select(_ID)])
        stored = self.committed.matching(entity.table_key, "_rowaddr", found.column("_rowaddr"))
        return pa.concat_tables([shaped(stored, loose_schema(entity)), pending])

    def _passing(
        self,
        entity: NodeType | EdgeType,
        names: Sequence[str],
        test: Callable[[pa.Table], pa.Table],
        filter: str | None,
    ) -> pa.Table:
        """`id` and `_rowaddr` of the committed rows that nothing hides and that pass."""
        key, read = entity.table_key, list(dict.fromkeys([*_ID, *names]))
        blobs, hidden = [name for name in blob_names(entity) if name in read], self._hidden(key)
        schema = _part(entity, read).append(_ROWADDR)
        parts = [pa.schema([schema.field("id"), _ROWADDR]).empty_table()]
        wanted = [*schema.names, "_rowid"] if blobs else schema.names
        for rows in pieces(self.snapshot.scan_batches(key, wanted, filter), len(hidden)):
            rows = shaped(ticketed(self.snapshot, key, blobs, rows) if blobs else rows, schema)
            rows = test(rows.filter(pc.invert(among(rows.column("id"), hidden))) if len(hidden) else rows)
            if rows.num_rows:
                parts.append(rows.select(["id", "_rowaddr"]))
        return pa.concat_tables(parts)

    def edges_at(self, edge: EdgeType, column: str, ids: Column) -> pa.Table:
        """`id`, `src` and `dst` of the present edges whose `src` or `dst` is among the ids."""
        stored = self.committed.matching(edge.table_key, column, ids, _ENDS)
        return self._over(edge, stored, column, ids, _ENDS)

    def _hidden(self, table_key: str) -> Array:
        """Ids whose committed rows don't count."""
        gone, pending = self.deleted(table_key), self._rows.get(table_key)
        return gone if pending is None else joined(gone, pending.column("id"))

    def _over(
        self,
        entity: NodeType | EdgeType,
        stored: pa.Table,
        column: str,
        values: Column,
        names: Sequence[str] | None = None,
    ) -> pa.Table:
        """Stored rows that nothing hides, and the pending ones whose `column` has one of the values.

        Args:
            names: the columns; None: all.
        """
        schema, hidden = _part(entity, names), self._hidden(entity.table_key)
        stored = shaped(stored, schema)
        if len(hidden):
            stored = stored.filter(pc.invert(among(stored.column("id"), hidden)))
        pending = self._rows.get(entity.table_key)
        if pending is None:
            return stored
        pending = pending.filter(among(pending.column(column), values))
        return pa.concat_tables([stored, pending.select(schema.names)])

    def put(self, entity: NodeType | EdgeType, rows: pa.Table) -> None:
        """Writes whole rows; a pending row of the same id is replaced. Ids are unique within `rows`."""
        key, schema = entity.table_key, loose_schema(entity)
        rows = shaped(rows, schema)
        pending = self._rows.get(key)
        if pending is not None:
            replaced = among(pending.column("id"), rows.column("id"))
            if pc.any(replaced).as_py():
                pending = pending.filter(pc.invert(replaced))
            # One piece: else a query of many statements goes through as many at each of them.
            rows = pa.concat_tables([pending, rows]).combine_chunks()
        self._rows[key] = rows

    def delete(self, entity: NodeType | EdgeType, ids: Column) -> None:
        key = entity.table_key
        pending = self._rows.get(key)
        if pending is not None:
            self._rows[key] = pending.filter(pc.invert(among(pending.column("id"), ids)))
        self._deleted[key] = pc.unique(joined(self.deleted(key), ids))

    def changes(self, entities: Iterable[NodeType | EdgeType]) -> tuple[TableChange, ...]:
        """At most one change per table; rows equal to the stored ones are no change."""
        out, touched = [], self.touched
        for entity in entities:
            key = entity.table_key
            if key not in touched:
                continue
            rows = shaped(self.pending(entity), moving_schema(entity))
            stored = self.committed.rows(key, rows.column("id"))
            refuse_repeated(entity, stored.column("id"))
            appends, known, stored = _parted(rows, stored)
            blobs = Tickets(self.blobs, self.snapshot, key) if blob_names(entity) else None
            upserts = _changed(entity, known, stored, blobs)
            deleted = self.deleted(key)
            places = self.committed.places(key, rows.column("id"))
            if appends.num_rows or upserts.num_rows or len(deleted):
                out.append(
                    TableChange(
                        key,
                        appends=appends if appends.num_rows else None,
                        upserts=upserts if upserts.num_rows else None,
                        delete_ids=deleted if len(deleted) else None,
                        blobs=blobs,
                        places=places,
                    )
                )
        return tuple(out)


def _part(entity: NodeType | EdgeType, names: Sequence[str] | None) -> pa.Schema:
    """Some columns of `loose_schema`; None: all."""
    schema = loose_schema(entity)
    return schema if names is None else pa.schema([schema.field(name) for name in names])


def _parted(rows: pa.Table, stored: pa.Table) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Rows of new ids, rows of stored ids, and the stored row of each of those, in the same order."""
    ids, old = one_chunk(rows.column("id")), one_chunk(stored.column("id"))
    if len(old) == 0:
        return rows, rows.slice(0, 0), stored
    if ids.equals(old):
        return rows.slice(0, 0), rows, stored
    where = pc.index_in(ids, value_set=old)
    known = pc.is_valid(where)
    return rows.filter(pc.is_null(where)), rows.filter(known), stored.take(where.filter(known))


def _changed(entity: NodeType | EdgeType, rows: pa.Table, stored: pa.Table, blobs: Tickets | None) -> pa.Table:
    """The rows that differ from the stored row at the same place. Giving a Blob the bytes it has is no change."""
    if rows.num_rows == 0:
        return rows
    for name in blob_names(entity):
        if blobs is None:
            raise Internal(f"{entity.name}: rows with Blobs come without their bytes")
        new, old = one_chunk(rows.column(name)), one_chunk(stored.column(name))
        at = rows.schema.get_field_index(name)
        kept = pc.if_else(pa.array(same_bytes(blobs, name, new, old)), old, new)
        rows = rows.set_column(at, rows.schema.field(at), kept)
    same: Array | None = None
    nested = []
    for field in rows.schema:
        new, old = one_chunk(rows.column(field.name)), one_chunk(stored.column(field.name))
        if new.equals(old):
            continue
        if pa.types.is_nested(field.type):
            nested.append((new, old))
            continue
        equal = pc.equal(new, old)
        if equal.null_count:
            equal = pc.or_(pc.fill_null(equal, False), pc.and_(pc.is_null(new), pc.is_null(old)))
        same = equal if same is None else pc.and_(same, equal)
    if same is not None and same.true_count == 0:
        return rows
    if nested:
        # Arrow compares no lists; only rows equal in everything else come this far.
        alike = range(rows.num_rows) if same is None else pc.indices_nonzero(same).to_pylist()
        still = [at for at in alike if all(new[at].equals(old[at]) for new, old in nested)]
        same = pc.is_in(pa.array(range(rows.num_rows), pa.int64()), value_set=pa.array(still, pa.int64()))
    return rows.slice(0, 0) if same is None else rows.filter(pc.invert(same))
