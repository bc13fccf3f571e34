"""Strict casts of a source's column to a property's type. Columnar; a value that doesn't fit is marked, never altered.

`cast_column` gives the column in the table's Arrow type with nulls where a value didn't fit, and a mask of those rows.
Text is read as a value only where the source has nothing but text (CSV) or where JSON writes the type as text (dates).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.errors import BadRequest, Internal
from omnigraph.read.compute import Array, Chunked, Scalar, pc
from omnigraph.records import dataclass
from omnigraph.schema.catalog import INTEGERS, Type
from omnigraph.storage import whole
from omnigraph.storage.arrow import arrow_type
from omnigraph.write.mapping import DateFormat

__all__ = [
    "Cast",
    "cast_column",
    "kept_rows",
    "not_text",
    "nulls_of",
    "one_chunk",
    "plain_texts",
    "shaped",
    "values_column",
]

_EPOCH, _MS_PER_DAY = date(1970, 1, 1).toordinal(), 86_400_000
_DATE = r"^\d{4}-\d{2}-\d{2}$"
_ZONED = r"(Z|[+-]\d{2}:?\d{2})$"
_TIME = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,3}0*)?)?(Z|[+-]\d{2}:?\d{2})?)?$"
_INTEGER = r"^[+-]?\d{1,20}$"
_DATES = (date.min.toordinal() - _EPOCH, date.max.toordinal() - _EPOCH)
_TIMES = (_DATES[0] * _MS_PER_DAY, (_DATES[1] + 1) * _MS_PER_DAY - 1)
_BOOL = r"^(?i:true|false)$"
_FLOAT = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"


@dataclass(frozen=True, slots=True)
class Cast:
    """A column in its table type, and which rows didn't fit (None: all did)."""

    column: Array
    bad: Array | None = None


_nulls: Any = pa.nulls  # its overloads want the type to be known statically


def nulls_of(kind: Type, n: int) -> Array:
    return _nulls(n, arrow_type(kind))


def one_chunk(column: Array | Chunked) -> Array:
    """A column of a batch or a portion as one array; that of a table may be too long, and is `whole.joined`."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    if pa.types.is_string(column.type) and column.nbytes > whole.LONGEST:
        raise Internal(f"{column.nbytes:,} bytes of texts are no portion")
    return column.combine_chunks()


def not_text(batch: pa.RecordBatch) -> dict[int, str]:
    """The rows with bytes that are no UTF-8 where text is due, each with the first column that holds such.

    Files of columns may hold them, Arrow hands them on unseen, and a table that does can't be read any more.

    Raises:
        ArrowInvalid: a column of texts isn't put together as its type says.
    """
    out: dict[int, str] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if not _holds_text(column.type):
            continue
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            if "UTF8" not in str(error):
                raise
            for at, value in enumerate(column):
                if not _decodes(value):
                    out.setdefault(at, name)
    return out


def _holds_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _holds_text(kind.value_type)
    return _is_text(kind)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view()


def _decodes(value: Scalar) -> bool:
    try:
        value.as_py()
    except UnicodeDecodeError:
        return False
    return True


def kept_rows(batch: pa.RecordBatch, good: npt.NDArray[np.bool_]) -> pa.RecordBatch:
    """The rows of a batch, of any types, where `good` says so."""
    try:
        return batch.filter(pa.array(good))
    except pa.ArrowNotImplementedError:  # of views, for one
        rows = [batch.slice(at, 1) for at in np.flatnonzero(good).tolist()]
        return pa.Table.from_batches(rows).combine_chunks().to_batches()[0] if rows else batch.slice(0, 0)


def shaped(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows with exactly these columns, cast where they have another type."""
    if rows.schema.equals(schema):
        return rows
    columns = [rows.column(name) for name in schema.names]
    fitting = [c if c.type == kind else c.cast(kind) for c, kind in zip(columns, schema.types, strict=True)]
    return pa.Table.from_arrays(fitting, schema=schema)


_KINDS: dict[type, pa.DataType] = {
    str: pa.string(),
    float: pa.float64(),
    bool: pa.bool_(),
    int: pa.int64(),
}
"""What Arrow would take these for too, after a look at every value."""

_UNSIGNED = pa.list_(pa.uint64())


def values_column(values: Sequence[Any]) -> Array:
    """Python values, all of one kind, in the Arrow type they suggest; integers past 2^63 are unsigned.

    Raises:
        BadRequest: no Arrow type holds them.
    """
    known = _KINDS.get(type(values[0])) if values else None
    for kind in (known, pa.uint64(), _UNSIGNED):  # left alone, Arrow takes every integer for int64
        try:
            return pa.array(values, kind)
        except (OverflowError, pa.ArrowInvalid, pa.ArrowTypeError):
            continue
    raise BadRequest(f"{values[0]!r} is no value of any property")


def cast_column(column: Array | Chunked, kind: Type, *, text: bool = False, form: DateFormat | None = None) -> Cast:
    """Casts without loss.

    Args:
        column: any Arrow array.
        text: the source knows text only, so numbers and Bools are read from it.
        form: how a Date or DateTime is written as text; default ISO 8601.
    """
    source = plain_texts(one_chunk(column))
    if pa.types.is_null(source.type):
        return Cast(nulls_of(kind, len(source)))
    if kind.base == "Vector":
        return _vector(source, kind)
    if kind.list:
        return _list(source, kind, text, form)
    return _scalar(source, kind.base, text, form)


def plain_texts(column: Array) -> Array:
    """Texts however Arrow keeps them as utf8; any other column as it is, without a dictionary."""
    if pa.types.is_dictionary(column.type):
        return plain_texts(column.dictionary).take(column.indices)
    return column.cast(pa.string()) if _is_text(column.type) else column


def _scalar(column: Array, base: str, text: bool, form: DateFormat | None) -> Cast:
    target, kind = arrow_type(Type(base)), column.type
    if base == "DateTime":
        return _within(_datetime(column, form), _TIMES)
    if base == "Date":
        return _within(_date(column, form), _DATES)
    if kind == target:
        return _finite(Cast(column)) if pa.types.is_floating(kind) else Cast(column)
    if pa.types.is_string(kind) and text:
        if base == "Bool":
            return _checked(column, pc.match_substring_regex(column, _BOOL), lambda c: c.cast(target))
        pattern = _INTEGER if base in INTEGERS else _FLOAT
        cast = _checked(column, pc.match_substring_regex(column, pattern), lambda c: c.cast(target))
        return _finite(cast) if base in ("F32", "F64") else cast
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if base in ("String", "Enum", "Bool") or not number:
        return _none(column, target)
    if pa.types.is_decimal32(kind) or pa.types.is_decimal64(kind):
        column = column.cast(pa.decimal128(38, kind.scale))  # the narrow ones have no casts to every integer
    if base in ("F32", "F64") and not pa.types.is_integer(kind):
        # Fewer digits are no loss worth refusing; turning a finite number into infinity is.
        return _finite(Cast(column.cast(target, safe=False)))
    return _checked(column, None, lambda c: c.cast(target))


def _date(column: Array, form: DateFormat | None) -> Cast:
    kind = column.type
    if pa.types.is_string(kind):
        if form is None:
            return _checked(column, pc.match_substring_regex(column, _DATE), lambda c: c.cast(pa.date32()))
        pattern = form.pattern
        times = _checked(column, None, lambda c: _strptime(c, pattern))
        days = _whole_days(times.column)
        return Cast(days.column, _or(times.bad, days.bad))
    if pa.types.is_date32(kind):
        return Cast(column)
    if pa.types.is_date64(kind):
        return _whole_days(_as_time(column))
    if pa.types.is_timestamp(kind):
        return _whole_days(column)
    if pa.types.is_integer(kind):  # days since 1970, as other exports of such graphs write them
        return _checked(column, None, lambda c: c.cast(pa.int32()).view(pa.date32()))
    return _none(column, pa.date32())


def _whole_days(times: Array) -> Cast:
    """Times as days; one within a day is none."""
    try:
        wall = times if times.type.tz is None else pc.local_timestamp(times)
    except pa.ArrowInvalid:  # a zone that there isn't
        return _none(times, pa.date32())
    days = wall.cast(pa.date32())  # cuts a time of day off without a word
    return _marked(days, pc.not_equal(days.cast(wall.type), wall))


def _datetime(column: Array, form: DateFormat | None) -> Cast:
    kind = column.type
    zone = form.zone if form is not None else "UTC"
    if pa.types.is_date64(kind):
        return Cast(column)
    if pa.types.is_timestamp(kind):
        return _checked(column, None, lambda c: _as_date64(_utc(c, zone)))
    if not pa.types.is_string(kind):
        return _none(column, pa.date64())
    if form is not None:
        pattern = form.pattern
        return _checked(column, None, lambda c: _as_date64(_utc(_strptime(c, pattern), zone)))
    return _checked(column, pc.match_substring_regex(column, _TIME), _iso_datetime)


def _strptime(column: Array, pattern: str) -> Array:
    return pc.strptime(column, format=pattern, unit="ms", error_is_null=False)


def _iso_datetime(column: Array) -> Array:
    zoned = pc.match_substring_regex(column, _ZONED)
    none = pa.scalar(None, pa.string())
    # Nanoseconds first, so that trailing zeros are read; the cast to milliseconds refuses a real loss.
    with_zone = pc.if_else(zoned, column, none).cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("ms", "UTC"))
    without = pc.if_else(zoned, none, column).cast(pa.timestamp("us")).cast(pa.timestamp("ms"))
    return _as_date64(pc.coalesce(with_zone.view(pa.timestamp("ms")), without))


def _utc(column: Array, zone: str) -> Array:
    """Milliseconds in UTC without a zone; a wall clock's time is taken in `zone`."""
    millis = column.cast(pa.timestamp("ms", column.type.tz))
    if column.type.tz is None and zone != "UTC":
        millis = pc.assume_timezone(millis, zone)
    return millis.view(pa.timestamp("ms"))


def _as_time(days: Array) -> Array:
    # A cast would refuse one with a time of day.
    return days.view(pa.int64()).view(pa.timestamp("ms"))


def _as_date64(millis: Array) -> Array:
    # A cast would cut the time of day off; the bits are what the table holds.
    return millis.view(pa.int64()).view(pa.date64())


def _list(column: Array, kind: Type, text: bool, form: DateFormat | None) -> Cast:
    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        return _none(column, arrow_type(kind))
    column = column.cast(pa.list_(column.type.value_type))
    values = column.flatten()
    if pa.types.is_null(values.type):
        cast = Cast(_nulls(len(values), arrow_type(Type(kind.base))))
    else:
        cast = _scalar(plain_texts(values), kind.base, text, form)
    broken = pc.is_null(values) if cast.bad is None else pc.or_(pc.is_null(values), cast.bad)
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    offsets = pc.cumulative_sum(pa.concat_arrays([pa.array([0], pa.int32()), lengths]))
    out = pa.ListArray.from_arrays(offsets, cast.column, mask=pc.is_null(column))
    if not pc.any(broken).as_py():
        return Cast(out)
    rows = pc.list_parent_indices(column).filter(broken)
    bad = pc.is_in(pa.array(range(len(column)), rows.type), value_set=pc.unique(rows))
    return Cast(pc.if_else(bad, nulls_of(kind, len(column)), out), bad)


def _vector(column: Array, kind: Type) -> Cast:
    """Lists of numbers of the right length; the elements as float32."""
    source = column.type
    is_list = pa.types.is_list(source) or pa.types.is_large_list(source) or pa.types.is_fixed_size_list(source)
    if not is_list or not (pa.types.is_floating(source.value_type) or pa.types.is_integer(source.value_type)):
        return _none(column, arrow_type(kind))
    target = arrow_type(kind)
    if source == target:
        return Cast(column)
    wrong = pc.not_equal(pc.list_value_length(column), kind.dim)
    bad = pc.and_(pc.is_valid(column), pc.fill_null(wrong, False)) if wrong.true_count else None
    if bad is not None:
        column = pc.if_else(bad, _nulls(len(column), source), column)
    plain = pa.list_(source.value_type)
    column = column if source == plain else column.cast(plain)
    return Cast(column.cast(target, safe=False), bad)


def _finite(cast: Cast) -> Cast:
    """NaN and infinity are no numbers here: nothing that compares, sums or exports would know what to do with them."""
    return _also(cast, pc.invert(pc.is_finite(cast.column)))


def _within(cast: Cast, bounds: tuple[int, int]) -> Cast:
    """Dates and times of the years 1 to 9999 alone, as the languages write them."""
    number = cast.column.view(pa.int32() if pa.types.is_date32(cast.column.type) else pa.int64())
    return _also(cast, pc.or_(pc.less(number, bounds[0]), pc.greater(number, bounds[1])))


def _also(cast: Cast, bad: Array) -> Cast:
    marked = _marked(cast.column, bad)
    if marked.bad is None:
        return cast
    return Cast(marked.column, _or(cast.bad, marked.bad))


def _none(column: Array, target: pa.DataType) -> Cast:
    """Nulls: no value of the column fits."""
    return Cast(_nulls(len(column), target), pc.is_valid(column))


def _or(a: Array | None, b: Array | None) -> Array | None:
    return b if a is None else a if b is None else pc.or_(a, b)


def _marked(column: Array, bad: Array) -> Cast:
    bad = pc.fill_null(bad, False)
    if not pc.any(bad).as_py():
        return Cast(column)
    return Cast(pc.if_else(bad, _nulls(len(column), column.type), column), bad)


def _checked(column: Array, shape: Array | None, cast: Callable[[Array], Array]) -> Cast:
    """Applies `cast` to what has the right shape; where it still refuses, narrows down to the refused rows."""
    bad: Array | None = None
    if shape is not None:
        wrong = pc.fill_null(pc.invert(shape), False)
        if pc.any(wrong).as_py():
            bad = wrong
            column = pc.if_else(wrong, _nulls(len(column), column.type), column)
    try:
        return Cast(cast(column), bad)
    except pa.ArrowInvalid:
        pieces, refused = _narrow(column, cast)
        return Cast(pieces, _or(bad, refused))


def _narrow(column: Array, cast: Callable[[Array], Array]) -> tuple[Array, Array]:
    target = cast(column.slice(0, 0)).type
    out: list[Array] = []
    bad: list[Array] = []
    todo = [(0, len(column))]
    while todo:
        start, length = todo.pop()
        try:
            out.append(cast(column.slice(start, length)))
            bad.append(pa.array([False]).take(pa.repeat(0, length)))
        except pa.ArrowInvalid:
            if length == 1:
                out.append(_nulls(1, target))
                bad.append(pa.array([True]))
            else:
                half = length // 2
                todo += [(start + half, length - half), (start, half)]
    return pa.concat_arrays(out), pa.concat_arrays(bad)
