"""Where expressions find their values: in the rows of one variable, in a frame, in a finished set of columns."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from omnigraph.errors import Internal
from omnigraph.read.compute import Array, indices, taken
from omnigraph.read.datum import Bools, Datum, Env, Evaluate, Longs, as_mask
from omnigraph.read.frame import Binding, Context, Frame, Indices
from omnigraph.read.tables import Rows

__all__ = ["ColumnEnv", "FrameEnv", "FrameValue", "rows_where"]

_AT_ONCE = 1 << 20  # rows of a table; of a larger one some at a time, with a look at the query's limits in between
_BLOCKS = 64  # at most: a search finds its rows anew in each


class FrameValue(Protocol):
    """A block or a ranking: a value in each row of a frame."""

    def value(self, ctx: Context, frame: Frame) -> Datum: ...


class FrameEnv:
    """A frame's rows. Each property is taken once, however often it is named.

    Args:
        named: what `computed` names: output columns by their alias, evaluated when first asked for.
    """

    def __init__(self, ctx: Context, frame: Frame, named: Mapping[str, Evaluate] | None = None) -> None:
        self.params: Mapping[str, Any] = ctx.params
        self._ctx = ctx
        self._frame = frame
        self._taken: dict[tuple[str, str], Array] = {}
        self._named = named or {}
        self._columns: dict[str, Datum] = {}
        self._special: dict[int, Datum] = {}

    @property
    def now(self) -> datetime:
        return self._ctx.now

    def prop(self, var: str, name: str) -> Datum:
        column = self._taken.get((var, name))
        if column is None:
            self._ctx.check()
            column = self._taken[var, name] = self._frame.bound[var].column(name)
        return column

    def computed(self, name: str) -> Datum:
        if name not in self._columns:
            self._columns[name] = self._named[name](self)
        return self._columns[name]

    def entity(self, var: str) -> tuple[Rows, Indices | None]:
        bound = self._frame.bound[var]
        return bound.rows, bound.at

    @property
    def frame(self) -> Frame:
        return self._frame

    def some(self, rows: Longs, values: Mapping[FrameValue, Datum] | None = None) -> FrameEnv:
        """The given rows; what blocks and rankings gave is kept, since a rank depends on all rows.

        Args:
            values: what rankings give in those rows, where that is known already.
        """
        out = FrameEnv(self._ctx, self._frame.take(rows), self._named)
        if self._special:
            at = indices(rows)
            out._special = {k: taken(v, at) if isinstance(v, pa.Array) else v for k, v in self._special.items()}
        out._special |= {id(what): value for what, value in (values or {}).items()}
        return out

    def special(self, what: object) -> Datum:
        kept = self._special.get(id(what))
        if kept is None:
            made: FrameValue = what  # type: ignore[assignment]  # the compiler of this frame's expressions made it
            kept = self._special[id(what)] = made.value(self._ctx, self._frame)
        return kept


class _WholeEnv:
    """Every row of a table, for a predicate on one variable: no column is copied."""

    def __init__(self, ctx: Context, rows: Rows) -> None:
        self.params: Mapping[str, Any] = ctx.params
        self._ctx = ctx
        self._rows = rows

    @property
    def now(self) -> datetime:
        return self._ctx.now

    def prop(self, var: str, name: str) -> Datum:
        return self._rows.column(name)

    def computed(self, name: str) -> Datum:
        raise Internal(f"column {name!r} inside a predicate")

    def entity(self, var: str) -> tuple[Rows, Indices | None]:
        return self._rows, None

    def some(self, rows: Longs) -> Env:
        return _SomeRows(self._ctx, self._rows, rows)

    def special(self, what: object) -> Datum:
        raise Internal("a block inside a predicate on one variable")


class _PartRows(_WholeEnv):
    """The rows of a table from one to before another: views of its columns."""

    def __init__(self, ctx: Context, rows: Rows, begin: int, end: int) -> None:
        super().__init__(ctx, rows)
        self._begin = begin
        self._length = min(end, rows.rows) - begin

    def prop(self, var: str, name: str) -> Datum:
        return self._rows.column(name).slice(self._begin, self._length)

    def entity(self, var: str) -> tuple[Rows, Indices | None]:
        return self._rows, np.arange(self._begin, self._begin + self._length)

    def some(self, rows: Longs) -> Env:
        return _SomeRows(self._ctx, self._rows, self._begin + rows)

    def mask(self, predicate: Evaluate) -> Bools:
        self._ctx.check()
        return as_mask(predicate(self), self._length)


class _SomeRows(_WholeEnv):
    """Some rows of a table, whatever the variable's name."""

    def __init__(self, ctx: Context, rows: Rows, at: Indices) -> None:
        super().__init__(ctx, rows)
        self._at = at

    def prop(self, var: str, name: str) -> Datum:
        return self._rows.column(name).take(pa.array(self._at))

    def entity(self, var: str) -> tuple[Rows, Indices | None]:
        return self._rows, self._at

    def some(self, rows: Longs) -> Env:
        return _SomeRows(self._ctx, self._rows, self._at[rows])


class ColumnEnv:
    """Finished columns only (after an aggregate)."""

    def __init__(self, ctx: Context, columns: Mapping[str, Datum]) -> None:
        self.params: Mapping[str, Any] = ctx.params
        self._ctx = ctx
        self._columns = columns

    @property
    def now(self) -> datetime:
        return self._ctx.now

    def prop(self, var: str, name: str) -> Datum:
        raise Internal(f"${var}.{name} is not a group's value")

    def computed(self, name: str) -> Datum:
        return self._columns[name]

    def entity(self, var: str) -> tuple[Rows, Indices | None]:
        raise Internal(f"${var} is not a group's value")

    def some(self, rows: Longs) -> Env:
        at: Array = pa.array(rows)
        taken = {n: c.take(at) if isinstance(c, pa.Array) else c for n, c in self._columns.items()}
        return ColumnEnv(self._ctx, taken)

    def special(self, what: object) -> Datum:
        raise Internal("a block over groups")


def rows_where(
    ctx: Context, rows: Rows, var: str, predicate: Evaluate, at: Indices | None, *, may_fail: bool = False
) -> Bools:
    """Where a predicate on one variable is true.

    Args:
        at: the positions asked about; None for every row of the table.
        may_fail: no row but these may be asked about.
    """
    if at is None:
        return _where(ctx, rows, predicate)
    if len(at) * 2 > rows.rows and not may_fail:  # cheaper once over the table than once per mention
        return _where(ctx, rows, predicate)[at]
    if not len(at):
        return np.zeros(0, dtype=bool)
    return as_mask(predicate(FrameEnv(ctx, Frame(len(at), {var: Binding(rows, at)}))), len(at))


def _where(ctx: Context, rows: Rows, predicate: Evaluate) -> Bools:
    if rows.rows <= _AT_ONCE:
        return as_mask(predicate(_WholeEnv(ctx, rows)), rows.rows)
    size = max(_AT_ONCE // 4, rows.rows // _BLOCKS)
    masks = [_PartRows(ctx, rows, at, at + size).mask(predicate) for at in range(0, rows.rows, size)]
    return np.concatenate(masks)
