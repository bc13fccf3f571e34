"""Binding a plan to a snapshot: what its steps need is looked up once, and each becomes a function of the execution and
the rows so far. That takes everything to be in memory; where it isn't yet, the plan runs unbound, and brings it there.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeAlias

import pyarrow as pa

from omnigraph.read.adjacency import Adjacency
from omnigraph.read.frame import Context, Frame
from omnigraph.read.hops import HopWay
from omnigraph.read.kept import Sized
from omnigraph.read.tables import Rows, TableData

__all__ = ["Finish", "Memory", "NotInMemory", "Run"]

Run: TypeAlias = Callable[[Context, Frame], Frame]
"""A step that is bound."""

Finish: TypeAlias = Callable[[Context, Frame], pa.Table]
"""An output that is bound."""


class NotInMemory(Exception):  # no error: the plan runs unbound
    """Something that a plan reads isn't in memory as a whole."""


class Memory:
    """What of a snapshot is in memory.

    Attributes:
        ctx: an execution on the snapshot; only what all of them share may be taken from it.
        bound: the variables that the steps bound so far have bound, and the cached table each points into; None where
            only a run tells.
        begun: whether a step has bound a variable, one that is dropped by now perhaps: its rows stand in the frame.
        once: the variable whose rows each stand once in the frame, if that is certain.
        holds: the entries of the cache that what was asked for is made of.
    """

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.bound: dict[str, Rows | None] = {}
        self.begun = False
        self.once: str | None = None
        self.holds: list[Hashable] = []

    def table(self, table_key: str, columns: Iterable[str]) -> TableData:
        """A cached table. Raises NotInMemory unless all the columns are there."""
        found = self.kept(self.ctx.tables.key(self.ctx.snapshot, table_key))
        if not isinstance(found, TableData) or not found.has(columns):
            raise NotInMemory
        return found

    def adjacency(self, way: HopWay) -> Adjacency:
        """The adjacency of a way. Raises NotInMemory."""
        found = self.kept(self.ctx.adjacency.key(self.ctx.snapshot, way.edge, *way.ends))
        if not isinstance(found, Adjacency):
            raise NotInMemory
        return found

    def kept(self, key: Hashable) -> Sized | None:
        """An entry of the cache, to be held."""
        found = self.ctx.tables.kept.get(key)
        if found is not None:
            self.holds.append(key)
        return found

    def bind(self, var: str, rows: Rows | None) -> None:
        """Note what a step binds."""
        self.bound[var] = rows
        self.begun = True

    def keep(self, names: Iterable[str]) -> None:
        """Forget variables that a step drops."""
        self.bound = {name: rows for name, rows in self.bound.items() if name in names}
