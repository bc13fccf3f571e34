"""Outputs bound to a snapshot: the two that cost less than the arrangements for any other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from omnigraph.query.ir import Agg, Expr, Prop, Var
from omnigraph.read.compute import Array, rows_of, whole_number
from omnigraph.read.distinct import different
from omnigraph.read.frame import Binding, Context, Frame
from omnigraph.read.memory import Finish, Memory
from omnigraph.read.multiset import count_rows
from omnigraph.read.walk import counts_rows

__all__ = ["gathered", "tallied"]


def gathered(memory: Memory, schema: pa.Schema, columns: Sequence[Expr]) -> Finish | None:
    """Properties of cached rows, those of a variable taken together; None where a column is anything else."""
    found = [_cached(memory, expr, field.type) for expr, field in zip(columns, schema, strict=True)]
    cached = [pair for pair in found if pair is not None]
    if len(cached) < len(found):
        return None
    views: dict[str, pa.Table] = {}
    for var in dict.fromkeys(var for var, _ in cached):
        own = [i for i, (other, _) in enumerate(cached) if other == var]
        fields = [schema.field(i) for i in own]
        views[var] = pa.Table.from_arrays([cached[i][1] for i in own], schema=pa.schema(fields))
    if len(views) == 1:
        ((only, view),) = views.items()
        return lambda ctx, frame: _rows(view, frame.bound[only])

    def together(ctx: Context, frame: Frame) -> pa.Table:
        parts = {var: iter(_rows(view, frame.bound[var]).columns) for var, view in views.items()}
        return pa.Table.from_arrays([next(parts[var]) for var, _ in cached], schema=schema)

    return together


def _rows(view: pa.Table, bound: Binding) -> pa.Table:
    return view if bound.whole else rows_of(view, bound.at)


def _cached(memory: Memory, expr: Expr, kind: pa.DataType) -> tuple[str, Array] | None:
    rows = memory.bound.get(expr.var) if isinstance(expr, Prop) else None
    if rows is None or not isinstance(expr, Prop):
        return None
    column = rows.column(expr.name)
    return (expr.var, column) if column.type == kind else None


def tallied(memory: Memory, schema: pa.Schema, columns: Sequence[Expr]) -> Finish | None:
    """Counts of rows and of different entities in a single row; None where a column is anything else."""
    found = [_tally(memory, expr) for expr in columns]
    tallies = [tally for tally in found if tally is not None]
    if len(tallies) < len(found):
        return None
    return lambda ctx, frame: pa.Table.from_arrays([whole_number(tally(frame)) for tally in tallies], schema=schema)


def _tally(memory: Memory, expr: Expr) -> Callable[[Frame], int] | None:
    if not isinstance(expr, Agg) or expr.fn != "count":
        return None
    if counts_rows(expr):
        return lambda frame: count_rows(frame.length, frame.weight)
    arg = expr.arg
    var = arg.name if isinstance(arg, Var) else arg.var if isinstance(arg, Prop) and arg.name == "id" else None
    rows = None if var is None else memory.bound.get(var)
    if var is None or rows is None or not expr.distinct or (isinstance(arg, Prop) and rows.id_map().repeated):
        return None
    if var == memory.once:
        return lambda frame: frame.length
    return lambda frame: different(frame.bound[var].at, rows.rows)
