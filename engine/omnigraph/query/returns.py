"""What a query returns: its columns, their names, and whether they group."""

from __future__ import annotations

import re
from itertools import pairwise

from omnigraph.query import ast
from omnigraph.query.aggregates import grouped_columns
from omnigraph.query.expressions import check
from omnigraph.query.ir import Aggregate, Distinct, Expr, Operator, Project, ResultColumn
from omnigraph.query.scope import Refused, Scope
from omnigraph.records import dataclass

__all__ = ["Returned", "check_return"]

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


@dataclass(frozen=True)
class Returned:
    """The columns as checked, by name; `failed` are the names of refused ones."""

    columns: tuple[tuple[str, Expr], ...]
    failed: frozenset[str]
    grouped: Aggregate | None
    distinct: bool

    @property
    def operators(self) -> tuple[Operator, ...]:
        output: Operator = self.grouped or Project(self.columns)
        return (output, Distinct()) if self.distinct else (output,)

    @property
    def result(self) -> tuple[ResultColumn, ...]:
        return tuple(ResultColumn(name, expr.type) for name, expr in self.columns)


def check_return(body: ast.ReadBody, scope: Scope) -> Returned:
    """The columns of `return { … }`; refusals are noted in the scope, one an item at most."""
    columns: dict[str, Expr] = {}
    written: dict[str, ast.Expr] = {}
    failed: set[str] = set()
    _refuse_indexing(body.items, scope)
    for item in body.items:
        name = item.alias.text if item.alias else _default_name(item, scope)
        with scope.collecting():
            if name in written:
                place = item.alias.place if item.alias else item.place
                raise Refused("T9", f"two columns are named `{name}`", place, "give one a name of its own with `as`")
            written[name] = item.expr
            failed.add(name)
            columns[name] = _column(item, scope, distinct=body.distinct is not None)
            failed.remove(name)
    pairs = tuple(columns.items())
    return Returned(pairs, frozenset(failed), grouped_columns(pairs, written, scope), body.distinct is not None)


def _refuse_indexing(items: tuple[ast.Item, ...], scope: Scope) -> None:
    """`$x.tags[0]` is no two columns: where the comma between items is left out, none begins with a bracket."""
    text = scope.source.text
    for before, item in pairwise(items):
        start = item.place[0]
        gap = _COMMENT.sub("", text[(before.alias or before).place[1] : start])
        if text[start] in "[(" and "," not in gap:
            hint = "a list has no index; write a comma before it if it is a column of its own"
            scope.refuse(
                Refused("Q000", f"unexpected `{text[start]}`: expected `,`, `as` or `}}`", (start, start + 1), hint)
            )


def _column(item: ast.Item, scope: Scope, *, distinct: bool) -> Expr:
    with scope.allowing(aggregates=True, rankings=True, searches=False):
        expr = check(item.expr, scope)
    if expr.type.base == "Null":
        what = "an empty list" if expr.type.list else "null"
        raise Refused("T7", f"{what} alone has no type", item.place)
    if distinct and expr.type.base == "Vector":
        raise Refused("T33", "vectors are not told apart by `distinct`", item.place, "return the node's id instead")
    return expr


# ---- default names ----


def _default_name(item: ast.Item, scope: Scope) -> str:
    """`p.name`, `count(p)`, `p.age + 1`: as the formatter writes it, without `$` and comments; so formatting a text
    changes no name."""
    text = scope.source.text[slice(*item.place)]
    match item.expr:
        case ast.PropRef(var, name) if text.startswith("$"):
            return f"{var}.{name.text}"
        case ast.VarRef(name) if text.startswith("$"):
            return name
    from omnigraph.query.format import plain_words  # the formatter, for the few columns that have no plain name

    return plain_words(text)
