"""How many rows of a cached table have each value, of those that a filter finds.

The ordinary way makes the positions of the rows that are found and the number of each one's group, and counts those:
columns as long as the table, each written to memory and read again. Here every row has a number, one that isn't found
has number 0, and a block of numbers never leaves the processor's cache. The numbers are made when a table version is
asked for the second time, kept with it like all that is derived, and never change an answer, nor its order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.query.ir import Agg, Expr, Prop
from omnigraph.read.compute import Array, indices
from omnigraph.read.datum import Bools, Evaluate, Longs
from omnigraph.read.env import rows_where
from omnigraph.read.frame import Binding, Context, Frame
from omnigraph.read.memory import Memory
from omnigraph.read.scan import ScanStep
from omnigraph.read.tables import Rows, TableData
from omnigraph.read.walk import counts_rows
from omnigraph.records import dataclass

__all__ = ["CountedScan", "counted_scan", "most_rows"]

_FEW = (1 << 16) - 1  # a number is 16 bits, and 0 is none
_REPEATED = 4  # rows of a combination, on the average, from which numbers are worth their bytes
_BEGIN = 1 << 18  # rows
_BLOCK = 1 << 16  # rows counted at once: their numbers as 64 bits, which numpy makes of them, are half a megabyte


@dataclass(frozen=True, slots=True, eq=False)
class _Numbers:
    """A number for each combination of values that some columns may have.

    Args:
        of_row: each row's, from 1 on; empty where there would be too many.
        values: the values of each column, null among them: the first column's number times the count of the second's
            and so on.
    """

    of_row: npt.NDArray[np.unsignedinteger[Any]]
    values: tuple[Array, ...]

    @classmethod
    def of(cls, table: TableData, names: Sequence[str]) -> _Numbers:
        most, many, found = min(_FEW, table.rows // _REPEATED), 1, []
        none = cls(np.zeros(0, dtype=np.uint8), ())
        for name in names:
            begin = table.column(name).slice(0, _BEGIN)  # who has many values shows it soon
            coded = None if len(begin.unique()) * many > most else table.few_values(name, most // many)
            if coded is None:
                return none
            found.append(coded)
            many *= max(1, len(coded[1]))
        number: Longs = np.zeros(table.rows, dtype=np.int64)
        for codes, values in found:
            number = number * len(values) + codes
        number += 1
        return cls(number.astype(np.uint8 if many < 1 << 8 else np.uint16), tuple(values for _, values in found))

    @property
    def nbytes(self) -> int:
        return int(self.of_row.nbytes + sum(values.nbytes for values in self.values))

    def count(self, ctx: Context, found: Bools | None) -> tuple[list[Array], Longs]:
        """(the values of each column in every combination that a row has, how many rows have it); of the rows found
        alone."""
        shape = [len(values) for values in self.values]
        sizes: Longs = np.zeros(int(np.prod(shape)) + 1, dtype=np.int64)
        for low in range(0, len(self.of_row), _BLOCK):
            ctx.check()
            part = self.of_row[low : low + _BLOCK]
            sizes += np.bincount(part if found is None else part * found[low : low + _BLOCK], minlength=len(sizes))
        there = np.flatnonzero(sizes[1:])
        places = np.unravel_index(there, shape)
        columns = [values.take(indices(at)) for values, at in zip(self.values, places, strict=True)]
        return columns, sizes[there + 1]


@dataclass(frozen=True, slots=True, eq=False)
class CountedScan:
    """The rows of a filtered table, counted by columns of it.

    Args:
        names: of the columns.
    """

    table: TableData
    var: str
    names: tuple[str, ...]
    test: Evaluate | None

    def count(self, ctx: Context) -> tuple[list[Array], Longs] | Frame | None:
        """See `_Numbers.count`; the rows themselves where these are few; None where the columns have too many values,
        or nobody has asked before."""
        table = self.table
        numbers = table.again("numbers", "\0".join(self.names), lambda: _Numbers.of(table, self.names))
        if numbers is None or not len(numbers.of_row):
            return None
        if self.test is None:
            return numbers.count(ctx, None)
        found = rows_where(ctx, table, self.var, self.test, None)
        many = int(np.count_nonzero(found))
        if most_rows(many, table):
            return numbers.count(ctx, found)
        ctx.check_bytes(8 * many, "a step")
        return Frame(many, {self.var: Binding(table, np.flatnonzero(found))})


def most_rows(many: int, rows: Rows) -> bool:
    """Whether so many rows of a table are grouped by what is known of all its rows' values; the groups of fewer come in
    the order of their first rows."""
    return many * 4 > rows.rows


def counted_scan(memory: Memory, scan: ScanStep, keys: Sequence[Expr], aggregates: Sequence[Agg]) -> CountedScan | None:
    """A scan whose rows are only counted, by properties of theirs; None where anything else is asked, or where the scan
    may find its rows without a look at all."""
    table = memory.bound.get(scan.var)
    props = [key for key in keys if isinstance(key, Prop) and key.var == scan.var]
    if not isinstance(table, TableData) or scan.key is not None or scan.by_value or not props:
        return None
    if len(props) < len(keys) or not all(counts_rows(agg) for agg in aggregates):
        return None
    if any(not _plain(table.column(prop.name).type) for prop in props):
        return None
    return CountedScan(table, scan.var, tuple(prop.name for prop in props), scan.test)


def _plain(kind: pa.DataType) -> bool:
    """Whether values that are equal have one code."""
    return not (pa.types.is_nested(kind) or pa.types.is_floating(kind))
