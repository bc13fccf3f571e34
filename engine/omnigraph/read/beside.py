"""Properties of far ends in the order of the edges that lead there: of the edges at one node they are a slice.

Arrow takes rows that lie apart one by one, at a price per column that a small hop notices. So the columns that a hop
returns are kept once more, each value at every edge that ends there: some hundred nodes at a time, which are a page,
and only pages that are asked again and again, as far as memory allows.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable, Sequence

import numpy as np
import pyarrow as pa

from omnigraph.query.ir import Expr, Prop
from omnigraph.read.adjacency import Links
from omnigraph.read.compute import Array, indices, taken
from omnigraph.read.expand import ExpandStep
from omnigraph.read.frame import Context, Frame, Indices
from omnigraph.read.hops import Hops
from omnigraph.read.memory import Finish, Memory
from omnigraph.records import dataclass

__all__ = ["BesideEdges", "Pages", "beside_edges"]

_PAGE = 4096  # edges of a page, at most on the average
_LARGE = 1 << 16  # edges of a page that isn't made: a hop from a node with so many doesn't notice a price per column
_HEAVY = 64 << 20  # bytes of a page that isn't made

_WORTH = 4
"""Times that a page is asked before it is made: making it takes some 150 µs, and each time saves some 18."""

_SHARE = 16
"""The pages of a hop take this part of the cache at most."""


class Pages:
    """The columns of a hop by edge, as far as they were made. Thread-safe.

    Args:
        links: the edges by whose order they go: others of the same tables may be in another one.

    Attributes:
        nbytes: of what was made.
    """

    def __init__(self, links: Links) -> None:
        self.links = weakref.ref(links)
        self._shift = (_PAGE * links.near // max(1, len(links.neighbour))).bit_length() - 1  # a power of two of nodes
        self._shift = max(0, self._shift)
        count = (links.near >> self._shift) + 1
        self._made: list[tuple[pa.Table, int] | None] = [None] * count
        self._asked = bytearray(count)
        self._lock = threading.Lock()
        self.nbytes = 9 * count

    def at(self, ctx: Context, hop: BesideEdges, node: int) -> tuple[pa.Table, int] | None:
        """(the columns at the edges of the page that a node is on, the first of these edges); None where it isn't made,
        which it is from the next time on that it is worth it."""
        page = node >> self._shift
        found = self._made[page]
        if found is None:
            if self._asked[page] < _WORTH:
                self._asked[page] += 1
            else:
                found = self._make(ctx, hop, page)
        return found

    def _make(self, ctx: Context, hop: BesideEdges, page: int) -> tuple[pa.Table, int] | None:
        links, begin = hop.links, page << self._shift
        first, end = int(links.start[begin]), int(links.start[min(links.near, begin + (1 << self._shift))])
        room = min(_HEAVY, ctx.settings.cache_bytes // _SHARE - self.nbytes)
        ends = links.neighbour[first:end]
        if len(ends) > _LARGE or sum(_size(column, ends) for column in hop.columns) > room:
            self._asked[page] = 0  # it isn't weighed each time
            return None
        at = indices(ends)
        made = pa.Table.from_arrays([taken(column, at) for column in hop.columns], schema=hop.schema), first
        with self._lock:
            if self._made[page] is None:
                self._made[page] = made
                self.nbytes += made[0].nbytes
        ctx.tables.kept.settle()
        return made


def _size(column: Array, ends: Indices) -> int:
    """Bytes of a column at some edges: many of them may end where a long text is."""
    if not len(ends):
        return 0
    if pa.types.is_primitive(column.type):
        return len(ends) * int(column.type.bit_width) // 8
    wide = pa.types.is_large_string(column.type)
    offsets = np.frombuffer(column.buffers()[1], dtype=np.int64 if wide else np.int32)[column.offset :]
    lengths = np.subtract(offsets[ends + 1], offsets[ends], dtype=np.int64)
    return len(ends) * offsets.itemsize + int(lengths.sum())


@dataclass(frozen=True, slots=True, eq=False)
class BesideEdges:
    """A hop whose far ends' properties are all that is returned.

    Args:
        key: what its pages are kept by.
        bounds: the rows wanted.
    """

    source: str
    hops: Hops
    links: Links
    schema: pa.Schema
    columns: tuple[Array, ...]
    key: Hashable
    bounds: Callable[[Context], tuple[int, int | None]]

    def finish(self, memory: Memory, otherwise: Finish) -> Finish:
        """The slice of one node's edges, through its page.

        Args:
            otherwise: the hop and what follows, for any other frame and where there is no page.
        """
        pages = self._pages(memory)
        source, near, start, bounds = self.source, self.hops.near, self.links.start, self.bounds

        def sliced(ctx: Context, frame: Frame) -> pa.Table:
            bound = frame.bound[source]
            if frame.length == 1 and frame.weight is None and bound.rows is near and not bound.nullable:
                node = int(bound.at[0])
                found = pages.at(ctx, self, node)
                if found is not None:
                    table, first = found
                    low, high = int(start[node]) - first, int(start[node + 1]) - first
                    ctx.check_rows(high - low, "following edges")
                    skip, stop = bounds(ctx)
                    if skip or stop is not None:
                        some = range(low, high)[skip:stop]
                        return table.slice(some.start, len(some))
                    return table.slice(low, high - low)
            return otherwise(ctx, frame)

        return sliced

    def _pages(self, memory: Memory) -> Pages:
        """Those that are kept, if they are of these edges."""
        found = memory.kept(self.key)
        if isinstance(found, Pages) and found.links() is self.links:
            return found
        pages = Pages(self.links)
        memory.ctx.tables.kept.replace(self.key, pages)
        memory.holds.append(self.key)
        return pages


def _fits(kind: pa.DataType) -> bool:
    """Whether values have a width, or a length that is quickly added up."""
    return pa.types.is_primitive(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)


def beside_edges(
    memory: Memory,
    hop: ExpandStep,
    schema: pa.Schema,
    returned: Sequence[Expr],
    bounds: Callable[[Context], tuple[int, int | None]],
) -> BesideEdges | None:
    """The hop; None where it is more than one along every edge of a table, or where anything is returned but texts,
    numbers, flags and times of its far ends."""
    props = [expr for expr in returned if isinstance(expr, Prop) and expr.var == hop.target]
    one = hop.walk.single and not (hop.bound or hop.edge_var or hop.where or hop.counts or hop.merges or hop.set_only)
    if not one or len(props) < len(returned):
        return None
    hops = hop.walk.bind(memory)
    if hops.plain is None:
        return None
    columns = tuple(hops.far.column(prop.name) for prop in props)
    if any(c.type != field.type or not _fits(c.type) for c, field in zip(columns, schema, strict=True)):
        return None
    (way,) = hop.walk.ways
    edges = memory.ctx.adjacency.key(memory.ctx.snapshot, way.edge, *way.ends)
    key = ("beside", edges, way.direction, tuple(prop.name for prop in props), tuple(schema.names))
    return BesideEdges(hop.source, hops, hops.plain.distinct, schema, columns, key, bounds)
