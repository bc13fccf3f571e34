"""How a traversal is opened: looked up edge by edge, or through adjacency in memory; whichever is expected to be
quicker for the nodes at hand.

Looking up costs per node and leaves nothing behind; adjacency costs once per edge table and then next to nothing. So a
small question to a cold process is looked up, and a big one, or one asked again and again, builds adjacency.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import pyarrow as pa

from omnigraph.read.adjacency import Adjacency, Links
from omnigraph.read.datum import Longs
from omnigraph.read.distinct import once
from omnigraph.read.frame import Binding, Context, Frame, Indices
from omnigraph.read.hops import REFRESHED, HopFilter, Hops, HopWay, Neighbours, Stored
from omnigraph.read.lookup import FAR, LookedUp, Outgrown
from omnigraph.read.memory import Memory, NotInMemory
from omnigraph.read.partial import PartialTable
from omnigraph.read.tables import Rows, TableData
from omnigraph.read.whole import Scanned
from omnigraph.records import dataclass

__all__ = ["Traversal", "Work", "within"]

Result = TypeVar("Result")
Work = Callable[[Hops, Indices, Indices | None], Result]
"""What is done with an opened traversal: the hops, the position of each row's source, of its target where bound."""

# Microseconds, on the machine of docs/adr/0018.
_LOOK_UP = 300.0  # the edges of a node
_NODE = 10.0  # a far node by its id
_SCAN = 1500.0  # any scan
_EDGE = 1.0  # an edge put into adjacency
_CELL = 0.05  # a value read in a full scan
_ID = 0.2  # an id read and hashed


@dataclass(frozen=True, slots=True, eq=False)
class Traversal:
    """Edges to follow from rows of `near` to rows of `far`.

    Args:
        low, high: hops; with more than one, near and far are one table.
        where: what must be true of every edge followed, or None.
        edge_columns, far_columns: properties read of edges and far ends.
    """

    ways: tuple[HopWay, ...]
    near: str
    far: str
    low: int
    high: int
    where: HopFilter | None
    edge_columns: tuple[str, ...]
    far_columns: tuple[str, ...]

    @property
    def single(self) -> bool:
        return self.low == self.high == 1

    def run(self, ctx: Context, frame: Frame, source: str, target: str | None, work: Work[Result]) -> Result:
        """Open the traversal for a frame's rows and do the work; anew with adjacency where looking up outgrows itself.

        Args:
            target: the far end where it is bound. Neither end is null in any row.
        """
        near = frame.bound[source]
        far = None if target is None else frame.bound[target]
        mode = self.mode(ctx, near, count=True)
        if mode != "csr":
            try:
                self._note(ctx, mode)
                return self._looked_up(ctx, near, far, work)
            except Outgrown:
                pass
        self._note(ctx, "csr")
        return self._stored(ctx, near, far, work)

    def _note(self, ctx: Context, mode: str) -> None:
        if ctx.trace is not None:
            ctx.trace.modes[id(self)] = mode

    @property
    def plain(self) -> bool:
        """Whether it follows every edge of one table."""
        return len(self.ways) == 1 and self.where is None

    def stored(self, ctx: Context, near: Binding) -> tuple[Links, Indices] | None:
        """The adjacency of a plain traversal and each row's place in it; None where it is looked up instead."""
        if self.mode(ctx, near, count=False) != "csr":
            return None
        self._note(ctx, "csr")
        return self._stored(ctx, near, None, lambda hops, at, _: None if hops.plain is None else (hops.plain, at))

    # ---- the two ways ----

    def _stored(self, ctx: Context, near: Binding, far: Binding | None, work: Work[Result]) -> Result:
        found = [ctx.adjacency.get(ctx.snapshot, w.edge, *w.ends) for w in self.ways]
        far_rows = ctx.tables.get(ctx.snapshot, self.far).load(ctx.snapshot, (*self.far_columns, "id"))
        near_rows = ctx.tables.get(ctx.snapshot, self.near).load(ctx.snapshot, ("id",))
        hops = self._opened(near_rows, far_rows, found)
        return work(hops, within(near, near_rows), None if far is None else within(far, far_rows))

    def bind(self, memory: Memory) -> Hops:
        """Opened through adjacency, for all that read the snapshot. Raises NotInMemory."""
        if memory.ctx.settings.traversal_mode not in ("", "csr"):
            raise NotInMemory
        found = [memory.adjacency(way) for way in self.ways]
        near_rows, far_rows = memory.table(self.near, ("id",)), memory.table(self.far, (*self.far_columns, "id"))
        return self._opened(near_rows, far_rows, found)

    def _opened(self, near: Rows, far: Rows, found: list[Adjacency]) -> Hops:
        columns = (*self.edge_columns, *(self.where.columns if self.where else ()))
        both = zip(self.ways, found, strict=True)
        ways = tuple(Stored(way, adjacency, adjacency.links(way.direction), columns) for way, adjacency in both)
        plain = ways[0].links if len(ways) == 1 and self.where is None else None
        return Hops(near, far, far.rows, ways, self.where, plain)

    def _looked_up(self, ctx: Context, near: Binding, far: Binding | None, work: Work[Result]) -> Result:
        far_rows = self._far_rows(ctx, far)
        near_rows = far_rows if self.near == self.far else near.rows
        columns = (*self.edge_columns, *(self.where.columns if self.where else ()))
        far_columns = self.far_columns if self.single else ()  # the nodes in between are only passed through
        most = None if ctx.settings.traversal_mode else ctx.settings.expand_indexed_max_frontier
        ways: tuple[Neighbours, ...] = tuple(
            Scanned(ctx, way, near_rows, far_rows, ctx.partial(way.edge), columns, far_columns)
            if isinstance(far_rows, PartialTable) and ctx.settings.traversal_mode == "scan"
            else LookedUp(ctx, way, near_rows, far_rows, ctx.partial(way.edge), columns, far_columns, most)
            for way in self.ways
        )
        hops = Hops(near_rows, far_rows, FAR, ways, self.where, None)
        return work(hops, within(near, near_rows), None if far is None else within(far, far_rows))

    def _far_rows(self, ctx: Context, far: Binding | None) -> Rows:
        """Where far ends are found: in the cached table if it has what is read of them, else among the rows read."""
        if far is not None and isinstance(far.rows, PartialTable):
            return far.rows
        if ctx.settings.traversal_mode == "scan":
            return ctx.partial(self.far)
        table = ctx.tables.get(ctx.snapshot, self.far)
        ready = table.finds and table.has(() if far is not None else (*self.far_columns, "id"))
        return table if ready else ctx.partial(self.far)

    # ---- which of the two ----

    def mode(self, ctx: Context, near: Binding, *, count: bool) -> str:
        """`indexed`, `csr` or `scan`, for the nodes of a binding."""
        settings = ctx.settings
        if settings.traversal_mode:
            return settings.traversal_mode
        if self.built(ctx):
            return "csr"
        frontier = len(near.at)
        if settings.expand_indexed_max_frontier < frontier <= 50 * settings.expand_indexed_max_frontier:
            frontier = len(once(near.at))  # several rows may stand at one node
        return self.cheaper(ctx, frontier, count=count)

    def describe(self, ctx: Context, rows: float) -> str:
        """How it was followed, or would be from so many rows."""
        if ctx.trace is not None:
            return ctx.trace.modes.get(id(self), "csr")
        if self.built(ctx):
            return ctx.settings.traversal_mode or "csr"
        mode = ctx.settings.traversal_mode or self.cheaper(ctx, rows, count=False)
        return "csr (to be built)" if mode == "csr" else mode

    def built(self, ctx: Context) -> bool:
        return all(way.built(ctx) for way in self.ways)

    def cheaper(self, ctx: Context, frontier: float, *, count: bool) -> str:
        """The mode expected to be quicker from so many nodes; `count`: and it is taken."""
        settings = ctx.settings
        if frontier > settings.expand_indexed_max_frontier or self.high > settings.expand_indexed_max_hops:
            return "csr"
        key = ("adjacency", *(ctx.snapshot.fingerprint(way.edge) for way in self.ways))
        alone, whole = self._costs(ctx, frontier)
        return "indexed" if ctx.rather_alone(key, alone, whole, count=count) else "csr"

    def _costs(self, ctx: Context, frontier: float) -> tuple[float, float]:
        """Expected microseconds of looking up, and of building what adjacency lacks."""
        tables = ctx.snapshot.tables
        nodes = {key: tables[key].row_count for key in {self.near, self.far}}
        edges = [tables[way.edge].row_count for way in self.ways]
        sides = [2 if way.direction == "both" else 1 for way in self.ways]
        degree = sum(e * s for e, s in zip(edges, sides, strict=True)) / max(1, nodes[self.near])
        tails = sum(self._tail(ctx, way) for way in self.ways)
        alone, level = 0.0, frontier
        for _ in range(self.high):
            if level > ctx.settings.expand_indexed_max_frontier:
                return float("inf"), 0.0
            alone += (sum(sides) + 1) * _SCAN + level * len(edges) * _LOOK_UP + tails * _CELL
            level = min(level * degree, nodes[self.far])
            alone += level * _NODE
        build = sum(e * way.share(ctx) * _EDGE for e, way in zip(edges, self.ways, strict=True))
        for key, rows in nodes.items():
            table = ctx.tables.get(ctx.snapshot, key)
            build += 0.0 if table.finds else rows * _ID * (REFRESHED if table.refreshes else 1)
        return alone, build * ctx.settings.csr_build_factor + 2 * _SCAN

    def _tail(self, ctx: Context, way: HopWay) -> int:
        """Edges that a look-up has to scan for, since no index covers them."""
        columns = {"out": ("src",), "in": ("dst",)}.get(way.direction, ("src", "dst"))
        rows = ctx.snapshot.tables[way.edge].row_count
        return sum(max(0, rows - ctx.snapshot.indexed_rows(way.edge, column)) for column in columns)


def within(bound: Binding, rows: Rows) -> Indices:
    """The positions of a binding's rows among other rows of its table."""
    if bound.rows is rows:
        return bound.at
    if isinstance(rows, PartialTable):
        distinct, back = np.unique(bound.at, return_inverse=True)
        ids = bound.rows.column("id").take(pa.array(distinct))
        found: Longs = rows.absorb(bound.rows.row_ids()[distinct], {"id": ids})[back]
        return found
    if not isinstance(rows, TableData):
        raise TypeError(f"no positions in {type(rows).__name__}")
    return rows.places(bound.rows.row_ids()[bound.at])
