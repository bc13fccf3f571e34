"""Groups and their values. A group is a number, a row's group is an entry of one integer array.

`count` of rows or of non-null values; sums of integers are I64 and an overflow is an error; `avg` is F64; the value of
a group without a non-null value is null. Nothing depends on the order in which rows were found, by `float_sums`
and as `collect` gives the non-null values in ascending order. No rows and no grouping give one group, with keys none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.errors import Internal
from omnigraph.query.ir import Agg
from omnigraph.read.compute import Array, flags, nulls
from omnigraph.read.datum import Fault, Longs
from omnigraph.read.distinct import different
from omnigraph.read.multiset import count_by_group
from omnigraph.read.sums import float_means, float_sums
from omnigraph.read.tables import list_keys, sort_codes

__all__ = ["aggregate", "as_type", "codes_of", "group"]


def codes_of(column: Array) -> tuple[Longs, int]:
    """(a number per row, equal for equal values, how many numbers there may be); null is a value of its own."""
    if pa.types.is_list(column.type) or pa.types.is_fixed_size_list(column.type):
        column = list_keys(column)
    if pa.types.is_floating(column.type):
        # −0.0 is 0.0 and every NaN is one value.
        keys = pa.array(sort_codes(column), mask=flags(column.is_null()))
        column = keys
    encoded = column.dictionary_encode(null_encoding="encode")
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), len(encoded.dictionary)


def group(keys: Sequence[tuple[Longs, int]], rows: int) -> tuple[Longs, Longs]:
    """(group of each row, the first row of each group); groups are numbered by their combined code.

    Args:
        keys: codes of each grouping column and their number; none makes a single group.
        rows: number of rows.
    """
    if not keys:
        return np.zeros(rows, dtype=np.int64), np.zeros(1, dtype=np.int64)
    combined, size = keys[0]
    combined = combined.astype(np.int64, copy=False)
    for codes, count in keys[1:]:
        if size * count >= 2**62:
            _, combined = np.unique(combined, return_inverse=True)
            size = int(combined.max()) + 1 if len(combined) else 1
        combined = combined * count + codes
        size *= count
    if size <= max(4 * rows, 1024):
        seen = np.bincount(combined, minlength=size) > 0
        groups = int(np.count_nonzero(seen))
        if groups < size:
            number = np.cumsum(seen) - 1
            combined = number[combined]
    else:
        values, combined = np.unique(combined, return_inverse=True)
        groups = len(values)
    return combined, _first_rows(combined, groups)


def _first_rows(numbers: Longs, groups: int) -> Longs:
    """The first row of each group; every group has one. Few groups are all met long before the last row."""
    out = np.full(groups, -1, dtype=np.int64)
    begin, size = 0, max(4096, 8 * groups)
    while begin < len(numbers):
        end = min(len(numbers), begin + size)
        met = np.full(groups, -1, dtype=np.int64)
        met[numbers[begin:end][::-1]] = np.arange(end - 1, begin - 1, -1)
        out = np.where(out < 0, met, out)
        if (out >= 0).all():
            break
        begin, size = end, size * 4
    return out


def aggregate(
    agg: Agg,
    values: Array | None,
    groups: Longs,
    count: int,
    codes: Longs | None,
    out: Any,
    weight: Longs | None = None,
) -> Array:
    """One aggregate over every group.

    Args:
        values: the argument in each row; None counts rows.
        groups: the group of each row.
        count: number of groups.
        codes: a number per row that is equal for equal values; needed for `distinct`.
        out: the result's Arrow type.
        weight: how often each row stands; only where no sum is asked for.

    Raises:
        Fault: a sum leaves the range of I64 or F64 (code `overflow`).
    """
    if values is not None and values.null_count:
        valid = flags(values.is_valid())
        groups = groups[valid]
        codes = codes[valid] if codes is not None else None
        weight = weight[valid] if weight is not None else None
        values = values.drop_null()
    if agg.distinct and codes is not None:
        span = int(codes.max()) + 1 if len(codes) else 1
        weight = None
        if agg.fn == "count" and count == 1:
            return as_type(pa.array([different(codes, span)], pa.int64()), out)
        _, first = np.unique(groups * span + codes, return_index=True)
        groups = groups[first]
        values = values.take(pa.array(first)) if values is not None else None
    sizes = count_by_group(groups, count, weight)
    if agg.fn == "count":
        return as_type(pa.array(sizes, pa.int64()), out)
    if values is None:
        raise Internal(f"{agg.fn} needs a value")
    empty = sizes == 0
    if agg.fn == "collect":
        order = np.lexsort((sort_codes(values), groups))
        offsets = np.append(0, np.cumsum(sizes))
        return pa.ListArray.from_arrays(
            pa.array(offsets, pa.int32()), values.take(pa.array(order)).cast(out.value_type)
        )
    if agg.fn in ("min", "max"):
        return _extreme(agg.fn, values, groups, count, empty)
    if pa.types.is_floating(values.type):
        numbers = values.cast(pa.float64()).to_numpy()
        made = float_means(numbers, groups, sizes) if agg.fn == "avg" else float_sums(numbers, groups, count)
        if not np.isfinite(made).all():
            raise Fault("a sum is too large for a number with fractions: sum a smaller group", code="overflow")
        return pa.array(made, pa.float64(), mask=empty)
    high, low = _exact_sums(values, groups, count)
    if agg.fn == "avg":
        return pa.array((high.astype(np.float64) * 2.0**32 + low) / np.maximum(sizes, 1), pa.float64(), mask=empty)
    if bool(((high >= 2**31) | (high < -(2**31))).any()):
        raise Fault("a sum leaves the range of a 64-bit integer: use avg, or sum a smaller group", code="overflow")
    return pa.array((high << 32) + low, pa.int64(), mask=empty)


def as_type(column: Array, kind: Any) -> Array:
    return column if column.type == kind else column.cast(kind)


def _exact_sums(values: Array, groups: Longs, count: int) -> tuple[Longs, Longs]:
    """Integer sums as (high, low), high · 2^32 + low with 0 ≤ low < 2^32; summed apart, neither half overflows."""
    if pa.types.is_null(values.type):
        values = values.cast(pa.int64())
    numbers = values.to_numpy(zero_copy_only=False)
    if numbers.dtype == np.uint64:
        upper, lower = (numbers >> np.uint64(32)).astype(np.int64), (numbers & np.uint64(0xFFFFFFFF)).astype(np.int64)
    else:
        numbers = numbers.astype(np.int64)
        upper, lower = numbers >> 32, numbers & 0xFFFFFFFF
    high, low = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    np.add.at(high, groups, upper)
    np.add.at(low, groups, lower)
    return high + (low >> 32), low & 0xFFFFFFFF


def _extreme(fn: str, values: Array, groups: Longs, count: int, empty: npt.NDArray[np.bool_]) -> Array:
    """The row with the least or greatest value of each group, then its value."""
    order = np.lexsort((sort_codes(values), groups))
    sorted_groups = groups[order]
    first = np.searchsorted(sorted_groups, np.arange(count + 1))  # where each group begins
    spot = first[:-1] if fn == "min" else first[1:] - 1
    if not len(order):
        return nulls(count, values.type)
    row = order[np.clip(spot, 0, len(order) - 1)]
    return values.take(pa.array(row, pa.int64(), mask=empty))
