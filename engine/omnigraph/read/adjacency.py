"""Who is joined to whom, as arrays: compressed rows (out) and columns (in) over the positions of the node tables.

Built from an edge table when first needed, at about a microsecond per edge, or changed from that of an earlier version,
which costs a copy. Kept for the edge tables used last, keyed by the physical state of the edge table and of both node
tables, so that branches share it.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from omnigraph.read.builds import BUILDS, built
from omnigraph.read.compute import Array
from omnigraph.read.hashing import IdMap
from omnigraph.read.numbering import Numbering, Splice, through
from omnigraph.read.settings import read_settings
from omnigraph.read.tables import TABLES, Readable, TableCache, TableData, one_array
from omnigraph.records import dataclass

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
        own = self.start.nbytes + self.neighbour.nbytes + self.edge.nbytes
        made = [self.__dict__.get(name) for name in ("distinct", "indegree", "pairs")]
        return int(own + sum(each.nbytes for each in made if each is not None and each is not self))

    def spliced(self, near: Splice, far: Splice, edges: Splice, src: Ints, dst: Ints, edge: Ints) -> Links | None:
        """The same after changes of the three tables; None where an edge would lose its end.

        Args:
            near, far, edges: how positions change.
            src, dst, edge: the updated and appended edges, in positions afterwards.
        """
        start, neighbour, rows = self.start, self.neighbour, self.edge
        gone = np.concatenate([edges.removed, edges.updated])
        if len(gone):
            slots = np.flatnonzero(_among(rows, gone, edges.size))
            start = start - np.searchsorted(slots, start)
            neighbour, rows = _without(neighbour, slots), _without(rows, slots)
        if len(edges.removed):
            rows = _moved(rows, edges)
        if len(near.removed):
            if np.diff(start)[near.removed].any():
                return None
            start = np.delete(start, near.removed)
        if len(far.removed):
            if _among(neighbour, far.removed, far.size).any():
                return None
            neighbour = _moved(neighbour, far)
        if near.appended:
            start = np.append(start, np.full(near.appended, start[-1]))
        parallel = self.parallel
        if len(src):
            order = np.lexsort((edge, dst, src))
            src, dst, edge = src[order], dst[order], edge[order]
            spot = np.empty(len(src), dtype=np.int64)
            for i, (s, d) in enumerate(zip(src.tolist(), dst.tolist(), strict=True)):
                low, high = int(start[s]), int(start[s + 1])
                spot[i] = low + int(neighbour[low:high].searchsorted(d, side="right"))
                parallel = parallel or (spot[i] > low and int(neighbour[spot[i] - 1]) == d)
            parallel = parallel or bool(((src[1:] == src[:-1]) & (dst[1:] == dst[:-1])).any())
            neighbour, rows = _inserted(neighbour, spot, dst), _inserted(rows, spot, edge)
            start = start + starts(np.bincount(src, minlength=len(start) - 1))
        made = Links(start, neighbour, rows, far.kept + far.appended, bool(parallel))
        if "distinct" in self.__dict__ and made.parallel and not len(gone):  # else a twin may take its place
            kept = self.distinct.spliced(near, far, edges, *_first(made, src, dst, edge))
            made.__dict__["distinct"] = kept
        return made

    @built(lambda self: len(self.neighbour))
    def distinct(self) -> Links:
        """The same without parallel edges (the first of each pair stays)."""
        if not self.parallel:
            return self
        owner = np.repeat(np.arange(self.near), np.diff(self.start))
        keep = np.ones(len(owner), dtype=bool)
        keep[1:] = (owner[1:] != owner[:-1]) | (self.neighbour[1:] != self.neighbour[:-1])
        counts = np.bincount(owner[keep], minlength=self.near)
        return Links(starts(counts), self.neighbour[keep], self.edge[keep], self.far, parallel=False)

    @built(lambda self: len(self.neighbour))
    def indegree(self) -> npt.NDArray[np.int64]:
        """How many edges end at each far node."""
        return np.bincount(self.neighbour, minlength=self.far)

    @built(lambda self: len(self.neighbour))
    def pairs(self) -> npt.NDArray[np.int64]:
        """near × far + neighbour of every edge, sorted: one binary search tells whether two nodes are joined."""
        owner = np.repeat(np.arange(self.near, dtype=np.int64), np.diff(self.start))
        return owner * self.far + self.neighbour


@dataclass(frozen=True, eq=False)
class Adjacency:
    """Both directions of one edge table.

    Args:
        numberings: the positions of edges, sources and targets it relies on.
        whole: whether every edge stands in it exactly once.
    """

    out: Links
    into: Links
    numberings: tuple[Numbering, Numbering, Numbering]
    whole: bool

    @built(lambda self: len(self.out.neighbour))
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
        """With the positions, which it holds on to when their tables are dropped."""
        both = self.__dict__.get("both")
        positions = sum(numbering.nbytes for numbering in set(self.numberings))
        return self.out.nbytes + self.into.nbytes + positions + (0 if both is None else both.nbytes)

    def spliced(
        self,
        numberings: tuple[Numbering, Numbering, Numbering],
        steps: tuple[Splice, Splice, Splice],
        src: Ints,
        dst: Ints,
        edge: Ints,
    ) -> Adjacency | None:
        """The same after changes of the three tables; None where it has to be built anew.

        Args:
            steps: how the positions of edges, sources and targets change.
            src, dst, edge: the updated and appended edges, in positions afterwards.
        """
        edges, sources, targets = steps
        out = self.out.spliced(sources, targets, edges, src, dst, edge)
        into = self.into.spliced(targets, sources, edges, dst, src, edge)
        if out is None or into is None:
            return None
        made = Adjacency(out, into, numberings, whole=True)
        if "both" in self.__dict__:
            loop = src == dst
            ends = (np.concatenate([src, dst[~loop]]), np.concatenate([dst, src[~loop]]))
            made.__dict__["both"] = self.both.spliced(
                sources, targets, edges, *ends, np.concatenate([edge, edge[~loop]])
            )
        return made


def _inserted(values: Ints, spot: npt.NDArray[np.int64], new: Ints) -> Ints:
    return cast("Ints", np.insert(values, spot, new))


def _first(links: Links, src: Ints, dst: Ints, edge: Ints) -> tuple[Ints, Ints, Ints]:
    """Of new edges those that stand first among all between their ends."""
    keep = np.zeros(len(src), dtype=bool)
    for i, (s, d, e) in enumerate(zip(src.tolist(), dst.tolist(), edge.tolist(), strict=True)):
        low = int(links.start[s])
        first = low + int(links.neighbour[low : int(links.start[s + 1])].searchsorted(d))
        keep[i] = int(links.edge[first]) == e
    return src[keep], dst[keep], edge[keep]


_FEW = 8


def _among(values: Ints, few: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.bool_]:
    """Which values are among some positions below `size`."""
    if len(few) <= _FEW:
        found = np.zeros(len(values), dtype=bool)
        for one in few.tolist():
            found |= values == one
        return found
    table = np.zeros(size, dtype=bool)
    table[few] = True
    return table[values]


def _moved(values: Ints, step: Splice) -> Ints:
    """Positions afterwards of rows that stay."""
    if len(step.removed) <= _FEW:
        out: Ints = values.copy()
        for one in step.removed.tolist():
            out -= values > one
        return out
    stays = np.ones(step.size, dtype=bool)
    stays[step.removed] = False
    table = starts(stays)[:-1].astype(values.dtype)
    return cast("Ints", table[values])


def _without(values: Ints, slots: npt.NDArray[np.int64]) -> Ints:
    return cast("Ints", np.delete(values, slots))


def _owners(links: Links) -> Ints:
    return np.repeat(np.arange(links.near, dtype=np.int32), np.diff(links.start))


def starts(counts: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
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


def build(
    src: Array, dst: Array, sources: IdMap, targets: IdMap, numberings: tuple[Numbering, Numbering, Numbering]
) -> Adjacency:
    """Adjacency of edges given by the ids of their ends; an edge whose end isn't there is left out."""
    _, near, far = (numbering.rows for numbering in numberings)
    from concurrent.futures import ThreadPoolExecutor

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
    once = len(edge) == len(src) and not sources.repeated and not targets.repeated
    return Adjacency(_links(s, d, edge, near, far), _links(d, s, edge, far, near), numberings, once)


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
    """The adjacency of the edge tables used last, kept with the tables. Thread-safe."""

    def __init__(self, tables: TableCache) -> None:
        self._tables = tables

    def key(self, snapshot: Readable, edge: str, source: str, target: str) -> tuple[Hashable, ...]:
        """What an edge table's adjacency is kept by."""
        return ("adjacency", snapshot.fingerprint(edge), snapshot.fingerprint(source), snapshot.fingerprint(target))

    def has(self, snapshot: Readable, edge: str, source: str, target: str) -> bool:
        return self._tables.kept.get(self.key(snapshot, edge, source, target)) is not None

    def get(self, snapshot: Readable, edge: str, source: str, target: str) -> Adjacency:
        """The adjacency of an edge table (all three are table keys)."""
        key = self.key(snapshot, edge, source, target)
        found = self._tables.kept.get(key)
        if found is not None:
            return cast("Adjacency", found)
        rows = sum(snapshot.tables[table_key].row_count for table_key in (edge, source, target))
        return BUILDS.share((id(self), key), lambda: self._made(snapshot, key, (edge, source, target)), size=rows)

    def _made(self, snapshot: Readable, key: Hashable, table_keys: tuple[str, ...]) -> Adjacency:
        kept = self._tables.kept
        found = kept.get(key)
        if found is None:
            tables = [self._tables.get(snapshot, k) for k in table_keys]
            found = kept.add(key, self._refreshed(snapshot, tables) or self._built(snapshot, tables))
            self._settle()
        return cast("Adjacency", found)

    def earlier(self, snapshot: Readable, edge: str, source: str, target: str) -> bool:
        """Whether there is one of the same tables in another version, which may be changed into this one."""
        wanted = _locations(self.key(snapshot, edge, source, target))
        return any(
            wanted == _locations(key) for key, found in self._tables.kept.items() if isinstance(found, Adjacency)
        )

    def _refreshed(self, snapshot: Readable, tables: list[TableData]) -> Adjacency | None:
        """Changed from the newest kept adjacency whose tables these have grown from."""
        wanted = _locations(("adjacency", *(table.key for table in tables)))
        kept: list[tuple[Any, Any]] = list(self._tables.kept.items())
        for key, found in reversed(kept):
            if not (isinstance(found, Adjacency) and found.whole and _locations(key) == wanted):
                continue
            numberings = tuple(table.numbering(snapshot) for table in tables)
            steps: list[Splice] = []
            for old, new in zip(found.numberings, numberings, strict=True):
                chain = new.since(old)
                if chain is None:
                    break
                steps.append(through(chain, old.rows))
            else:
                made = self._spliced(snapshot, found, tables, numberings, steps)
                if made is not None:
                    return made
        return None

    def _spliced(
        self, snapshot: Readable, old: Adjacency, tables: list[TableData], numberings: Any, steps: list[Splice]
    ) -> Adjacency | None:
        edge_step = steps[0]
        at = np.concatenate([edge_step.moved(edge_step.updated), np.arange(edge_step.kept, numberings[0].rows)])
        if len(at) * 20 > numberings[0].rows + 20_000:
            return None
        src = dst = np.zeros(0, dtype=np.int64)
        if len(at):
            ends = snapshot.take(tables[0].table_key, numberings[0].row_ids[at], ["src", "dst"])
            found = []
            for table, name in zip(tables[1:], ("src", "dst"), strict=True):
                ids = table.load(snapshot, ["id"]).id_map()
                if ids.repeated:
                    return None
                found.append(ids.positions(one_array(ends.column(name))))
            src, dst = found
            if int(src.min()) < 0 or int(dst.min()) < 0:
                return None
        return old.spliced(numberings, (steps[0], steps[1], steps[2]), src, dst, at)

    def _built(self, snapshot: Readable, tables: list[TableData]) -> Adjacency:
        edges, sources, targets = tables
        sources.load(snapshot, ["id"])
        targets.load(snapshot, ["id"])
        # The ends themselves are not kept: positions replace them.
        ends = edges.read(snapshot, ["src", "dst"])
        numberings = (edges.numbering(snapshot), sources.numbering(snapshot), targets.numbering(snapshot))
        return build(ends["src"], ends["dst"], sources.id_map(), targets.id_map(), numberings)

    def _settle(self) -> None:
        """Keep the newest ones within the limits."""
        kept = [key for key, found in self._tables.kept.items() if isinstance(found, Adjacency)]
        for key in kept[: -read_settings().adjacency_count or None]:
            self._tables.kept.drop(key)
        self._tables.settle()

    def clear(self) -> None:
        for key, found in self._tables.kept.items():
            if isinstance(found, Adjacency):
                self._tables.kept.drop(key)


def _locations(key: Any) -> tuple[str, ...]:
    """Where the three tables of an adjacency's key lie: a fingerprint begins with that."""
    return tuple(fingerprint[0] for fingerprint in key[1:])


_CACHE = AdjacencyCache(TABLES)


def adjacency() -> AdjacencyCache:
    """The adjacency of this process."""
    return _CACHE
