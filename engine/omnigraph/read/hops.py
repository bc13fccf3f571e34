"""One hop over one or more edge tables: which edges leave a node, and which of them may be followed.

Where the edges come from is one of two things with one face (`Neighbours`): adjacency arrays kept in memory, or
look-ups in the edge table as they are needed (`lookup`). Everything above sees positions and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from omnigraph.read.adjacency import Adjacency, Links
from omnigraph.read.datum import Evaluate, Longs
from omnigraph.read.env import rows_where
from omnigraph.read.frame import Context, Indices
from omnigraph.read.tables import Rows
from omnigraph.records import dataclass

__all__ = ["REFRESHED", "Followed", "HopFilter", "HopWay", "Hops", "Neighbours", "Stored", "far_ends", "neighbours"]

BLOCK = 4_000_000
"""Edges followed in one stretch of work."""

REFRESHED = 0.02
"""What changing something of an earlier version costs, against making it anew."""


@dataclass(frozen=True, slots=True)
class HopWay:
    """One edge table as walked. `ends` are the table keys of its source and target type."""

    edge: str
    direction: str
    ends: tuple[str, str]

    def built(self, ctx: Context) -> bool:
        return ctx.adjacency.has(ctx.snapshot, self.edge, *self.ends)

    def share(self, ctx: Context) -> float:
        """How much of building its adjacency is still to be done: nothing, all, or a change to an earlier one."""
        if self.built(ctx):
            return 0.0
        return REFRESHED if ctx.adjacency.earlier(ctx.snapshot, self.edge, *self.ends) else 1.0


@dataclass(frozen=True, slots=True, eq=False)
class HopFilter:
    """What must be true of every edge followed; reads `columns` of it as properties of the variable ""."""

    test: Evaluate
    columns: tuple[str, ...]
    may_fail: bool


@dataclass(frozen=True, slots=True, eq=False)
class Followed:
    """Edges from given nodes: the index of the node asked about, the node at the other end, the edge's way and row."""

    owner: Longs
    far: Longs
    way: Longs
    edge: Longs

    def take(self, rows: Indices) -> Followed:
        return Followed(self.owner[rows], self.far[rows], self.way[rows], self.edge[rows])


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


def far_ends(links: Links, at: Indices) -> Indices:
    """The node at the other end of every edge at the given nodes, in order."""
    if len(at) == 1:
        return links.neighbour[int(links.start[at[0]]) : int(links.start[at[0] + 1])]
    starts = links.start[at]
    counts = links.start[at + 1] - starts
    ends = counts.cumsum()
    slot = (starts - ends + counts).repeat(counts)
    slot += np.arange(len(slot))
    found: Indices = links.neighbour[slot]
    return found


def blocks(links: Links, at: Indices) -> Iterator[tuple[int, int]]:
    """Stretches of `at` that have about `BLOCK` edges each, so that time and cancellation are asked about between."""
    ends = np.cumsum(links.start[at + 1] - links.start[at])
    low = 0
    while low < len(at):
        reached = int(ends[low - 1]) if low else 0
        high = max(low + 1, int(np.searchsorted(ends, reached + BLOCK, side="right")))
        yield low, high
        low = high


class Neighbours(Protocol):
    """The edges of one way."""

    def edges(self, ctx: Context) -> Rows:
        """The rows that `Links.edge` points into."""
        ...

    def at(self, nodes: Indices) -> tuple[Links, Indices]:
        """Links that have every edge at these nodes, and the place of each node among them."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """Adjacency in memory.

    Args:
        adjacency: held whole, since it keeps the positions of its three tables, whatever leaves the cache meanwhile: an
            edge table read again could number its rows another way.
        links: its links in the way's direction.
        columns: those read of the edges.
    """

    way: HopWay
    adjacency: Adjacency
    links: Links
    columns: tuple[str, ...]

    def edges(self, ctx: Context) -> Rows:
        return ctx.tables.get(ctx.snapshot, self.way.edge).load(ctx.snapshot, (*self.columns, "id"))

    def at(self, nodes: Indices) -> tuple[Links, Indices]:
        return self.links, nodes


@dataclass(frozen=True, slots=True, eq=False)
class Hops:
    """The ways of a hop, opened: through adjacency for all that read the same snapshot, else for one execution.

    Args:
        near, far: the rows that positions of the two ends point into.
        size: more than any position of a far end.
        where: what must be true of an edge that is followed.
        plain: the adjacency itself, where there is one unfiltered way in memory.
    """

    near: Rows
    far: Rows
    size: int
    ways: tuple[Neighbours, ...]
    where: HopFilter | None
    plain: Links | None

    @property
    def dense(self) -> bool:
        """Whether positions fill their range, so that a bitmap over it is worth its memory."""
        return self.size <= self.far.rows

    def edges(self, ctx: Context) -> tuple[Rows, ...]:
        """The rows of each way's edges."""
        return tuple(way.edges(ctx) for way in self.ways)

    def step(self, ctx: Context, at: Indices) -> tuple[Longs, Longs]:
        """(index into `at`, far node) of every edge that may be followed; parallel edges may come twice."""
        found = self.follow(ctx, at)
        return found.owner, found.far

    def follow(self, ctx: Context, at: Indices) -> Followed:
        """Every edge that may be followed, in the order of the nodes asked about."""
        parts = [self._one(ctx, number, at) for number in range(len(self.ways))]
        if len(parts) == 1:
            return parts[0]
        whole = Followed(
            np.concatenate([p.owner for p in parts]),
            np.concatenate([p.far for p in parts]),
            np.concatenate([p.way for p in parts]),
            np.concatenate([p.edge for p in parts]),
        )
        return whole.take(np.argsort(whole.owner, kind="stable"))

    def _one(self, ctx: Context, number: int, at: Indices) -> Followed:
        links, nodes = self.ways[number].at(at)
        total = int((links.start[nodes + 1] - links.start[nodes]).sum())
        ctx.check_rows(total, "following edges")
        if total <= BLOCK:
            return self._block(ctx, number, links, nodes)
        parts = []
        for low, high in blocks(links, nodes):
            ctx.check()
            found = self._block(ctx, number, links, nodes[low:high])
            parts.append(Followed(found.owner + low, found.far, found.way, found.edge))
        return Followed(
            np.concatenate([p.owner for p in parts]),
            np.concatenate([p.far for p in parts]),
            np.concatenate([p.way for p in parts]),
            np.concatenate([p.edge for p in parts]),
        )

    def _block(self, ctx: Context, number: int, links: Links, nodes: Indices) -> Followed:
        owner, slot = neighbours(links, nodes)
        edge = links.edge[slot].astype(np.int64)
        if self.where is not None:
            rows = self.ways[number].edges(ctx)
            keep = rows_where(ctx, rows, "", self.where.test, edge, may_fail=self.where.may_fail)
            owner, slot, edge = owner[keep], slot[keep], edge[keep]
        return Followed(owner, links.neighbour[slot].astype(np.int64), np.full(len(owner), number), edge)
