"""What the operators take and give: truth, null tests, comparisons, `in`, arithmetic. From checked operands to IR."""

from __future__ import annotations

from dataclasses import replace

from omnigraph.query.ir import Call, Expr, Lit, Param, Prop, Var
from omnigraph.query.scope import Refused
from omnigraph.query.unify import BOOL, ORDERED, TEXTS, Given, any_nullable, beside, conversion, number_type, shown
from omnigraph.schema.ast import Place
from omnigraph.schema.catalog import NUMBERS, Type

__all__ = ["arithmetic", "comparison", "contains", "is_null", "logic", "membership", "negative", "starts_with", "truth"]

_TEXT_ID = Type("String")

# ---- truth ----


def truth(value: Given) -> Expr:
    """The operand of `and`, `or` and `not`."""
    if value.type.base != "Bool" or value.type.list:
        message = f"expected something true or false, and this is {shown(value.type)}"
        raise Refused("T30", message, value.place, "compare it with something")
    return value.expr


def logic(word: str, operands: tuple[Given, ...]) -> Call:
    return Call(word, tuple(truth(o) for o in operands), Type("Bool", any_nullable(operands)))


def is_null(operand: Given, *, negated: bool) -> Call:
    expr = operand.expr
    if isinstance(expr, Var):  # an entity is null where its id is
        expr = Prop(expr.name, "id", replace(_TEXT_ID, nullable=expr.type.nullable))
    test = Call("is_null", (expr,), BOOL)
    return Call("not", (test,), BOOL) if negated else test


# ---- comparisons ----


def comparison(operator: str, left: Given, right: Given, operator_place: Place) -> Expr:
    """`= != < <= > >=`: two numbers, two texts, two of one type; entities and Bool by `=` and `!=` only."""
    _no_null(operator, left, right)
    _comparable(operator, left, right, left.type, right.type, operator_place)
    nullable = Type("Bool", any_nullable((left, right)))
    if isinstance(left.expr, Var) and isinstance(right.expr, Var):
        ids = (Prop(v.name, "id", replace(_TEXT_ID, nullable=v.type.nullable)) for v in (left.expr, right.expr))
        return Call(operator, tuple(ids), nullable)
    return Call(operator, (beside(left, right.type), beside(right, left.type)), nullable)


def membership(operator: str, left: Given, right: Given, operator_place: Place, item_places: tuple[Place, ...]) -> Expr:
    """`in` and `not in`: a scalar and a list of what compares with it. A list of literals has its items' places."""
    _no_null("=", left, right)
    if not right.type.list:
        hint = "write a list, as in `in [1, 2]`, or declare the parameter as a list"
        raise Refused(
            "T30", f"`{operator}` takes a list on its right, and this is {shown(right.type)}", right.place, hint
        )
    items = right.expr
    if right.type.base != "Null":
        element = Type(right.type.base, enum=right.type.enum)
        _comparable(operator, left, right, left.type, element, operator_place)
    elif left.type.base not in (*ORDERED, "Bool") or left.type.list:
        raise Refused("T7", f"{shown(left.type)} can't be compared", left.place)
    if isinstance(items, Lit):
        items = _items_beside(items, left.type, item_places)
    unknown = any_nullable((left, right)) or (isinstance(items, Call) and any(i.type.nullable for i in items.args))
    truth_ = Type("Bool", unknown)
    inside = Call("in", (left.expr, items), truth_)
    return Call("not", (inside,), truth_) if operator == "not in" else inside


def contains(left: Given, right: Given, operator_place: Place, code: str = "T7") -> Expr:
    """A text that holds another, or a list that holds a value."""
    _no_null("=", left, right)
    if not left.type.list:
        return _text_test("contains", "text, or a list and an element", left, right, code)
    element = Type(left.type.base, enum=left.type.enum)
    _comparable("contains", left, right, element, right.type, operator_place, code)
    return Call("contains", (left.expr, beside(right, element)), Type("Bool", any_nullable((left, right))))


def starts_with(left: Given, right: Given) -> Expr:
    _no_null("=", left, right)
    return _text_test("starts_with", "text", left, right, "T7")


def _text_test(word: str, takes: str, left: Given, right: Given, code: str) -> Call:
    for side in (left, right):
        if side.type.base not in TEXTS or side.type.list:
            raise Refused(code, f"`{word}` takes {takes}, and this is {shown(side.type)}", side.place)
    return Call(word, (left.expr, right.expr), Type("Bool", any_nullable((left, right))))


def _no_null(operator: str, *sides: Given) -> None:
    for side in sides:
        if side.is_null:
            hint = "write `is not null`" if operator == "!=" else "write `is null`"
            raise Refused("T7", "nothing compares with null", side.place, hint)


def _comparable(
    operator: str, left: Given, right: Given, a: Type, b: Type, operator_place: Place, code: str = "T7"
) -> None:
    """Refuse two types that don't compare with this operator, at the one side that is a literal or a parameter."""
    equality = operator in ("=", "!=", "in", "not in", "contains")
    if not a.list and not b.list:
        if {a.base, b.base} <= NUMBERS or {a.base, b.base} <= TEXTS:
            return
        if a.base == b.base and (a.base in ORDERED or (a.base == "Bool" and equality)):
            return
        if a.base == b.base and a.base in ("Node", "Edge") and a.entity == b.entity and equality:
            return
    plain = [side for side in (left, right) if isinstance(side.expr, (Lit, Param))]
    place = plain[0].place if len(plain) == 1 else operator_place
    message = f"{shown(left.type)} {operator} {shown(right.type)} can't be compared"
    raise Refused(code, message, place, _comparison_hint(operator, a, b))


def _comparison_hint(operator: str, a: Type, b: Type) -> str | None:
    bases = {a.base, b.base}
    if a.list or b.list:
        return "a list is searched with `contains` or `in`"
    if bases & {"Node", "Edge"}:
        return "compare one of its properties, as in `$x.id`"
    if bases == {"Bool"}:
        return "true and false have no order; use = or !="
    return conversion(a, b)


def _items_beside(items: Lit, type_: Type, places: tuple[Place, ...]) -> Expr:
    """The literal list of an `in`: an enum's values are checked, an empty list takes the left side's type."""
    if type_.base == "Enum":
        for item, place in zip(items.value, places, strict=True):
            beside(Given(Lit(item, Type("String")), place), type_)
    if type_.base == "Enum" or items.type.base == "Null":
        return Lit(items.value, Type(type_.base, list=True, enum=type_.enum))
    return items


# ---- arithmetic ----


def arithmetic(operator: str, left: Given, right: Given, operator_place: Place) -> Call:
    """`+ - * / mod` of two numbers: I64, U64 or F64; `/` is F64 always."""
    for side in (left, right):
        if side.type.base not in NUMBERS or side.type.list:
            hint = _arithmetic_hint(operator, left.type, right.type)
            raise Refused("T31", f"`{operator}` takes numbers, and this is {shown(side.type)}", side.place, hint)
    a, b = beside(left, right.type), beside(right, left.type)
    base = number_type(a.type, b.type)
    if base is None:
        plain = [side for side in (left, right) if isinstance(side.expr, (Lit, Param))]
        place = plain[0].place if len(plain) == 1 else operator_place
        message = f"{shown(left.type)} {operator} {shown(right.type)}: U64 mixes only with what has no sign"
        raise Refused("T31", message, place, "convert one with to_int or to_float")
    return Call(operator, (a, b), Type("F64" if operator == "/" else base, any_nullable((left, right))))


def negative(operand: Given) -> Call:
    type_ = operand.type
    if type_.base not in NUMBERS or type_.list:
        hint = _arithmetic_hint("-", type_, type_)
        raise Refused("T31", f"`-` takes a number, and this is {shown(type_)}", operand.place, hint)
    base = number_type(type_, Type("I32"))
    if base is None:
        raise Refused("T31", f"{shown(type_)} has no negative", operand.place, "write `-to_int(…)`")
    return Call("neg", (operand.expr,), Type(base, type_.nullable))


def _arithmetic_hint(operator: str, a: Type, b: Type) -> str | None:
    if a.list or b.list:
        return None
    days = {"Date", "DateTime"}
    if a.base in days and b.base in days:
        return "days_between(a, b) counts the days from a to b"
    if a.base in days or b.base in days:
        return "add_days(d, n) and add_months(d, n) move a date, backwards with a negative n"
    if a.base in TEXTS or b.base in TEXTS:
        return "to_int(…) and to_float(…) make numbers of texts"
    return None
