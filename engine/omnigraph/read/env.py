"""Where expressions find their values: in the rows of one variable, in a frame, in a finished set of columns."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from omnigraph.errors import Internal
from omnigraph.read.compute import Array
from omnigraph.read.expr import Datum, Evaluate, as_mask
from omnigraph.read.frame import Binding, Context, Frame, Indices
from omnigraph.read.tables import Rows

__all__ = ["ColumnEnv", "FrameEnv", "rows_where"]


class FrameEnv:
    """A frame's rows. Each property is taken once, however often it is named."""

    def __init__(self, ctx: Context, frame: Frame, columns: Mapping[str, Datum] | None = None) -> None:
        self.params: Mapping[str, Any] = ctx.params
        self.now: datetime = ctx.now
        self._frame = frame
        self._taken: dict[tuple[str, str], Array] = {}
        self._columns = columns or {}

    def prop(self, var: str, name: str) -> Datum:
        column = self._taken.get((var, name))
        if column is None:
            column = self._taken[var, name] = self._frame.bound[var].column(name)
        return column

    def computed(self, name: str) -> Datum:
        return self._columns[name]


class _WholeEnv:
    """Every row of a table, for a predicate on one variable: no column is copied."""

    def __init__(self, ctx: Context, rows: Rows) -> None:
        self.params: Mapping[str, Any] = ctx.params
        self.now: datetime = ctx.now
        self._rows = rows

    def prop(self, var: str, name: str) -> Datum:
        return self._rows.column(name)

    def computed(self, name: str) -> Datum:
        raise Internal(f"column {name!r} inside a predicate")


class ColumnEnv:
    """Finished columns only (after an aggregate)."""

    def __init__(self, ctx: Context, columns: Mapping[str, Datum]) -> None:
        self.params: Mapping[str, Any] = ctx.params
        self.now: datetime = ctx.now
        self._columns = columns

    def prop(self, var: str, name: str) -> Datum:
        raise Internal(f"${var}.{name} is not a group's value")

    def computed(self, name: str) -> Datum:
        return self._columns[name]


def rows_where(ctx: Context, rows: Rows, var: str, predicate: Evaluate, at: Indices | None) -> npt.NDArray[np.bool_]:
    """Where a predicate on one variable is true.

    Args:
        at: the positions asked about; None for every row of the table.
    """
    if at is None:
        return as_mask(predicate(_WholeEnv(ctx, rows)), rows.rows)
    if len(at) * 2 > rows.rows:  # cheaper once over the table than once per mention
        return as_mask(predicate(_WholeEnv(ctx, rows)), rows.rows)[at]
    return as_mask(predicate(FrameEnv(ctx, Frame(len(at), {var: Binding(rows, at)}))), len(at))
