"""The end of a plan: output columns, their order, their limit. Sorting reads its keys alone; everything else is taken
for the rows that stay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.errors import BadRequest
from omnigraph.query.ir import Agg, Aggregate, Column, Expr, Limit, Order, Param, Project, Prop, ResultColumn, Var
from omnigraph.read.aggregate import aggregate, as_type, codes_of, group
from omnigraph.read.compute import Array, Chunked, in_chunks, indices, nulls, taken
from omnigraph.read.datum import Evaluate, Longs, as_array, validity
from omnigraph.read.env import ColumnEnv, FrameEnv
from omnigraph.read.expr import Compiler
from omnigraph.read.finish import gathered, tallied
from omnigraph.read.frame import Binding, Context, Frame
from omnigraph.read.memory import Finish, Memory
from omnigraph.read.order import AskedKey, SortKey, first_rows, likely_key, rows_in_order, sort_key, sorted_rows
from omnigraph.read.ranking import Ranking, Rrf, is_ranking, make_ranking
from omnigraph.read.scan import ScanStep
from omnigraph.read.shortest import PATH
from omnigraph.read.tables import sort_codes
from omnigraph.read.types import arrow_of, column_type, entity_properties, entity_type
from omnigraph.read.value_counts import counted_scan, most_rows
from omnigraph.read.walk import aggregates_in, counts_rows
from omnigraph.records import dataclass
from omnigraph.schema.catalog import Catalog, NodeType

__all__ = ["Output", "make_output"]


@dataclass(frozen=True, slots=True, eq=False)
class _Item:
    """An output column: a whole entity, or a compiled expression."""

    name: str
    expr: Expr
    type: pa.DataType
    evaluate: Evaluate
    entity: tuple[str, ...] = ()  # the properties of a whole entity


@dataclass(frozen=True, slots=True, eq=False)
class _Key:
    """An order key; rows without a value aren't part of a ranking's order.

    Args:
        late: it is asked only of rows that keys before it leave tied: no error can hide in it, and it ranks nothing.
    """

    evaluate: Evaluate
    descending: bool
    ranking: Ranking | None
    late: bool


@dataclass(frozen=True, slots=True, eq=False)
class Output:
    """Project or Aggregate with what follows it. `run` gives the result table.

    Args:
        keys: what groups; None without an aggregate.
        fused: the rankings whose value depends on which rows there are: computed before any is dropped.
        distinct: equal groups come once.
    """

    items: tuple[_Item, ...]
    keys: tuple[_Item, ...] | None
    aggregates: tuple[tuple[Agg, str, Evaluate | None], ...]
    order: tuple[_Key, ...]
    fused: tuple[Rrf, ...]
    ties: tuple[str, ...]
    limit: Limit | None
    distinct: bool
    schema: pa.Schema
    text: str

    def run(self, ctx: Context, frame: Frame) -> pa.Table:
        skip, stop = self.bounds(ctx)
        if self.keys is None:
            return self._project(ctx, frame, skip, stop)
        return self._aggregate(ctx, frame, self.keys, skip, stop)

    def bind(self, memory: Memory) -> Finish:
        """`run`; where that is no more than taking cached columns or counting rows, prepared for it."""
        if self.order or self.fused:
            return self.run
        return (self._tallied(memory) if self.keys is not None else self._gathered(memory)) or self.run

    def _gathered(self, memory: Memory) -> Finish | None:
        """For properties of cached rows as they come."""
        take = gathered(memory, self.schema, [item.expr for item in self.items])
        if take is None or self.limit is None:
            return take
        return lambda ctx, frame: take(ctx, frame.part(*self.bounds(ctx)))

    def _tallied(self, memory: Memory) -> Finish | None:
        """For counts of all rows together."""
        if self.keys or self.limit is not None or self.distinct:
            return None
        return tallied(memory, self.schema, [item.expr for item in self.items])

    def bounds(self, ctx: Context) -> tuple[int, int | None]:
        """The rows wanted: from which, and to before which."""
        if self.limit is None:
            return 0, None
        skip = _count(self.limit.skip, ctx.params, "skip")
        count = None if self.limit.count is None else _count(self.limit.count, ctx.params, "limit")
        return skip, None if count is None else skip + count

    # ---- rows ----

    def _project(self, ctx: Context, frame: Frame, skip: int, stop: int | None) -> pa.Table:
        env = FrameEnv(ctx, frame, {item.name: item.evaluate for item in self.items})
        lead = self.order[0] if self.order else None
        for ranking in self.fused:
            if lead is None or ranking is not lead.ranking:
                env.special(ranking)
        if lead is not None and lead.ranking is not None and frame.length:
            others = any(key.ranking is not None for key in self.order[1:])  # they leave out rows as well
            few = frame.length if stop is None or others else stop
            rows, values = lead.ranking.first(ctx, frame, few, descending=lead.descending)
            env = env.some(rows, {lead.ranking: values})
            frame = env.frame
        if self.order and frame.length:
            env = env.some(self._sorted(env, frame, stop)[skip:])
        elif skip or (stop is not None and stop < frame.length):
            end = frame.length if stop is None else min(stop, frame.length)
            env = env.some(np.arange(min(skip, end), end))
        return self._table([_value(item, env) for item in self.items])

    def _sorted(self, env: FrameEnv, frame: Frame, stop: int | None) -> Longs:
        """The rows in order, those no ranking leaves out; the first `stop` of them."""
        early = {id(key): as_array(key.evaluate(env), frame.length) for key in self.order if not key.late}
        rows: Longs | None = None  # None: all of them
        for key in self.order:
            if key.ranking is not None and (column := early[id(key)]).null_count:
                there = validity(column)
                rows = np.flatnonzero(there) if rows is None else rows[there[rows]]

        def at(some: Longs | None) -> Longs | None:
            return rows if some is None else some if rows is None else rows[some]

        def column_of(key: _Key, some: Longs | None) -> Array:
            where, column = at(some), early.get(id(key))
            if column is not None:
                return column if where is None else taken(column, indices(where))
            there = env if where is None else env.some(where)
            return as_array(key.evaluate(there), there.frame.length)

        def by_key(key: _Key) -> AskedKey:
            return lambda some, exact: (sort_key if exact else likely_key)(
                column_of(key, some), descending=key.descending
            )

        def by_tie(binding: Binding) -> AskedKey:
            return lambda some, _: _tie(binding if (where := at(some)) is None else binding.take(where))

        keys = [by_key(key) for key in self.order]
        bound = [frame.bound[v] for v in self.ties if v in frame.bound]
        keys += [by_tie(binding) for binding in bound if binding.rows.table_key != PATH]
        size = frame.length if rows is None else len(rows)
        order = rows_in_order(size, keys, stop)
        return order if rows is None else rows[order]

    # ---- groups ----

    def _aggregate(self, ctx: Context, frame: Frame, keys: tuple[_Item, ...], skip: int, stop: int | None) -> pa.Table:
        env = FrameEnv(ctx, frame)
        computed = {key.name: as_array(key.evaluate(env), frame.length) for key in keys if _is_computed(key, frame)}
        whose = {key.name: _identified(ctx, key, frame) for key in keys}
        known = {var for var in whose.values() if var is not None}
        codes = [_places(frame.bound[var]) for var in sorted(known)]
        for key in keys:
            if key.name in computed:
                codes.append(codes_of(computed[key.name]))
            elif not (isinstance(key.expr, Prop) and key.expr.var in known) and whose[key.name] is None:
                codes.append(_key_codes(key, env, frame))
        groups, row_of = group(codes, frame.length)
        count = len(row_of) if keys else 1
        values: dict[str, Any] = {}
        for agg, name, evaluate in self.aggregates:
            argument, distinct = _argument(agg, evaluate, env, frame)
            values[name] = aggregate(agg, argument, groups, count, distinct, arrow_of(agg.type), frame.weight)
        heads = FrameEnv(ctx, frame.take(row_of) if keys else Frame(0))
        for key in keys:
            kept = computed.get(key.name)
            values[key.name] = _value(key, heads) if kept is None else kept.take(pa.array(row_of))
        return self._of_groups(ctx, keys, values, count, skip, stop)

    def counted(self, memory: Memory, scan: ScanStep, finish: Finish, otherwise: Finish) -> Finish | None:
        """The scan's rows counted by values as they are found; None where they are wanted for anything else.

        Args:
            finish: what follows the scan.
            otherwise: the scan and what follows, where they can't be counted so.
        """
        keys = self.keys
        if not keys:
            return None
        work = counted_scan(memory, scan, [key.expr for key in keys], [agg for agg, _, _ in self.aggregates])
        if work is None:
            return None

        def counted(ctx: Context, frame: Frame) -> pa.Table:
            found = work.count(ctx)
            if found is None:
                return otherwise(ctx, frame)
            if isinstance(found, Frame):
                return finish(ctx, found)
            columns, sizes = found
            values = {key.name: column for key, column in zip(keys, columns, strict=True)}
            many = pa.array(sizes, pa.int64())
            values |= {name: as_type(many, arrow_of(agg.type)) for agg, name, _ in self.aggregates}
            return self._of_groups(ctx, keys, values, len(sizes), *self.bounds(ctx))

        return counted

    def _of_groups(
        self, ctx: Context, keys: tuple[_Item, ...], values: dict[str, Any], count: int, skip: int, stop: int | None
    ) -> pa.Table:
        """The result, from the value of each key and aggregate in every group."""
        by_expr = {key.expr: values[key.name] for key in keys}
        columns = ColumnEnv(ctx, values)
        out: dict[str, Array] = {}
        for item in self.items:
            done = by_expr.get(item.expr)
            if done is None:
                done = as_array(item.evaluate(columns), count) if count else nulls(0, item.type)
            out[item.name] = done
        chosen: Longs = np.arange(count)
        if self.distinct and count:
            _, chosen = group([codes_of(_flat(column)) for column in out.values()], count)
        if self.order and len(chosen):
            ties = [values[key.name] for key in keys]
            chosen = chosen[self._sorted_groups(ctx, out, ties, chosen, stop)]
        chosen = chosen[skip:stop]
        if len(chosen) < count or self.order:
            at = pa.array(chosen)
            return self._table([out[item.name].take(at) for item in self.items])
        return self._table([out[item.name] for item in self.items])

    def _sorted_groups(
        self, ctx: Context, out: Mapping[str, Array], ties: list[Array], chosen: Longs, stop: int | None
    ) -> Longs:
        if stop is not None and stop * 4 < len(chosen) and not any(k.ranking is not None for k in self.order):
            # The first key alone leaves few that may be among the first; the others are asked, as an error would show.
            whole = not self.distinct  # all groups, in order
            env = ColumnEnv(ctx, {n: _flat(c if whole else c.take(pa.array(chosen))) for n, c in out.items()})
            lead, *_ = [as_array(k.evaluate(env), len(chosen)) for k in self.order]
            few = first_rows(sort_key(lead, descending=self.order[0].descending), stop)
            if len(few) < len(chosen):
                return few[self._sorted_groups(ctx, out, ties, chosen[few], None)]
        at = pa.array(chosen)
        columns = ColumnEnv(ctx, {name: _flat(column.take(at)) for name, column in out.items()})
        values = [as_array(k.evaluate(columns), len(chosen)) for k in self.order]
        if self.distinct:
            ties = list(out.values())
        keys = [sort_key(v, descending=k.descending) for k, v in zip(self.order, values, strict=True)]
        order: Longs = sorted_rows([*keys, *(sort_key(_flat(column.take(at))) for column in ties)])
        for key, value in zip(self.order, values, strict=True):
            if key.ranking is not None and value.null_count:
                order = order[validity(value)[order]]
        return order

    def _table(self, columns: list[Array]) -> pa.Table:
        cast = [_fitting(column, field.type) for column, field in zip(columns, self.schema, strict=True)]
        return pa.Table.from_arrays(cast, schema=self.schema)

    def describe(self) -> str:
        return self.text


def _fitting(column: Array, kind: pa.DataType) -> Array | Chunked:
    """A column in the type of the answer."""
    if column.type == kind:
        return column
    return in_chunks(column) if pa.types.is_large_string(column.type) else column.cast(kind)


def _count(value: int | Param, params: Mapping[str, Any], what: str) -> int:
    number = params.get(value.name) if isinstance(value, Param) else value
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise BadRequest(f"{what} must be a whole number from 0 on, not {number!r}")
    return number


def _tie(binding: Binding) -> SortKey:
    """By id: through the table's ranks where many rows ask, else by the ids themselves."""
    if binding.nullable:
        return sort_key(binding.column("id"))
    if len(binding.at) * 16 > binding.rows.rows:
        return SortKey(binding.rows.id_rank()[binding.at], None)
    return SortKey(sort_codes(binding.column("id")), None)


def _flat(column: Array) -> Array:
    """A whole entity's column as its ids; any other as it is."""
    return column.field(0) if pa.types.is_struct(column.type) else column


def _value(item: _Item, env: FrameEnv) -> Array:
    frame = env.frame
    if frame.length == 0:  # nothing is asked, nothing fails
        return nulls(0, item.type)
    if not item.entity or not isinstance(item.expr, Var):
        return as_array(item.evaluate(env), frame.length)
    bound = frame.bound[item.expr.name]
    columns = [as_array(env.prop(item.expr.name, name), frame.length) for name in item.entity]
    fields = [item.type.field(i) for i in range(item.type.num_fields)]
    cast = [c if c.type == f.type else c.cast(f.type) for c, f in zip(columns, fields, strict=True)]
    missing = pa.array(bound.at < 0) if bound.nullable else None
    return pa.StructArray.from_arrays(cast, fields=fields, mask=missing)


def _is_computed(key: _Item, frame: Frame) -> bool:
    """Whether a grouping value is more than an entity or a property, which are grouped by their position."""
    return frame.length > 0 and not isinstance(key.expr, (Var, Prop))


def _key_codes(key: _Item, env: FrameEnv, frame: Frame) -> tuple[Longs, int]:
    if frame.length == 0:
        return np.zeros(0, dtype=np.int64), 1
    expr = key.expr
    if isinstance(expr, Var):
        bound = frame.bound[expr.name]
        return bound.at.astype(np.int64) + 1, bound.rows.rows + 1
    if isinstance(expr, Prop):
        bound = frame.bound[expr.var]
        kind = bound.rows.column(expr.name).type
        plain = not (bound.nullable or pa.types.is_nested(kind) or pa.types.is_floating(kind))
        if plain and most_rows(len(bound.at), bound.rows):
            codes, values = bound.rows.dictionary(expr.name)
            return codes[bound.at].astype(np.int64), max(1, len(values))
    return codes_of(as_array(key.evaluate(env), frame.length))


def _identified(ctx: Context, key: _Item, frame: Frame) -> str | None:
    """The variable whose every property a key determines: the key is the variable, its id or its type's @key."""
    expr = key.expr
    var = expr.name if isinstance(expr, Var) else expr.var if isinstance(expr, Prop) else None
    bound = frame.bound.get(var) if var is not None else None
    if var is None or bound is None or bound.nullable or not bound.rows.whole or bound.rows.id_map().repeated:
        return None
    if isinstance(expr, Prop) and expr.name != "id":
        kind = ctx.catalog.by_table_key[bound.rows.table_key]
        if not isinstance(kind, NodeType) or kind.key != (expr.name,):
            return None
    return var


def _places(bound: Binding) -> tuple[Longs, int]:
    return bound.at.astype(np.int64), bound.rows.rows


def _argument(agg: Agg, evaluate: Evaluate | None, env: FrameEnv, frame: Frame) -> tuple[Array | None, Longs | None]:
    """(what is aggregated in each row; None counts rows; a number equal for equal values where `distinct` asks)."""
    if counts_rows(agg):
        return None, None
    if isinstance(agg.arg, Prop) and agg.arg.name == "id" and agg.fn == "count" and agg.distinct:
        of = frame.bound.get(agg.arg.var)
        if of is not None and not of.nullable and of.rows.whole and not of.rows.id_map().repeated:
            return None, of.at.astype(np.int64)
    if isinstance(agg.arg, Var) and frame.length:
        bound = frame.bound[agg.arg.name]
        return (bound.column("id") if bound.nullable else None), bound.at.astype(np.int64)
    if evaluate is None or isinstance(agg.arg, Var):
        return None, np.arange(frame.length)
    if frame.length == 0:
        return nulls(0, arrow_of(agg.arg.type)) if agg.arg is not None else None, np.zeros(0, dtype=np.int64)
    values = as_array(evaluate(env), frame.length)
    return values, codes_of(values)[0] if agg.distinct else None


def make_output(
    catalog: Catalog,
    compiler: Compiler,
    final: Project | Aggregate,
    order: Order | None,
    limit: Limit | None,
    columns: tuple[ResultColumn, ...],
    *,
    distinct: bool = False,
) -> Output:
    """Compile the last operators of a query.

    Args:
        compiler: for expressions over the match's variables; aggregates and rankings are added here.
    """
    named: dict[Agg, str] = {}
    for _, expr in final.columns:
        for agg in aggregates_in(expr):
            named.setdefault(agg, f"#agg{len(named)}")
    fused: list[Rrf] = []

    rankings: dict[Expr, Ranking] = {}

    def ranking(expr: Expr) -> Ranking:
        made = rankings.get(expr)
        if made is None:
            made = rankings[expr] = make_ranking(expr)
            fused.extend([made] if isinstance(made, Rrf) else [])
        return made

    compiler = replace(compiler, aggregates=named, ranking=ranking)
    schema = pa.schema([pa.field(c.name, column_type(catalog, c.type)) for c in columns])

    def item(name: str, expr: Expr) -> _Item:
        entity: tuple[str, ...] = ()
        if isinstance(expr, Var) and expr.type.base in ("Node", "Edge"):
            entity = entity_properties(entity_type(catalog, expr.type))
        return _Item(name, expr, column_type(catalog, expr.type), compiler(expr), entity)

    items = tuple(item(n, e) for n, e in final.columns)
    outputs = dict(final.columns)

    def plain(expr: Expr) -> Expr:
        """The output column an order key names; any other as it is."""
        return outputs.get(expr.name, expr) if isinstance(expr, Column) else expr

    def ranking_of(expr: Expr) -> Ranking | None:
        """The ranking an order key is, or is the name of."""
        return ranking(plain(expr)) if is_ranking(plain(expr)) else None

    return Output(
        items=items,
        keys=tuple(item(n, e) for n, e in final.keys) if isinstance(final, Aggregate) else None,
        aggregates=tuple((agg, name, None if agg.arg is None else compiler(agg.arg)) for agg, name in named.items()),
        order=tuple(
            _Key(compiler(k.expr), k.descending, ranking_of(k.expr), isinstance(plain(k.expr), (Prop, Var)))
            for k in (order.keys if order is not None else ())
        ),
        fused=tuple(fused),
        ties=order.ties if order is not None else (),
        limit=limit,
        distinct=distinct,
        schema=schema,
        text=_described(final, order, limit, distinct=distinct),
    )


def _described(final: Project | Aggregate, order: Order | None, limit: Limit | None, *, distinct: bool) -> str:
    grouped = isinstance(final, Aggregate)
    lines = [f"{'group' if grouped else 'project':7} {', '.join(name for name, _ in final.columns)}"]
    if isinstance(final, Aggregate) and final.keys:
        lines[0] += f"  by {', '.join(name for name, _ in final.keys)}"
    if distinct:
        lines.append("distinct rows")
    if order is not None:
        lines.append(f"order   {len(order.keys)} key(s), ties by {', '.join(order.ties) or 'group keys'}")
    if limit is not None:
        shown = [f"${v.name}" if isinstance(v, Param) else str(v) for v in (limit.count, limit.skip)]
        lines.append(f"limit   {shown[0]} after {shown[1]}")
    return "\n".join(lines)
