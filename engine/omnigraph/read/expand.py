"""Following edges: breadth-first levels per source row, over adjacency arrays.

A far end is yielded when its shortest distance from the source lies in [min, max], once per source row. Visited nodes
are not expanded again; the start is reached again only through its own self-loop, at distance 1 (07 §21).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.errors import Conflict
from omnigraph.read.adjacency import Links
from omnigraph.read.compute import Array
from omnigraph.read.datum import Bools, Evaluate, Longs
from omnigraph.read.env import rows_where
from omnigraph.read.frame import Binding, Context, Frame, Indices
from omnigraph.read.hops import Followed, HopFilter, Hops, HopWay, neighbours
from omnigraph.read.steps import present
from omnigraph.read.tables import Rows, TableData

__all__ = ["PLACE", "ExpandStep", "reach", "whole"]

PLACE = "#place"
"""Of an edge over several tables: which row it is of these tables put together, in the order of the table key."""

Stepper: TypeAlias = Callable[[Indices], tuple[Longs, Indices]]
"""Nodes → (index of the node, far node) of every edge at them."""

_SORT_BELOW = 4096  # candidates of a level: below it sorting them is quicker than touching the stamp array


def reach(hops: Hops, sources: Indices, low: int, high: int, ctx: Context) -> tuple[Longs, Indices]:
    """(index into `sources`, far node) of every pair whose shortest distance lies in [low, high]."""
    plain = None if hops.plain is None else hops.plain.distinct
    if low == high == 1:
        if plain is not None:
            owner, slot = neighbours(plain, sources)
            return owner, plain.neighbour[slot]
        owner, node = hops.step(sources)
        return np.divmod(np.unique(owner * hops.far + node), max(1, hops.far))
    step = hops.step if plain is None else _stepper(plain)
    distinct, back = np.unique(sources, return_inverse=True)
    size = max(1, ctx.settings.bitmap_bytes // max(1, hops.near))
    owners, nodes = [], []
    for begin in range(0, len(distinct), size):
        ctx.check()
        owner, node = _levels(step, hops.near, distinct[begin : begin + size], low, high)
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
    found = Links(start, node[order], node[order], hops.far, parallel=False)
    ctx.check_rows(int(np.diff(start)[back].sum()), "following edges")
    owner, slot = neighbours(found, back)
    return owner, found.neighbour[slot]


def _stepper(links: Links) -> Stepper:
    def step(at: Indices) -> tuple[Longs, Indices]:
        owner, slot = neighbours(links, at)
        return owner, links.neighbour[slot]

    return step


def _levels(step: Stepper, n: int, sources: Indices, low: int, high: int) -> tuple[Longs, Longs]:
    """`reach` for distinct sources that fit the scratch memory: one bitmap row of the `n` nodes for each."""
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
        at, far = step(node)
        at = owner[at]
        if hop == 1 == low:
            loop = np.unique(at[far == sources[at]])
            owners.append(loop)
            nodes.append(sources[loop].astype(np.int64))
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
    ids = bound.rows.column("id")
    again = table.id_map().repeated
    if again and (found := [text for text in ids.to_pylist() if text in again]):
        raise Conflict(
            f"{found[0]!r} stands at several rows of {table_key}, and this query doesn't tell which it means: "
            "`omnigraph verify` lists such ids",
            code="repeated_id",
        )
    at = table.id_map().positions(ids)
    there = np.where(bound.at < 0, -1, at[bound.at]) if bound.nullable else at[bound.at]
    return frame.bind(var, Binding(table, there, bound.nullable))


@dataclass(frozen=True, slots=True, eq=False)
class ExpandStep:
    """Follow edges from `source` to `target`; see `ir.Expand`.

    Args:
        near, far: table keys of the two ends, as walked.
        hop_where: what must be true of every edge followed, or None.
        where, edge_where: predicates on target and edge variable, compiled.
        target_columns, edge_columns: properties the query reads of them.
        set_only: only which far ends there are matters, not from where: all rows are walked as one set.
    """

    source: str
    target: str
    ways: tuple[HopWay, ...]
    near: str
    far: str
    low: int
    high: int
    bound: bool
    edge_var: str | None
    hop_where: HopFilter | None
    where: Evaluate | None
    edge_where: Evaluate | None
    target_columns: tuple[str, ...]
    edge_columns: tuple[str, ...]
    text: str
    estimate: float
    set_only: bool = False

    @property
    def plain(self) -> bool:
        """Whether it follows every edge of one table."""
        return len(self.ways) == 1 and self.hop_where is None

    def run(self, ctx: Context, frame: Frame) -> Frame:
        target_table = ctx.tables.get(ctx.snapshot, self.far).load(ctx.snapshot, (*self.target_columns, "id"))
        frame = present(frame, self.source, *((self.target,) if self.bound else ()))
        none = np.zeros(0, dtype=np.int64)
        if frame.length == 0:
            return self._bind(ctx, frame, Followed(none, none, none, none), target_table)
        frame = whole(ctx, frame, self.source, self.near)
        if self.bound:
            frame = whole(ctx, frame, self.target, self.far)
        hops = Hops.open(ctx, self.ways, self.hop_where)
        at = frame.bound[self.source].at
        if self.edge_var is not None:
            ctx.check_rows(hops.most(at), f"following {self.text}")
            return self._bind(ctx, frame, hops.follow(at), target_table)
        if self.bound:
            return frame.take(self._joined(ctx, hops, at, frame.bound[self.target].at))
        if self.set_only and hops.plain is not None:
            return self._as_set(ctx, hops.plain, frame, target_table)
        if self.low == self.high == 1:
            ctx.check_rows(hops.most(at), f"following {self.text}")
        owner, node = reach(hops, at, self.low, self.high, ctx)
        return self._bind(ctx, frame, Followed(owner, node.astype(np.int64, copy=False), none, none), target_table)

    def _joined(self, ctx: Context, hops: Hops, source: Indices, target: Indices) -> Bools:
        """Which (source, target) pairs are within the hops."""
        key = source.astype(np.int64) * hops.far + target
        if self.low == self.high == 1 and hops.plain is not None:
            pairs = hops.plain.pairs
            if not len(pairs):
                return np.zeros(len(source), dtype=bool)
            spot = np.minimum(np.searchsorted(pairs, key), len(pairs) - 1)
            return np.asarray(pairs[spot] == key)
        distinct = np.unique(source)
        owner, node = reach(hops, distinct, self.low, self.high, ctx)
        return np.isin(key, distinct[owner].astype(np.int64) * hops.far + node)

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

    def _bind(self, ctx: Context, frame: Frame, found: Followed, table: TableData) -> Frame:
        owner, node, way, edge = found.owner, found.far, found.way, found.edge
        keep: Bools | None = None
        if self.bound and len(owner):
            keep = frame.bound[self.target].at[owner] == node
        elif self.where is not None and not self.bound:
            keep = rows_where(ctx, table, self.target, self.where, node)
        if keep is not None:
            owner, node = owner[keep], node[keep]
            way, edge = (way[keep], edge[keep]) if self.edge_var is not None else (way, edge)
        edges: Binding | None = None
        if self.edge_var is not None:
            edges = self._edges(ctx, way, edge)
            if self.edge_where is not None:
                mask = rows_where(ctx, edges.rows, self.edge_var, self.edge_where, edges.at)
                owner, node, edges = owner[mask], node[mask], edges.take(mask)
        out = frame.take(owner)
        if not self.bound:
            out = out.bind(self.target, Binding(table, node))
        if self.edge_var is not None and edges is not None:
            out = out.bind(self.edge_var, edges)
        return out

    def _edges(self, ctx: Context, way: Longs, edge: Longs) -> Binding:
        """The edge variable: rows of the one table, or the rows met of several put together, each once."""
        names = (*self.edge_columns, "id")
        tables = [ctx.tables.get(ctx.snapshot, w.edge).load(ctx.snapshot, names) for w in self.ways]
        if len(tables) == 1:
            return Binding(tables[0], edge)
        begin = np.concatenate([[0], np.cumsum([t.rows for t in tables])])
        distinct, at = np.unique(begin[way] + edge, return_inverse=True)
        cut = np.searchsorted(distinct, begin)
        columns: dict[str, Array] = {}
        for name in dict.fromkeys(names):
            parts = [
                table.column(name).take(pa.array(distinct[cut[i] : cut[i + 1]] - begin[i]))
                for i, table in enumerate(tables)
            ]
            columns[name] = pa.concat_arrays([p.cast(parts[0].type) for p in parts])
        columns[PLACE] = pa.array(distinct)
        return Binding(Rows("|".join(way.edge for way in self.ways), len(distinct), columns), at)

    def describe(self, ctx: Context) -> str:
        built = all(way.built(ctx) for way in self.ways)
        how = "semi-join" if self.bound else "one set" if self.set_only else "breadth first"
        return f"expand  {self.text}  {how}, csr{'' if built else ' (to be built)'}  ~{self.estimate:.1f} rows for each"
