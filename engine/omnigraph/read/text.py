"""Functions on text, and text made from values and read as values. Positions and lengths count characters."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from omnigraph.read.compare import by_constant
from omnigraph.read.compute import Array, pc, py_buffer, widened
from omnigraph.read.datum import Datum, Fault, Longs, as_mask, columnar, is_null_type, nulls_like, validity
from omnigraph.read.show import Shown

__all__ = ["matches", "replace", "split", "substring", "to_float", "to_int", "to_string"]

_INTEGER = r"\A[+-]?[0-9]+\z"
_FLOAT = r"\A[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\z"
_TEXTS = pa.list_(pa.string())


def substring(value: Datum, start: Datum, count: Datum, text: Shown) -> Datum:
    """`count` characters from the one at `start` (the first is 0); what lies past the end isn't there.

    Raises:
        Fault: `bad_value`, for a negative start or count.
    """
    for number, what in ((start, "start"), (count, "count")):
        if not is_null_type(number) and as_mask(pc.less(number, pa.scalar(0, number.type)), 1).any():
            raise Fault(f"`{text}`: a {what} below 0", code="bad_value")
    if isinstance(start, pa.Scalar) and isinstance(count, pa.Scalar):
        if not start.is_valid or not count.is_valid:
            return nulls_like(pa.string(), value)
        begin = min(start.as_py(), 2**31 - 1)
        return pc.utf8_slice_codeunits(value, start=begin, stop=min(begin + count.as_py(), 2**31 - 1))
    return columnar(_slices, value, start, count)


def _slices(texts: Array, starts: Array, counts: Array) -> Array:
    """Each text cut at its own places: from characters to bytes, then one gather of all bytes kept."""
    valid = validity(texts) & validity(starts) & validity(counts)
    texts = pc.fill_null(texts, "").cast(pa.large_string())
    _, raw_offsets, raw_data = texts.buffers()
    offsets = np.frombuffer(raw_offsets, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    data = np.frombuffer(raw_data, dtype=np.uint8) if raw_data is not None else np.zeros(0, dtype=np.uint8)
    data = data[int(offsets[0]) : int(offsets[-1])]
    offsets = offsets - offsets[0]
    begins = np.append(np.flatnonzero((data & 0xC0) != 0x80), len(data))  # the byte each character begins at
    first = np.searchsorted(begins, offsets)  # each text's first character
    low = _places(starts)
    many = _places(counts)
    begin = begins[np.minimum(first[:-1] + low, first[1:])]
    end = begins[np.minimum(first[:-1] + low + many, first[1:])]
    sizes = np.where(valid, end - begin, 0)
    made = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=made[1:])
    kept = data[np.arange(int(made[-1])) + np.repeat(begin - made[:-1], sizes)]
    buffers = py_buffer(made), py_buffer(np.ascontiguousarray(kept))
    out = pa.LargeStringArray.from_buffers(len(sizes), *buffers).cast(pa.string())
    return pc.if_else(pa.array(valid), out, pa.scalar(None, pa.string()))


def _places(numbers: Array) -> Longs:
    """Whole numbers of any width, those past the end of any text as one."""
    values = pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False)
    wide = values if values.dtype == np.uint64 else values.astype(np.int64)
    out: Longs = np.minimum(wide, wide.dtype.type(2**31)).astype(np.int64)
    return out


def replace(value: Datum, old: Datum, new: Datum) -> Datum:
    """Every `old` as `new`; an empty `old` changes nothing."""

    def one(texts: Datum, before: str, after: str) -> Datum:
        if not before:
            return texts
        grows = len(after.encode()) // len(before.encode()) + 1
        return pc.replace_substring(widened(texts, grows), pattern=before, replacement=after)

    return by_constant(one, pa.string(), value, old, new)


def split(value: Datum, separator: Datum, text: Shown) -> Datum:
    """The pieces between separators.

    Raises:
        Fault: `bad_value`, for an empty separator.
    """

    def one(texts: Datum, by: str) -> Datum:
        if not by:
            raise Fault(f"`{text}`: the separator is empty", code="bad_value")
        if isinstance(texts, pa.Scalar):
            return pc.split_pattern(pa.array([texts.as_py()], pa.string()), pattern=by)[0]
        return pc.split_pattern(texts, pattern=by)

    return by_constant(one, _TEXTS, value, separator)


def matches(value: Datum, pattern: str) -> Datum:
    """Whether the pattern matches the whole text, as in `@check`."""
    if is_null_type(value):
        return nulls_like(pa.bool_(), value)
    return pc.match_substring_regex(value, pattern=f"\\A(?:{pattern})\\z")


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def to_string(value: Datum) -> Datum:
    """As the value is written in JSON: a float has a point or an exponent, a DateTime ends in `Z`."""
    kind = value.type
    if _is_text(kind):
        return value
    if pa.types.is_null(kind):
        return nulls_like(pa.string(), value)
    if pa.types.is_timestamp(kind):
        wall = value.cast(pa.timestamp("ms"))
        return pc.binary_join_element_wise(pc.strftime(wall, format="%Y-%m-%dT%H:%M:%S"), "Z", "")
    text = value.cast(pa.string())
    if pa.types.is_floating(kind):
        whole = pc.match_substring_regex(text, pattern=r"\A-?[0-9]+\z")
        text = pc.if_else(whole, pc.binary_join_element_wise(text, ".0", ""), text)
    return text


def to_int(value: Datum, text: Shown) -> Datum:
    """A text of decimal digits, a float cut at its point, a Bool as 1 or 0.

    Raises:
        Fault: `bad_value`, naming a value that is no such thing or beyond I64.
    """
    kind = value.type
    if pa.types.is_null(kind):
        return nulls_like(pa.int64(), value)
    if _is_text(kind):
        return _parsed(value, _INTEGER, pa.int64(), text, "is no 64-bit integer")
    if pa.types.is_floating(kind):
        whole = pc.trunc(value.cast(pa.float64()))
        outside = pc.invert(pc.and_(pc.greater_equal(whole, -(2.0**63)), pc.less(whole, 2.0**63)))
        _refuse(value, outside, text, "is no 64-bit integer")
        return whole.cast(pa.int64())
    if pa.types.is_uint64(kind):
        _refuse(value, pc.greater(value, pa.scalar(2**63 - 1, kind)), text, "is beyond a 64-bit integer")
    return value.cast(pa.int64())


def to_float(value: Datum, text: Shown) -> Datum:
    """A decimal number with or without exponent; an integer as the nearest float.

    Raises:
        Fault: `bad_value`, naming a text that is no number.
    """
    if is_null_type(value):
        return nulls_like(pa.float64(), value)
    if _is_text(value.type):
        return _parsed(value, _FLOAT, pa.float64(), text, "is no number")
    return value.cast(pa.float64(), safe=False)


def _parsed(value: Datum, pattern: str, kind: pa.DataType, text: Shown, why: str) -> Datum:
    _refuse(value, pc.invert(pc.match_substring_regex(value, pattern=pattern)), text, why)
    if pa.types.is_integer(kind):
        digits = pc.replace_substring_regex(value, pattern=r"\A[+-]?0*", replacement="")
        size = pc.utf8_length(digits)
        limit = pc.if_else(pc.starts_with(value, pattern="-"), str(2**63), str(2**63 - 1))
        beyond = pc.or_(pc.greater(size, 19), pc.and_(pc.equal(size, 19), pc.greater(digits, limit)))
        _refuse(value, beyond, text, why)
        return pc.replace_substring_regex(value, pattern=r"\A\+", replacement="").cast(kind)  # no sign that Arrow reads
    out = value.cast(kind)
    _refuse(value, pc.is_inf(out), text, why)
    return out


def _refuse(value: Datum, wrong: Datum, text: Shown, why: str) -> None:
    """Raise naming the expression `text`, and why of it the first value where `wrong` is true is refused."""
    at = np.flatnonzero(as_mask(wrong, 1))
    if len(at):
        found = value.as_py() if isinstance(value, pa.Scalar) else value[int(at[0])].as_py()
        shown = f'"{found[:60]}"' if isinstance(found, str) else str(found)
        raise Fault(f"`{text}`: {shown} {why}", code="bad_value")
