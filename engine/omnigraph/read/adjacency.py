"""Who is joined to whom, as arrays: compressed rows (out) and columns (in) over the positions of the node tables.

Built from an edge table when first needed: 2 million edges take about half a second. Kept for the eight edge tables
used last, keyed by the physical state of the edge table and of both node tables, so that branches share it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from omnigraph.read.compute import Array
from omnigraph.read.hashing import IdMap
from omnigraph.read.settings import read_settings
from omnigraph.read.tables import TABLES, Readable, TableCache, one_array

__all__ = ["Adjacency", "AdjacencyCache", "Links", "adjacency", "starts"]

Ints = npt.NDArray[np.int32] | npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Links:
    """One direction: the neighbours of node `p` are `neighbour[start[p]:start[p+1]]`, sorted; `edge` is each one's row.

    Args:
        start: offsets, one more than near nodes.
        neighbour: positions of far nodes.
        edge: rows of the edge table.
        far: number of far nodes.
        parallel: whether two edges join the same pair somewhere.
    """

    start: npt.NDArray[np.int64]
    neighbour: Ints
    edge: Ints
    far: int
    parallel: bool

    @property
    def near(self) -> int:
        return len(self.start) - 1

    @property
    def nbytes(self) -> int:
        return int(self.start.nbytes + self.neighbour.nbytes + self.edge.nbytes)

    @cached_property
    def distinct(self) -> Links:
        """The same without parallel edges (the first of each pair stays)."""
        if not self.parallel:
            return self
        owner = np.repeat(np.arange(self.near), np.diff(self.start))
        keep = np.ones(len(owner), dtype=bool)
        keep[1:] = (owner[1:] != owner[:-1]) | (self.neighbour[1:] != self.neighbour[:-1])
        counts = np.bincount(owner[keep], minlength=self.near)
        return Links(starts(counts), self.neighbour[keep], self.edge[keep], self.far, parallel=False)

    @cached_property
    def pairs(self) -> npt.NDArray[np.int64]:
        """near × far + neighbour of every edge, sorted: one binary search tells whether two nodes are joined."""
        owner = np.repeat(np.arange(self.near, dtype=np.int64), np.diff(self.start))
        return owner * self.far + self.neighbour


@dataclass(frozen=True, eq=False)
class Adjacency:
    """Both directions of one edge table."""

    out: Links
    into: Links

    @cached_property
    def both(self) -> Links:
        """Undirected; a self-loop stands once. Source and target type are the same."""
        loop = self.into.neighbour == np.repeat(np.arange(self.into.near), np.diff(self.into.start))
        src = np.concatenate([_owners(self.out), _owners(self.into)[~loop]])
        dst = np.concatenate([self.out.neighbour, self.into.neighbour[~loop]])
        edge = np.concatenate([self.out.edge, self.into.edge[~loop]])
        return _links(src, dst, edge, self.out.near, self.out.far)

    def links(self, direction: str) -> Links:
        return self.out if direction == "out" else self.into if direction == "in" else self.both

    @property
    def nbytes(self) -> int:
        return self.out.nbytes + self.into.nbytes


def _owners(links: Links) -> Ints:
    return np.repeat(np.arange(links.near, dtype=np.int32), np.diff(links.start))


def starts(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    out = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=out[1:])
    return out


def _grouped(by: Ints, groups: int) -> npt.NDArray[np.int64]:
    """A stable ordering of the rows by group: a counting sort, through scipy's conversion to compressed rows."""
    from scipy.sparse import coo_array  # a third of a second that only traversals need

    n = len(by)
    if n == 0:
        return np.zeros(0, dtype=np.int64)
    # Each row is a column of its own, so nothing is summed and the order within a group stays.
    made = coo_array((np.ones(n, dtype=np.int8), (by, np.arange(n, dtype=by.dtype))), shape=(groups, n)).tocsr()
    return np.asarray(made.indices)


def _links(src: Ints, dst: Ints, edge: Ints, near: int, far: int) -> Links:
    by_dst = _grouped(dst, far)
    order = by_dst[_grouped(src[by_dst], near)]
    src, dst = src[order], dst[order]
    parallel = bool(((src[1:] == src[:-1]) & (dst[1:] == dst[:-1])).any())
    return Links(starts(np.bincount(src, minlength=near)), dst, edge[order], far, parallel)


def build(src: Array, dst: Array, sources: IdMap, targets: IdMap, near: int, far: int) -> Adjacency:
    """Adjacency of edges given by the ids of their ends; an edge whose end isn't there is left out."""
    with ThreadPoolExecutor(2) as pool:  # Arrow lets go of the interpreter while it looks up
        first, second = pool.submit(sources.positions, src), pool.submit(targets.positions, dst)
        s: Ints = first.result()
        d: Ints = second.result()
    edge: Ints = np.arange(len(s))
    if len(s) and (int(s.min()) < 0 or int(d.min()) < 0):
        whole = (s >= 0) & (d >= 0)
        s, d, edge = s[whole], d[whole], edge[whole]
    s, d, edge = _at_each(s, d, edge, sources)
    d, s, edge = _at_each(d, s, edge, targets)
    if max(near, far, len(src)) < 2**31:
        s, d, edge = s.astype(np.int32), d.astype(np.int32), edge.astype(np.int32)
    return Adjacency(out=_links(s, d, edge, near, far), into=_links(d, s, edge, far, near))


def _at_each(ends: Ints, others: Ints, edge: Ints, ids: IdMap) -> tuple[Ints, Ints, Ints]:
    """Edges at an id that several nodes have, at each of these nodes."""
    parts = [(ends, others, edge)]
    for first, *twins in ids.repeated.values():
        at = ends == first
        parts += [(np.full(int(at.sum()), twin, dtype=ends.dtype), others[at], edge[at]) for twin in twins]
    if len(parts) == 1:
        return ends, others, edge
    a, b, c = zip(*parts, strict=True)
    return np.concatenate(a), np.concatenate(b), np.concatenate(c)


class AdjacencyCache:
    """The adjacency of the edge tables used last. Thread-safe; one thread builds, others wait."""

    def __init__(self, tables: TableCache) -> None:
        self._tables = tables
        self._lock = threading.Lock()
        self._building = threading.Lock()
        self._kept: OrderedDict[Hashable, Adjacency] = OrderedDict()

    def _find(self, key: Hashable) -> Adjacency | None:
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def has(self, snapshot: Readable, edge: str, source: str, target: str) -> bool:
        return self._find(tuple(snapshot.fingerprint(k) for k in (edge, source, target))) is not None

    def get(self, snapshot: Readable, edge: str, source: str, target: str) -> Adjacency:
        """The adjacency of an edge table (all three are table keys)."""
        key = tuple(snapshot.fingerprint(k) for k in (edge, source, target))
        if (found := self._find(key)) is not None:
            return found
        with self._building:
            if (found := self._find(key)) is not None:
                return found
            sources = self._tables.get(snapshot, source).load(snapshot, ["id"])
            targets = self._tables.get(snapshot, target).load(snapshot, ["id"])
            # The ends themselves are not kept: positions replace them.
            ends = snapshot.scan(edge, columns=["src", "dst"])
            made = build(
                one_array(ends.column("src")), one_array(ends.column("dst")), sources.id_map(), targets.id_map(),
                sources.rows, targets.rows,
            )  # fmt: skip
            with self._lock:
                self._kept[key] = made
                while len(self._kept) > read_settings().adjacency_count:
                    self._kept.popitem(last=False)
            return made

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()


_CACHE = AdjacencyCache(TABLES)


def adjacency() -> AdjacencyCache:
    """The adjacency of this process."""
    return _CACHE
