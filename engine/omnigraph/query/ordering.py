"""`order { … }`, `limit` and `skip`: keys over columns or over what is matched, rankings, and what goes with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace

from omnigraph.query import ast
from omnigraph.query.aggregates import has_aggregate
from omnigraph.query.expressions import check
from omnigraph.query.ir import Call, Column, Expr, Limit, Lit, Order, OrderKey, Param
from omnigraph.query.ranking import RANKINGS, has_ranking
from omnigraph.query.returns import Returned
from omnigraph.query.scope import Refused, Scope, did_you_mean
from omnigraph.query.unify import shown
from omnigraph.records import dataclass
from omnigraph.schema.catalog import INTEGERS, Type
from omnigraph.schema.literals import Literal

__all__ = ["check_limit", "check_order"]

_UNORDERED = frozenset({"Vector", "Blob", "Node", "Edge", "Null"})
_NEEDS_LIMIT = {"nearest": "T17", "rrf": "T21"}
_MOST = 2**63 - 1


@dataclass(frozen=True)
class _Key:
    """One key: as checked, and with aliases written out."""

    item: ast.OrderItem
    expr: Expr
    meant: Expr

    @property
    def ranking(self) -> str | None:
        return self.meant.fn if isinstance(self.meant, Call) and self.meant.fn in RANKINGS else None


def check_order(body: ast.ReadBody, returned: Returned, scope: Scope) -> Order | None:
    """The order, None where none is written; refusals are noted in the scope, one a key at most."""
    if not body.order:
        return None
    limited = any(count.word == "limit" for count in body.counts)
    columns = dict(returned.columns)
    keys: list[_Key] = []
    for item in body.order:
        with scope.collecting():
            key = _check(item, returned, columns, scope)
            if key is not None:
                keys.append(key)
    names = {expr: name for name, expr in reversed(returned.columns)}
    aliases = [name for k in keys if k.ranking is None and (name := next(_bare_names(k.item.expr), None)) is not None]
    out: list[OrderKey] = []
    for key in keys if not returned.failed else ():
        with scope.collecting():
            _judge_ranking(key, aliases, returned, limited=limited)
            expr = _lowered(key, returned, names)
            down = key.ranking in ("bm25", "rrf") if key.item.descending is None else key.item.descending
            out.append(OrderKey(expr, down))
    ties = () if returned.grouped or returned.distinct else tuple(scope.variables)
    return Order(tuple(out), ties)


def _check(item: ast.OrderItem, returned: Returned, columns: Mapping[str, Expr], scope: Scope) -> _Key | None:
    if any(name.name in returned.failed for name in _bare_names(item.expr)):
        return None  # refused where it is returned
    aliases = {name: expr.type for name, expr in columns.items()}
    with scope.allowing(aliases=aliases, aggregates=True, rankings=True, searches=False):
        expr = check(item.expr, scope)
    if expr.type.list or expr.type.base in _UNORDERED:
        raise Refused("T7", f"{shown(expr.type)} has no order", item.place, _ordered_hint(expr.type))
    return _Key(item, expr, _written_out(expr, columns))


def _ordered_hint(type_: Type) -> str | None:
    if type_.list:
        return "order by its length(…)"
    return {"Vector": "rank it with nearest(…)", "Null": None}.get(type_.base, "order by one of its properties")


def _written_out(expr: Expr, columns: Mapping[str, Expr]) -> Expr:
    """With each alias as the expression it stands for."""
    if isinstance(expr, Column):
        return columns[expr.name]
    if isinstance(expr, Call):
        return replace(expr, args=tuple(_written_out(a, columns) for a in expr.args))
    return expr


def _lowered(key: _Key, returned: Returned, names: Mapping[Expr, str]) -> Expr:
    """Over the columns where the whole key is returned or only columns are left, else over what is matched."""
    if not returned.grouped and not returned.distinct:
        if key.ranking:
            return key.meant
        if has_aggregate(key.meant):
            raise Refused("T9", "an aggregate that isn't returned can't order", key.item.place, "return it too")
        if isinstance(key.expr, Column):
            return key.expr
        return Column(names[key.meant], key.meant.type) if key.meant in names else key.meant
    over = _over_columns(key.meant, names)
    if over is None:
        code, kind = ("T9", "grouped") if returned.grouped else ("T33", "distinct")
        message = f"a {kind} result is ordered by what it returns"
        if returned.grouped and has_aggregate(key.meant):
            message = "an aggregate that isn't returned can't order"
        raise Refused(code, message, key.item.place, "return it too")
    return over


def _over_columns(expr: Expr, names: Mapping[Expr, str]) -> Expr | None:
    """With each returned expression as its column; None where something isn't returned."""
    if isinstance(expr, (Lit, Param)):
        return expr
    if expr in names:
        return Column(names[expr], expr.type)
    if isinstance(expr, Call) and expr.fn not in RANKINGS:
        args = [_over_columns(a, names) for a in expr.args]
        return None if None in args else replace(expr, args=tuple(a for a in args if a is not None))
    return None


# ---- rankings ----


def _judge_ranking(key: _Key, aliases: list[ast.NameRef], returned: Returned, *, limited: bool) -> None:
    """`aliases` are the columns' names that other keys order by."""
    if not has_ranking(key.meant):
        return
    if returned.grouped:
        hint = "rank in a query without aggregates"
        raise Refused("T9", "a ranking can't order groups", key.item.place, hint)
    for name, code in _NEEDS_LIMIT.items():
        if not limited and name in _rankings_in(key.meant):
            message = f"an order by `{name}` needs a `limit`"
            raise Refused(code, message, key.item.place, "add `limit 10`, say")
    if "nearest" in _rankings_in(key.meant):
        start, end = key.item.expr.place
        for alias in aliases:
            if not start <= alias.place[0] < end:
                hint = f"order by the expression that `{alias.name}` stands for"
                raise Refused("T18", "a column's name can't order together with `nearest`", alias.place, hint)


def _rankings_in(expr: Expr) -> frozenset[str]:
    """The rankings in an expression; those inside `rrf` are part of it."""
    if not isinstance(expr, Call):
        return frozenset()
    return frozenset({expr.fn}) if expr.fn in RANKINGS else frozenset().union(*map(_rankings_in, expr.args))


def _bare_names(node: object) -> Iterator[ast.NameRef]:
    if isinstance(node, ast.NameRef):
        yield node
    elif isinstance(node, tuple):
        for item in node:
            yield from _bare_names(item)
    elif is_dataclass(node):
        for field in fields(node):
            yield from _bare_names(getattr(node, field.name))


# ---- limit and skip ----


def check_limit(counts: tuple[ast.Count, ...], scope: Scope) -> Limit | None:
    """`limit` and `skip`, None where neither is written."""
    found: dict[str, int | Param] = {}
    for count in counts:
        with scope.collecting():
            found[count.word] = _count(count, scope)
    return Limit(found.get("limit"), found.get("skip", 0)) if counts else None


def _count(count: ast.Count, scope: Scope) -> int | Param:
    if isinstance(count.value, Literal):
        value = count.value.value
        if value > _MOST:
            raise Refused("T33", f"`{count.word}` is too large", count.place)
        return int(value)
    name = count.value.name
    type_ = scope.params.get(name)
    if type_ is None:
        hint = did_you_mean(name, scope.params, "$")
        if name not in scope.variables:
            raise Refused("T6", f"`${name}` is not a parameter of this query", count.place, hint)
        raise Refused("T33", f"`{count.word}` takes a number or a parameter", count.place, hint)
    if type_.base not in INTEGERS or type_.list or type_.nullable:
        raise Refused("T33", f"`{count.word}` takes an integer that isn't null, and this is {type_}", count.place)
    return Param(name, type_)
