"""Total orders: nulls first ascending, last descending; ties by what the caller appends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from omnigraph.read.compute import Array
from omnigraph.read.tables import sort_codes

__all__ = ["SortKey", "first_rows", "sort_key", "sorted_rows"]


@dataclass(frozen=True, slots=True, eq=False)
class SortKey:
    """Integers that ascend as the key does, and where the key is null (already turned for a descending key)."""

    codes: npt.NDArray[np.int64] | npt.NDArray[np.uint64]
    rank_of_null: npt.NDArray[np.bool_] | None  # ascending: False where null; descending: True where null


def sort_key(column: Array, *, descending: bool = False) -> SortKey:
    """The key of a column."""
    codes = sort_codes(column)
    if descending:
        codes = ~codes
    if not column.null_count:
        return SortKey(codes, None)
    null = np.asarray(column.is_null().to_numpy(zero_copy_only=False))
    codes = np.where(null, codes.dtype.type(0), codes)
    return SortKey(codes, null if descending else ~null)


def sorted_rows(keys: Sequence[SortKey]) -> npt.NDArray[np.int64]:
    """The order of rows under the keys, first key first."""
    parts: list[npt.NDArray[np.int64] | npt.NDArray[np.uint64] | npt.NDArray[np.bool_]] = []
    for key in reversed(keys):
        parts.append(key.codes)
        if key.rank_of_null is not None:
            parts.append(key.rank_of_null)
    return np.asarray(np.lexsort(parts))


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
