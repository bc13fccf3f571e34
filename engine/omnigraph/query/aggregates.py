"""Aggregates: what they take and give, and which columns of a `return` group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal as OneOf
from typing import cast

from omnigraph.query import ast
from omnigraph.query.ir import Agg, Aggregate, Call, Column, Expr, Lit, Param, Prop, SubMatch, Var
from omnigraph.query.ranking import has_ranking
from omnigraph.query.scope import Refused, Scope
from omnigraph.query.unify import ORDERED, Given, shown
from omnigraph.schema.ast import Place
from omnigraph.schema.catalog import INTEGERS, NUMBERS, SCALARS, Type

__all__ = ["AGGREGATES", "aggregate", "grouped_columns", "has_aggregate", "refuse_aggregate_here"]

AGGREGATES = frozenset({"count", "sum", "avg", "min", "max", "collect"})

Name = OneOf["count", "sum", "avg", "min", "max", "collect"]


def refuse_aggregate_here(node: ast.CallExpr, scope: Scope) -> None:
    """T9 where no aggregate may stand, T8 for anything but one argument."""
    if not scope.aggregates:
        message = f"`{node.name}` is an aggregate and stands in `return` and `order` only"
        if scope.within:
            message = f"`{node.name}` stands inside `{scope.within}`, and aggregates don't nest"
        hint = "write `count { … } > 3` to count in a `match`" if node.name == "count" and not scope.mutation else None
        raise Refused("T9", message, node.name_place, hint)
    if node.keywords:
        raise Refused("T8", f"`{node.name}` takes no `{node.keywords[0].name.text}=`", node.keywords[0].name.place)
    if len(node.arguments) != 1:
        hint = "count($x) counts rows" if node.name == "count" else None
        raise Refused("T8", f"`{node.name}` takes one argument", node.name_place, hint)


def aggregate(node: ast.CallExpr, argument: Given) -> Agg:
    """The aggregate over its checked argument.

    Raises:
        Refused: T8 for a wrong type, T33 for what `distinct` and `collect` don't take.
    """
    fn = cast("Name", node.name)
    expr, type_, distinct = argument.expr, argument.type, node.distinct is not None
    if argument.is_null:
        raise Refused("T8", f"`{fn}` takes something that isn't always null", argument.place)
    if distinct and isinstance(expr, Var):  # entities are the same where their ids are
        expr = Prop(expr.name, "id", Type("String", type_.nullable))
    scalar = expr.type.base in SCALARS and not expr.type.list
    if fn == "count":
        if distinct and not scalar:
            raise Refused(
                "T33", f"`count(distinct …)` takes a single value, and this is {shown(type_)}", argument.place
            )
        return Agg(fn, expr, Type("I64"), distinct)
    if fn == "collect":
        if isinstance(argument.expr, Var) or not scalar:
            hint = "collect one of its properties" if isinstance(argument.expr, Var) else None
            raise Refused("T33", f"`collect` takes a single value, and this is {shown(type_)}", argument.place, hint)
        return Agg(fn, expr, Type(type_.base, list=True, enum=type_.enum), distinct)
    allowed = NUMBERS if fn in ("sum", "avg") else ORDERED
    if type_.list or type_.base not in allowed:
        takes = "numbers" if allowed is NUMBERS else "numbers, text or dates"
        raise Refused("T8", f"`{fn}` takes {takes}, and this is {shown(type_)}", argument.place)
    if fn in ("min", "max"):
        return Agg(fn, expr, Type(type_.base, True, enum=type_.enum), distinct)
    base = "I64" if fn == "sum" and type_.base in INTEGERS else "F64"
    return Agg(fn, expr, Type(base, True), distinct)


def has_aggregate(expr: Expr) -> bool:
    return isinstance(expr, Agg) or (isinstance(expr, Call) and any(has_aggregate(a) for a in expr.args))


# ---- grouping ----


def grouped_columns(
    columns: Sequence[tuple[str, Expr]], written: Mapping[str, ast.Expr], scope: Scope
) -> Aggregate | None:
    """The `Aggregate` of a `return`'s columns; None where no column has an aggregate.

    Plain columns are the group's keys. In a column with aggregates, what stands outside them and equals a key becomes
    its `Column`; refusals (T9) are noted in the scope. `written` has the syntax of each column, for the places.
    """
    if not any(has_aggregate(expr) for _, expr in columns):
        return None
    keys = tuple((name, expr) for name, expr in columns if not has_aggregate(expr))
    for name, expr in keys:
        if has_ranking(expr):
            scope.refuse(Refused("T9", "a ranking can't group", written[name].place, "aggregate without it"))
    named: dict[Expr, Column] = {
        expr: Column(name, expr.type) for name, expr in reversed(keys) if not isinstance(expr, (Lit, Param))
    }
    out: list[tuple[str, Expr]] = []
    for name, expr in columns:
        with scope.collecting():
            out.append((name, _over_groups(expr, named, written[name]) if has_aggregate(expr) else expr))
    return Aggregate(keys, tuple(out))


def _over_groups(expr: Expr, named: Mapping[Expr, Column], written: ast.Expr) -> Expr:
    if isinstance(expr, (Agg, Lit, Param)):
        return expr
    if expr in named:
        return named[expr]
    if isinstance(expr, Call):
        return replace(expr, args=tuple(_over_groups(a, named, written) for a in expr.args))
    place = _place_of(expr, written) or written.place
    message = "what stands beside an aggregate is a literal, a parameter or a returned column"
    raise Refused("T9", message, place, "return it too, or aggregate it")


def _place_of(expr: Expr, node: ast.Expr) -> Place | None:
    """Where a leaf of the typed expression was written, outside the aggregates."""
    if isinstance(node, ast.PropRef):
        return node.place if isinstance(expr, Prop) and (expr.var, expr.name) == (node.var, node.name.text) else None
    if isinstance(node, ast.VarRef):
        name = expr.name if isinstance(expr, Var) else expr.var if isinstance(expr, Prop) else None
        return node.place if name == node.name else None
    if isinstance(node, ast.Block):
        return node.place if isinstance(expr, SubMatch) else None
    found = (_place_of(expr, child) for child in _children(node))
    return next((place for place in found if place is not None), None)


def _children(node: ast.Expr) -> tuple[ast.Expr, ...]:
    if isinstance(node, ast.CallExpr):
        return () if node.name in AGGREGATES else node.arguments
    if isinstance(node, ast.Chain):
        return node.operands
    if isinstance(node, ast.Comparison):
        return (node.left, node.right)
    if isinstance(node, (ast.Not, ast.Negative, ast.IsNull)):
        return (node.operand,)
    if isinstance(node, ast.ListExpr):
        return node.items
    if isinstance(node, ast.Case):
        last = () if node.otherwise is None else (node.otherwise,)
        return (*(e for when in node.whens for e in when), *last)
    return ()
