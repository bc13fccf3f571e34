"""The rows of a table that one query has read so far, instead of the table's whole columns.

A cold query that touches few rows looks them up and keeps them here. A row is known by its row id and has a position
that stays; columns are read with the rows that are looked up, or when they are first asked for.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.read.compute import Array, indices, pc, together
from omnigraph.read.datum import Longs
from omnigraph.read.tables import ROW_ID, Readable, Rows, one_array
from omnigraph.storage.conditions import one_of

__all__ = ["PartialTable"]

RowIds = npt.NDArray[np.uint64]

_WHOLE = 10  # where more than one in so many rows is asked for, the table is read from end to end


class PartialTable(Rows):
    """Some rows of a table. Belongs to one execution, which is one thread.

    Args:
        scans: columns are read with the whole table, never by row id.
    """

    def __init__(self, table_key: str, snapshot: Readable, *, scans: bool = False) -> None:
        super().__init__(table_key, 0, {})
        self._scans = scans
        self._snapshot = snapshot
        self._size = snapshot.tables[table_key].row_count
        self._batches: list[tuple[RowIds, dict[str, Array]]] = []
        self._sorted: RowIds = np.zeros(0, dtype=np.uint64)
        self._order: Longs = np.zeros(0, dtype=np.int64)
        self._asked: Array = pa.array([], pa.string())  # ids all of whose rows are here

    def column(self, name: str) -> Array:
        found = self._columns.get(name)
        if found is None:
            found = self._columns[name] = self._gathered(name)
        return found

    def _gathered(self, name: str) -> Array:
        if not self._batches:
            field = self._snapshot.schema(self.table_key).field(name)
            return one_array(pa.array([], field.type))
        lacking = [(ids, columns) for ids, columns in self._batches if name not in columns]
        if lacking:
            ids = np.concatenate([ids for ids, _ in lacking])
            values = self._values(ids, name)
            begin = 0
            for ids, columns in lacking:
                columns[name] = values.slice(begin, len(ids))
                begin += len(ids)
        parts = [columns[name] for _, columns in self._batches]
        return parts[0] if len(parts) == 1 else together(parts)

    def _values(self, ids: RowIds, name: str) -> Array:
        if not self._scans:
            return one_array(self._snapshot.take(self.table_key, ids, [name]).column(name))
        table = self._snapshot.scan(self.table_key, columns=[name, ROW_ID])
        at = pc.index_in(pa.array(ids), value_set=one_array(table.column(ROW_ID)))
        return one_array(table.column(name)).take(at)

    def row_ids(self) -> RowIds:
        return np.concatenate([np.zeros(0, dtype=np.uint64), *(ids for ids, _ in self._batches)])

    # ---- reading ----

    def read(self, names: Iterable[str], filter: str | None) -> tuple[Longs, pa.Table]:
        """Look rows up.

        Returns:
            Their positions, and the rows as read.
        """
        found = self._snapshot.scan(self.table_key, columns=[*dict.fromkeys(names), ROW_ID], filter=filter)
        ids = found.column(ROW_ID).to_numpy()
        columns = {name: one_array(found.column(name)) for name in found.column_names if name != ROW_ID}
        return self.absorb(ids, columns), found

    def take(self, row_ids: RowIds, names: Iterable[str]) -> Longs:
        """The positions of rows by their ids, with some of their columns."""
        wanted = list(dict.fromkeys(names))
        found = self._snapshot.take(self.table_key, row_ids, wanted)
        return self.absorb(row_ids, {name: one_array(found.column(name)) for name in wanted})

    def among(self, name: str, values: Array, names: Iterable[str]) -> tuple[Longs, pa.Table]:
        """Look up the rows whose column has one of some distinct texts (and perhaps others)."""
        few = len(values) * _WHOLE < self._size or self._size < 100
        return self.read(names, one_of(name, values) if few else None)

    def absorb(self, row_ids: RowIds, columns: dict[str, Array]) -> Longs:
        """The positions of rows, given with some of their columns; what is new stays here."""
        at = self._places(row_ids)
        unknown = np.flatnonzero(at < 0)
        if len(unknown):
            new = unknown[np.sort(np.unique(row_ids[unknown], return_index=True)[1])]
            pick = indices(new)
            batch = columns if len(new) == len(row_ids) else {n: c.take(pick) for n, c in columns.items()}
            self._batches.append((row_ids[new], dict(batch)))
            self.rows += len(new)
            self._columns.clear()
            self._derived.clear()
            all_ids = self.row_ids()
            self._order = np.argsort(all_ids)
            self._sorted = all_ids[self._order]
            at = self._places(row_ids)
        return at

    def _places(self, row_ids: RowIds) -> Longs:
        if not len(self._sorted):
            return np.full(len(row_ids), -1, dtype=np.int64)
        spot = np.minimum(np.searchsorted(self._sorted, row_ids), len(self._sorted) - 1)
        return np.where(self._sorted[spot] == row_ids, self._order[spot], -1)

    def find(self, ids: Array, names: Iterable[str] = ()) -> tuple[Longs, Longs]:
        """(index into `ids`, position) of every row with one of the ids; `names` are read with rows not here yet."""
        distinct = ids.unique()
        unknown = distinct.filter(pc.invert(pc.is_in(distinct, value_set=self._asked)))
        if len(unknown):
            self.among("id", unknown, ["id", *names])
            self._asked = pa.concat_arrays([self._asked, unknown.cast(pa.string())])
        return super().find(ids, names)
