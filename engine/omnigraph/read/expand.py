"""Following edges: breadth-first levels per source row, over adjacency arrays.

A far end is yielded when its shortest distance from the source lies in [min, max], once per source row. Visited nodes
are not expanded again; the start is reached again only through its own self-loop, at distance 1 (07 §21).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from omnigraph.read.adjacency import Links
from omnigraph.read.env import rows_where
from omnigraph.read.expr import Evaluate
from omnigraph.read.frame import Binding, Context, Frame, Indices
from omnigraph.read.tables import TableData

__all__ = ["ExpandStep", "neighbours", "reach", "whole"]

Longs = npt.NDArray[np.int64]
_SORT_BELOW = 4096  # candidates of a level: below it sorting them is quicker than touching the stamp array


def neighbours(links: Links, at: Indices) -> tuple[Longs, Longs]:
    """(index into `at`, index into `links.neighbour`) of every edge at the given nodes, in order."""
    if len(at) == 1:
        low, high = int(links.start[at[0]]), int(links.start[at[0] + 1])
        return np.zeros(high - low, dtype=np.int64), np.arange(low, high)
    starts = links.start[at]
    counts = links.start[at + 1] - starts
    ends = np.cumsum(counts)
    owner = np.repeat(np.arange(len(at)), counts)
    slot = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(starts - ends + counts, counts)
    return owner, slot


def reach(links: Links, sources: Indices, low: int, high: int, ctx: Context) -> tuple[Longs, Indices]:
    """(index into `sources`, far node) of every pair whose shortest distance lies in [low, high]."""
    links = links.distinct
    if low == high == 1:
        owner, slot = neighbours(links, sources)
        return owner, links.neighbour[slot]
    distinct, back = np.unique(sources, return_inverse=True)
    step = max(1, ctx.settings.bitmap_bytes // max(1, links.near))
    owners, nodes = [], []
    for begin in range(0, len(distinct), step):
        ctx.check()
        owner, node = _levels(links, distinct[begin : begin + step], low, high)
        owners.append(owner + begin)
        nodes.append(node)
    owner = np.concatenate(owners) if owners else np.zeros(0, dtype=np.int64)
    node = np.concatenate(nodes) if nodes else np.zeros(0, dtype=np.int64)
    if len(distinct) == len(sources):
        rows = np.empty(len(sources), dtype=np.int64)  # every source once: its index is all that changes
        rows[back] = np.arange(len(sources))
        return rows[owner], node
    # Several rows share a source: each gets its own copy of the source's far ends.
    order = np.argsort(owner, kind="stable")
    start = np.zeros(len(distinct) + 1, dtype=np.int64)
    np.cumsum(np.bincount(owner, minlength=len(distinct)), out=start[1:])
    found = Links(start, node[order], node[order], links.far, parallel=False)
    ctx.check_rows(int(np.diff(start)[back].sum()), "following edges")
    owner, slot = neighbours(found, back)
    return owner, found.neighbour[slot]


def _levels(links: Links, sources: Indices, low: int, high: int) -> tuple[Longs, Longs]:
    """`reach` for distinct sources that fit the scratch memory: one bitmap row of visited nodes for each."""
    n = links.near
    owner: Longs = np.arange(len(sources))
    node: Longs = sources.astype(np.int64)
    visited = np.zeros(len(sources) * n, dtype=bool)
    visited[owner * n + node] = True
    stamp: npt.NDArray[np.int32] | None = None
    owners, nodes = [], []
    if low == 0:
        owners.append(owner)
        nodes.append(node)
    for hop in range(1, high + 1):
        at, slot = neighbours(links, node)
        at, far = owner[at], links.neighbour[slot]
        if hop == 1 == low:
            loop = far == sources[at]
            owners.append(at[loop])
            nodes.append(far[loop].astype(np.int64))
        key = at * n + far
        key = key[~visited[key]]
        if len(key) < _SORT_BELOW:
            key = np.unique(key)
        else:
            if stamp is None:
                stamp = np.empty(len(sources) * n, dtype=np.int32)
            mark = np.arange(len(key), dtype=np.int32)
            stamp[key] = mark
            key = key[stamp[key] == mark]
        visited[key] = True
        owner, node = np.divmod(key, n)
        if hop >= low:
            owners.append(owner)
            nodes.append(node)
        if not len(key):
            break
    return (
        np.concatenate(owners) if owners else np.zeros(0, dtype=np.int64),
        np.concatenate(nodes) if nodes else np.zeros(0, dtype=np.int64),
    )


def whole(ctx: Context, frame: Frame, var: str, table_key: str) -> Frame:
    """The frame with `var` pointing into the whole table (rows read singly are looked up there by id)."""
    bound = frame.bound[var]
    if bound.rows.whole:
        return frame
    table = ctx.tables.get(ctx.snapshot, table_key).load(ctx.snapshot, ["id"])
    at = table.id_map().positions(bound.rows.column("id"))
    return frame.bind(var, Binding(table, at[bound.at]))


@dataclass(frozen=True, slots=True, eq=False)
class ExpandStep:
    """Follow an edge table from `source` to `target`; see `ir.Expand`.

    Args:
        near, far: table keys of the two ends, as walked.
        ends: table keys of the edge's source and target type.
        where, edge_where: predicates on target and edge variable, compiled.
        target_columns, edge_columns: properties the query reads of them.
        set_only: only which far ends there are matters, not from where: all rows are walked as one set.
    """

    source: str
    target: str
    edge: str
    direction: str
    near: str
    far: str
    ends: tuple[str, str]
    low: int
    high: int
    bound: bool
    edge_var: str | None
    where: Evaluate | None
    edge_where: Evaluate | None
    target_columns: tuple[str, ...]
    edge_columns: tuple[str, ...]
    text: str
    estimate: float
    set_only: bool = False

    def links(self, ctx: Context) -> Links:
        return ctx.adjacency.get(ctx.snapshot, self.edge, *self.ends).links(self.direction)

    def run(self, ctx: Context, frame: Frame) -> Frame:
        target_table = ctx.tables.get(ctx.snapshot, self.far).load(ctx.snapshot, (*self.target_columns, "id"))
        if frame.length == 0:
            return self._bind(frame, np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), target_table, None, ctx)
        frame = whole(ctx, frame, self.source, self.near)
        if self.bound:
            frame = whole(ctx, frame, self.target, self.far)
        links = self.links(ctx)
        at = frame.bound[self.source].at
        if self.edge_var is not None:
            owner, slot = neighbours(links, at)
            return self._bind(frame, owner, links.neighbour[slot], target_table, links.edge[slot], ctx)
        if self.bound:
            return frame.take(self._joined(ctx, links, at, frame.bound[self.target].at))
        if self.set_only:
            return self._as_set(ctx, links, frame, target_table)
        if self.low == self.high == 1:
            ctx.check_rows(int((links.start[at + 1] - links.start[at]).sum()), f"following {self.text}")
        owner, node = reach(links, at, self.low, self.high, ctx)
        return self._bind(frame, owner, node, target_table, None, ctx)

    def _joined(self, ctx: Context, links: Links, source: Indices, target: Indices) -> npt.NDArray[np.bool_]:
        """Which (source, target) pairs are within the hops."""
        if self.low == self.high == 1:
            pairs = links.pairs
            if not len(pairs):
                return np.zeros(len(source), dtype=bool)
            key = source.astype(np.int64) * links.far + target
            spot = np.minimum(np.searchsorted(pairs, key), len(pairs) - 1)
            return np.asarray(pairs[spot] == key)
        distinct, back = np.unique(source, return_inverse=True)
        owner, node = reach(links, distinct, self.low, self.high, ctx)
        return np.isin(back * links.far + target, owner * links.far + node)

    def _as_set(self, ctx: Context, links: Links, frame: Frame, table: TableData) -> Frame:
        seen = np.zeros(links.near, dtype=bool)
        seen[frame.bound[self.source].at] = True
        _, slot = neighbours(links, np.flatnonzero(seen))
        far = np.zeros(links.far, dtype=bool)
        far[links.neighbour[slot]] = True
        node = np.flatnonzero(far)
        if self.where is not None:
            node = node[rows_where(ctx, table, self.target, self.where, node)]
        return Frame(len(node), {self.target: Binding(table, node)})

    def _bind(
        self, frame: Frame, owner: Indices, node: Indices, table: TableData, edge: Indices | None, ctx: Context
    ) -> Frame:
        keep: npt.NDArray[np.bool_] | None = None
        if self.bound and len(owner):
            keep = frame.bound[self.target].at[owner] == node
        if self.where is not None and not self.bound:
            keep = rows_where(ctx, table, self.target, self.where, node)
        edges: TableData | None = None
        if self.edge_var is not None:
            edges = ctx.tables.get(ctx.snapshot, self.edge).load(ctx.snapshot, (*self.edge_columns, "id"))
            edge = np.zeros(0, dtype=np.int64) if edge is None else edge
            if self.edge_where is not None:
                mask = rows_where(ctx, edges, self.edge_var, self.edge_where, edge)
                keep = mask if keep is None else keep & mask
        if keep is not None:
            owner, node = owner[keep], node[keep]
            edge = edge[keep] if edge is not None else None
        out = frame.take(owner)
        if not self.bound:
            out = out.bind(self.target, Binding(table, node))
        if self.edge_var is not None and edges is not None and edge is not None:
            out = out.bind(self.edge_var, Binding(edges, edge))
        return out

    def describe(self, ctx: Context) -> str:
        built = ctx.adjacency.has(ctx.snapshot, self.edge, *self.ends)
        how = "semi-join" if self.bound else "one set" if self.set_only else "breadth first"
        return f"expand  {self.text}  {how}, csr{'' if built else ' (to be built)'}  ~{self.estimate:.1f} rows for each"
