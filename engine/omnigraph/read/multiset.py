"""Rows that stand several times: where only how often a row is there matters, its copies are counted, not made.

A frame's `weight` says how often each of its rows stands. An edge whose far end nobody reads multiplies it by the
number of far ends; where nobody reads anything but the far end, rows that reach the same node become one.
"""

from __future__ import annotations

import numpy as np

from omnigraph.errors import BadRequest
from omnigraph.read.adjacency import Links
from omnigraph.read.datum import Evaluate, Longs
from omnigraph.read.distinct import begins
from omnigraph.read.env import rows_where
from omnigraph.read.frame import Context, Indices
from omnigraph.read.hops import Hops, neighbours

__all__ = ["count_by_group", "count_rows", "far_counts", "merged", "times"]

_EXACT = 2.0**53  # up to here sums in floats are exact
_MOST = 2.0**62


def times(weight: Longs | None, many: Longs) -> Longs:
    """How often rows stand that stood `weight` times and come `many` times each."""
    if weight is None or not len(many):
        return many
    if float(weight.max()) * float(many.max()) > _MOST:
        raise BadRequest("the query counts more rows than a 64-bit number holds: narrow it", code="overflow")
    return weight * many


def count_rows(length: int, weight: Longs | None) -> int:
    """The number of rows, those that stand several times counted so often."""
    if weight is None:
        return length
    if float(weight.sum(dtype=np.float64)) > _MOST:
        raise BadRequest("the query counts more rows than a 64-bit number holds: narrow it", code="overflow")
    return int(weight.sum())


def count_by_group(groups: Longs, count: int, weight: Longs | None) -> Longs:
    """The number of rows of each group."""
    if weight is None:
        return np.bincount(groups, minlength=count)
    total = count_rows(len(groups), weight)
    if count == 1:
        return np.array([total], dtype=np.int64)
    if total < _EXACT:
        return np.bincount(groups, weights=weight, minlength=count).astype(np.int64)
    out = np.zeros(count, dtype=np.int64)
    np.add.at(out, groups, weight)
    return out


def far_counts(ctx: Context, hops: Hops, links: Links, at: Indices, target: str, where: Evaluate | None) -> Longs:
    """How many different far ends each node has, of those for which `where` is true."""
    start = links.start
    many: Longs = start[at + 1] - start[at]
    if where is None:
        return many
    if int(many.sum()) * 4 > len(links.neighbour):
        kept = rows_where(ctx, hops.far, target, where, None)
        edges = len(links.neighbour)
        kind = np.int32 if edges < 2**31 else np.int64
        running = np.append(kind(0), np.cumsum(kept[links.neighbour], dtype=kind))
        out: Longs = np.subtract(running[start[at + 1]], running[start[at]], dtype=np.int64)
        return out
    owner, slot = neighbours(links, at)
    kept = rows_where(ctx, hops.far, target, where, links.neighbour[slot])
    return np.bincount(owner[kept], minlength=len(at))


def merged(links: Links, at: Indices, weight: Longs | None) -> tuple[Longs, Longs]:
    """(each far node once, ascending; how many of the rows' paths end there)."""
    many = links.start[at + 1] - links.start[at]
    paths = float(many.sum(dtype=np.float64) if weight is None else np.dot(many.astype(np.float64), weight))
    if paths > _EXACT:
        raise BadRequest("the query counts more rows than can be told apart: narrow it", code="overflow")
    if weight is None and len(at) == links.near and (np.bincount(at, minlength=links.near) == 1).all():
        total = links.indegree  # from every node once
    elif int(many.sum()) * 4 > len(links.neighbour):
        near = np.bincount(at, weights=weight, minlength=links.near)
        total = np.bincount(links.neighbour, weights=np.repeat(near, np.diff(links.start)), minlength=links.far)
    else:
        owner, slot = neighbours(links, at)
        far, each = links.neighbour[slot], None if weight is None else weight[owner]
        if len(far) * 16 < links.far:
            return _few(far, each)
        total = np.bincount(far, weights=each, minlength=links.far)
    node = np.flatnonzero(total)
    return node, total[node].astype(np.int64)


def _few(nodes: Indices, many: Longs | None) -> tuple[Longs, Longs]:
    """(each node once, ascending; how often it comes, where each comes `many` times)."""
    order = np.argsort(nodes, kind="stable")
    nodes = nodes[order]
    first = np.flatnonzero(begins(nodes))
    sums = np.diff(first, append=len(nodes)) if many is None else np.add.reduceat(many[order], first)
    return nodes[first].astype(np.int64, copy=False), sums
