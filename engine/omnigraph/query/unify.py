"""Types beside each other: which have one in common, and what a literal becomes next to something."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from omnigraph.query.ir import Expr, Lit
from omnigraph.query.scope import Refused, did_you_mean
from omnigraph.schema.ast import Place
from omnigraph.schema.catalog import INTEGERS, NUMBERS, SCALARS, Type

__all__ = [
    "BOOL",
    "FLOATS",
    "ORDERED",
    "TEXTS",
    "Given",
    "any_nullable",
    "beside",
    "conversion",
    "number_type",
    "shown",
    "unify",
]

FLOATS = frozenset({"F32", "F64"})
TEXTS = frozenset({"String", "Enum"})
ORDERED = NUMBERS | TEXTS | {"Date", "DateTime"}
BOOL = Type("Bool")


class Given(NamedTuple):
    """A checked operand or argument and where it stands."""

    expr: Expr
    place: Place

    @property
    def type(self) -> Type:
        return self.expr.type

    @property
    def is_null(self) -> bool:
        return self.expr.type.base == "Null" and not self.expr.type.list


def shown(type_: Type) -> str:
    """A type in a message."""
    return "null" if type_.base == "Null" and not type_.list else str(type_)


def any_nullable(values: Iterable[Given]) -> bool:
    return any(value.type.nullable for value in values)


def number_type(left: Type, right: Type) -> str | None:
    """The type two numbers are calculated in; None where they don't mix."""
    bases = {left.base, right.base}
    if "U64" in bases:
        return "U64" if bases <= {"U64", "U32"} else None
    return "F64" if bases & FLOATS else "I64"


def beside(value: Given, other: Type) -> Expr:
    """A literal as what it is beside something of this type; anything else as it is.

    Beside an enum a text must be one of its values (T7); beside U64 an integer that isn't negative is one.
    """
    expr = value.expr
    if not isinstance(expr, Lit) or expr.value is None or other.list or expr.type.list:
        return expr
    if other.base == "Enum" and expr.type.base == "String":
        if expr.value not in other.enum:
            near = did_you_mean(str(expr.value), iter(other.enum))
            raise Refused("T7", f'"{expr.value}" is not one of {", ".join(other.enum)}', value.place, near)
        return Lit(expr.value, Type("Enum", enum=other.enum))
    if other.base == "U64" and expr.type.base == "I64" and expr.value >= 0:
        return Lit(expr.value, Type("U64"))
    return expr


def unify(values: Sequence[Given], code: str, what: str) -> tuple[Type, tuple[Expr, ...]]:
    """The one type that all of them have, and the values with their literals turned into it.

    The type is nullable where a value may be null; a null literal takes the type of the others.

    Raises:
        Refused: `code`, at the first value that has no type in common with those before.
    """
    typed = sorted((v for v in values if not v.is_null), key=lambda v: isinstance(v.expr, Lit))
    if not typed:
        raise Refused(code, f"{what}: nothing but null has no type", values[0].place)
    common = replace(typed[0].type, nullable=False)
    for value in typed:
        if value.type.base not in SCALARS and not (value.type.list and value.type.base == "Null"):
            raise Refused(code, f"{what}: {shown(value.type)} can't stand here", value.place)
        joined = _join(common, replace(beside_number(value, common).type, nullable=False))
        if joined is None:
            message = f"{what} must be of one type, and {shown(value.type)} doesn't go with {shown(common)}"
            raise Refused(code, message, value.place, conversion(common, value.type))
        common = joined
    return replace(common, nullable=any_nullable(values)), tuple(_turned(v.expr, common) for v in values)


def beside_number(value: Given, other: Type) -> Expr:
    """Like `beside`, but a text beside an enum stays a text."""
    return value.expr if other.base == "Enum" else beside(value, other)


def conversion(a: Type, b: Type) -> str | None:
    """How two types that don't go together could, as a hint."""
    bases = {a.base, b.base}
    if a.list or b.list:
        return None
    if bases <= NUMBERS:
        return "convert one with to_int or to_float"
    if bases & TEXTS and bases & NUMBERS:
        return "convert one with to_int, to_float or to_string"
    for word, base in (("date", "Date"), ("datetime", "DateTime")):
        if base in bases and bases & TEXTS:
            return f'write {word}("…") for a literal, or declare the parameter as {base}'
    if bases == {"Date", "DateTime"}:
        return 'write datetime("…") beside a DateTime, and date("…") beside a Date'
    return None


def _join(a: Type, b: Type) -> Type | None:
    if a.list != b.list:
        return None
    if a == b:
        return a
    if a.list and "Null" in (a.base, b.base):  # an empty list takes the other's type
        return b if a.base == "Null" else a
    if a.base in TEXTS and b.base in TEXTS:
        return Type("String", list=a.list)
    if a.base in NUMBERS and b.base in NUMBERS and not a.list:
        base = number_type(a, b)
        return Type(base) if base else None
    return None


def _turned(expr: Expr, common: Type) -> Expr:
    """A literal in the common type."""
    if not isinstance(expr, Lit):
        return expr
    if expr.value is None:
        return Lit(None, replace(common, nullable=True))
    if common.base == "F64" and expr.type.base in INTEGERS and not common.list:
        return Lit(float(expr.value), common)
    return Lit(expr.value, common)
