"""Arithmetic in I64, U64 and F64. A result that leaves its type (no infinity) and a division by zero are errors."""

from __future__ import annotations

from typing import NoReturn

import numpy as np
import pyarrow as pa

from omnigraph.read.compute import Array, pc
from omnigraph.read.datum import Datum, Fault, as_mask, cast_to, columnar, is_null_type, nulls_like, validity
from omnigraph.read.show import Shown

__all__ = ["absolute", "binary", "narrow", "negate", "round_number"]

_CHECKED = {"+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked}
_ROUNDED = {
    "round": lambda v: pc.round(v, ndigits=0, round_mode="half_towards_infinity"),
    "floor": pc.floor,
    "ceil": pc.ceil,
}


def _overflow(text: Shown, kind: pa.DataType) -> NoReturn:
    if pa.types.is_floating(kind):
        raise Fault(f"`{text}` is too large for a number with fractions: use smaller numbers", code="overflow")
    name = "an unsigned 64-bit integer" if pa.types.is_uint64(kind) else "a 64-bit integer"
    raise Fault(f"`{text}` leaves the range of {name}: use to_float, or smaller numbers", code="overflow")


def _zero(text: Shown) -> NoReturn:
    hint = "keep such rows out with a filter, or write `case when … then … end`"
    raise Fault(f"`{text}` divides by zero: {hint}", code="division_by_zero")


def binary(fn: str, left: Datum, right: Datum, kind: pa.DataType, text: Shown) -> Datum:
    """`+ - * / mod` in the result's type.

    Raises:
        Fault: `overflow` or `division_by_zero`, naming `text`.
    """
    if is_null_type(left) or is_null_type(right):
        return nulls_like(kind, left, right)
    a, b = cast_to(left, kind), cast_to(right, kind)
    if fn in _CHECKED:
        try:
            return _finite(_CHECKED[fn](a, b), text)
        except pa.ArrowInvalid:
            _overflow(text, kind)
    both = pc.and_(pc.is_valid(a), pc.equal(b, pa.scalar(0, kind)))
    if as_mask(both, 1).any():
        _zero(text)
    if fn == "/":
        return _finite(pc.divide(a, b), text)
    return columnar(lambda x, y: _remainder(x, y, kind), a, b)


def _finite(value: Datum, text: Shown) -> Datum:
    """The value itself; no property and no JSON holds an infinity, so none is computed."""
    if pa.types.is_floating(value.type) and as_mask(pc.invert(pc.is_finite(value)), 1).any():
        _overflow(text, value.type)
    return value


def _remainder(a: Array, b: Array, kind: pa.DataType) -> Array:
    """The remainder of a division that rounds towards zero: it has the sign of the first operand."""
    valid = validity(a) & validity(b)
    x = pc.fill_null(a, pa.scalar(0, kind)).to_numpy(zero_copy_only=False)
    y = np.where(valid, pc.fill_null(b, pa.scalar(1, kind)).to_numpy(zero_copy_only=False), np.array(1, x.dtype))
    if x.dtype == np.int64:
        y = np.where(y == -1, 1, y)  # the same remainder, without the one quotient that overflows
    return pa.array(np.fmod(x, y), kind, mask=~valid)


def negate(value: Datum, kind: pa.DataType, text: Shown) -> Datum:
    if is_null_type(value):
        return nulls_like(kind, value)
    try:
        return pc.negate_checked(cast_to(value, kind))
    except pa.ArrowInvalid:
        _overflow(text, kind)


def absolute(value: Datum, kind: pa.DataType, text: Shown) -> Datum:
    try:
        return pc.abs_checked(cast_to(value, kind))
    except pa.ArrowInvalid:
        _overflow(text, kind)


def round_number(fn: str, value: Datum, kind: pa.DataType) -> Datum:
    """`round` (half away from zero), `floor`, `ceil`; an integer is what it is."""
    value = cast_to(value, kind)
    return _ROUNDED[fn](value) if pa.types.is_floating(kind) else value


def narrow(value: Datum, kind: pa.DataType, text: Shown, name: str) -> Datum:
    """A number in a narrower type.

    Raises:
        Fault: `out_of_range`, where the type doesn't hold it.
    """
    if is_null_type(value):
        return nulls_like(kind, value)
    if value.type == kind:
        return value
    if pa.types.is_floating(kind):
        out = value.cast(kind, safe=False)
        lost = pc.and_(pc.is_inf(out), pc.invert(pc.is_inf(value.cast(pa.float64(), safe=False))))
        if as_mask(lost, 1).any():
            raise Fault(f"`{text}` is too large for {name}", code="out_of_range")
        return out
    try:
        return value.cast(kind)
    except pa.ArrowInvalid as error:
        found = str(error).removeprefix("Integer value ").split(" ")[0]
        raise Fault(f"`{text}` is {found}, which {name} can't hold", code="out_of_range") from None
