"""Expressions: from the syntax tree to typed IR. The one place that says what an operator takes."""

from __future__ import annotations

from typing import Literal as OneOf
from typing import cast

from omnigraph.query import ast
from omnigraph.query.ir import Agg, Call, Expr, Lit, Param, Prop, Var
from omnigraph.query.scope import Refused, Scope, did_you_mean
from omnigraph.schema.ast import Place
from omnigraph.schema.catalog import INTEGERS, NUMBERS, Type
from omnigraph.schema.literals import Literal, Mismatch, fit

__all__ = ["AGGREGATES", "check", "check_literal", "fit_value", "has_aggregate", "property_types", "unsupported"]

AGGREGATES = frozenset({"count", "sum", "avg", "min", "max"})
_SEARCH = frozenset({"search", "fuzzy", "match_text", "nearest", "bm25", "rrf"})
_LATER = _SEARCH | {
    *("lower", "upper", "trim", "length", "substring", "replace", "starts_with", "ends_with", "contains", "split"),
    *("coalesce", "abs", "round", "floor", "ceil", "mod", "matches", "to_string", "to_int", "to_float"),
    *("year", "month", "day", "date_trunc", "add_days", "add_months", "days_between"),
    *("collect", "nodes", "edges"),
}
_ORDERED = NUMBERS | {"String", "Enum", "Date", "DateTime"}
_TEXT = frozenset({"String", "Enum"})
BOOL = Type("Bool")


def unsupported(what: str, place: Place) -> Refused:
    """Part of the language that this version of the compiler doesn't take."""
    return Refused("Q001", f"{what} is not supported yet", place)


def check(node: ast.Expr, scope: Scope) -> Expr:
    """The typed expression.

    Raises:
        Refused: with the code of the rule it breaks.
    """
    if isinstance(node, Literal):
        return check_literal(node)
    if isinstance(node, ast.VarRef):
        if node.name in scope.variables:
            return Var(node.name, scope.variables[node.name])
        if node.name in scope.params:
            return Param(node.name, scope.params[node.name])
        scope.variable(node.name, node.place)
    if isinstance(node, ast.PropRef):
        return _property(node, scope)
    if isinstance(node, ast.NameRef):
        return _bare(node, scope)
    if isinstance(node, ast.Comparison):
        return _comparison(node, scope)
    if isinstance(node, ast.Chain):
        return _chain(node, scope)
    if isinstance(node, ast.Not):
        operand = _boolean(node.operand, scope)
        return Call("not", (operand,), Type("Bool", operand.type.nullable))
    if isinstance(node, ast.IsNull):
        return _is_null(node, scope)
    if isinstance(node, ast.CallExpr):
        return _call(node, scope)
    if isinstance(node, ast.ListExpr):
        raise unsupported("a list of anything but literals", node.place)
    if isinstance(node, ast.Block):
        raise unsupported(f"`{node.word} {{ … }}`", node.place)
    if isinstance(node, ast.Case):
        raise unsupported("`case`", node.place)
    raise unsupported("arithmetic", node.place)


def has_aggregate(expr: Expr) -> bool:
    return isinstance(expr, Agg) or (isinstance(expr, Call) and any(has_aggregate(a) for a in expr.args))


# ---- leaves ----


def check_literal(node: Literal) -> Lit:
    """A literal with the type it has by itself; what it stands beside may fit it to another (`fit_value`)."""
    try:
        value = node.python()
    except Mismatch as error:
        raise Refused("T7", str(error), node.place) from None
    if node.kind == "int":
        if not -(2**63) <= value < 2**64:
            raise Refused("T7", f"{value} is beyond 64 bits", node.place)
        return Lit(value, Type("I64" if value < 2**63 else "U64"))
    if node.kind == "list":
        types = [check_literal(item).type for item in node.value]
        bases = {t.base for t in types}
        if any(t.list for t in types) or "Null" in bases or (len(bases) > 1 and not bases <= NUMBERS):
            raise Refused("T7", "a list holds values of one scalar type, none of them null", node.place)
        if len(bases) > 1 and "F64" not in bases and min(value) < 0:
            raise Refused("T7", "no integer type holds all of this list", node.place)
        widest = next((base for base in ("F64", "U64") if base in bases), None)
        return Lit(value, Type(widest or (types[0].base if types else "Null"), list=True))
    bases_by_kind = {"string": "String", "float": "F64", "bool": "Bool", "date": "Date", "datetime": "DateTime"}
    return Lit(value, Type(bases_by_kind.get(node.kind, "Null"), nullable=node.kind == "null"))


def property_types(scope: Scope, entity: Type) -> dict[str, Type]:
    """Every property of a bound entity, identity and ends included."""
    text = Type("String")
    names = {"id": text} if entity.base == "Node" else {"id": text, "src": text, "dst": text}
    return {name: p.type for name, p in scope.entity(entity).properties.items()} | names


def _property(node: ast.PropRef, scope: Scope) -> Prop:
    place = (node.place[0], node.place[0] + 1 + len(node.var))
    if node.var not in scope.variables and node.var in scope.params:
        raise Refused("T6", f"`${node.var}` is a parameter and has no properties", place)
    entity = scope.variable(node.var, place)
    types = property_types(scope, entity)
    name = node.name.text
    if name not in types:
        message = f"{entity.entity} has no property `{name}`"
        raise Refused("T6", message, node.name.place, did_you_mean(name, types))
    if types[name].base == "Blob":
        raise Refused("T24", f"`{name}` is a Blob, which can't be a value in a query", node.name.place)
    return Prop(node.var, name, types[name])


def _bare(node: ast.NameRef, scope: Scope) -> Prop:
    if scope.bare is None:
        hint = f"write `$x.{node.name}` for a property, `${node.name}` for a variable or parameter"
        raise Refused("T6", f"`{node.name}` means nothing here", node.place, hint)
    if node.name not in scope.bare:
        raise Refused("T11", f"no property `{node.name}`", node.place, did_you_mean(node.name, scope.bare))
    name, type_ = scope.bare[node.name]
    if type_.base == "Blob":
        raise Refused("T11", f"`{node.name}` is a Blob, which can't be compared", node.place)
    return Prop("", name, type_)


# ---- operators ----


def _boolean(node: ast.Expr, scope: Scope) -> Expr:
    expr = check(node, scope)
    if expr.type.base != "Bool" or expr.type.list:
        raise Refused("T30", f"expected something true or false, and this is {expr.type}", node.place)
    return expr


def _chain(node: ast.Chain, scope: Scope) -> Expr:
    word = node.operators[0]
    if word not in ("and", "or"):
        raise unsupported("arithmetic", node.place)
    operands = tuple(_boolean(operand, scope) for operand in node.operands)
    return Call(word, operands, Type("Bool", any(o.type.nullable for o in operands)))


def _is_null(node: ast.IsNull, scope: Scope) -> Expr:
    test = Call("is_null", (check(node.operand, scope),), BOOL)
    return Call("not", (test,), BOOL) if node.negated else test


def _comparison(node: ast.Comparison, scope: Scope) -> Expr:
    left, right = check(node.left, scope), check(node.right, scope)
    for side, place in ((left, node.left.place), (right, node.right.place)):
        if isinstance(side, Lit) and side.value is None:
            hint = "write `is null`" if node.operator == "=" else "write `is not null`"
            raise Refused("T7", "nothing compares with null", place, hint)
    operator = node.operator
    nullable = Type("Bool", left.type.nullable or right.type.nullable)
    if operator in ("in", "not in"):
        if not right.type.list:
            raise Refused("T30", f"`in` takes a list on its right, and this is {right.type}", node.right.place)
        element = Type(right.type.base, enum=right.type.enum)
        if right.type.base != "Null":
            _comparable(left.type, element, "=", node)
        if isinstance(right, Lit):
            right = _items_beside(right, left.type, node.right.place)
        inside = Call("in", (left, right), nullable)
        return Call("not", (inside,), nullable) if operator == "not in" else inside
    if operator == "contains" and left.type.list:
        element = Type(left.type.base, enum=left.type.enum)
        _comparable(element, right.type, "=", node)
        return Call("contains", (left, _beside(right, element, node.right.place)), nullable)
    if operator in ("contains", "starts_with"):
        for type_, place in ((left.type, node.left.place), (right.type, node.right.place)):
            if type_.base not in _TEXT or type_.list:
                takes = "text, or a list and an element" if operator == "contains" else "text"
                raise Refused("T7", f"`{operator}` takes {takes}, and this is {type_}", place)
        return Call(operator, (left, right), nullable)
    _comparable(left.type, right.type, operator, node)
    if isinstance(left, Var) and isinstance(right, Var):
        text = Type("String")
        return Call(operator, (Prop(left.name, "id", text), Prop(right.name, "id", text)), BOOL)
    left = _beside(left, right.type, node.left.place)
    right = _beside(right, left.type, node.right.place)
    return Call(operator, (left, right), nullable)


def _comparable(left: Type, right: Type, operator: str, node: ast.Comparison) -> None:
    """Refuse (T7) two types that don't compare with this operator."""
    a, b = left.base, right.base
    fits = (a in NUMBERS and b in NUMBERS) or (a in _TEXT and b in _TEXT) or (a == b and a in (*_ORDERED, "Bool"))
    if a == b and a in ("Node", "Edge"):
        fits = left.entity == right.entity and operator in ("=", "!=")
    if a == b == "Bool":
        fits = operator in ("=", "!=")
    if fits and not left.list and not right.list:
        return
    hint = None
    if {a, b} in ({"Date", "String"}, {"DateTime", "String"}):
        word = "date" if "Date" in (a, b) else "datetime"
        hint = f'write {word}("…") for a literal, or declare the parameter as {(word[0].upper() + "ate")}' + (
            "" if word == "date" else "Time"
        )
    raise Refused("T7", f"{left} {operator} {right} can't be compared", node.operator_place, hint)


def _beside(expr: Expr, other: Type, place: Place) -> Expr:
    """A literal next to an enum must be one of its values; integers next to floats become floats."""
    if isinstance(expr, Lit) and other.base == "Enum" and expr.value not in other.enum:
        near = did_you_mean(str(expr.value), iter(other.enum))
        raise Refused("T7", f'"{expr.value}" is not one of {", ".join(other.enum)}', place, near)
    if isinstance(expr, Lit) and other.base == "Enum":
        return Lit(expr.value, Type("Enum", enum=other.enum))
    return expr


def _items_beside(items: Lit, type_: Type, place: Place) -> Lit:
    """The literal list of an `in`: an enum's values are checked, an empty list takes the left side's type."""
    if type_.base == "Enum":
        for item in items.value:
            _beside(Lit(item, Type("String")), type_, place)
    if type_.base == "Enum" or items.type.base == "Null":
        return Lit(items.value, Type(type_.base, list=True, enum=type_.enum))
    return items


# ---- calls ----


def _call(node: ast.CallExpr, scope: Scope) -> Expr:
    if node.name == "now":
        if node.arguments or node.keywords:
            raise Refused("T7", "`now()` takes no argument", node.name_place)
        return Call("now", (), Type("DateTime"))
    if node.name in AGGREGATES:
        return _aggregate(node, scope)
    if node.name in ("date", "datetime"):
        raise Refused("T7", f'`{node.name}` takes one string literal, as in {node.name}("2026-01-31")', node.name_place)
    if node.name in _LATER:
        raise unsupported(f"`{node.name}(…)`", node.name_place)
    hint = did_you_mean(node.name, iter(sorted(AGGREGATES | _LATER | {"now", "date", "datetime"})))
    raise Refused("T32", f"unknown function `{node.name}`", node.name_place, hint)


def _aggregate(node: ast.CallExpr, scope: Scope) -> Agg:
    if not scope.aggregates:
        raise Refused("T9", f"`{node.name}` is an aggregate and stands in `return` only", node.name_place)
    if len(node.arguments) != 1 or node.keywords:
        raise Refused("T8", f"`{node.name}` takes one argument", node.name_place)
    scope.aggregates = False
    try:
        argument = check(node.arguments[0], scope)
    finally:
        scope.aggregates = True
    fn = cast("OneOf['count', 'sum', 'avg', 'min', 'max']", node.name)
    type_ = argument.type
    if fn == "count":
        return Agg(fn, argument, Type("I64"), node.distinct)
    allowed = NUMBERS if fn in ("sum", "avg") else _ORDERED
    if type_.list or type_.base not in allowed:
        takes = "numbers" if allowed is NUMBERS else "numbers, text or dates"
        raise Refused("T8", f"`{fn}` takes {takes}, and this is {type_}", node.arguments[0].place)
    if fn in ("min", "max"):
        return Agg(fn, argument, Type(type_.base, True, enum=type_.enum), node.distinct)
    base = "I64" if fn == "sum" and type_.base in INTEGERS else "F64"
    return Agg(fn, argument, Type(base, True), node.distinct)


# ---- values given to a property ----

_WIDENS = {
    "I64": {"I32", "U32"},
    "U64": {"U32"},
    "F32": set(),
    "F64": INTEGERS | {"F32"},
    "Enum": {"String"},
    "String": {"Enum"},
    "Blob": {"String"},
}


def fit_value(node: ast.Expr, type_: Type, scope: Scope, code: str) -> Expr:
    """A literal, parameter or `now()` given to something of `type_`.

    Raises:
        Refused: `code` where it doesn't fit; T14 for a variable that is no parameter.
    """
    if isinstance(node, Literal):
        return Lit(_literal_as(node, type_, code), type_)
    if isinstance(node, ast.VarRef):
        given = scope.params.get(node.name)
        if given is None:
            hint = did_you_mean(node.name, scope.params, "$")
            raise Refused("T14", f"`${node.name}` is not a parameter of this query", node.place, hint)
        same = given.base == type_.base and given.dim == type_.dim
        if given.list != type_.list or not (same or given.base in _WIDENS.get(type_.base, ())):
            raise Refused(code, f"`${node.name}` is {given}, and {type_} is expected", node.place)
        if given.base == "Enum" and type_.base == "Enum" and not set(given.enum) <= set(type_.enum):
            raise Refused(code, f"`${node.name}` may be a value that {type_} has not", node.place)
        if given.nullable and not type_.nullable:
            raise Refused(code, f"`${node.name}` may be null, and {type_} can't", node.place)
        return Param(node.name, given)
    if isinstance(node, ast.CallExpr) and node.name == "now":
        if type_.base != "DateTime" or type_.list:
            raise Refused(code, f"`now()` is a DateTime, and {type_} is expected", node.place)
        return check(node, scope)
    if isinstance(node, (ast.PropRef, ast.NameRef)):
        raise Refused("T14", "a value here is a literal, a parameter or now()", node.place)
    check(node, scope)
    raise unsupported("an expression as a value", node.place)


def _literal_as(node: Literal, type_: Type, code: str) -> object:
    """The literal's value as one of `type_`. Texts are no dates here: `date("…")` says so."""
    base = type_.base
    if node.kind == "string" and base in ("Date", "DateTime") and not type_.list:
        raise Refused(code, f'a text is no {base}; write {base.lower()}("…")', node.place)
    try:
        return fit(node.python(), type_)
    except Mismatch as error:
        raise Refused(code, str(error), node.place) from None
