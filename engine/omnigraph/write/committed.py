"""What a write needs to know of the committed state, asked for in sets: few values by lookup, many by one scan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from omnigraph.errors import Conflict
from omnigraph.read.compute import Array, Chunked, pc
from omnigraph.schema.catalog import EdgeType, NodeType
from omnigraph.storage import Snapshot
from omnigraph.storage.conditions import one_of
from omnigraph.storage.types import Places
from omnigraph.storage.whole import among, joined
from omnigraph.write.blobs import blob_names, ticketed
from omnigraph.write.columns import one_chunk
from omnigraph.write.constraints import Column, Rows
from omnigraph.write.keys import render_key

__all__ = ["LOOKUP_LIMIT", "Committed", "pieces", "refuse_repeated"]

LOOKUP_LIMIT = 10_000  # above this many values one scan of the column is quicker than an IN list

_NO_IDS: Array = pa.array([], pa.string())

TAKE_LIMIT = 100
"""Up to so many ids, the files are left out that surely hold none of them."""


class Committed:
    """A pinned snapshot as validation sees it.

    Args:
        replaced: tables that the write empties; they count as having no rows.
    """

    def __init__(self, snapshot: Snapshot, replaced: frozenset[str] = frozenset()) -> None:
        self.snapshot = snapshot
        self._replaced = replaced
        self._last: tuple[str, Array, pa.Table, Places | None] | None = None
        self._places: Places | None = None

    def _empty(self, table_key: str) -> bool:
        ref = self.snapshot.tables.get(table_key)
        return ref is None or ref.row_count == 0 or table_key in self._replaced

    def matching(self, table_key: str, column: str, values: Column, columns: Sequence[str] | None = None) -> pa.Table:
        """Rows whose `column` is among the values, with `columns` (None: all, Blobs as tickets)."""
        if columns is None and (blobs := self._blobs(table_key)):
            every = [*self.snapshot.schema(table_key).names, "_rowid"]
            rows = self._matching(table_key, column, values, every)
            return ticketed(self.snapshot, table_key, blobs, rows).drop_columns(["_rowid"])
        names = list(columns) if columns is not None else self.snapshot.schema(table_key).names
        return self._matching(table_key, column, values, names)

    def _blobs(self, table_key: str) -> list[str]:
        entity = self.snapshot.catalog.by_table_key.get(table_key)
        return [] if entity is None else blob_names(entity)

    def _matching(self, table_key: str, column: str, values: Column, names: list[str]) -> pa.Table:
        if self._empty(table_key) or len(values) == 0:
            return self._none(table_key, names)
        wanted = joined(values)
        wanted = (pc.unique(wanted) if len(wanted) > 1 else wanted).drop_null()
        whole = column == "id" and len(names) > 1 and "_rowid" not in names
        if whole and len(wanted) <= TAKE_LIMIT:
            found, self._places = self.snapshot.with_ids(table_key, wanted.to_pylist(), names)
            return found
        test = one_of(column, wanted) if len(wanted) <= LOOKUP_LIMIT else None
        if test is not None:
            return self.snapshot.scan(table_key, names, filter=test)
        read = names if column in names else [*names, column]
        parts = []
        for piece in pieces(self.snapshot.scan_batches(table_key, read), len(wanted)):
            hit = piece.filter(among(piece.column(column), wanted))
            if hit.num_rows:
                parts.append(hit.select(names))
        return pa.concat_tables(parts) if parts else self._none(table_key, names)

    def _none(self, table_key: str, names: Sequence[str]) -> pa.Table:
        schema = self.snapshot.schema(table_key)
        if not set(names) <= set(schema.names):  # Lance's own columns too
            return self.snapshot.scan(table_key, names, limit=0)
        return pa.schema([schema.field(name) for name in names]).empty_table()

    def present(self, table_key: str, ids: Column) -> Chunked:
        """Which of the ids exist."""
        return self.matching(table_key, "id", ids, ["id"]).column("id")

    def rows(self, table_key: str, ids: Column) -> pa.Table:
        """The whole rows of these ids, Blobs as tickets; those asked for last are kept, as a write asks twice."""
        wanted = one_chunk(ids)
        if self._last is not None and self._last[0] == table_key and self._last[1].equals(wanted):
            return self._last[2]
        self._places = None
        found = self.matching(table_key, "id", wanted)
        self._last = (table_key, wanted, found, self._places) if len(wanted) <= LOOKUP_LIMIT else None
        return found

    def places(self, table_key: str, ids: Column) -> Places | None:
        """Where the rows of these ids lie, if `rows` was asked for them last and knows it."""
        known = self._last is not None and self._last[0] == table_key and self._last[1].equals(one_chunk(ids))
        return self._last[3] if known and self._last is not None else None

    def with_values(self, table_key: str, parts: Sequence[str], rows: Rows) -> pa.Table | None:
        """Other rows that could collide in a `@unique`: equal in its first part, with ids not among the rows'."""
        if self._empty(table_key):
            return None
        names = list(dict.fromkeys(["id", *parts]))
        first = rows.column(parts[0])
        if pa.types.is_date64(first.type) or pa.types.is_floating(first.type) or pa.types.is_list(first.type):
            found = self.snapshot.scan(table_key, names)
        else:
            found = self.matching(table_key, parts[0], first, names)
        return found.filter(pc.invert(among(found.column("id"), rows.column("id"))))

    def check_keys(self, entity: NodeType | EdgeType) -> None:
        """Whether new ids of this type would be rendered as the stored ones are.

        Raises:
            Conflict: they wouldn't, so the same key would become a second row.
        """
        if len(entity.key) < 2 and not (entity.key and isinstance(entity, EdgeType)):
            return
        if self._empty(entity.table_key):
            return
        # No write of ours mixes the two, so that one row tells.
        row = self.snapshot.scan(entity.table_key, list(dict.fromkeys(["id", *entity.key])), limit=1)
        if row.num_rows and render_key([row.column(name) for name in entity.key])[0] != row.column("id")[0]:
            raise Conflict(
                f"the ids of {entity.name} were made by another version of omnigraph, which rendered the key "
                f"({', '.join(entity.key)}) otherwise: export the graph and load it into a new one, then write there",
                code="foreign_ids",
                details={"table_key": entity.table_key},
            )

    def edges(self, table_key: str) -> pa.Table:
        """All edges: id, src, dst."""
        if self._empty(table_key):
            return self._none(table_key, ["id", "src", "dst"])
        return self.snapshot.scan(table_key, ["id", "src", "dst"])

    def edges_of(self, table_key: str, sources: Column, *, without: Column) -> tuple[Array, Array]:
        """`src` of edges that stay at these sources (and at those that lose one), and `src` of edges that go.

        Args:
            without: ids of edges that the write deletes or writes anew; where it empties the table, all go.
        """
        if table_key in self._replaced and table_key in self.snapshot.tables:
            parts = [pc.unique(b.column("src")) for b in self.snapshot.scan_batches(table_key, ["src"])]
            return _NO_IDS, pc.unique(joined(_NO_IDS, *parts))
        if self._empty(table_key):
            return _NO_IDS, _NO_IDS
        gone = self.matching(table_key, "id", without, ["id", "src"])
        lost = joined(gone.column("src"))
        touched = joined(sources, lost)
        at = self.matching(table_key, "src", touched, ["id", "src"])
        stays = at.filter(pc.invert(among(at.column("id"), without)))
        return joined(stays.column("src")), lost


def refuse_repeated(entity: NodeType | EdgeType, stored: Column, met: int | None = None) -> None:
    """A write finds rows by their ids, so it mustn't meet an id that stands at several.

    Args:
        stored: the ids of all rows that have one of the ids to be written.
        met: how many rows the write means; by default as many as there are ids.

    Raises:
        Conflict: an id stands at a row that isn't meant.
    """
    if met is None and len(stored) < 2:
        return
    ids = joined(stored)
    if len(ids) == (pc.count_distinct(ids).as_py() if met is None else met):
        return
    repeated = next((c["values"] for c in pc.value_counts(ids).to_pylist() if c["counts"] > 1), None)
    raise Conflict(
        f"{entity.name} {repeated!r} is stored several times, and this write would change all of these rows: "
        "`omnigraph verify` lists such ids. Export the graph, give each row an id of its own, and load it anew",
        code="repeated_id",
        details={"table_key": entity.table_key, "id": repeated},
    )


def pieces(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """Batches joined to at least so many rows each: every look into a set of values hashes the set anew."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        waiting.append(batch)
        count += batch.num_rows
        if count >= rows:
            yield pa.Table.from_batches(waiting)
            waiting, count = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)
