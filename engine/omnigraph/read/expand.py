"""Following edges: breadth-first levels per source row.

A far end is yielded when its shortest distance from the source lies in [min, max], once per source row. Visited nodes
are not expanded again; the start is reached again only through its own self-loop, at distance 1 (07 §21).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from omnigraph.read.adjacency import Links
from omnigraph.read.compute import Array, together
from omnigraph.read.datum import Bools, Evaluate, Longs
from omnigraph.read.distinct import once
from omnigraph.read.env import rows_where
from omnigraph.read.frame import Binding, Context, Frame, Indices
from omnigraph.read.hops import BLOCK, Followed, Hops, blocks, far_ends, neighbours
from omnigraph.read.memory import Memory, Run
from omnigraph.read.met import met_keys
from omnigraph.read.multiset import far_counts, merged, times
from omnigraph.read.show import Shown
from omnigraph.read.steps import present
from omnigraph.read.tables import ROW_ID, Rows
from omnigraph.read.traversal import Traversal, within
from omnigraph.records import dataclass

__all__ = ["WAY", "ExpandStep", "reach"]

_NONE: Longs = np.zeros(0, dtype=np.int64)

WAY = "#way"
"""Of an edge over several tables: the number of its table in the order of the table key; `_rowid` is its row there."""


def reach(ctx: Context, hops: Hops, sources: Indices, low: int, high: int) -> tuple[Longs, Indices]:
    """(index into `sources`, far node) of every pair whose shortest distance lies in [low, high]."""
    plain = None if hops.plain is None else hops.plain.distinct
    if low == high == 1:
        if plain is not None:
            return _pairs(ctx, plain, sources)
        owner, node = hops.step(ctx, sources)
        return np.divmod(once(owner * hops.size + node), hops.size)
    distinct, back = np.unique(sources, return_inverse=True)
    size = max(1, ctx.settings.bitmap_bytes // max(1, hops.size)) if hops.dense else max(1, len(distinct))
    owners, nodes, found_rows = [], [], 0
    for begin in range(0, len(distinct), size):
        ctx.check()
        owner, node = _levels(ctx, hops, plain, distinct[begin : begin + size], low, high)
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


def _pairs(ctx: Context, links: Links, sources: Indices) -> tuple[Longs, Indices]:
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


def _across(ctx: Context, links: Links, sources: Indices) -> Indices:
    """The far node of every edge at the sources, in order."""
    if len(sources) == 1:
        found = far_ends(links, sources)  # a view
        ctx.check_rows(len(found), "following edges")
        return found
    total = int((links.start[sources + 1] - links.start[sources]).sum())
    ctx.check_rows(total, "following edges")
    return far_ends(links, sources) if total <= BLOCK else _pairs(ctx, links, sources)[1]


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


def _levels(
    ctx: Context, hops: Hops, plain: Links | None, sources: Indices, low: int, high: int
) -> tuple[Longs, Longs]:
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
        for at, far in _steps(ctx, hops, plain, node):
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


def _around(ctx: Context, links: Links, source: Indices, low: int, high: int) -> Indices:
    """The nodes whose shortest distance from one source lies in [low, high], level by level, ascending in each."""
    met = np.zeros(links.far, dtype=bool)
    met[source] = True
    level = source
    found = [source] if low == 0 else []
    for hop in range(1, high + 1):
        ctx.check()
        far = _across(ctx, links, level)
        if hop == 1 == low and (far == source).any():
            found.append(source)
        level = _once(far[~met[far]], links.far)
        met[level] = True
        if hop >= low:
            found.append(level)
        if not len(level):
            break
    ctx.check_bytes(sum(map(len, found)) * 32, "following edges")
    return np.concatenate([source[:0], *found])


def _once(nodes: Indices, size: int) -> Indices:
    """Each node once, ascending."""
    if len(nodes) * 16 < size:  # sorting them is quicker than a pass over a bitmap of all nodes
        return once(nodes)
    seen = np.zeros(size, dtype=bool)
    seen[nodes] = True
    return np.flatnonzero(seen)


def _steps(ctx: Context, hops: Hops, plain: Links | None, node: Indices) -> Iterator[tuple[Longs, Indices]]:
    """(index of the node, far node) of every edge at the nodes, a block of work at a time."""
    if plain is None:
        yield hops.step(ctx, node)
        return
    if int((plain.start[node + 1] - plain.start[node]).sum()) <= BLOCK:
        owner, slot = neighbours(plain, node)
        yield owner, plain.neighbour[slot]
        return
    for low, high in blocks(plain, node):
        ctx.check()
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
    text: Shown
    estimate: float
    set_only: bool = False
    counts: bool = False
    merges: bool = False
    carried: frozenset[str] | None = None

    def run(self, ctx: Context, frame: Frame) -> Frame:
        frame = present(frame, self.source, *((self.target,) if self.bound else ()))
        if frame.length == 0:
            return self._nothing(
                frame, ctx.partial(self.walk.far), lambda: [ctx.partial(w.edge) for w in self.walk.ways]
            )
        target = self.target if self.bound else None
        return self.walk.run(ctx, frame, self.source, target, lambda *opened: self._follow(ctx, frame, *opened))

    def bind(self, memory: Memory) -> Run:
        hops = self.walk.bind(memory)
        if self.edge_var is not None:
            memory.bind(self.edge_var, None)
        if not self.bound:
            memory.bind(self.target, hops.far)
        each = memory.once == self.source  # no node stands twice
        memory.once = self.target if self.set_only else None
        if self.carried is not None:
            memory.keep(self.carried)
        source, target = self.source, self.target if self.bound else None
        ends = (source,) if target is None else (source, target)
        apart = self.set_only and not self.bound and not self.counts and self.edge_var is None

        def follow(ctx: Context, frame: Frame) -> Frame:
            begun = frame.bound[source]
            if apart and frame.length and not begun.nullable:  # nothing else of the frame is read again
                return self._far(ctx, hops, self._as_set(ctx, hops, within(begun, hops.near), each=each))
            frame = present(frame, *ends)
            if frame.length == 0:
                return self._nothing(frame, hops.far, lambda: hops.edges(ctx))
            at = within(frame.bound[source], hops.near)
            return self._follow(ctx, frame, hops, at, None if target is None else within(frame.bound[target], hops.far))

        return follow

    def _nothing(self, frame: Frame, far: Rows, edges: Callable[[], Sequence[Rows]]) -> Frame:
        if not self.bound:
            frame = frame.bind(self.target, Binding(far, _NONE))
        if self.edge_var is not None:
            frame = frame.bind(self.edge_var, self._edges(edges(), _NONE, _NONE))
        return frame

    def _follow(self, ctx: Context, frame: Frame, hops: Hops, at: Indices, to: Indices | None) -> Frame:
        if self.carried is not None:
            frame = frame.keep(self.carried)
        if self.edge_var is not None:
            return self._bind(ctx, frame, hops, hops.follow(ctx, at), to)
        if to is not None:
            return frame.take(self._joined(ctx, hops, at, to))
        if self.counts:
            return self._counted(ctx, frame, hops, at)
        if self.set_only:
            return self._far(ctx, hops, self._as_set(ctx, hops, at))
        if self.merges and hops.plain is not None:
            return self._merged(ctx, frame, hops, hops.plain, at)
        if hops.plain is not None and not frame.bound and frame.weight is None:  # from where is no matter
            if self.walk.single:
                return self._far(ctx, hops, _across(ctx, hops.plain.distinct, at))
            if len(at) == 1:
                return self._far(ctx, hops, _around(ctx, hops.plain.distinct, at, self.walk.low, self.walk.high))
        owner, node = reach(ctx, hops, at, self.walk.low, self.walk.high)
        return self._bind(ctx, frame, hops, Followed(owner, node.astype(np.int64, copy=False), _NONE, _NONE), None)

    def _far(self, ctx: Context, hops: Hops, node: Indices) -> Frame:
        """The far ends alone."""
        if self.where is not None:
            node = node[rows_where(ctx, hops.far, self.target, self.where, node)]
        return Frame(len(node), {self.target: Binding(hops.far, node)})

    def _merged(self, ctx: Context, frame: Frame, hops: Hops, links: Links, at: Indices) -> Frame:
        node, weight = merged(links.distinct, at, frame.weight)
        out = Frame(len(node), {self.target: Binding(hops.far, node)}, weight)
        if self.where is None:
            return out
        return out.take(rows_where(ctx, hops.far, self.target, self.where, node))

    def _counted(self, ctx: Context, frame: Frame, hops: Hops, at: Indices) -> Frame:
        if hops.plain is not None:
            many = far_counts(ctx, hops, hops.plain.distinct, at, self.target, self.where)
        else:
            owner, node = reach(ctx, hops, at, 1, 1)
            if self.where is not None:
                owner = owner[rows_where(ctx, hops.far, self.target, self.where, node)]
            many = np.bincount(owner, minlength=len(at))
        out = Frame(frame.length, frame.bound, times(frame.weight, many))
        return out if many.all() else out.take(many > 0)

    def _joined(self, ctx: Context, hops: Hops, source: Indices, target: Indices) -> Bools:
        """Which (source, target) pairs are within the hops."""
        key = source.astype(np.int64) * hops.size + target
        if self.walk.single and hops.plain is not None:
            pairs = hops.plain.pairs
            if not len(pairs):
                return np.zeros(len(source), dtype=bool)
            spot = np.minimum(np.searchsorted(pairs, key), len(pairs) - 1)
            return np.asarray(pairs[spot] == key)
        distinct = once(source)
        owner, node = reach(ctx, hops, distinct, self.walk.low, self.walk.high)
        return np.isin(key, distinct[owner].astype(np.int64) * hops.size + node)

    def _as_set(self, ctx: Context, hops: Hops, at: Indices, *, each: bool = False) -> Indices:
        """The far nodes, each once.

        Args:
            each: whether no node stands twice among those begun from.
        """
        if hops.plain is None:
            return once(hops.step(ctx, once(at))[1])
        found = far_ends(hops.plain, at if each else _once(at, hops.plain.near))
        return found if len(at) == 1 and not hops.plain.parallel else _once(found, hops.plain.far)

    def _bind(self, ctx: Context, frame: Frame, hops: Hops, found: Followed, to: Indices | None) -> Frame:
        owner, node, way, edge = found.owner, found.far, found.way, found.edge
        keep: Bools | None = None
        if to is not None and len(owner):
            keep = to[owner] == node
        elif self.where is not None and to is None:
            keep = rows_where(ctx, hops.far, self.target, self.where, node)
        if keep is not None:
            owner, node = owner[keep], node[keep]
            way, edge = (way[keep], edge[keep]) if self.edge_var is not None else (way, edge)
        edges: Binding | None = None
        if self.edge_var is not None:
            edges = self._edges(hops.edges(ctx), way, edge)
            if self.edge_where is not None:
                mask = rows_where(ctx, edges.rows, self.edge_var, self.edge_where, edges.at)
                owner, node, edges = owner[mask], node[mask], edges.take(mask)
        out = _spread(ctx, frame, owner)
        if to is None:
            out = out.bind(self.target, Binding(hops.far, node))
        if self.edge_var is not None and edges is not None:
            out = out.bind(self.edge_var, edges)
        return out

    def _edges(self, tables: Sequence[Rows], way: Longs, edge: Longs) -> Binding:
        """The edge variable: rows of the one table, or the rows met of several put together, each once."""
        if len(tables) == 1:
            return Binding(tables[0], edge)
        begin = np.concatenate([[0], np.cumsum([t.rows for t in tables])])
        distinct, at = np.unique(begin[way] + edge, return_inverse=True)
        cut = np.searchsorted(distinct, begin)
        met = [pa.array(distinct[cut[i] : cut[i + 1]] - begin[i]) for i in range(len(tables))]
        columns: dict[str, Array] = {}
        for name in dict.fromkeys((*self.walk.edge_columns, "id")):
            columns[name] = together([table.column(name).take(rows) for table, rows in zip(tables, met, strict=True)])
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
