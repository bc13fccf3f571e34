"""`shortest`: one path for each pair of ends, breadth first, with the nodes and edges on it.

Of several shortest paths the one whose node ids come first, compared from the start; of several edges between two nodes
on it, the one whose id comes first. Levels keep that order: a level's nodes stand in the order of their best paths, so
a node's best parent is the first one that reaches it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.read.compute import Array
from omnigraph.read.datum import Bools, Evaluate, Longs
from omnigraph.read.distinct import once
from omnigraph.read.env import rows_where
from omnigraph.read.frame import Binding, Context, Frame, Indices
from omnigraph.read.hops import Followed, Hops
from omnigraph.read.memory import Memory, Run
from omnigraph.read.met import met_keys
from omnigraph.read.show import Shown
from omnigraph.read.steps import present
from omnigraph.read.tables import Rows, sort_codes
from omnigraph.read.traversal import Traversal
from omnigraph.records import dataclass

__all__ = ["PATH", "ShortestStep"]

PATH = "#path"
"""The table key of paths: their rows are made by the step itself."""

_NONE: Longs = np.zeros(0, dtype=np.int64)
_NO_TEXT: Array = pa.array([], pa.string())


@dataclass(frozen=True, slots=True, eq=False)
class _Level:
    """The nodes first reached at one distance: whose search it is, which node, from which place of the level before,
    over which edge."""

    owner: Longs
    node: Longs
    parent: Longs
    way: Longs
    edge: Longs


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """Pairs and their paths: index of the source, far node, distance (0 for a self-loop, whose path has one edge), and
    the place in that distance's level (or among the loops)."""

    owner: Longs
    node: Longs
    distance: Longs
    place: Longs

    def take(self, rows: Longs | Bools) -> _Found:
        return _Found(self.owner[rows], self.node[rows], self.distance[rows], self.place[rows])


@dataclass(frozen=True, slots=True, eq=False)
class _Ids:
    """Where the ids of nodes and of each way's edges are."""

    nodes: Rows
    edges: tuple[Rows, ...]

    def of_edges(self, way: Longs, edge: Longs) -> Array:
        parts = [_NO_TEXT]
        order = [_NONE]
        for number, table in enumerate(self.edges):
            here = np.flatnonzero(way == number)
            parts.append(table.column("id").take(pa.array(edge[here])).cast(pa.string()))
            order.append(here)
        back = np.empty(len(way), dtype=np.int64)
        back[np.concatenate(order)] = np.arange(len(way))
        return pa.concat_arrays(parts).take(pa.array(back))

    def rank(self, nodes: Longs) -> npt.NDArray[np.integer[Any]]:
        """Numbers that ascend as the nodes' ids do."""
        if len(nodes) * 16 > self.nodes.rows:
            return self.nodes.id_rank()[nodes]
        return sort_codes(self.nodes.column("id").take(pa.array(nodes)))


@dataclass(frozen=True, slots=True, eq=False)
class _Search:
    """All levels from a few sources, and the edges that join a source to itself."""

    ids: _Ids
    levels: list[_Level]
    loops: _Level

    def found(self, low: int) -> _Found:
        """The pairs at least `low` hops apart; a source and itself only over its own edge."""
        levels = [(distance, level) for distance, level in enumerate(self.levels) if distance >= max(1, low)]
        if low == 1:
            levels.append((0, self.loops))
        return _Found(
            owner=np.concatenate([_NONE, *(level.owner for _, level in levels)]),
            node=np.concatenate([_NONE, *(level.node for _, level in levels)]),
            distance=np.concatenate([_NONE, *(np.full(len(level.node), d) for d, level in levels)]),
            place=np.concatenate([_NONE, *(np.arange(len(level.node)) for _, level in levels)]),
        )

    def paths(self, found: _Found) -> Rows:
        """The paths of some pairs, walked back from their ends all at once."""
        length = np.maximum(found.distance, 1)
        begin = np.cumsum(length + 1) - (length + 1)
        first = np.cumsum(length) - length
        nodes = np.empty(int((length + 1).sum()), dtype=np.int64)
        way, edge = np.empty((2, int(length.sum())), dtype=np.int64)
        nodes[begin] = self.levels[0].node[found.owner]
        loop = found.distance == 0
        nodes[begin[loop] + 1] = found.node[loop]
        way[first[loop]], edge[first[loop]] = self.loops.way[found.place[loop]], self.loops.edge[found.place[loop]]
        place = found.place.copy()
        for distance in range(int(found.distance.max(initial=0)), 0, -1):
            here = np.flatnonzero(found.distance >= distance)
            level, at = self.levels[distance], place[here]
            nodes[begin[here] + distance] = level.node[at]
            way[first[here] + distance - 1], edge[first[here] + distance - 1] = level.way[at], level.edge[at]
            place[here] = level.parent[at]
        ids = self.ids.nodes.column("id").take(pa.array(nodes)).cast(pa.string())
        return _path_rows(length, ids, self.ids.of_edges(way, edge))


def _path_rows(length: Longs, nodes: Array, edges: Array) -> Rows:
    columns: dict[str, Array] = {"length": pa.array(length, pa.int64())}
    for name, flat, many in (("nodes", nodes, length + 1), ("edges", edges, length)):
        columns[name] = pa.ListArray.from_arrays(pa.array(np.append(0, np.cumsum(many)), pa.int32()), flat)
    columns["id"] = columns["length"].cast(pa.string())  # a path has no identity; this says that it is there
    return Rows(PATH, len(length), columns)


def _together(parts: list[Rows]) -> Rows:
    if len(parts) == 1:
        return parts[0]
    parts = parts or [_path_rows(_NONE, _NO_TEXT, _NO_TEXT)]
    names = ("length", "nodes", "edges", "id")
    return Rows(PATH, sum(p.rows for p in parts), {n: pa.concat_arrays([p.column(n) for p in parts]) for n in names})


def _pairs_of(owner: Longs, targets: Longs | None, n: int) -> Longs | None:
    return None if targets is None else once(owner * n + targets)


def _search(ctx: Context, hops: Hops, ids: _Ids, sources: Longs, high: int, wanted: Longs | None) -> _Search:
    """Breadth first from each source; with `wanted` (source × nodes + node) no farther than the last of those."""
    n = hops.size
    start: Longs = np.arange(len(sources))
    levels = [_Level(start, sources, _NONE, _NONE, _NONE)]
    loops = _Level(_NONE, _NONE, _NONE, _NONE, _NONE)
    first = start * n + sources
    met = met_keys(hops, len(sources), first)
    for distance in range(1, high + 1):
        ctx.check()
        last = levels[-1]
        found = hops.follow(ctx, last.node)
        key = last.owner[found.owner] * n + found.far
        if distance == 1:
            own = np.flatnonzero(found.far == sources[found.owner])
            loops = _level(ids, last, found.take(own), key[own], n)
        fresh = np.flatnonzero(~met.has(key))
        if not len(fresh):
            break
        level = _level(ids, last, found.take(fresh), key[fresh], n)
        met.add(level.owner * n + level.node)
        levels.append(level)
        if wanted is not None and met.has(wanted).all():
            break
    return _Search(ids, levels, loops)


def _level(ids: _Ids, last: _Level, found: Followed, key: Longs, n: int) -> _Level:
    """Of all edges into the new nodes (in the order of their parents) the best one each, in the order of the paths."""
    distinct, first, back = np.unique(key, return_index=True, return_inverse=True)
    rivals = np.flatnonzero(found.owner == found.owner[first][back])  # from the best parent: parallel edges
    if len(rivals) > len(distinct):
        rank = sort_codes(ids.of_edges(found.way[rivals], found.edge[rivals]))
        rivals = rivals[np.lexsort((rank, back[rivals]))]
        first = rivals[np.unique(back[rivals], return_index=True)[1]]
    owner, node = np.divmod(distinct, n)
    parent = found.owner[first]
    order = np.lexsort((ids.rank(node), parent))
    first = first[order]
    return _Level(owner[order], node[order], parent[order], found.way[first], found.edge[first])


def _joined(
    ctx: Context, owner: Longs, targets: Longs | None, found: _Found, n: int, sources: int
) -> tuple[Longs, Longs]:
    """(row, index into `found`) of every pair a row asks about; `owner` is each row's source."""
    if targets is not None:
        key = found.owner * n + found.node
        order = np.argsort(key)
        if not len(order):
            return _NONE, _NONE
        wanted = owner * n + targets
        spot = np.minimum(np.searchsorted(key[order], wanted), len(order) - 1)
        row = np.flatnonzero(key[order][spot] == wanted)
        return row, order[spot[row]]
    order = np.argsort(found.owner, kind="stable")
    many = np.bincount(found.owner, minlength=sources)
    start = np.cumsum(many) - many
    repeats = many[owner]
    ctx.check_rows(int(repeats.sum()), "following shortest paths")
    row = np.repeat(np.arange(len(owner)), repeats)
    nth = np.arange(len(row)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    return row, order[start[owner[row]] + nth]


@dataclass(frozen=True, slots=True, eq=False)
class ShortestStep:
    """Bind `path` (and `target`, unless bound) for every pair joined within the hops; see `ir.Shortest`."""

    path: str
    source: str
    target: str
    walk: Traversal
    bound: bool
    where: Evaluate | None
    text: Shown
    estimate: float

    def run(self, ctx: Context, frame: Frame) -> Frame:
        frame = present(frame, self.source, *((self.target,) if self.bound else ()))
        if frame.length == 0:
            return self._bind(frame, _NONE, _NONE, ctx.partial(self.walk.far), Binding(_together([]), _NONE))
        target = self.target if self.bound else None
        return self.walk.run(ctx, frame, self.source, target, lambda *opened: self._follow(ctx, frame, *opened))

    def _follow(self, ctx: Context, frame: Frame, hops: Hops, at: Indices, to: Indices | None) -> Frame:
        n = hops.size
        distinct, back = np.unique(at, return_inverse=True)
        size = max(1, ctx.settings.bitmap_bytes // max(1, n)) if hops.dense else len(distinct)
        ids = _Ids(hops.far, hops.edges(ctx))
        rows, paths, nodes, parts = [_NONE], [_NONE], [_NONE], []
        made = 0
        for begin in range(0, len(distinct), size):
            sources = distinct[begin : begin + size].astype(np.int64)
            asked = np.flatnonzero((back >= begin) & (back < begin + size))
            owner = back[asked] - begin
            targets = None if to is None else to[asked].astype(np.int64)
            search = _search(ctx, hops, ids, sources, self.walk.high, _pairs_of(owner, targets, n))
            found = search.found(self.walk.low)
            if self.where is not None and to is None:
                found = found.take(rows_where(ctx, hops.far, self.target, self.where, found.node))
            row, pair = _joined(ctx, owner, targets, found, n, len(sources))
            used, which = np.unique(pair, return_inverse=True)  # a path that several rows share is made once
            parts.append(search.paths(found.take(used)))
            rows.append(asked[row])
            paths.append(which + made)
            nodes.append(found.node[pair])
            made += len(used)
        path = Binding(_together(parts), np.concatenate(paths))
        return self._bind(frame, np.concatenate(rows), np.concatenate(nodes), hops.far, path)

    def _bind(self, frame: Frame, rows: Longs, nodes: Longs, far: Rows, path: Binding) -> Frame:
        out = frame.take(rows)
        if not self.bound:
            out = out.bind(self.target, Binding(far, nodes))
        return out.bind(self.path, path)

    def bind(self, memory: Memory) -> Run:
        memory.bind(self.path, None)
        memory.once = None
        if not self.bound:
            memory.bind(self.target, None)
        return self.run

    def expected(self, rows: float) -> float:
        return rows * self.estimate

    def describe(self, ctx: Context, rows: float) -> str:
        how = "for each pair" if self.bound else "to every end"
        return f"path    {self.text}  breadth first, {how}, {self.walk.describe(ctx, rows)}"
