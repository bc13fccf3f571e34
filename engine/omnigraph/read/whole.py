"""Reading without indexes, id maps, adjacency or anything kept: tables from end to end, edges joined to their ends.

The slowest plan there is, and the plainest: traversal mode `scan`. It is there to compare answers with, when an index
or something kept is suspected.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from omnigraph.read.adjacency import Links, starts
from omnigraph.read.compute import Array, pc
from omnigraph.read.datum import Longs
from omnigraph.read.frame import Context, Indices
from omnigraph.read.hops import HopWay
from omnigraph.read.lookup import ENDS, FAR
from omnigraph.read.partial import PartialTable
from omnigraph.read.tables import Rows, one_array
from omnigraph.records import dataclass

__all__ = ["Scanned", "equal_pairs"]


@dataclass(frozen=True, slots=True, eq=False)
class Scanned:
    """The edges of one way, found by reading all of them at every hop.

    Args:
        near: the rows asked about.
        far: where far ends are put.
        table: where edges are put.
        columns, far_columns: those to read of edges and of far ends.
    """

    ctx: Context
    way: HopWay
    near: Rows
    far: PartialTable
    table: PartialTable
    columns: tuple[str, ...]
    far_columns: tuple[str, ...]

    def edges(self, ctx: Context) -> Rows:
        return self.table

    def at(self, nodes: Indices) -> tuple[Links, Indices]:
        self.ctx.check()
        asked = self.near.column("id").take(pa.array(nodes))
        edge_at, edges = self._all(self.table, ("src", "dst", *self.columns))
        far_at, fars = self._all(self.far, self.far_columns)
        owners, found, through = [], [], []
        for here, there in ENDS[self.way.direction]:
            edge, owner = equal_pairs(one_array(edges.column(here)), asked)
            if here == "dst" and self.way.direction == "both":  # a loop was found by its src already
                loops = pc.equal(one_array(edges.column("src")), one_array(edges.column("dst")))
                once = ~np.asarray(loops.to_numpy(zero_copy_only=False))[edge]
                edge, owner = edge[once], owner[once]
            which, far = equal_pairs(one_array(edges.column(there)).take(pa.array(edge)), one_array(fars.column("id")))
            owners.append(owner[which])
            found.append(far_at[far])
            through.append(edge_at[edge[which]])
        owner = np.concatenate(owners)
        order = np.argsort(owner, kind="stable")
        begin = starts(np.bincount(owner, minlength=len(nodes)))
        links = Links(begin, np.concatenate(found)[order], np.concatenate(through)[order], FAR, parallel=True)
        return links, np.arange(len(nodes))

    def _all(self, rows: PartialTable, names: Iterable[str]) -> tuple[Longs, pa.Table]:
        self.ctx.check_bytes(8 * self.ctx.snapshot.tables[rows.table_key].row_count, "reading a whole table")
        return rows.read(("id", *names), None)


def equal_pairs(left: Array, right: Array) -> tuple[Longs, Longs]:
    """(index into `left`, index into `right`) of every pair of equal texts, by sorting; null equals nothing."""
    both = pa.concat_arrays([left.cast(pa.large_string()), right.cast(pa.large_string())]).dictionary_encode()
    codes = pc.fill_null(both.indices, -1).to_numpy(zero_copy_only=False)
    mine, theirs = codes[: len(left)], codes[len(left) :]
    order = np.argsort(theirs, kind="stable")
    low = np.searchsorted(theirs[order], mine, side="left")
    many = np.where(mine < 0, 0, np.searchsorted(theirs[order], mine, side="right") - low)
    ends = np.cumsum(many)
    nth = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - many, many)
    return np.repeat(np.arange(len(left)), many), order[np.repeat(low, many) + nth]
