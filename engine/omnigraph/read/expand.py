"""Following edges: breadth-first levels per source row.

A far end is yielded when its shortest distance from the source lies in [min, max], once per source row. Visited nodes
are not expanded again; the start is reached again only through its own self-loop, at distance 1 (07 §21).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from omnigraph.read.adjacency import Links
from omnigraph.read.compute import Array
from omnigraph.read.datum import Bools, Evaluate, Longs
from omnigraph.read.distinct import once
from omnigraph.read.env import rows_where
from omnigraph.read.frame import Binding, Context, Frame, Indices
from omnigraph.read.hops import BLOCK, Followed, Hops, blocks, far_ends, neighbours
from omnigraph.read.met import met_keys
from omnigraph.read.multiset import far_counts, merged, times
from omnigraph.read.steps import present
from omnigraph.read.tables import ROW_ID, Rows
from omnigraph.read.traversal import Traversal

__all__ = ["WAY", "ExpandStep", "reach"]

WAY = "#way"
"""Of an edge over several tables: the number of its table in the order of the table key; `_rowid` is its row there."""


def reach(hops: Hops, sources: Indices, low: int, high: int) -> tuple[Longs, Indices]:
    """(index into `sources`, far node) of every pair whose shortest distance lies in [low, high]."""
    ctx = hops.ctx
    plain = None if hops.plain is None else hops.plain.distinct
    if low == high == 1:
        if plain is not None:
            return _across(ctx, plain, sources)
        owner, node = hops.step(sources)
        return np.divmod(once(owner * hops.size + node), hops.size)
    distinct, back = np.unique(sources, return_inverse=True)
    size = max(1, ctx.settings.bitmap_bytes // max(1, hops.size)) if hops.dense else max(1, len(distinct))
    owners, nodes, found_rows = [], [], 0
    for begin in range(0, len(distinct), size):
        ctx.check()
        owner, node = _levels(hops, plain, distinct[begin : begin + size], low, high)
        owners.append(owner + begin)
        nodes.append(node)
        found_rows += len(node)
        ctx.check_bytes(found_rows * 32, "following edges")  # the parts, and the arrays they become
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
    found = Links(start, node[order], node[order], hops.size, parallel=False)
    ctx.check_rows(int(np.diff(start)[back].sum()), "following edges")
    owner, slot = neighbours(found, back)
    return owner, found.neighbour[slot]


def _across(ctx: Context, links: Links, sources: Indices) -> tuple[Longs, Indices]:
    """(index into `sources`, far node) of every edge at the sources, a block of work at a time."""
    total = int((links.start[sources + 1] - links.start[sources]).sum())
    ctx.check_rows(total, "following edges")
    if total <= BLOCK:
        owner, slot = neighbours(links, sources)
        return owner, links.neighbour[slot]
    owner, node, done = np.empty(total, dtype=np.int64), np.empty(total, dtype=np.int64), 0
    for low, high in blocks(links, sources):
        ctx.check()
        at, slot = neighbours(links, sources[low:high])
        owner[done : done + len(at)] = at + low
        node[done : done + len(at)] = links.neighbour[slot]
        done += len(at)
    return owner, node


def _spread(ctx: Context, frame: Frame, owner: Longs) -> Frame:
    """The frame's rows at each far end, a block of work at a time."""
    if len(owner) <= BLOCK:
        return frame.take(owner)
    ctx.check_bytes(8 * len(owner) * (len(frame.bound) + 1), "following edges")
    bound = {}
    for name, binding in frame.bound.items():
        at = np.empty(len(owner), dtype=binding.at.dtype)
        for low in range(0, len(owner), BLOCK):
            ctx.check()
            at[low : low + BLOCK] = binding.at[owner[low : low + BLOCK]]
        bound[name] = Binding(binding.rows, at, binding.nullable)
    return Frame(len(owner), bound, None if frame.weight is None else frame.weight[owner])


def _levels(hops: Hops, plain: Links | None, sources: Indices, low: int, high: int) -> tuple[Longs, Longs]:
    """`reach` for distinct sources that fit the scratch memory."""
    n = hops.size
    owner: Longs = np.arange(len(sources))
    node: Longs = sources.astype(np.int64)
    key = owner * n + node
    met = met_keys(hops, len(sources), key)
    owners, nodes = [], []
    if low == 0:
        owners.append(owner)
        nodes.append(node)
    for hop in range(1, high + 1):
        keys = []
        for at, far in _steps(hops, plain, node):
            at = owner[at]
            if hop == 1 == low:
                loop = once(at[far == sources[at]])
                owners.append(loop)
                nodes.append(sources[loop].astype(np.int64))
            keys.append(met.fresh(at * n + far))
        key = keys[0] if len(keys) == 1 else np.concatenate([np.zeros(0, dtype=np.int64), *keys])
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


def _once(nodes: Indices, size: int) -> Indices:
    """Each node once, ascending."""
    if len(nodes) * 16 < size:  # sorting them is quicker than a pass over a bitmap of all nodes
        return once(nodes)
    seen = np.zeros(size, dtype=bool)
    seen[nodes] = True
    return np.flatnonzero(seen)


def _steps(hops: Hops, plain: Links | None, node: Indices) -> Iterator[tuple[Longs, Indices]]:
    """(index of the node, far node) of every edge at the nodes, a block of work at a time."""
    if plain is None:
        yield hops.step(node)
        return
    if int((plain.start[node + 1] - plain.start[node]).sum()) <= BLOCK:
        owner, slot = neighbours(plain, node)
        yield owner, plain.neighbour[slot]
        return
    for low, high in blocks(plain, node):
        hops.ctx.check()
        owner, slot = neighbours(plain, node[low:high])
        yield owner + low, plain.neighbour[slot]


@dataclass(frozen=True, slots=True, eq=False)
class ExpandStep:
    """Follow edges from `source` to `target`; see `ir.Expand`.

    Args:
        walk: which edges, from where to where.
        where, edge_where: predicates on target and edge variable, compiled.
        set_only: only which far ends there are matters, not from where: all rows are walked as one set.
        counts: nobody reads the far end: each row is counted as often as it has one.
        merges: only the far ends and how often each is reached matter: rows that reach the same one become one.
        carried: the variables bound before that something reads afterwards; None for all of them.
    """

    source: str
    target: str
    walk: Traversal
    bound: bool
    edge_var: str | None
    where: Evaluate | None
    edge_where: Evaluate | None
    text: str
    estimate: float
    set_only: bool = False
    counts: bool = False
    merges: bool = False
    carried: frozenset[str] | None = None

    def run(self, ctx: Context, frame: Frame) -> Frame:
        frame = present(frame, self.source, *((self.target,) if self.bound else ()))
        if frame.length == 0:
            return self._nothing(ctx, frame)
        target = self.target if self.bound else None
        return self.walk.run(ctx, frame, self.source, target, lambda hops, at, to: self._follow(frame, hops, at, to))

    def _nothing(self, ctx: Context, frame: Frame) -> Frame:
        none: Longs = np.zeros(0, dtype=np.int64)
        if not self.bound:
            frame = frame.bind(self.target, Binding(ctx.partial(self.walk.far), none))
        if self.edge_var is not None:
            edges = tuple(ctx.partial(way.edge) for way in self.walk.ways)
            frame = frame.bind(self.edge_var, self._edges(edges, none, none))
        return frame

    def _follow(self, frame: Frame, hops: Hops, at: Indices, to: Indices | None) -> Frame:
        if self.carried is not None:
            frame = frame.keep(self.carried)
        if self.edge_var is not None:
            return self._bind(frame, hops, hops.follow(at), to)
        if to is not None:
            return frame.take(self._joined(hops, at, to))
        if self.counts:
            return self._counted(frame, hops, at)
        if self.set_only:
            return self._as_set(hops, at)
        if self.merges and hops.plain is not None:
            return self._merged(frame, hops, hops.plain, at)
        owner, node = reach(hops, at, self.walk.low, self.walk.high)
        none: Longs = np.zeros(0, dtype=np.int64)
        return self._bind(frame, hops, Followed(owner, node.astype(np.int64, copy=False), none, none), None)

    def _merged(self, frame: Frame, hops: Hops, links: Links, at: Indices) -> Frame:
        node, weight = merged(links.distinct, at, frame.weight)
        out = Frame(len(node), {self.target: Binding(hops.far, node)}, weight)
        if self.where is None:
            return out
        return out.take(rows_where(hops.ctx, hops.far, self.target, self.where, node))

    def _counted(self, frame: Frame, hops: Hops, at: Indices) -> Frame:
        if hops.plain is not None:
            many = far_counts(hops, hops.plain.distinct, at, self.target, self.where)
        else:
            owner, node = reach(hops, at, 1, 1)
            if self.where is not None:
                owner = owner[rows_where(hops.ctx, hops.far, self.target, self.where, node)]
            many = np.bincount(owner, minlength=len(at))
        out = Frame(frame.length, frame.bound, times(frame.weight, many))
        return out if many.all() else out.take(many > 0)

    def _joined(self, hops: Hops, source: Indices, target: Indices) -> Bools:
        """Which (source, target) pairs are within the hops."""
        key = source.astype(np.int64) * hops.size + target
        if self.walk.single and hops.plain is not None:
            pairs = hops.plain.pairs
            if not len(pairs):
                return np.zeros(len(source), dtype=bool)
            spot = np.minimum(np.searchsorted(pairs, key), len(pairs) - 1)
            return np.asarray(pairs[spot] == key)
        distinct = once(source)
        owner, node = reach(hops, distinct, self.walk.low, self.walk.high)
        return np.isin(key, distinct[owner].astype(np.int64) * hops.size + node)

    def _as_set(self, hops: Hops, at: Indices) -> Frame:
        if hops.plain is not None:
            found = far_ends(hops.plain, _once(at, hops.plain.near))
            node = _once(found, hops.plain.far).astype(np.int64, copy=False)
        else:
            node = once(hops.step(once(at))[1])
        if self.where is not None:
            node = node[rows_where(hops.ctx, hops.far, self.target, self.where, node)]
        return Frame(len(node), {self.target: Binding(hops.far, node)})

    def _bind(self, frame: Frame, hops: Hops, found: Followed, to: Indices | None) -> Frame:
        owner, node, way, edge = found.owner, found.far, found.way, found.edge
        keep: Bools | None = None
        if to is not None and len(owner):
            keep = to[owner] == node
        elif self.where is not None and to is None:
            keep = rows_where(hops.ctx, hops.far, self.target, self.where, node)
        if keep is not None:
            owner, node = owner[keep], node[keep]
            way, edge = (way[keep], edge[keep]) if self.edge_var is not None else (way, edge)
        edges: Binding | None = None
        if self.edge_var is not None:
            edges = self._edges(hops.edges(), way, edge)
            if self.edge_where is not None:
                mask = rows_where(hops.ctx, edges.rows, self.edge_var, self.edge_where, edges.at)
                owner, node, edges = owner[mask], node[mask], edges.take(mask)
        out = _spread(hops.ctx, frame, owner)
        if to is None:
            out = out.bind(self.target, Binding(hops.far, node))
        if self.edge_var is not None and edges is not None:
            out = out.bind(self.edge_var, edges)
        return out

    def _edges(self, tables: tuple[Rows, ...], way: Longs, edge: Longs) -> Binding:
        """The edge variable: rows of the one table, or the rows met of several put together, each once."""
        if len(tables) == 1:
            return Binding(tables[0], edge)
        begin = np.concatenate([[0], np.cumsum([t.rows for t in tables])])
        distinct, at = np.unique(begin[way] + edge, return_inverse=True)
        cut = np.searchsorted(distinct, begin)
        met = [pa.array(distinct[cut[i] : cut[i + 1]] - begin[i]) for i in range(len(tables))]
        columns: dict[str, Array] = {}
        for name in dict.fromkeys((*self.walk.edge_columns, "id")):
            parts = [table.column(name).take(rows) for table, rows in zip(tables, met, strict=True)]
            columns[name] = pa.concat_arrays([p.cast(parts[0].type) for p in parts])
        columns[WAY] = pa.array(np.repeat(np.arange(len(tables)), np.diff(cut)))
        columns[ROW_ID] = pa.array(
            np.concatenate([t.row_ids()[rows.to_numpy()] for t, rows in zip(tables, met, strict=True)])
        )
        return Binding(Rows("|".join(way.edge for way in self.walk.ways), len(distinct), columns), at)

    def expected(self, rows: float) -> float:
        return rows * self.estimate

    def describe(self, ctx: Context, rows: float) -> str:
        shape = "semi-join" if self.bound else "one set" if self.set_only else "breadth first"
        shape = "counted" if self.counts else "counted at the far end" if self.merges else shape
        return f"expand  {self.text}  {shape}, {self.walk.describe(ctx, rows)}"
