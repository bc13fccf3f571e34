"""The language's functions by name, over values that are there already. Null in, null out, for all of them here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from omnigraph.query.ir import Call
from omnigraph.read import arithmetic, compare, dates, text
from omnigraph.read.compute import Array, pc, together
from omnigraph.read.datum import Datum, Fault, as_mask, cast_to, columnar, is_array, is_null_type, nulls_like
from omnigraph.read.show import Later, Shown, show
from omnigraph.read.types import arrow_of

__all__ = ["FUNCTIONS", "Function", "bind", "make_list"]

Function: TypeAlias = Callable[[Sequence[Datum], pa.DataType, Shown], Datum]
"""(arguments, the result's Arrow type, the call as text) → the result."""


def _length(args: Sequence[Datum], kind: pa.DataType, shown: Shown) -> Datum:
    (value,) = args
    of = pc.list_value_length if pa.types.is_list(value.type) else pc.utf8_length
    return of(value).cast(kind)


def _contains(args: Sequence[Datum], kind: pa.DataType, shown: Shown) -> Datum:
    whole, part = args
    return (compare.member if pa.types.is_list(whole.type) else compare.holds_text)(whole, part)


FUNCTIONS: dict[str, Function] = {
    "=": lambda a, k, s: compare.compare("=", a[0], a[1]),
    "!=": lambda a, k, s: compare.compare("!=", a[0], a[1]),
    "<": lambda a, k, s: compare.compare("<", a[0], a[1]),
    "<=": lambda a, k, s: compare.compare("<=", a[0], a[1]),
    ">": lambda a, k, s: compare.compare(">", a[0], a[1]),
    ">=": lambda a, k, s: compare.compare(">=", a[0], a[1]),
    "in": lambda a, k, s: compare.member(a[1], a[0]),
    "contains": _contains,
    "starts_with": lambda a, k, s: compare.starts_with(a[0], a[1]),
    "ends_with": lambda a, k, s: compare.ends_with(a[0], a[1]),
    "+": lambda a, k, s: arithmetic.binary("+", a[0], a[1], k, s),
    "-": lambda a, k, s: arithmetic.binary("-", a[0], a[1], k, s),
    "*": lambda a, k, s: arithmetic.binary("*", a[0], a[1], k, s),
    "/": lambda a, k, s: arithmetic.binary("/", a[0], a[1], k, s),
    "mod": lambda a, k, s: arithmetic.binary("mod", a[0], a[1], k, s),
    "neg": lambda a, k, s: arithmetic.negate(a[0], k, s),
    "abs": lambda a, k, s: arithmetic.absolute(a[0], k, s),
    "round": lambda a, k, s: arithmetic.round_number("round", a[0], k),
    "floor": lambda a, k, s: arithmetic.round_number("floor", a[0], k),
    "ceil": lambda a, k, s: arithmetic.round_number("ceil", a[0], k),
    "lower": lambda a, k, s: pc.utf8_lower(a[0]),
    "upper": lambda a, k, s: pc.utf8_upper(a[0]),
    "trim": lambda a, k, s: pc.utf8_trim_whitespace(a[0]),
    "length": _length,
    "substring": lambda a, k, s: text.substring(a[0], a[1], a[2], s),
    "replace": lambda a, k, s: text.replace(a[0], a[1], a[2]),
    "split": lambda a, k, s: text.split(a[0], a[1], s),
    "matches": lambda a, k, s: text.matches(a[0], a[1].as_py()),
    "year": lambda a, k, s: dates.date_part("year", a[0]),
    "month": lambda a, k, s: dates.date_part("month", a[0]),
    "day": lambda a, k, s: dates.date_part("day", a[0]),
    "date_trunc": lambda a, k, s: dates.date_trunc(a[0].as_py(), a[1]),
    "add_days": lambda a, k, s: dates.add_days(a[0], a[1], s),
    "add_months": lambda a, k, s: dates.add_months(a[0], a[1], s),
    "days_between": lambda a, k, s: dates.days_between(a[0], a[1]),
    "to_string": lambda a, k, s: text.to_string(a[0]),
    "to_int": lambda a, k, s: text.to_int(a[0], s),
    "to_float": lambda a, k, s: text.to_float(a[0], s),
}


def bind(call: Call) -> Function | None:
    """The function of a call, or None where the name is none of a plain function's."""
    if call.fn == "to":
        return _converted(call)
    found = FUNCTIONS.get(call.fn)
    if found is None:
        return None
    kind, shown, work = arrow_of(call.type), Later(lambda: show(call)), found
    return lambda args, _k, _s: nulls_like(kind, *args) if any(map(is_null_type, args)) else work(args, kind, shown)


def _converted(call: Call) -> Function:
    """`to`: a number in a narrower type, a text that must be one of an enum's values."""
    kind, shown, type_ = arrow_of(call.type), Later(lambda: show(call)), call.type
    if type_.base != "Enum" or not type_.enum:
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            return lambda args, _k, _s: arithmetic.narrow(args[0], kind, shown, type_.base)
        return lambda args, _k, _s: cast_to(args[0], kind)
    allowed = pa.array(list(type_.enum), pa.string())

    def enum(args: Sequence[Datum], _k: pa.DataType, _s: Shown) -> Datum:
        (value,) = args
        if is_null_type(value):
            return nulls_like(kind, value)
        texts: Any = value.values if isinstance(value, pa.ListScalar) else value.flatten() if type_.list else value
        strange = pc.and_(pc.is_valid(texts), pc.invert(pc.is_in(texts, value_set=allowed)))
        at = np.flatnonzero(as_mask(strange, 1))
        if len(at):
            found = texts[int(at[0])].as_py() if is_array(texts) else texts.as_py()
            known = ", ".join(type_.enum)
            raise Fault(f'`{shown}` is "{found}", which is not one of {known}', code="out_of_range")
        return value

    return enum


def make_list(items: Sequence[Datum], kind: Any) -> Datum:
    """A list in each row, of the items in order; a null item stays in it."""

    def work(*columns: Array) -> Array:
        n, k = len(columns[0]), len(columns)
        flat = together([cast_to(c, kind.value_type) for c in columns])
        order = np.arange(n * k).reshape(k, n).T.ravel()
        return pa.ListArray.from_arrays(pa.array(np.arange(n + 1) * k, pa.int32()), flat.take(pa.array(order)))

    return columnar(work, *items) if items else pa.scalar([], kind)
