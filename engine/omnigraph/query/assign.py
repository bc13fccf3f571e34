"""Values given to a property: in a binding's `{ p: value }`, an insert, a `set`, an edge's ends."""

from __future__ import annotations

from dataclasses import replace

from omnigraph.query import ast
from omnigraph.query.expressions import check
from omnigraph.query.ir import Agg, Call, Expr, Lit, Param, Prop, SubMatch
from omnigraph.query.scope import Refused, Scope
from omnigraph.query.unify import FLOATS, TEXTS, shown
from omnigraph.schema.catalog import INTEGERS, NUMBERS, SCALARS, Type
from omnigraph.schema.literals import Literal, Mismatch, fit

__all__ = ["assigned", "match_value"]

_WIDENS = {
    "I64": {"I32", "U32"},
    "U64": {"U32"},
    "F64": INTEGERS | {"F32"},
    "Enum": {"String"},
    "String": {"Enum"},
    "Blob": TEXTS,
}


def match_value(node: ast.Expr, type_: Type, scope: Scope) -> Expr:
    """A literal, a parameter or `now()` that a property of `type_` is matched with.

    Raises:
        Refused: T3 where it doesn't fit or is anything else; T6 for a name that is no parameter.
    """
    if isinstance(node, Literal):
        return Lit(_literal_as(node, type_, "T3"), type_)
    if isinstance(node, ast.VarRef):
        given = scope.params.get(node.name)
        if given is None:
            scope.variable(node.name, node.place)
            raise Refused("T3", f"`${node.name}` is a bound variable", node.place, "compare in a filter of its own")
        whole = given.base in FLOATS and type_.base in INTEGERS
        if not given.list and {given.base, type_.base} <= NUMBERS and not whole:  # compared exactly, as in a filter
            return Param(node.name, given)
        return _fitting(Param(node.name, given), type_, node, "T3")
    if isinstance(node, ast.CallExpr) and node.name == "now":
        return _fitting(check(node, scope), type_, node, "T3")
    hint = "compare in a filter of its own, as in `$x.name = …`"
    raise Refused("T3", "a match value is a literal, a parameter or now()", node.place, hint)


def assigned(node: ast.Expr, type_: Type, scope: Scope) -> Expr:
    """A value that a property of `type_` is given.

    A computed number becomes a smaller type of its kind through `Call("to", …)`, which fails where it doesn't fit.

    Raises:
        Refused: T7 where it doesn't fit; T14 for a name that is neither a parameter nor a stored value.
    """
    if isinstance(node, Literal):
        return Lit(_literal_as(node, type_, "T7"), type_)
    if isinstance(node, ast.ListExpr) and type_.list:
        element = Type(type_.base, enum=type_.enum)
        items = tuple(assigned(item, element, scope) for item in node.items)
        return Call("list", items, Type(type_.base, list=True, enum=type_.enum))
    if isinstance(node, ast.VarRef) and node.name in scope.params:  # a Blob may be given, though it is no value
        return _fitting(Param(node.name, scope.params[node.name]), type_, node, "T7")
    return _fitting(check(node, scope), type_, node, "T7")


def _fitting(expr: Expr, type_: Type, node: ast.Expr, code: str) -> Expr:
    """The expression where it fits, narrowed where it was computed and its kind is the type's."""
    given = expr.type
    what = f"`${expr.name}`" if isinstance(expr, Param) else f"`{expr.name}`" if isinstance(expr, Prop) else "the value"
    same = given.base == type_.base and given.dim == type_.dim
    fits = same or given.base in _WIDENS.get(type_.base, ())
    narrowed = not fits and isinstance(expr, (Call, Agg, SubMatch)) and _same_kind(given, type_)
    if given.list != type_.list or not (fits or narrowed):
        hint = _hint(given, type_) if code == "T7" else f"declare it as {replace(type_, nullable=False)}"
        raise Refused(code, f"{what} is {shown(given)}, and {type_} is expected", node.place, hint)
    if given.base == "Enum" and type_.base == "Enum" and not set(given.enum) <= set(type_.enum):
        raise Refused(code, f"{what} may be a value that {type_} has not", node.place)
    if given.nullable and not type_.nullable:
        hint = "give another value for null with coalesce(…)"
        raise Refused(code, f"{what} may be null, and {type_} can't", node.place, hint)
    return Call("to", (expr,), replace(type_, nullable=given.nullable)) if narrowed else expr


def _same_kind(given: Type, type_: Type) -> bool:
    """Whole numbers or floats on both sides."""
    if given.list or type_.list:
        return False
    return {given.base, type_.base} <= INTEGERS or {given.base, type_.base} <= FLOATS


def _hint(given: Type, type_: Type) -> str | None:
    if given.list or type_.list:
        return None
    if {given.base, type_.base} <= INTEGERS:
        return f"declare it as {type_.base}, or write to_int(…) to have it checked when it runs"
    if {given.base, type_.base} <= FLOATS:
        return f"declare it as {type_.base}, or write to_float(…) to have it checked when it runs"
    if given.base == "String" and type_.base in ("Date", "DateTime"):
        return f"declare the parameter as {type_.base}"
    if type_.base in INTEGERS and given.base in FLOATS | {"String", "Bool"}:
        return "convert it with to_int(…)"
    if type_.base in FLOATS and given.base in INTEGERS | {"String"}:
        return "convert it with to_float(…)"
    if type_.base == "String" and given.base in SCALARS:
        return "convert it with to_string(…)"
    return None


def _literal_as(node: Literal, type_: Type, code: str) -> object:
    """The literal's value as one of `type_`. Texts are no dates here: `date("…")` says so."""
    base = type_.base
    if node.kind == "list" and type_.list:
        element = Type(base, enum=type_.enum)
        return tuple(_literal_as(item, element, code) for item in node.value)
    if node.kind == "string" and base in ("Date", "DateTime") and not type_.list:
        raise Refused(code, f'a text is no {base}; write {base.lower()}("…")', node.place)
    try:
        return fit(node.python(), type_)
    except Mismatch as error:
        raise Refused(code, str(error), node.place) from None
