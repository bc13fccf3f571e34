"""The end of a plan: output columns, their order, their limit. Sorting reads its keys alone; everything else is taken
for the rows that stay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.errors import BadRequest
from omnigraph.query.ir import Agg, Aggregate, Column, Expr, Limit, Order, Param, Project, Prop, ResultColumn, Var
from omnigraph.read.aggregate import aggregate, codes_of, group
from omnigraph.read.compute import Array
from omnigraph.read.env import ColumnEnv, FrameEnv
from omnigraph.read.expr import Evaluate, aggregates_in, as_array, compile_expr
from omnigraph.read.frame import Binding, Context, Frame
from omnigraph.read.order import SortKey, first_rows, sort_key, sorted_rows
from omnigraph.read.tables import sort_codes
from omnigraph.read.types import arrow_of, column_type, entity_properties, entity_type
from omnigraph.schema.catalog import Catalog

__all__ = ["Output", "make_output"]

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class _Item:
    """An output column: a whole entity, or a compiled expression."""

    name: str
    expr: Expr
    type: pa.DataType
    evaluate: Evaluate
    entity: tuple[str, ...] = ()  # the properties of a whole entity


@dataclass(frozen=True, slots=True, eq=False)
class Output:
    """Project or Aggregate with what follows it. `run` gives the result table."""

    items: tuple[_Item, ...]
    keys: tuple[_Item, ...] | None  # None: no aggregate
    aggregates: tuple[tuple[Agg, str, Evaluate | None], ...]
    order: tuple[tuple[Expr, Evaluate, bool], ...]
    ties: tuple[str, ...]
    limit: Limit | None
    schema: pa.Schema
    text: str

    def run(self, ctx: Context, frame: Frame) -> pa.Table:
        skip, stop = self._bounds(ctx)
        if self.keys is None:
            return self._project(ctx, frame, skip, stop)
        return self._aggregate(ctx, frame, skip, stop)

    def _bounds(self, ctx: Context) -> tuple[int, int | None]:
        if self.limit is None:
            return 0, None
        skip = _count(self.limit.skip, ctx.params, "skip")
        count = None if self.limit.count is None else _count(self.limit.count, ctx.params, "limit")
        return skip, None if count is None else skip + count

    # ---- rows --------------------------------------------------------------------------------------------------

    def _project(self, ctx: Context, frame: Frame, skip: int, stop: int | None) -> pa.Table:
        if self.order and frame.length > 1:
            frame = self._sort_frame(ctx, frame, stop)
        if skip or (stop is not None and stop < frame.length):
            end = frame.length if stop is None else min(stop, frame.length)
            frame = frame.take(np.arange(min(skip, end), end))
        env = FrameEnv(ctx, frame)
        return self._table([_value(item, env, frame) for item in self.items])

    def _sort_frame(self, ctx: Context, frame: Frame, stop: int | None) -> Frame:
        env = FrameEnv(ctx, frame)
        named = {item.name: item for item in self.items}
        keys = []
        for expr, evaluate, descending in self.order:
            if isinstance(expr, Column):
                evaluate = named[expr.name].evaluate
            keys.append(sort_key(as_array(evaluate(env), frame.length), descending=descending))
        rows: Longs | None = None
        if stop is not None and stop * 4 < frame.length:
            rows = first_rows(keys[0], stop)
            frame = frame.take(rows)
            keys = [_of_rows(key, rows) for key in keys]
        ties = [_tie(frame.bound[v]) for v in self.ties if v in frame.bound]
        return frame.take(sorted_rows([*keys, *ties])[:stop])

    # ---- groups ------------------------------------------------------------------------------------------------

    def _aggregate(self, ctx: Context, frame: Frame, skip: int, stop: int | None) -> pa.Table:
        env = FrameEnv(ctx, frame)
        keys = self.keys or ()
        groups, row_of = group([_key_codes(key, env, frame) for key in keys], frame.length)
        count = len(row_of) if keys else 1
        values: dict[str, Any] = {}
        for agg, name, evaluate in self.aggregates:
            argument = None if evaluate is None else as_array(evaluate(env), frame.length)
            codes = None
            if agg.distinct:
                codes = _distinct_codes(agg, argument, env, frame)
            values[name] = aggregate(agg, argument, groups, count, codes, arrow_of(agg.type))
        heads = frame.take(row_of) if keys else Frame(0)
        head_env = FrameEnv(ctx, heads)
        for key in keys:
            values[key.name] = _value(key, head_env, heads)
        columns = ColumnEnv(ctx, values)
        out = {}
        for item in self.items:
            done = values[item.name] if item.name in values else as_array(item.evaluate(columns), count)
            out[item.name] = done
        if self.order and count > 1:
            chosen = self._sort_groups(out, heads, keys)[:stop]
        else:
            chosen = np.arange(count if stop is None else min(stop, count))
        if skip or len(chosen) < count or self.order:
            at = pa.array(chosen[skip:])
            return self._table([out[item.name].take(at) for item in self.items])
        return self._table([out[item.name] for item in self.items])

    def _sort_groups(self, out: Mapping[str, Array], heads: Frame, keys: tuple[_Item, ...]) -> Longs:
        entities = {item.name: item.expr.name for item in (*self.items, *keys) if isinstance(item.expr, Var)}
        sort: list[SortKey] = []
        for expr, _, descending in self.order:
            name = expr.name if isinstance(expr, Column) else ""
            column = heads.bound[entities[name]].column("id") if name in entities else out[name]
            sort.append(sort_key(column, descending=descending))
        for key in keys:
            if isinstance(key.expr, Var):
                sort.append(_tie(heads.bound[key.expr.name]))
            elif not pa.types.is_nested(key.type):
                sort.append(sort_key(out[key.name] if key.name in out else key_column(key, heads)))
        return sorted_rows(sort)

    def _table(self, columns: list[Array]) -> pa.Table:
        cast = [c if c.type == f.type else c.cast(f.type) for c, f in zip(columns, self.schema, strict=True)]
        return pa.Table.from_arrays(cast, schema=self.schema)

    def describe(self) -> str:
        return self.text


def key_column(key: _Item, heads: Frame) -> Array:
    """A grouping value that isn't returned."""
    expr = key.expr
    if isinstance(expr, Prop):
        return heads.bound[expr.var].column(expr.name)
    raise BadRequest(f"order by the group's key {key.name!r} needs it among the returned columns")


def _count(value: int | Param, params: Mapping[str, Any], what: str) -> int:
    number = params.get(value.name) if isinstance(value, Param) else value
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise BadRequest(f"{what} must be a whole number from 0 on, not {number!r}")
    return number


def _of_rows(key: SortKey, rows: Longs) -> SortKey:
    return SortKey(key.codes[rows], None if key.rank_of_null is None else key.rank_of_null[rows])


def _tie(binding: Binding) -> SortKey:
    """By id: through the table's ranks where many rows ask, else by the ids themselves."""
    if len(binding.at) * 16 > binding.rows.rows:
        return SortKey(binding.rows.id_rank()[binding.at], None)
    return SortKey(sort_codes(binding.column("id")), None)


def _value(item: _Item, env: FrameEnv, frame: Frame) -> Array:
    if not item.entity or not isinstance(item.expr, Var):
        return as_array(item.evaluate(env), frame.length)
    columns = [as_array(env.prop(item.expr.name, name), frame.length) for name in item.entity]
    fields = [item.type.field(i) for i in range(item.type.num_fields)]
    cast = [c if c.type == f.type else c.cast(f.type) for c, f in zip(columns, fields, strict=True)]
    return pa.StructArray.from_arrays(cast, fields=fields)


def _key_codes(key: _Item, env: FrameEnv, frame: Frame) -> tuple[Longs, int]:
    expr = key.expr
    if isinstance(expr, Var):
        bound = frame.bound[expr.name]
        return bound.at.astype(np.int64), max(1, bound.rows.rows)
    if isinstance(expr, Prop):
        bound = frame.bound[expr.var]
        flat = not pa.types.is_nested(bound.rows.column(expr.name).type)
        plain = flat and not pa.types.is_floating(bound.rows.column(expr.name).type)
        if plain and len(bound.at) * 4 > bound.rows.rows:
            codes, values = bound.rows.dictionary(expr.name)
            return codes[bound.at].astype(np.int64), max(1, len(values))
    return codes_of(as_array(key.evaluate(env), frame.length))


def _distinct_codes(agg: Agg, argument: Array | None, env: FrameEnv, frame: Frame) -> Longs:
    if isinstance(agg.arg, Var):
        return frame.bound[agg.arg.name].at.astype(np.int64)
    if argument is None:
        return np.arange(frame.length)
    return codes_of(argument)[0]


def make_output(
    catalog: Catalog,
    final: Project | Aggregate,
    order: Order | None,
    limit: Limit | None,
    columns: tuple[ResultColumn, ...],
) -> Output:
    """Compile the last operators of a query."""
    named: dict[Agg, str] = {}
    for _, expr in final.columns:
        for agg in aggregates_in(expr):
            named.setdefault(agg, f"#agg{len(named)}")
    schema = pa.schema([pa.field(c.name, column_type(catalog, c.type)) for c in columns])

    def item(name: str, expr: Expr) -> _Item:
        entity: tuple[str, ...] = ()
        if isinstance(expr, Var) and expr.type.base in ("Node", "Edge"):
            entity = entity_properties(entity_type(catalog, expr.type))
        kind = column_type(catalog, expr.type)
        return _Item(name, expr, kind, compile_expr(expr, named), entity)

    grouped = isinstance(final, Aggregate)
    aggregates = tuple(
        (agg, name, None if agg.arg is None or isinstance(agg.arg, Var) else compile_expr(agg.arg))
        for agg, name in named.items()
    )
    lines = [f"{'group' if grouped else 'project':7} {', '.join(name for name, _ in final.columns)}"]
    if isinstance(final, Aggregate) and final.keys:
        lines[0] += f"  by {', '.join(name for name, _ in final.keys)}"
    if order is not None:
        lines.append(f"order   {len(order.keys)} key(s), ties by {', '.join(order.ties) or 'group keys'}")
    if limit is not None:
        shown = [f"${v.name}" if isinstance(v, Param) else str(v) for v in (limit.count, limit.skip)]
        lines.append(f"limit   {shown[0]} after {shown[1]}")
    return Output(
        items=tuple(item(n, e) for n, e in final.columns),
        keys=tuple(item(n, e) for n, e in final.keys) if isinstance(final, Aggregate) else None,
        aggregates=aggregates,
        order=tuple((k.expr, compile_expr(k.expr), k.descending) for k in order.keys) if order is not None else (),
        ties=order.ties if order is not None else (),
        limit=limit,
        schema=schema,
        text="\n".join(lines),
    )
