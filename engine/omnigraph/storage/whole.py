"""Whole columns as one array, however long their texts are together: a `string` array holds 2 GiB of them at most."""

from __future__ import annotations

from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute

__all__ = ["LONGEST", "alike", "among", "joined"]

_Array: TypeAlias = Any
_Column: TypeAlias = Any
"""An array or a chunked one."""

pc: Any = pyarrow.compute

LONGEST = 2**31 - 1
"""Bytes that the texts of one array may have together; more need wider offsets."""

_WIDE = pa.large_string()


def joined(column: _Column, *more: _Column) -> _Array:
    """Columns of one type as one array: `large_string` where texts are too long for `string`, or one of them is."""
    every = (chunk for c in (column, *more) for chunk in (c.chunks if isinstance(c, pa.ChunkedArray) else [c]))
    chunks = [chunk for chunk in every if len(chunk)]
    if len(chunks) < 2:
        return chunks[0] if chunks else pa.array([], column.type)
    kinds = {chunk.type for chunk in chunks}
    if kinds <= {pa.string(), _WIDE} and (len(kinds) > 1 or sum(chunk.nbytes for chunk in chunks) > LONGEST):
        chunks = [chunk.cast(_WIDE) for chunk in chunks]
    return pa.concat_arrays(chunks)


def alike(column: _Column, other: _Column) -> tuple[_Column, _Column]:
    """Two columns of texts in one type, as Arrow asks of what it compares."""
    if column.type != other.type and _WIDE in (column.type, other.type):
        return column.cast(_WIDE), other.cast(_WIDE)
    return column, other


def among(column: _Column, values: _Column) -> _Column:
    """A mask (bool) of what stands among the values; a null does where they hold one."""
    column, known = alike(column, joined(values))
    return pc.is_in(column, value_set=known)
