"""Edges looked up in their table: per hop one IN-list on `src` or `dst`, answered by its index and, past the rows the
index covers, by a scan of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from omnigraph.read.adjacency import Links, starts
from omnigraph.read.compute import Array, flags, pc
from omnigraph.read.datum import Longs
from omnigraph.read.frame import Context, Indices
from omnigraph.read.hops import HopWay
from omnigraph.read.partial import PartialTable
from omnigraph.read.tables import Rows, one_array
from omnigraph.records import dataclass

__all__ = ["ENDS", "FAR", "LookedUp", "Outgrown"]

FAR = 1 << 32
"""More than any position of rows that a query looks up."""

ENDS = {"out": (("src", "dst"),), "in": (("dst", "src"),), "both": (("src", "dst"), ("dst", "src"))}
"""Of a direction, the columns of the node asked about and of the other end."""


class Outgrown(Exception):  # no error: the traversal begins anew with adjacency
    """There are more nodes to look edges up for than it is made for."""


@dataclass(frozen=True, slots=True, eq=False)
class LookedUp:
    """The edges of one way, read when they are asked for.

    Args:
        near, far: the rows of the two ends.
        table: the edges read so far.
        columns: those to read of the edges.
        far_columns: those to read of far ends.
        most: nodes that may be asked about at once, more are `Outgrown`; None for any number.
    """

    ctx: Context
    way: HopWay
    near: Rows
    far: Rows
    table: PartialTable
    columns: tuple[str, ...]
    far_columns: tuple[str, ...]
    most: int | None

    def edges(self, ctx: Context) -> Rows:
        return self.table

    def at(self, nodes: Indices) -> tuple[Links, Indices]:
        self.ctx.check()
        asked = self.near.column("id").take(pa.array(nodes)).dictionary_encode()
        if self.most is not None and len(asked.dictionary) > self.most:
            raise Outgrown
        owners, fars, edges = [], [], []
        for owner, far_ids, edge in self._read(asked.dictionary) if len(nodes) else ():
            which, far = self.far.find(far_ids, self.far_columns)
            owners.append(owner[which])
            fars.append(far)
            edges.append(edge[which])
        none: Longs = np.zeros(0, dtype=np.int64)
        owner = np.concatenate([none, *owners])
        order = np.argsort(owner, kind="stable")
        begin = starts(np.bincount(owner, minlength=len(asked.dictionary)))
        far, edge = np.concatenate([none, *fars])[order], np.concatenate([none, *edges])[order]
        return Links(begin, far, edge, FAR, parallel=True), asked.indices.to_numpy()

    def _read(self, ids: Array) -> Iterator[tuple[Longs, Array, Longs]]:
        """(index into `ids`, id of the far end, edge) of every edge at these ids."""
        for here, there in ENDS[self.way.direction]:
            at, rows = self.table.among(here, ids, ["id", "src", "dst", *self.columns])
            owner = pc.index_in(one_array(rows.column(here)), value_set=ids)
            keep = owner.is_valid()
            if here == "dst" and self.way.direction == "both":  # a loop was found by its src already
                keep = pc.and_(keep, pc.not_equal(one_array(rows.column("src")), one_array(rows.column("dst"))))
            mask = flags(keep)
            far_ids = one_array(rows.column(there)).filter(keep)
            yield owner.filter(keep).to_numpy().astype(np.int64), far_ids, at[mask]
