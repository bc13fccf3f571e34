"""One hop over one or more edge tables, and which of its edges may be followed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from omnigraph.read.adjacency import Links
from omnigraph.read.datum import Evaluate, Longs
from omnigraph.read.env import rows_where
from omnigraph.read.frame import Context, Indices
from omnigraph.read.tables import TableData

__all__ = ["Followed", "HopFilter", "HopWay", "Hops", "neighbours"]


@dataclass(frozen=True, slots=True)
class HopWay:
    """One edge table as walked. `ends` are the table keys of its source and target type."""

    edge: str
    direction: str
    ends: tuple[str, str]

    def links(self, ctx: Context) -> Links:
        return ctx.adjacency.get(ctx.snapshot, self.edge, *self.ends).links(self.direction)

    def built(self, ctx: Context) -> bool:
        return ctx.adjacency.has(ctx.snapshot, self.edge, *self.ends)


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


@dataclass(frozen=True, slots=True, eq=False)
class Hops:
    """The ways of a hop, opened for one execution. `plain`: the adjacency itself, where there is one unfiltered way."""

    ctx: Context
    links: tuple[Links, ...]
    tables: tuple[TableData | None, ...]
    where: HopFilter | None

    @classmethod
    def open(cls, ctx: Context, ways: tuple[HopWay, ...], where: HopFilter | None) -> Hops:
        tables: list[TableData | None] = []
        for way in ways:
            table = None
            if where is not None:
                table = ctx.tables.get(ctx.snapshot, way.edge).load(ctx.snapshot, (*where.columns, "id"))
            tables.append(table)
        return cls(ctx, tuple(way.links(ctx) for way in ways), tuple(tables), where)

    @property
    def plain(self) -> Links | None:
        return self.links[0] if len(self.links) == 1 and self.where is None else None

    @property
    def near(self) -> int:
        return self.links[0].near

    @property
    def far(self) -> int:
        return self.links[0].far

    def most(self, at: Indices) -> int:
        """How many edges the given nodes have."""
        return sum(int((links.start[at + 1] - links.start[at]).sum()) for links in self.links)

    def step(self, at: Indices) -> tuple[Longs, Longs]:
        """(index into `at`, far node) of every edge that may be followed; parallel edges may come twice."""
        found = self.follow(at)
        return found.owner, found.far

    def follow(self, at: Indices) -> Followed:
        """Every edge that may be followed, in the order of the nodes asked about."""
        parts = [self._one(number, at) for number in range(len(self.links))]
        if len(parts) == 1:
            return parts[0]
        whole = Followed(
            np.concatenate([p.owner for p in parts]),
            np.concatenate([p.far for p in parts]),
            np.concatenate([p.way for p in parts]),
            np.concatenate([p.edge for p in parts]),
        )
        return whole.take(np.argsort(whole.owner, kind="stable"))

    def _one(self, number: int, at: Indices) -> Followed:
        links, table = self.links[number], self.tables[number]
        owner, slot = neighbours(links, at)
        edge = links.edge[slot].astype(np.int64)
        if self.where is not None and table is not None:
            keep = rows_where(self.ctx, table, "", self.where.test, edge, may_fail=self.where.may_fail)
            owner, slot, edge = owner[keep], slot[keep], edge[keep]
        return Followed(owner, links.neighbour[slot].astype(np.int64), np.full(len(owner), number), edge)
