"""Expressions: from the syntax tree to typed IR. Reads the leaves and hands checked operands to what judges them.

`operators`, `functions`, `aggregates` and `ranking` say what each takes and gives; `unify` what types have in common.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from omnigraph.query import ast, operators
from omnigraph.query.aggregates import AGGREGATES, aggregate, has_aggregate, refuse_aggregate_here
from omnigraph.query.functions import FUNCTIONS, call
from omnigraph.query.habits import FUNCTION_HABITS
from omnigraph.query.ir import Call, Column, Expr, Lit, Param, Prop, SubMatch, Var
from omnigraph.query.ranking import RANKINGS, SEARCHES, check_ranking, check_search, refuse_search_here
from omnigraph.query.scope import Refused, Scope, did_you_mean
from omnigraph.query.unify import Given, shown, unify
from omnigraph.schema.ast import Place
from omnigraph.schema.catalog import NUMBERS, Type
from omnigraph.schema.literals import Literal, Mismatch

__all__ = ["check", "check_literal", "has_aggregate", "property_types"]

_PATHS = frozenset({"length", "nodes", "edges"})
_TEXT = Type("String")


def check(node: ast.Expr, scope: Scope) -> Expr:
    """The typed expression.

    Raises:
        Refused: with the code of the rule it breaks.
    """
    return _CHECKS[type(node)](node, scope)


def _given(node: ast.Expr, scope: Scope) -> Given:
    return Given(_CHECKS[type(node)](node, scope), node.place)


# ---- literals and lists ----


def check_literal(node: Literal, scope: Scope | None = None) -> Expr:
    """A literal with the type it has by itself; what it stands beside may make it another."""
    if node.kind == "list":
        return _literal_list(node)
    try:
        value = node.python()
    except Mismatch as error:
        raise Refused("T7", str(error), node.place) from None
    if node.kind == "int":
        if not -(2**63) <= value < 2**64:
            raise Refused("T7", f"{value} is beyond 64 bits", node.place)
        return Lit(value, Type("I64" if value < 2**63 else "U64"))
    bases = {"string": "String", "float": "F64", "bool": "Bool", "date": "Date", "datetime": "DateTime"}
    return Lit(value, Type(bases.get(node.kind, "Null"), nullable=node.kind == "null"))


def _literal_list(node: Literal) -> Expr:
    items = tuple(Given(check_literal(item), item.place) for item in node.value)
    value = node.python()
    if any(item.is_null for item in items):
        return _list(items, node.place)
    first = items[0].type.base if items else "Null"
    for item in items:
        if item.type.list or (item.type.base != first and not {item.type.base, first} <= NUMBERS):
            raise Refused("T7", "a list holds values of one scalar type", item.place)
    bases = {item.type.base for item in items}
    if len(bases) > 1 and "F64" not in bases and min(value) < 0:
        raise Refused("T7", "no integer type holds all of this list", node.place)
    widest = next((base for base in ("F64", "U64") if base in bases), first)
    if widest == "F64":
        value = tuple(map(float, value))
    return Lit(value, Type(widest, list=True))


def _list_expr(node: ast.ListExpr, scope: Scope) -> Expr:
    return _list(tuple(_given(item, scope) for item in node.items), node.place)


def _list(items: tuple[Given, ...], place: Place) -> Expr:
    for item in items:
        if item.type.list:
            raise Refused("T7", "a list holds values of one scalar type, not lists", item.place)
    type_, values = unify(items, "T7", "the items of a list")
    return Call("list", values, Type(type_.base, list=True, enum=type_.enum))


# ---- names ----


def _variable(node: ast.VarRef, scope: Scope) -> Expr:
    if node.name in scope.variables:
        type_ = scope.variables[node.name]
        if type_.base == "Path":
            hint = f"write nodes(${node.name}), edges(${node.name}) or length(${node.name})"
            raise Refused("T37", f"`${node.name}` is a path, which is no value by itself", node.place, hint)
        return Var(node.name, type_)
    if node.name in scope.params:
        type_ = scope.params[node.name]
        if type_.base == "Blob":
            hint = "it can be given to a Blob property of an insert or update"
            raise Refused("T24", f"`${node.name}` is a Blob, which can't be a value in a query", node.place, hint)
        return Param(node.name, type_)
    raise _unbound(node.name, node.place, scope)


def _unbound(name: str, place: Place, scope: Scope) -> Refused:
    try:
        scope.variable(name, place)
    except Refused as refused:
        return refused
    raise AssertionError(name)


def property_types(scope: Scope, entity: Type) -> dict[str, Type]:
    """Every property of a bound entity, identity and ends included; of several edge types, what all have alike."""
    first, *others = scope.entities(entity)
    types = {name: p.type for name, p in first.properties.items()}
    for other in others:
        theirs = {name: p.type for name, p in other.properties.items()}
        types = {name: type_ for name, type_ in types.items() if theirs.get(name) == type_}
    types["id"] = _TEXT
    if entity.base == "Edge":
        types["src"] = types["dst"] = _TEXT
    return types


def _property(node: ast.PropRef, scope: Scope) -> Prop:
    place = (node.place[0], node.place[0] + 1 + len(node.var))
    if node.var not in scope.variables and node.var in scope.params:
        raise Refused("T6", f"`${node.var}` is a parameter and has no properties", place)
    entity = scope.variable(node.var, place)
    name = node.name.text
    if entity.base == "Path":
        hint = f"write nodes(${node.var}), edges(${node.var}) or length(${node.var})"
        raise Refused("T37", f"`${node.var}` is a path and has no properties", node.name.place, hint)
    types = property_types(scope, entity)
    if name not in types:
        raise Refused("T6", f"{entity.entity} has no property `{name}`", node.name.place, did_you_mean(name, types))
    if types[name].base == "Blob":
        raise Refused("T24", f"`{name}` is a Blob, which can't be a value in a query", node.name.place)
    type_ = types[name]
    return Prop(node.var, name, replace(type_, nullable=True) if entity.nullable else type_)


def _bare(node: ast.NameRef, scope: Scope) -> Expr:
    name, bare = node.name, scope.bare
    if bare is not None:
        if name not in bare.names:
            raise Refused(bare.unknown, f"{bare.of} has no property `{name}`", node.place, _near_bare(name, scope))
        stored, type_ = bare.names[name]
        if type_.base == "Blob":
            raise Refused(bare.blob, f"`{name}` is a Blob, which can't be a value in a query", node.place)
        return Prop("", stored, type_)
    if scope.aliases is not None:
        if name in scope.aliases:
            return Column(name, scope.aliases[name])
        known = ", ".join(f"`{alias}`" for alias in scope.aliases)
        hint = did_you_mean(name, scope.aliases) or (f"the columns are {known}" if known else None)
        if own := next((alias for alias in scope.aliases if alias.endswith(f".{name}")), None):
            hint = f"write `${own}`"
        raise Refused("T6", f"no column is named `{name}`", node.place, hint)
    if scope.mutation:
        near = f"write `${name}`" if name in scope.params else did_you_mean(name, scope.params, "$")
        raise Refused(
            "T14", f"`{name}` means nothing here: values are made of literals and parameters", node.place, near
        )
    hint = f"write `$x.{name}` for a property, `${name}` for a variable or parameter"
    if scope.catalog.edge(name) is not None:
        hint = f"an edge is written between its ends: `$a {name} $b`"
    raise Refused("T6", f"`{name}` means nothing here", node.place, hint)


def _near_bare(name: str, scope: Scope) -> str | None:
    if name in scope.params:
        return f"write `${name}` for the parameter"
    assert scope.bare is not None
    return did_you_mean(name, scope.bare.names)


# ---- operators ----


def _chain(node: ast.Chain, scope: Scope) -> Expr:
    operands = tuple(_given(operand, scope) for operand in node.operands)
    if node.operators[0] in ("and", "or"):
        return operators.logic(node.operators[0], operands)
    left = operands[0]
    for word, place, right in zip(node.operators, node.operator_places, operands[1:], strict=True):
        left = Given(operators.arithmetic(word, left, right, place), left.place)
    return left.expr


def _not(node: ast.Not, scope: Scope) -> Expr:
    operand = operators.truth(_given(node.operand, scope))
    return Call("not", (operand,), Type("Bool", operand.type.nullable))


def _negative(node: ast.Negative, scope: Scope) -> Expr:
    return operators.negative(_given(node.operand, scope))


def _is_null(node: ast.IsNull, scope: Scope) -> Expr:
    return operators.is_null(_given(node.operand, scope), negated=node.negated)


def _comparison(node: ast.Comparison, scope: Scope) -> Expr:
    left, right = _given(node.left, scope), _given(node.right, scope)
    if left.type.base == right.type.base == "Node" and scope.catalog.edge(node.operator) is not None:
        hint = f"the edge is written `$a ({node.operator}) $b`"
        message = f"`{node.operator}` is an operator, and these are {left.type} and {right.type}"
        raise Refused("T30" if node.operator == "in" else "T7", message, node.operator_place, hint)
    if node.operator in ("in", "not in"):
        written = node.right.value if isinstance(node.right, Literal) and node.right.kind == "list" else ()
        items = tuple(item.place for item in written)
        return operators.membership(node.operator, left, right, node.operator_place, items)
    if node.operator == "contains":
        return operators.contains(left, right, node.operator_place)
    if node.operator == "starts_with":
        return operators.starts_with(left, right)
    return operators.comparison(node.operator, left, right, node.operator_place)


def _case(node: ast.Case, scope: Scope) -> Expr:
    """`case when c then v … else v end`: null where no condition is true and no `else` is written."""
    conditions = [_given(condition, scope) for condition, _ in node.whens]
    for condition in conditions:
        if condition.type.base != "Bool" or condition.type.list:
            message = f"`when` takes something true or false, and this is {shown(condition.type)}"
            raise Refused("T32", message, condition.place)
    values = [_given(value, scope) for _, value in node.whens]
    missing = Given(Lit(None, Type("Null", True)), node.place)
    values.append(missing if node.otherwise is None else _given(node.otherwise, scope))
    type_, unified = unify(values, "T32", "the values of `case`")
    pairs = [e for condition, value in zip(conditions, unified[:-1], strict=True) for e in (condition.expr, value)]
    return Call("case", (*pairs, unified[-1]), type_)


# ---- calls ----


def _call(node: ast.CallExpr, scope: Scope) -> Expr:
    name = node.name
    if name in AGGREGATES:
        return _aggregate(node, scope)
    if node.distinct is not None:
        hint = f"as in {name}({', '.join(['…'] * len(node.arguments))})" if name in FUNCTIONS else None
        raise Refused("T33", f"`distinct` stands in aggregates only, not in `{name}`", node.distinct, hint)
    if name in _PATHS and len(node.arguments) == 1:
        path = _path(node.arguments[0], scope)
        if path is not None or name != "length":
            return _path_call(node, path)
    if name in SEARCHES or name in RANKINGS:
        refuse_search_here(node, scope)
        with scope.allowing(searches=scope.searches or name == "rrf"):  # `rrf` says itself what it doesn't take
            arguments = tuple(_given(argument, scope) for argument in node.arguments)
        if name in RANKINGS:
            return check_ranking(node, arguments)
        search = check_search(node, arguments)
        scope.edits.update(edits.name for edits in search.args[2:] if isinstance(edits, Param))
        return search
    if name in FUNCTIONS:
        _refuse_keywords(node)
        return call(node, tuple(_given(argument, scope) for argument in node.arguments))
    raise _unknown_function(node)


def _unknown_function(node: ast.CallExpr) -> Refused:
    if node.name in ("date", "datetime"):
        example = '"2026-01-31"' if node.name == "date" else '"2026-01-31T10:00:00Z"'
        hint = f"write {node.name}({example}), or declare a parameter of that type"
        return Refused("T32", f"`{node.name}` takes one text literal", node.name_place, hint)
    if node.name in _PATHS:
        return Refused("T32", f"`{node.name}` takes one argument, a path", node.name_place, f"write {node.name}($path)")
    known = sorted({*AGGREGATES, *FUNCTIONS, *_PATHS, *SEARCHES, *RANKINGS, "date", "datetime"})
    said = FUNCTION_HABITS.get(node.name.lower().replace("_", ""))
    near = f"write `{said}`" if said else did_you_mean(node.name, iter(known))
    return Refused("T32", f"unknown function `{node.name}`", node.name_place, near)


def _refuse_keywords(node: ast.CallExpr) -> None:
    for keyword in node.keywords:
        hint = "put parentheses around a comparison"
        raise Refused("T32", f"`{node.name}` takes no `{keyword.name.text}=`", keyword.name.place, hint)


def _aggregate(node: ast.CallExpr, scope: Scope) -> Expr:
    refuse_aggregate_here(node, scope)
    with scope.allowing(aggregates=False, rankings=False, within=node.name):
        argument = _given(node.arguments[0], scope)
    return aggregate(node, argument)


def _path(node: ast.Expr, scope: Scope) -> Var | None:
    type_ = scope.variables.get(node.name) if isinstance(node, ast.VarRef) else None
    return Var(node.name, type_) if isinstance(node, ast.VarRef) and type_ and type_.base == "Path" else None


def _path_call(node: ast.CallExpr, path: Var | None) -> Expr:
    _refuse_keywords(node)
    if path is None:
        place = node.arguments[0].place
        hint = f"bind one with `$path = shortest $a edge{{1,3}} $b` and write {node.name}($path)"
        raise Refused("T37", f"`{node.name}` takes a path", place, hint)
    nullable = path.type.nullable
    type_ = Type("I64", nullable) if node.name == "length" else Type("String", nullable, list=True)
    return Call(node.name, (path,), type_)


# ---- blocks ----


def _block(node: ast.Block, scope: Scope) -> Expr:
    """`exists { … }` and `count { … }`."""
    from omnigraph.query.match import check_inner  # a block holds clauses, and clauses hold expressions
    from omnigraph.query.plan import order_operators

    if not scope.blocks:
        message = f"`{node.word} {{ … }}` can't stand in a mutation or in the filter of a hop"
        raise Refused("T34", message, node.place)
    before = len(scope.found)
    block, outer = check_inner(node.clauses, scope)
    if len(scope.found) > before:
        raise Refused("", "refused inside", node.place)
    inner = order_operators(block, scope.catalog, frozenset(outer))
    type_ = Type("Bool") if node.word == "exists" else Type("I64")
    return SubMatch("exists" if node.word == "exists" else "count", inner, outer, type_)


_CHECKS: dict[type, Callable[[Any, Scope], Expr]] = {
    Literal: check_literal,
    ast.VarRef: _variable,
    ast.PropRef: _property,
    ast.NameRef: _bare,
    ast.ListExpr: _list_expr,
    ast.Chain: _chain,
    ast.Not: _not,
    ast.Negative: _negative,
    ast.Comparison: _comparison,
    ast.IsNull: _is_null,
    ast.CallExpr: _call,
    ast.Block: _block,
    ast.Case: _case,
}
