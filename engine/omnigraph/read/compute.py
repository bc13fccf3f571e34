"""Arrow as reads use it. What type a column has is known when a query runs, not when it is written: the stubs' static
element types say nothing here, so columns and Arrow's functions are dynamic to the type checker, in this one place."""

from __future__ import annotations

import sys
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow.compute

__all__ = [
    "Array", "Chunked", "Scalar", "flags", "indices", "nulls", "pc", "py_buffer", "rows_of", "taken", "whole_number",
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

_INT32, _INT64 = pyarrow.int32(), pyarrow.int64()
_TAKE: Any = pyarrow.compute.get_function("array_take")
_TAKE_ROWS: Any = pyarrow.compute.get_function("take")
_CHECKED: Any = pyarrow.compute.TakeOptions(boundscheck=True)


def indices(at: npt.NDArray[np.integer[Any]]) -> Array:
    """Positions for Arrow, not copied. `pa.array` takes longer, and imports `numpy.ma` the first time."""
    narrow = at.dtype == np.int32
    at = np.ascontiguousarray(at, None if narrow else np.int64)
    return pyarrow.Array.from_buffers(_INT32 if narrow else _INT64, len(at), [None, py_buffer(at)])


def taken(column: Array, at: Array) -> Array:
    """`column.take(at)` without the layers around it, which take longer than a few rows do."""
    return _TAKE.call([column, at], _CHECKED)


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
    found: pyarrow.Table = _TAKE_ROWS.call([table, indices(at)], _CHECKED)
    return found
