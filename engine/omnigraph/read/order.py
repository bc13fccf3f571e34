"""Total orders: nulls first ascending, last descending; ties by what the caller appends.

Each key is asked of those rows alone that the keys before it leave tied and that may still be among the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.read.compute import Array, flags, pc
from omnigraph.read.datum import Bools, Longs
from omnigraph.read.hashing import words_at
from omnigraph.read.tables import sort_codes
from omnigraph.records import dataclass

__all__ = ["AskedKey", "SortKey", "first_rows", "likely_key", "rows_in_order", "sort_key", "sorted_rows"]


_FEW_TEXTS = 1000  # are compared as they are

Codes = npt.NDArray[np.int64] | npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, eq=False)
class SortKey:
    """Integers that ascend as the key does, and where the key is null (already turned for a descending key).

    Args:
        rank_of_null: ascending: False where null; descending: True where null; None where nothing is.
        exact: unlike values have unlike codes.
    """

    codes: Codes
    rank_of_null: Bools | None
    exact: bool = True


AskedKey: TypeAlias = Callable[[Longs | None, bool], SortKey]
"""A key of some rows by index, None for all of them in order: whether its codes must tell all unlike rows apart."""


def sort_key(column: Array, *, descending: bool = False) -> SortKey:
    """The key of a column."""
    return _key(sort_codes(column), column, descending=descending)


def likely_key(column: Array, *, descending: bool = False) -> SortKey:
    """The key of a column, or one that is made much sooner and agrees with it wherever it tells two rows apart.

    Of many texts: the eight bytes behind what all of them begin with.
    """
    text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    ends = pc.min_max(column) if text and len(column) > _FEW_TEXTS else None
    if ends is None or not ends["min"].is_valid:
        return sort_key(column, descending=descending)
    low, high = (ends[end].as_buffer().to_pybytes() for end in ("min", "max"))
    shared = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    words, exact = words_at(column, shared)
    return replace(_key(words.byteswap(), column, descending=descending), exact=exact)


def _key(codes: Codes, column: Array, *, descending: bool) -> SortKey:
    if descending:
        codes = ~codes
    if not column.null_count:
        return SortKey(codes, None)
    null = flags(column.is_null())
    codes = np.where(null, codes.dtype.type(0), codes)
    return SortKey(codes, null if descending else ~null)


def sorted_rows(keys: Sequence[SortKey]) -> npt.NDArray[np.int64]:
    """The order of rows under the keys, first key first."""
    parts: list[Codes | Bools] = []
    for key in reversed(keys):
        parts.append(key.codes)
        if key.rank_of_null is not None:
            parts.append(key.rank_of_null)
    return np.argsort(parts[0]) if len(parts) == 1 else np.asarray(np.lexsort(parts))


def first_rows(key: SortKey, count: int) -> npt.NDArray[np.int64]:
    """Indices of all rows that may be among the first `count` under this key alone (ties of the last included)."""
    n = len(key.codes)
    if count <= 0 or count >= n:
        return np.arange(n if count > 0 else 0)
    if key.rank_of_null is None:
        return np.flatnonzero(key.codes <= np.partition(key.codes, count - 1)[count - 1])
    ahead = np.flatnonzero(~key.rank_of_null)
    behind = np.flatnonzero(key.rank_of_null)
    if len(ahead) >= count:
        codes = key.codes[ahead]
        return np.asarray(ahead[codes <= np.partition(codes, count - 1)[count - 1]])
    codes = key.codes[behind]
    left = count - len(ahead)
    return np.concatenate([ahead, behind[codes <= np.partition(codes, left - 1)[left - 1]]])


def rows_in_order(size: int, keys: Iterable[AskedKey], stop: int | None) -> Longs:
    """The order of rows under the keys, first key first; of the first `stop` rows alone where that is given.

    Args:
        size: how many rows there are.
        keys: each is asked of rows that need it; what all of them leave tied is in no particular order.
    """
    first, *others = keys
    if size < 2 or stop == 0:
        return np.arange(size)[:stop]
    found = first(None, False)
    rows: Longs = first_rows(found, stop) if stop is not None and stop * 4 < size else np.arange(size)
    found = found if len(rows) == size else _of_rows(found, rows)
    order = sorted_rows([found])
    rows = rows[order]
    begins = np.ones(len(rows), dtype=bool)  # where a row isn't tied with the one before
    begins[1:] = _unlike(found, order)
    asked = [(key, exact) for key in others for exact in (False, True)]
    exactly = found.exact
    for key, exact in asked if exactly else [(first, True), *asked]:
        if exact and exactly:
            continue  # the key was so at once
        if stop is not None and stop < len(rows):
            later = np.flatnonzero(begins[stop:])
            end = stop + int(later[0]) if len(later) else len(rows)
            rows, begins = rows[:end], begins[:end]
        tied = ~begins
        tied[:-1] |= ~begins[1:]
        at = np.flatnonzero(tied)
        if not len(at):
            break
        found = key(rows[at], exact)
        order = sorted_rows([SortKey(np.cumsum(begins)[at], None), found])
        rows[at] = rows[at][order]
        begins[at[1:]] |= _unlike(found, order)
        exactly = found.exact
    return rows[:stop]


def _of_rows(key: SortKey, rows: Longs) -> SortKey:
    return replace(
        key, codes=key.codes[rows], rank_of_null=None if key.rank_of_null is None else key.rank_of_null[rows]
    )


def _unlike(key: SortKey, order: Longs) -> Bools:
    """Of each row in order but the first, whether it differs from the one before."""
    sorted_key = _of_rows(key, order)
    out = sorted_key.codes[1:] != sorted_key.codes[:-1]
    if sorted_key.rank_of_null is not None:
        out |= sorted_key.rank_of_null[1:] != sorted_key.rank_of_null[:-1]
    return np.asarray(out)
