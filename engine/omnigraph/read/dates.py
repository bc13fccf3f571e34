"""Dates and times. A Date is days, a DateTime milliseconds since 1970 in UTC; both stay within the years 1 to 9999."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from omnigraph.read.compute import Array, pc
from omnigraph.read.datum import Bools, Datum, Fault, Longs, columnar, validity
from omnigraph.read.show import Shown

__all__ = ["add_days", "add_months", "date_part", "date_trunc", "days_between"]

_FIRST, _LAST = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31 in days
_DAY_MS = 86_400_000
_PARTS = {"year": pc.year, "month": pc.month, "day": pc.day}


def date_part(fn: str, value: Datum) -> Datum:
    return _PARTS[fn](value)


def date_trunc(unit: str, value: Datum) -> Datum:
    """The beginning of the unit a date is in; a week begins on Monday."""
    return pc.floor_temporal(value, unit=unit, week_starts_monday=True)


def _days(column: Array) -> tuple[Longs, Longs]:
    """(whole days since 1970, milliseconds of the day) of a Date or DateTime column; zero under a null."""
    if pa.types.is_date32(column.type):
        days = pc.fill_null(column.view(pa.int32()), 0).to_numpy(zero_copy_only=False).astype(np.int64)
        return days, np.zeros(len(days), dtype=np.int64)
    millis = pc.fill_null(column.view(pa.int64()), 0).to_numpy(zero_copy_only=False)
    days, rest = np.divmod(millis, _DAY_MS)
    return days, rest


def _made(days: Longs, rest: Longs, valid: Bools, kind: pa.DataType, text: Shown) -> Array:
    if bool((valid & ((days < _FIRST) | (days > _LAST))).any()):
        raise Fault(f"`{text}` leaves the years 1 to 9999", code="overflow")
    days = np.where(valid, days, 0)
    if pa.types.is_date32(kind):
        return pa.array(days.astype(np.int32), pa.int32(), mask=~valid).view(kind)
    return pa.array(days * _DAY_MS + rest, pa.int64(), mask=~valid).view(kind)


def _count(column: Array) -> Longs:
    """How many to add; what no date can be moved by is cut, so that nothing wraps around."""
    numbers = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
    cut = np.clip(numbers, 0 if numbers.dtype.kind == "u" else -10_000_000, 10_000_000)
    return np.asarray(cut, dtype=np.int64)


def add_days(value: Datum, number: Datum, text: Shown) -> Datum:
    """Whole days later, or earlier for a negative number."""

    def work(column: Array, numbers: Array) -> Array:
        days, rest = _days(column)
        valid = validity(column) & validity(numbers)
        return _made(days + _count(numbers), rest, valid, column.type, text)

    return columnar(work, value, number)


def add_months(value: Datum, number: Datum, text: Shown) -> Datum:
    """The same day of a later or earlier month, or that month's last day where it is shorter."""

    def work(column: Array, numbers: Array) -> Array:
        days, rest = _days(column)
        valid = validity(column) & validity(numbers)
        month = days.astype("datetime64[D]").astype("datetime64[M]")
        day = days - month.astype("datetime64[D]").astype(np.int64)
        target = month.astype(np.int64) + _count(numbers)
        first = target.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
        after = (target + 1).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
        return _made(np.minimum(first + day, after - 1), rest, valid, column.type, text)

    return columnar(work, value, number)


def days_between(first: Datum, second: Datum) -> Datum:
    """Whole days from the first to the second, rounded towards zero."""

    def work(a: Array, b: Array) -> Array:
        (days_a, rest_a), (days_b, rest_b) = _days(a), _days(b)
        millis = (days_b - days_a) * _DAY_MS + (rest_b - rest_a)
        whole = np.sign(millis) * (np.abs(millis) // _DAY_MS)
        return pa.array(whole, pa.int64(), mask=~(validity(a) & validity(b)))

    return columnar(work, first, second)
