"""Arrow as reads use it. What type a column has is known when a query runs, not when it is written: the stubs' static
element types say nothing here, so columns and Arrow's functions are dynamic to the type checker, in this one place."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow.compute

__all__ = [
    "Array", "Chunked", "Scalar", "flags", "in_chunks", "indices", "nulls", "pc", "py_buffer", "rows_of", "taken",
    "together", "whole_number", "widened",
]  # fmt: skip

pc: Any = pyarrow.compute
nulls: Any = pyarrow.nulls
py_buffer: Any = pyarrow.py_buffer

Array: TypeAlias = Any
"""A `pyarrow.Array`."""
Chunked: TypeAlias = Any
"""A `pyarrow.ChunkedArray`."""
Scalar: TypeAlias = Any
"""A `pyarrow.Scalar`."""

LONGEST = 2**31 - 1
"""Bytes that the texts of one array of `string` may have together; of `large_string` there is no bound."""

_INT32, _INT64 = pyarrow.int32(), pyarrow.int64()
_WIDER: dict[Any, Any] = {
    pyarrow.string(): pyarrow.large_string(),
    pyarrow.list_(pyarrow.string()): pyarrow.list_(pyarrow.large_string()),
}
_TAKE: Any = pyarrow.compute.get_function("array_take")
_TAKE_ROWS: Any = pyarrow.compute.get_function("take")
_CHECKED: Any = pyarrow.compute.TakeOptions(boundscheck=True)


def indices(at: npt.NDArray[np.integer[Any]]) -> Array:
    """Positions for Arrow, not copied. `pa.array` takes longer, and imports `numpy.ma` the first time."""
    narrow = at.dtype == np.int32
    at = np.ascontiguousarray(at, None if narrow else np.int64)
    return pyarrow.Array.from_buffers(_INT32 if narrow else _INT64, len(at), [None, py_buffer(at)])


def taken(column: Array, at: Array) -> Array:
    """`column.take(at)` without the layers around it, which take longer than a few rows do; texts that are too long
    together come as `large_string`."""
    try:
        return _TAKE.call([column, at], _CHECKED)
    except pyarrow.ArrowInvalid:
        if not pyarrow.types.is_string(column.type):
            raise
        return _TAKE.call([column.cast(pyarrow.large_string()), at], _CHECKED)


def widened(texts: Array | Chunked | Scalar, times: int = 1) -> Array | Chunked | Scalar:
    """Texts as `large_string` where so many times as many bytes may be too many for one array of `string`; any other
    column as it is. Where Arrow repeats texts and where it replaces parts of them it doesn't look for itself."""
    if not pyarrow.types.is_string(texts.type):
        return texts
    column = isinstance(texts, (pyarrow.Array, pyarrow.ChunkedArray))
    size = texts.nbytes if column else texts.as_buffer().size if texts.is_valid else 0
    return texts.cast(pyarrow.large_string()) if size * times >= LONGEST else texts


def together(pieces: Sequence[Array]) -> Array:
    """Arrays of one type one after another. Texts, and lists of them, come wide where a piece is or where all of them
    need it: one piece may have been widened and another not."""
    if len({piece.type for piece in pieces}) > 1 or sum(piece.nbytes for piece in pieces) >= LONGEST:
        pieces = [piece.cast(_WIDER.get(piece.type, piece.type)) for piece in pieces]
    return pyarrow.concat_arrays(pieces)


def in_chunks(texts: Array) -> Chunked:
    """A column of `large_string` as `string`, in as many chunks as that takes; the texts aren't copied.

    Raises:
        ArrowCapacityError: one of the texts alone is too long.
    """
    _, offsets, data = texts.buffers()
    data = py_buffer(b"") if data is None else data
    begins = np.frombuffer(offsets, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    cuts = [0]
    while cuts[-1] < len(texts):
        cuts.append(int(np.searchsorted(begins, begins[cuts[-1]] + LONGEST, side="right")) - 1)
        if cuts[-1] == cuts[-2]:
            raise pyarrow.ArrowCapacityError(f"array cannot contain more than {LONGEST} bytes")
    chunks = []
    for low, high in pairwise(cuts):
        own = begins[low : high + 1]
        places = py_buffer((own - own[0]).astype(np.int32))
        there = texts.slice(low, high - low).is_valid()
        valid = py_buffer(np.packbits(flags(there), bitorder="little")) if there.false_count else None
        chunks.append(
            pyarrow.StringArray.from_buffers(high - low, places, data.slice(int(own[0]), int(own[-1] - own[0])), valid)
        )
    return pyarrow.chunked_array(chunks, pyarrow.string())


def flags(column: Array) -> npt.NDArray[np.bool_]:
    """A Bool column without nulls as one byte a row; Arrow's own way looks at each bit by itself."""
    if not len(column):
        return np.zeros(0, dtype=bool)
    byte, begin = divmod(column.offset, 8)
    bits = np.frombuffer(column.buffers()[1], dtype=np.uint8)[byte:]
    return np.unpackbits(bits, count=begin + len(column), bitorder="little")[begin:].view(np.bool_)


def whole_number(value: int) -> Array:
    """One number as an array of 64-bit integers; in Arrow's own way it takes three times as long."""
    data = py_buffer(value.to_bytes(8, sys.byteorder, signed=True))
    return pyarrow.Array.from_buffers(_INT64, 1, [None, data])


def rows_of(table: pyarrow.Table, at: npt.NDArray[np.integer[Any]]) -> pyarrow.Table:
    """Rows of a table by position; a single one is a view."""
    if len(at) == 1:
        return table.slice(int(at[0]), 1)
    where = indices(at)
    try:
        found: pyarrow.Table = _TAKE_ROWS.call([table, where], _CHECKED)
    except pyarrow.ArrowInvalid:
        columns = [taken(column.combine_chunks(), where) for column in table.columns]
        fitting = [in_chunks(c) if pyarrow.types.is_large_string(c.type) else c for c in columns]
        return pyarrow.Table.from_arrays(fitting, schema=table.schema)
    return found
