"""Which rows of a cached table have a value: what `=` and `in` on a column of few values ask, instead of all its rows.

The positions stand grouped by value, each group ascending. They are made when a column of a table version is asked
about for the second time, kept with it like all that is derived, and never change an answer.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from omnigraph.query.ir import Call, Expr, Lit, Param, Prop
from omnigraph.read.datum import Evaluate, Longs
from omnigraph.read.expr import compile_expr
from omnigraph.read.frame import Indices
from omnigraph.read.pattern import conjunction
from omnigraph.read.tables import TableData
from omnigraph.read.walk import conjuncts
from omnigraph.records import dataclass

__all__ = ["ByValue", "ValuePositions", "by_value", "rows_by_value"]

_FEW = 1 << 16  # a code is 16 bits, which numpy sorts by radix
_BEGIN = 1 << 18  # rows
_REPEATED = 8  # rows of a value, on the average, from which grouping is worth its bytes
_ALIKE = ({"String", "Enum"}, {"I32", "I64", "U32", "U64"}, {"Bool"}, {"Date"})
"""Types whose values are equal where Python's are."""


@dataclass(frozen=True, slots=True, eq=False)
class ValuePositions:
    """The positions of each value of a column.

    Args:
        codes: the number of each value.
        order: positions by the number of their value, then ascending.
        starts: where each number's positions begin, and the end.
    """

    codes: Mapping[Hashable, int]
    order: Indices
    starts: Longs

    @classmethod
    def of(cls, table: TableData, name: str) -> ValuePositions:
        """Those of a column; without any value where it has too many."""
        most = min(_FEW, table.rows // _REPEATED)
        begin = table.column(name).slice(0, _BEGIN)  # who has many values shows it soon
        none: Longs = np.zeros(0, dtype=np.int64)
        if len(begin.unique()) > most or (found := table.few_values(name, most)) is None:
            return cls({}, none, none)
        codes, values = found
        order = np.argsort(codes.astype(np.uint16), kind="stable")
        starts = np.zeros(len(values) + 1, dtype=np.int64)
        np.cumsum(np.bincount(codes, minlength=len(values)), out=starts[1:])
        numbers = {value: number for number, value in enumerate(values.to_pylist()) if value is not None}
        order = order.astype(np.int32) if table.rows < 2**31 else order
        order.flags.writeable = False  # queries are handed parts of it
        return cls(numbers, order, starts)

    @property
    def nbytes(self) -> int:
        return int(self.order.nbytes + self.starts.nbytes) + 200 * len(self.codes)

    @property
    def usable(self) -> bool:
        return len(self.starts) > 0

    def count(self, values: Sequence[Hashable]) -> int:
        """How many rows have one of some different values."""
        numbers = [n for v in values if (n := self.codes.get(v)) is not None]
        return int(sum(self.starts[n + 1] - self.starts[n] for n in numbers))

    def positions(self, values: Sequence[Hashable]) -> Indices:
        """Their positions, ascending."""
        numbers = [n for v in values if (n := self.codes.get(v)) is not None]
        parts = [self.order[self.starts[n] : self.starts[n + 1]] for n in numbers]
        if len(parts) == 1:
            return parts[0]
        return np.sort(np.concatenate(parts)) if parts else self.order[:0]


@dataclass(frozen=True, slots=True, eq=False)
class ByValue:
    """A condition that a column is one of some constants.

    Args:
        value: the constant, or the list of them.
        rest: the other conditions on the row, compiled.
    """

    column: str
    value: Lit | Param
    rest: Evaluate | None

    def values(self, params: Mapping[str, Any]) -> list[Hashable]:
        """Each constant once; null equals nothing."""
        given = self.value.value if isinstance(self.value, Lit) else params.get(self.value.name)
        several = given if isinstance(given, (list, tuple)) else (given,)
        return [v for v in dict.fromkeys(several) if v is not None]


def by_value(where: Expr | None) -> tuple[ByValue, ...]:
    """The conditions of a scan that positions by value can answer."""
    parts = conjuncts(where)
    found = []
    for part in parts:
        match part:
            case Call(fn="=" | "in" as fn, args=(Prop() as prop, (Lit() | Param()) as value)):
                pass
            case Call(fn="=" as fn, args=((Lit() | Param()) as value, Prop() as prop)):
                pass
            case _:
                continue
        alike = any(prop.type.base in bases and value.type.base in bases for bases in _ALIKE)
        if alike and not prop.type.list and value.type.list == (fn == "in"):
            rest = conjunction([other for other in parts if other is not part])
            found.append(ByValue(prop.name, value, None if rest is None else compile_expr(rest)))
    return tuple(found)


def rows_by_value(
    table: TableData, conditions: Sequence[ByValue], params: Mapping[str, Any]
) -> tuple[Indices, Evaluate | None] | None:
    """(the rows of the condition that leaves the fewest, the conditions to test on them); None where none is known."""
    best: tuple[int, ByValue, ValuePositions] | None = None
    for condition in conditions:
        known = table.again("positions", condition.column, lambda: ValuePositions.of(table, condition.column))  # noqa: B023
        if known is not None and known.usable:
            count = known.count(condition.values(params))
            if best is None or count < best[0]:
                best = count, condition, known
    if best is None:
        return None
    _, condition, known = best
    return known.positions(condition.values(params)), condition.rest
