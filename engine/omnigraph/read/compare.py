"""Comparisons, membership and tests on text.

Numbers of any two types compare exactly: an integer beside a float isn't rounded to it, U64 beside a signed integer
isn't wrapped. Text compares by code point. A comparison with null is null. Nulls inside a list equal nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pyarrow as pa

from omnigraph.read import limits
from omnigraph.read.compute import Array, indices, nulls, pc, taken, together
from omnigraph.read.datum import Bools, Datum, as_array, as_mask, columnar, is_null_type, nulls_like, validity
from omnigraph.read.substrings import holds_part

__all__ = ["by_constant", "compare", "ends_with", "holds_text", "member", "starts_with"]

_ORDERED = {
    "=": pc.equal, "!=": pc.not_equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal,
}  # fmt: skip
_MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
_EXACT = 2**53


def compare(fn: str, left: Datum, right: Datum) -> Datum:
    """`left fn right` for one of = != < <= > >=."""
    a, b = left.type, right.type
    if a == b:
        return _ORDERED[fn](left, right) if not pa.types.is_null(a) else nulls_like(pa.bool_(), left, right)
    if pa.types.is_null(a) or pa.types.is_null(b):
        return nulls_like(pa.bool_(), left, right)
    if pa.types.is_integer(a) and pa.types.is_integer(b):
        if pa.types.is_uint64(a) == pa.types.is_uint64(b):
            return _ORDERED[fn](left, right)
        if pa.types.is_uint64(b):
            left, right, fn = right, left, _MIRRORED.get(fn, fn)
        return columnar(lambda u, s: _unsigned(fn, u, s), left, right)
    if pa.types.is_floating(a) and pa.types.is_floating(b):
        return _ORDERED[fn](left.cast(pa.float64()), right.cast(pa.float64()))
    if pa.types.is_floating(a) or pa.types.is_floating(b):
        if pa.types.is_floating(a):
            left, right, fn = right, left, _MIRRORED.get(fn, fn)
        if _exact_as_float(left):
            return _ORDERED[fn](left.cast(pa.float64(), safe=False), right.cast(pa.float64()))
        return columnar(lambda i, f: _integer_and_float(fn, i, f), left, right)
    if {a, b} == {pa.date32(), pa.timestamp("ms", "UTC")}:
        left, right = left.cast(pa.timestamp("ms", "UTC")), right.cast(pa.timestamp("ms", "UTC"))
    return _ORDERED[fn](left, right)


def _exact_as_float(integers: Datum) -> bool:
    """Whether each of these integers is a float exactly."""
    if integers.type.bit_width <= 32:
        return True
    if isinstance(integers, pa.Scalar):
        value = integers.as_py()
        return value is None or -_EXACT <= value <= _EXACT
    bounds = pc.min_max(integers).as_py()
    return bounds["min"] is None or (bounds["min"] >= -_EXACT and bounds["max"] <= _EXACT)


def _unsigned(fn: str, unsigned: Array, signed: Array) -> Array:
    """U64 against a signed or narrower integer: below zero is below everything unsigned."""
    other = signed.cast(pa.int64())
    negative = pc.less(other, 0)
    floor = pc.max_element_wise(other, pa.scalar(0, pa.int64()), skip_nulls=False).cast(pa.uint64())
    verdict = pa.scalar(fn in ("!=", ">", ">="))
    out = pc.if_else(negative, verdict, _ORDERED[fn](unsigned, floor))
    return pc.if_else(pc.is_valid(unsigned), out, pa.scalar(None, pa.bool_()))


def _integer_and_float(fn: str, integers: Array, floats: Array) -> Array:
    """A wide integer against a float: against its whole part, and the fraction decides a draw."""
    valid = validity(integers) & validity(floats)
    whole = pc.fill_null(integers, 0).to_numpy(zero_copy_only=False)
    number = pc.fill_null(floats.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False)
    low, high = (0.0, 2.0**64) if whole.dtype == np.uint64 else (-(2.0**63), 2.0**63)
    floor = np.floor(number)
    inside = (floor >= low) & (floor < high)
    part = np.where(inside, floor, 0.0).astype(whole.dtype)
    below = np.where(inside, whole < part, number >= high) | (inside & (whole == part) & (number > floor))
    same = inside & (whole == part) & (number == floor)
    nan = np.isnan(number)
    above = ~(below | same | nan)
    verdict: Bools = {
        "=": same, "!=": ~same, "<": below, "<=": below | same, ">": above, ">=": above | same,
    }[fn]  # fmt: skip
    return pa.array(verdict, mask=~valid)


# ---- text ----


def holds_text(text: Datum, part: Datum) -> Datum:
    return by_constant(_holds, pa.bool_(), text, part)


def _holds(text: Datum, part: str) -> Datum:
    return holds_part(text, part) if isinstance(text, pa.Array) else pc.match_substring(text, pattern=part)


def starts_with(text: Datum, part: Datum) -> Datum:
    return by_constant(lambda t, p: pc.starts_with(t, pattern=p), pa.bool_(), text, part)


def ends_with(text: Datum, part: Datum) -> Datum:
    return by_constant(lambda t, p: pc.ends_with(t, pattern=p), pa.bool_(), text, part)


def by_constant(work: Callable[..., Datum], out: pa.DataType, text: Datum, *parts: Datum) -> Datum:
    """Arrow's functions on text take one pattern a call: columns of patterns are done once for each distinct set.

    Args:
        work: from texts and one text of each part to what is made of the texts.
        out: its type; texts may come wide.
    """
    if any(is_null_type(value) for value in (text, *parts)):
        return nulls_like(out, text, *parts)
    if any(isinstance(part, pa.Scalar) and not part.is_valid for part in parts):
        return nulls_like(out, text, *parts)
    if all(isinstance(part, pa.Scalar) for part in parts):
        return work(text, *(part.as_py() for part in parts))
    n = next(len(part) for part in parts if isinstance(part, pa.Array))
    texts = as_array(text, n)
    codes, missing, distinct = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=bool), []
    for part in parts:
        if isinstance(part, pa.Scalar):
            distinct.append([part.as_py()])
            continue
        encoded = part.dictionary_encode()
        own = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
        distinct.append(encoded.dictionary.to_pylist())
        codes = codes * len(distinct[-1]) + own
        missing |= own < 0
    codes[missing] = -1
    order = np.argsort(codes, kind="stable")
    sets, begins = np.unique(codes[order], return_index=True)
    pieces = [nulls(0, out)]
    for i, (code, (begin, end)) in enumerate(zip(sets.tolist(), pairwise([*begins.tolist(), n]), strict=True)):
        if i % 256 == 0:
            limits.check()
        if code < 0:
            pieces.append(nulls(end - begin, out))
            continue
        patterns: list[str] = []
        for known in reversed(distinct):
            code, at = divmod(code, len(known))
            patterns.insert(0, known[at])
        pieces.append(work(texts.take(pa.array(order[begin:end])), *patterns))
    back = np.empty(n, dtype=np.int64)
    back[order] = np.arange(n)
    return together(pieces).take(pa.array(back))


# ---- lists ----


def member(collection: Datum, value: Datum) -> Datum:
    """Whether the list holds the value; null where either is null."""
    if is_null_type(collection) or is_null_type(value):
        return nulls_like(pa.bool_(), collection, value)
    if isinstance(collection, pa.ListScalar):
        if not collection.is_valid:
            return nulls_like(pa.bool_(), value, collection)
        return _in_constant(value, collection.values)
    n = len(collection)
    flat = collection.flatten()
    parents = np.asarray(pc.list_parent_indices(collection).to_numpy(zero_copy_only=False))
    wanted = value if isinstance(value, pa.Scalar) else taken(value, indices(parents))
    hit = as_mask(compare("=", flat, wanted), len(flat))
    found = np.zeros(n, dtype=bool)
    found[parents[hit]] = True
    null = ~validity(collection)
    if isinstance(value, pa.Scalar):
        if not value.is_valid:
            return nulls(n, pa.bool_())
    else:
        null |= ~validity(value)
    return pa.array(found, mask=null)


def _in_constant(value: Datum, values: Array) -> Datum:
    values = values.drop_null()
    a, b = value.type, values.type
    if a != b and (pa.types.is_floating(a) or pa.types.is_integer(a)):
        values = _as_type(values, a)
    elif a != b:
        values = values.cast(a)
    if pa.types.is_floating(a):  # a set lookup would take NaN for itself and −0.0 for another than 0.0
        value, values = pc.add(value, pa.scalar(0.0, a)), pc.add(values, pa.scalar(0.0, a))
        values = values.filter(pc.invert(pc.is_nan(values)))
    found = pc.is_in(value, value_set=values)
    return pc.if_else(pc.is_valid(value), found, pa.scalar(None, pa.bool_()))


def _as_type(numbers: Array, kind: pa.DataType) -> Array:
    """Those of some numbers that the type holds exactly: nothing of it equals the others."""
    cast = numbers.cast(kind, safe=False)  # what doesn't fit becomes any number, which isn't equal to it
    return cast.filter(pa.array(as_mask(compare("=", cast, numbers), len(numbers))))
