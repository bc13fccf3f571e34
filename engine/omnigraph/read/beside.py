"""Properties of far ends in the order of the edges that lead there: of the edges at one node they are a slice.

Arrow takes rows that lie apart one by one, at a price per column that a small hop notices. So of a hop asked again and
again the columns it returns are kept once more, each value at every edge that ends there, as far as memory allows.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Hashable, Sequence

import pyarrow as pa

from omnigraph.query.ir import Expr, Prop
from omnigraph.read.adjacency import Links
from omnigraph.read.builds import BUILDS
from omnigraph.read.compute import Array, indices, pc, taken
from omnigraph.read.expand import ExpandStep
from omnigraph.read.frame import Context, Frame
from omnigraph.read.hops import Hops
from omnigraph.read.memory import Finish, Memory
from omnigraph.records import dataclass

__all__ = ["BesideEdges", "beside_edges"]

_LIGHT = 100_000  # edges at one node whose far ends are read this way

_SHARE = 16
"""The columns of a hop take this part of the cache at most."""

_WORTH = 50_000
"""Bytes that one run of the hop pays for: making them takes some 30 µs, and each run saves some 8."""

_AT_LEAST = 50


@dataclass(frozen=True, slots=True, eq=False)
class _Column:
    """A column of far ends, by edge.

    Args:
        links: the edges by whose order it goes: others of the same tables may be in another one.
    """

    links: weakref.ref[Links]
    values: Array

    @property
    def nbytes(self) -> int:
        return int(self.values.nbytes)


@dataclass(frozen=True, slots=True, eq=False)
class BesideEdges:
    """A hop whose far ends' properties are all that is returned.

    Args:
        keys: of each returned column, what its values by edge are kept by.
        bounds: the rows wanted.
    """

    source: str
    hops: Hops
    links: Links
    schema: pa.Schema
    columns: tuple[Array, ...]
    keys: tuple[Hashable, ...]
    bounds: Callable[[Context], tuple[int, int | None]]

    def finish(self, memory: Memory, otherwise: Finish) -> Finish | None:
        """The slice of one node's edges, through values in memory; None where they aren't there.

        Args:
            otherwise: the hop and what follows, for any other frame.
        """
        found = [memory.kept(key) for key in self.keys]
        values = [c.values for c in found if isinstance(c, _Column) and c.links() is self.links]
        if len(values) < len(self.keys):
            return None
        table = pa.Table.from_arrays(values, schema=self.schema)
        source, near, start, bounds = self.source, self.hops.near, self.links.start, self.bounds

        def sliced(ctx: Context, frame: Frame) -> pa.Table:
            bound = frame.bound[source]
            if frame.length == 1 and frame.weight is None and bound.rows is near and not bound.nullable:
                node = int(bound.at[0])
                low, high = int(start[node]), int(start[node + 1])
                if high - low <= _LIGHT:
                    ctx.check_rows(high - low, "following edges")
                    skip, stop = bounds(ctx)
                    if skip or stop is not None:
                        some = range(low, high)[skip:stop]
                        return table.slice(some.start, len(some))
                    return table.slice(low, high - low)
            return otherwise(ctx, frame)

        return sliced

    def counting(self, finish: Finish) -> Finish:
        """`finish`, which makes the values by edge once it has run often enough to be worth them."""
        ratio = len(self.links.neighbour) / max(1, self.hops.far.rows)
        size = int(sum(column.nbytes for column in self.columns) * ratio)
        worth, turn = _AT_LEAST + size // _WORTH, itertools.count()

        def counted(ctx: Context, frame: Frame) -> pa.Table:
            if next(turn) == worth:
                self._make(ctx)
            return finish(ctx, frame)

        return counted

    def _make(self, ctx: Context) -> None:
        kept = ctx.tables.kept

        def make() -> None:
            if sum(_size(column, self.links) for column in self.columns) * _SHARE > ctx.settings.cache_bytes:
                return
            edges = indices(self.links.neighbour)
            for key, column in zip(self.keys, self.columns, strict=True):
                found = kept.get(key)
                if not (isinstance(found, _Column) and found.links() is self.links):
                    kept.replace(key, _Column(weakref.ref(self.links), taken(column, edges)))
            kept.settle()
            kept.release()

        BUILDS.share((id(self.links), self.keys), make, size=len(self.links.neighbour) * len(self.keys))


def _fits(kind: pa.DataType) -> bool:
    """Whether values have a width, or a length that is quickly added up."""
    return pa.types.is_primitive(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _size(column: Array, links: Links) -> int:
    """Bytes of a column by edge: many edges may end where a long text is."""
    edges = len(links.neighbour)
    if pa.types.is_primitive(column.type):
        return edges * int(column.type.bit_width) // 8
    lengths = pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
    return edges * 8 + int(lengths[links.neighbour].sum(dtype="int64"))


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
    keys = tuple(("beside", edges, way.direction, prop.name) for prop in props)
    return BesideEdges(hop.source, hops, hops.plain.distinct, schema, columns, keys, bounds)
