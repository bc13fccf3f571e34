"""Text search in a `match` (search, fuzzy, match_text), and rankings in `return` and `order` (nearest, bm25, rrf)."""

from __future__ import annotations

from omnigraph.query import ast
from omnigraph.query.ir import Call, Expr, Lit, Param, Prop
from omnigraph.query.scope import Refused, Scope
from omnigraph.query.unify import Given, shown
from omnigraph.schema.catalog import INTEGERS, Type
from omnigraph.schema.literals import Literal, Mismatch, fit, is_zero

__all__ = ["MOST_EDITS", "RANKINGS", "SEARCHES", "check_ranking", "check_search", "has_ranking", "refuse_search_here"]

SEARCHES = {"search": "T19", "fuzzy": "T19", "match_text": "T20"}
RANKINGS = {"nearest": "T15", "bm25": "T20", "rrf": "T21"}

MOST_EDITS = 2
"""Most edits that a `fuzzy` allows between two words."""
_DEFAULT_K = 60
_USAGE = {
    "search": "search($x.property, query)",
    "fuzzy": "fuzzy($x.property, query, max_edits)",
    "match_text": "match_text($x.property, query)",
    "nearest": "nearest($x.vector, query)",
    "bm25": "bm25($x.property, query)",
    "rrf": "rrf(ranking, ranking, k=60)",
}


def has_ranking(expr: Expr) -> bool:
    return isinstance(expr, Call) and (expr.fn in RANKINGS or any(has_ranking(a) for a in expr.args))


def refuse_search_here(node: ast.CallExpr, scope: Scope) -> None:
    """Refuse a text search outside a `match`, and a ranking outside `return` and `order`."""
    if node.name in SEARCHES and not scope.searches:
        message = f"`{node.name}` stands in a `match` only"
        raise Refused(SEARCHES[node.name], message, node.name_place, "filter there instead")
    if node.name in RANKINGS and not scope.rankings:
        where = f"can't stand inside `{scope.within}`" if scope.within else "stands in `return` and `order` only"
        raise Refused(RANKINGS[node.name], f"`{node.name}` is a ranking and {where}", node.name_place)


def check_search(node: ast.CallExpr, arguments: tuple[Given, ...]) -> Call:
    """`search(f, q)`, `fuzzy(f, q, max_edits)`, `match_text(f, q)`: a Bool.

    Raises:
        Refused: T19, or T20 for `match_text`.
    """
    code = SEARCHES[node.name]
    most = 3 if node.name == "fuzzy" else 2
    _count(node, code, 2, most)
    field, query = _text_operands(node, arguments, code)
    edits: tuple[Expr, ...] = ()
    if node.name == "fuzzy":
        edits = (_edits(arguments),)
    return Call(node.name, (field, query, *edits), Type("Bool", field.type.nullable or query.type.nullable))


def _edits(arguments: tuple[Given, ...]) -> Expr:
    """A literal, judged here, or an integer parameter, judged when it is given."""
    if len(arguments) < 3:
        return Lit(1, Type("I64"))
    expr, type_ = arguments[2].expr, arguments[2].type
    if isinstance(expr, Lit) and type(expr.value) is int and 0 <= expr.value <= MOST_EDITS:
        return expr
    if isinstance(expr, Param) and type_.base in INTEGERS and not type_.list and not type_.nullable:
        return expr
    raise Refused("T19", f"max_edits is a whole number from 0 to {MOST_EDITS}", arguments[2].place)


def check_ranking(node: ast.CallExpr, arguments: tuple[Given, ...]) -> Call:
    """`nearest`, `bm25` or `rrf`: an F64.

    Raises:
        Refused: T15 for `nearest`, T20 for `bm25`, T21 for `rrf`.
    """
    if node.name == "nearest":
        return _nearest(node, arguments)
    if node.name == "rrf":
        return _rrf(node, arguments)
    _count(node, "T20", 2, 2)
    return Call("bm25", _text_operands(node, arguments, "T20"), Type("F64", True))  # null without a hit


def _nearest(node: ast.CallExpr, arguments: tuple[Given, ...]) -> Call:
    approximate = False
    _count(node, "T15", 2, 2, keywords=("approximate",))
    for keyword in node.keywords:
        if not isinstance(keyword.value, Literal) or keyword.value.kind != "bool":
            raise Refused("T15", "`approximate` is true or false", keyword.value.place)
        approximate = keyword.value.value
    vector, query = arguments
    if not isinstance(vector.expr, Prop) or not vector.expr.var or vector.type.base != "Vector":
        message = f"`nearest` takes a Vector property of a variable first, and this is {_what(vector)}"
        raise Refused("T15", message, vector.place, f"write `{_USAGE['nearest']}`")
    wanted = _query_vector(vector.expr, query)
    nullable = vector.type.nullable or wanted.type.nullable
    return Call("nearest", (vector.expr, wanted, Lit(approximate, Type("Bool"))), Type("F64", nullable))


def _query_vector(vector: Prop, query: Given) -> Expr:
    dim = vector.type.dim
    if isinstance(query.expr, Lit) and query.type.list:
        try:
            value = fit(query.expr.value, Type("Vector", dim=dim))
        except Mismatch as error:
            raise Refused("T15", str(error), query.place) from None
        if is_zero(value):
            raise Refused("T15", "a vector of zeros has no direction, and nothing is near it", query.place)
        return Lit(value, Type("Vector", dim=dim))
    if isinstance(query.expr, Param) and query.type.base == "Vector" and query.type.dim == dim:
        return query.expr
    if query.type.base == "String" and not query.type.list and _is_constant(query.expr):
        return query.expr
    message = f"`nearest` takes a parameter Vector({dim}), a list of {dim} numbers or a text, and this is "
    raise Refused("T15", message + shown(query.type), query.place)


def _rrf(node: ast.CallExpr, arguments: tuple[Given, ...]) -> Call:
    k = _DEFAULT_K
    _count(node, "T21", 2, 2 if node.keywords else 3, keywords=("k",))
    for given in (*node.arguments[2:], *(keyword.value for keyword in node.keywords)):  # `rrf(a, b, 60)` is `k=60`
        value = given.value if isinstance(given, Literal) else None
        if type(value) is not int or not 1 <= value < 2**31:
            raise Refused("T21", "`k` is a positive whole number, as a literal", given.place)
        k = value
    for ranking in arguments[:2]:
        if not isinstance(ranking.expr, Call) or ranking.expr.fn not in ("nearest", "bm25"):
            message = f"`rrf` takes nearest(…) and bm25(…), and this is {shown(ranking.type)}"
            raise Refused("T21", message, ranking.place, f"write `{_USAGE['rrf']}`")
    return Call("rrf", (arguments[0].expr, arguments[1].expr, Lit(k, Type("I64"))), Type("F64", True))


# ---- what they share ----


def _count(node: ast.CallExpr, code: str, least: int, most: int, keywords: tuple[str, ...] = ()) -> None:
    for keyword in node.keywords:
        if keyword.name.text not in keywords:
            hint = f"write `{_USAGE[node.name]}`"
            raise Refused(code, f"`{node.name}` takes no `{keyword.name.text}=`", keyword.name.place, hint)
    names = [keyword.name.text for keyword in node.keywords]
    if len(set(names)) < len(names):
        raise Refused(code, f"`{names[-1]}=` is given twice", node.keywords[-1].name.place)
    if not least <= len(node.arguments) <= most:
        wants = f"{least} or {most} arguments" if least < most else f"{least} arguments"
        raise Refused(code, f"`{node.name}` takes {wants}", node.name_place, f"write `{_USAGE[node.name]}`")


def _text_operands(node: ast.CallExpr, arguments: tuple[Given, ...], code: str) -> tuple[Expr, Expr]:
    field, query = arguments[:2]
    if not isinstance(field.expr, Prop) or field.type != _string(field.type):  # in a hop's filter, of the edge
        message = f"`{node.name}` takes a String property of a variable first, and this is {_what(field)}"
        raise Refused(code, message, field.place, f"write `{_USAGE[node.name]}`")
    if field.expr.name in _IDENTITY:
        raise Refused(
            code, f"`{field.expr.name}` is an identity, not a text to search", field.place, "use = or starts_with"
        )
    if query.type != _string(query.type):
        message = f"`{node.name}` takes its query as a String, and this is {shown(query.type)}"
        raise Refused(code, message, query.place)
    if not _is_constant(query.expr):
        message = f"the query of `{node.name}` is made of literals and parameters"
        raise Refused(code, message, query.place)
    return field.expr, query.expr


_IDENTITY = frozenset({"id", "src", "dst"})


def _what(operand: Given) -> str:
    return shown(operand.type) if isinstance(operand.expr, Prop) else "something else"


def _string(type_: Type) -> Type:
    return Type("String", type_.nullable)


def _is_constant(expr: Expr) -> bool:
    """The same for every row: over literals and parameters."""
    waiting = [expr]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Call):
            waiting += part.args
        elif not isinstance(part, (Lit, Param)):
            return False
    return True
