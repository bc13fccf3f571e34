"""The functions: what each takes and gives, as a table. Arguments come checked; null in, null out, but for `coalesce`.

Aggregates are in `aggregates`, text search and rankings in `ranking`, functions of a path in `expressions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from omnigraph.query import ast
from omnigraph.query.ir import Call, Expr, Lit
from omnigraph.query.operators import arithmetic, contains
from omnigraph.query.scope import Refused, did_you_mean
from omnigraph.query.unify import FLOATS, TEXTS, Given, any_nullable, conversion, shown, unify
from omnigraph.records import dataclass
from omnigraph.schema.catalog import INTEGERS, NUMBERS, SCALARS, Type

__all__ = ["FUNCTIONS", "call"]

Arguments = tuple[Given, ...]


@dataclass(frozen=True, slots=True)
class Takes:
    """What an argument may be, in words and as types."""

    words: str
    bases: frozenset[str]
    lists: bool = False

    def refuse(self, name: str, argument: Given) -> None:
        type_ = argument.type
        if (type_.list and not self.lists) or (not type_.list and type_.base not in self.bases):
            message = f"`{name}` takes {self.words} here, and this is {shown(type_)}"
            raise Refused("T32", message, argument.place, self._hint(type_))

    def _hint(self, type_: Type) -> str | None:
        if type_.list or type_.base not in SCALARS:
            return None
        if self.bases == TEXTS and not self.lists:
            return "to_string(…) makes a text of it"
        if self.bases <= NUMBERS and type_.base in TEXTS | NUMBERS:
            return "convert it with to_int(…)" if self.bases == INTEGERS else "convert it with to_int(…) or to_float(…)"
        return conversion(Type("Date"), type_) if "Date" in self.bases and type_.base == "String" else None


@dataclass(frozen=True, slots=True)
class Function:
    """`usage` is the call as a user writes it, `takes` its arguments, `gives` its type from theirs (null aside).

    `special` makes the whole expression where a type rule isn't enough.
    """

    usage: str
    takes: tuple[Takes, ...] = ()
    gives: Callable[[Arguments], Type] | None = None
    special: Callable[[ast.CallExpr, Arguments], Expr] | None = None


TEXT = Takes("a text", TEXTS)
WHOLE = Takes("a whole number", INTEGERS)
NUMBER = Takes("a number", NUMBERS)
DAY = Takes("a Date or DateTime", frozenset({"Date", "DateTime"}))
SCALAR = Takes("a single value", SCALARS)
MEASURED = Takes("a text, a list or a path", TEXTS, lists=True)
ANY = Takes("a value", SCALARS, lists=True)
TO_INT = Takes("a text, a number or a Bool", TEXTS | NUMBERS | {"Bool"})
TO_FLOAT = Takes("a text or a number", TEXTS | NUMBERS)


def _always(base: str, *, list: bool = False) -> Callable[[Arguments], Type]:
    type_ = Type(base, list=list)
    return lambda arguments: type_


def _as_first(arguments: Arguments) -> Type:
    return arguments[0].type


def _rounded(arguments: Arguments) -> Type:
    """Integers stay whole (I64, U64), floats stay floats (F64)."""
    base = arguments[0].type.base
    if base in FLOATS:
        return Type("F64")
    return Type("U64" if base == "U64" else "I64")


# ---- those with a rule of their own ----


def _coalesce(node: ast.CallExpr, arguments: Arguments) -> Expr:
    if len(arguments) < 2:
        raise _arity(node, "coalesce(a, b, …)", "two arguments or more")
    type_, values = unify(arguments, "T32", "the arguments of `coalesce`")
    return Call("coalesce", values, replace(type_, nullable=all(a.type.nullable for a in arguments)))


def _contains(node: ast.CallExpr, arguments: Arguments) -> Expr:
    text, part = arguments
    if text.is_null or part.is_null:
        raise Refused("T32", "`contains` takes a value here, and this is null", (text if text.is_null else part).place)
    return contains(text, part, part.place, "T32")


def _mod(node: ast.CallExpr, arguments: Arguments) -> Expr:
    return arithmetic("mod", arguments[0], arguments[1], node.name_place)


def _matches(node: ast.CallExpr, arguments: Arguments) -> Expr:
    text, pattern = arguments
    TEXT.refuse("matches", text)
    if not isinstance(pattern.expr, Lit) or pattern.type.base != "String" or pattern.type.list:
        raise Refused(
            "T32", "`matches` takes its pattern as a literal text", pattern.place, 'as in matches(s, "[a-z]+")'
        )
    from omnigraph.schema.regex import refuse_regex  # few queries have one

    reason = refuse_regex(pattern.expr.value)
    if reason is not None:
        raise Refused("T32", f"this pattern can't be used: {reason}", pattern.place)
    return Call("matches", (text.expr, pattern.expr), Type("Bool", text.type.nullable))


_DATE_UNITS = ("year", "quarter", "month", "week", "day")
_TIME_UNITS = ("hour", "minute", "second")


def _date_trunc(node: ast.CallExpr, arguments: Arguments) -> Expr:
    unit, day = arguments
    units = (*_DATE_UNITS, *_TIME_UNITS)
    if not isinstance(unit.expr, Lit) or unit.expr.value not in units:
        near = did_you_mean(str(unit.expr.value), iter(units)) if isinstance(unit.expr, Lit) else None
        raise Refused("T32", f"the unit is one of {', '.join(units)}, as a literal text", unit.place, near)
    DAY.refuse("date_trunc", day)
    if day.type.base == "Date" and unit.expr.value in _TIME_UNITS:
        message = f"a Date has no {unit.expr.value}; its units are {', '.join(_DATE_UNITS)}"
        raise Refused("T32", message, unit.place)
    return Call("date_trunc", (unit.expr, day.expr), day.type)


def _days_between(node: ast.CallExpr, arguments: Arguments) -> Expr:
    for argument in arguments:
        DAY.refuse("days_between", argument)
    a, b = arguments
    if a.type.base != b.type.base:
        message = f"`days_between` takes two Dates or two DateTimes, not {shown(a.type)} and {shown(b.type)}"
        raise Refused("T32", message, b.place)
    return Call("days_between", (a.expr, b.expr), Type("I64", any_nullable(arguments)))


# ---- the table ----

FUNCTIONS: Mapping[str, Function] = {
    "lower": Function("lower(text)", (TEXT,), _always("String")),
    "upper": Function("upper(text)", (TEXT,), _always("String")),
    "trim": Function("trim(text)", (TEXT,), _always("String")),
    "length": Function("length(text | list | $path)", (MEASURED,), _always("I64")),
    "substring": Function("substring(text, start, count)", (TEXT, WHOLE, WHOLE), _always("String")),
    "replace": Function("replace(text, from, to)", (TEXT, TEXT, TEXT), _always("String")),
    "starts_with": Function("starts_with(text, part)", (TEXT, TEXT), _always("Bool")),
    "ends_with": Function("ends_with(text, part)", (TEXT, TEXT), _always("Bool")),
    "contains": Function("contains(text | list, part)", (ANY, ANY), special=_contains),
    "split": Function("split(text, separator)", (TEXT, TEXT), _always("String", list=True)),
    "matches": Function('matches(text, "pattern")', (ANY, ANY), special=_matches),
    "coalesce": Function("coalesce(a, b, …)", special=_coalesce),
    "abs": Function("abs(number)", (NUMBER,), _rounded),
    "round": Function("round(number)", (NUMBER,), _rounded),
    "floor": Function("floor(number)", (NUMBER,), _rounded),
    "ceil": Function("ceil(number)", (NUMBER,), _rounded),
    "mod": Function("mod(a, b)", (NUMBER, NUMBER), special=_mod),
    "year": Function("year(date)", (DAY,), _always("I64")),
    "month": Function("month(date)", (DAY,), _always("I64")),
    "day": Function("day(date)", (DAY,), _always("I64")),
    "date_trunc": Function('date_trunc("unit", date)', (TEXT, DAY), special=_date_trunc),
    "add_days": Function("add_days(date, n)", (DAY, WHOLE), _as_first),
    "add_months": Function("add_months(date, n)", (DAY, WHOLE), _as_first),
    "days_between": Function("days_between(from, to)", (DAY, DAY), special=_days_between),
    "to_string": Function("to_string(value)", (SCALAR,), _always("String")),
    "to_int": Function("to_int(text | number | Bool)", (TO_INT,), _always("I64")),
    "to_float": Function("to_float(text | number)", (TO_FLOAT,), _always("F64")),
    "now": Function("now()", (), _always("DateTime")),
}


def call(node: ast.CallExpr, arguments: Arguments) -> Expr:
    """The function named, over checked arguments.

    Raises:
        Refused: T32 for an argument too many or of a wrong type.
    """
    function = FUNCTIONS[node.name]
    if function.special is not _coalesce and len(arguments) != len(function.takes):
        count = len(function.takes)
        wants = "no argument" if count == 0 else "one argument" if count == 1 else f"{count} arguments"
        raise _arity(node, function.usage, wants)
    if function.special is not None:
        return function.special(node, arguments)
    for takes, argument in zip(function.takes, arguments, strict=True):
        takes.refuse(node.name, argument)
    assert function.gives is not None
    type_ = replace(function.gives(arguments), nullable=any_nullable(arguments))
    return Call(node.name, tuple(a.expr for a in arguments), type_)


def _arity(node: ast.CallExpr, usage: str, wants: str) -> Refused:
    given = len(node.arguments)
    return Refused(
        "T32",
        f"`{node.name}` takes {wants}, and {given or 'none'} {'is' if given < 2 else 'are'} given",
        node.name_place,
        f"write `{usage}`",
    )
