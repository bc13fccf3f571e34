"""A read query's body: match, return, order, limit, to IR operators and result columns."""

from __future__ import annotations

import re

from omnigraph.query import ast
from omnigraph.query.aggregates import grouped_columns
from omnigraph.query.expressions import check, has_aggregate, unsupported
from omnigraph.query.ir import (
    AntiJoin,
    Column,
    Expand,
    Expr,
    Limit,
    Lit,
    NodeScan,
    Operator,
    Order,
    OrderKey,
    Param,
    Project,
    ResultColumn,
    Var,
)
from omnigraph.query.match import check_block
from omnigraph.query.plan import order_operators
from omnigraph.query.scope import Refused, Scope
from omnigraph.schema.catalog import INTEGERS, table_key
from omnigraph.schema.literals import Literal

__all__ = ["check_read"]

Columns = tuple[tuple[str, Expr], ...]
_UNORDERED = frozenset({"Vector", "Blob", "Node", "Edge", "Null"})


def check_read(
    body: ast.ReadBody, scope: Scope
) -> tuple[tuple[Operator, ...], tuple[ResultColumn, ...], frozenset[str]]:
    """Operators, result columns and the table keys read; refusals are noted in the scope."""
    block = check_block(body.clauses, scope)
    if body.distinct is not None:
        scope.refuse(unsupported("`return distinct`", body.distinct))
    columns, written = _columns(body.items, scope)
    aggregate = grouped_columns(columns, written, scope)
    grouped = aggregate is not None
    tail: list[Operator] = [aggregate or Project(columns)]
    if body.order:
        ties = tuple(dict.fromkeys(scope.variables))
        keys = [key for item in body.order for key in _order_key(item, columns, grouped, scope)]
        tail.append(Order(tuple(keys), () if grouped else ties))
    if body.counts:
        tail.append(_limit(body.counts, scope))
    if scope.found:
        return (), (), frozenset()
    operators = (*order_operators(block, scope.catalog), *tail)
    return operators, tuple(ResultColumn(name, e.type) for name, e in columns), tables_read(operators, scope)


def tables_read(operators: tuple[Operator, ...], scope: Scope) -> frozenset[str]:
    keys: set[str] = set()
    for operator in operators:
        if isinstance(operator, NodeScan):
            keys.add(table_key("node", operator.node))
        elif isinstance(operator, Expand):
            keys |= {table_key("edge", way.edge) for way in operator.ways}
            keys.add(table_key("node", operator.target_node))
        elif isinstance(operator, AntiJoin):
            keys |= tables_read(operator.inner, scope)
    return frozenset(keys)


# ---- return ----


def _columns(items: tuple[ast.Item, ...], scope: Scope) -> tuple[Columns, dict[str, ast.Expr]]:
    """The columns by name, and what was written for each."""
    columns: dict[str, Expr] = {}
    written: dict[str, ast.Expr] = {}
    for item in items:
        with scope.collecting():
            with scope.allowing(aggregates=True, rankings=True, searches=False):
                expr = check(item.expr, scope)
            if isinstance(expr, Lit) and expr.value is None:
                raise Refused("T7", "null alone has no type", item.place)
            name = item.alias.text if item.alias else _default_name(item, scope)
            if name in columns:
                place = item.alias.place if item.alias else item.place
                raise Refused("T9", f"two columns are named `{name}`", place, "give one a name of its own with `as`")
            columns[name], written[name] = expr, item.expr
    return tuple(columns.items()), written


def _default_name(item: ast.Item, scope: Scope) -> str:
    """`p.name`, `p`, `count(p)`: as written, without `$` and white space beyond one blank."""
    text = scope.source.text[item.place[0] : item.place[1]]
    if '"' in text:
        return re.sub(r"\s+", " ", text).replace("$", "")
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL).replace("$", "")
    return re.sub(r"\s*([.(),])\s*", r"\1", re.sub(r"\s+", " ", text).strip())


# ---- order and limit ----


def _order_key(item: ast.OrderItem, columns: Columns, grouped: bool, scope: Scope) -> list[OrderKey]:
    with scope.collecting():
        if isinstance(item.expr, ast.CallExpr) and item.expr.name in ("nearest", "bm25", "rrf"):
            raise unsupported(f"ordering by `{item.expr.name}`", item.expr.name_place)
        expr = _ordered_expr(item.expr, dict(columns), scope)
        base = expr.type.base
        if expr.type.list or base in _UNORDERED:
            raise Refused("T7", f"{expr.type} has no order", item.place, "order by one of its properties")
        repeated = next((Column(name, e.type) for name, e in columns if e == expr), None)
        if repeated is not None:
            expr = repeated
        elif grouped and not isinstance(expr, Column):
            raise Refused("T9", "a grouped result is ordered by what it returns", item.place, "return it too")
        elif has_aggregate(expr):
            raise Refused("T9", "an aggregate that isn't returned can't order", item.place, "return it too")
        return [OrderKey(expr, bool(item.descending))]
    return []


def _ordered_expr(node: ast.Expr, columns: dict[str, Expr], scope: Scope) -> Expr:
    if isinstance(node, ast.NameRef):
        if node.name in columns:
            return Column(node.name, columns[node.name].type)
        known = ", ".join(f"`{name}`" for name in columns)
        raise Refused("T6", f"no column is named `{node.name}`", node.place, f"the columns are {known}")
    scope.aggregates = True
    try:
        expr = check(node, scope)
    finally:
        scope.aggregates = False
    if isinstance(expr, Var):
        raise Refused("T7", f"{expr.type} has no order", node.place, "order by one of its properties")
    return expr


def _limit(counts: tuple[ast.Count, ...], scope: Scope) -> Limit:
    found: dict[str, int | Param] = {}
    for count in counts:
        with scope.collecting():
            found[count.word] = _count(count, scope)
    return Limit(found.get("limit"), found.get("skip", 0))


def _count(count: ast.Count, scope: Scope) -> int | Param:
    if isinstance(count.value, Literal):
        value = count.value.value
        if value > 2**63 - 1:
            raise Refused("T33", f"`{count.word}` is too large", count.place)
        return int(value)
    type_ = scope.params.get(count.value.name)
    if type_ is None:
        raise Refused("T33", f"`{count.word}` takes a number or a parameter", count.place)
    if type_.base not in INTEGERS or type_.list or type_.nullable:
        raise Refused("T33", f"`{count.word}` takes an integer that isn't null, and this is {type_}", count.place)
    return Param(count.value.name, type_)
