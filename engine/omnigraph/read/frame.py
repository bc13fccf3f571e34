"""The state between two steps: a set of rows, and for each bound variable which row of which table it is."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.errors import BadRequest
from omnigraph.read import limits
from omnigraph.read.adjacency import AdjacencyCache
from omnigraph.read.compute import Array, indices, taken
from omnigraph.read.partial import PartialTable
from omnigraph.read.settings import ReadSettings
from omnigraph.read.tables import Readable, Rows, TableCache
from omnigraph.read.trace import Trace
from omnigraph.schema.catalog import Catalog

_AGAIN = 500.0

__all__ = ["Binding", "Context", "Counted", "Frame", "Indices"]

Indices = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Binding:
    """One variable: position `at[i]` of `rows` in frame row i; where `nullable`, a negative one is null."""

    rows: Rows
    at: Indices
    nullable: bool = False

    def column(self, name: str) -> Array:
        """The property in each frame row, taken late; of a single row it is a view."""
        column = self.rows.column(name)
        if self.at is self.rows.kept("positions", ""):
            return column
        if self.nullable:
            return taken(column, pa.array(self.at, mask=self.at < 0))
        return column.slice(int(self.at[0]), 1) if len(self.at) == 1 else taken(column, indices(self.at))

    def take(self, rows: Indices | npt.NDArray[np.bool_]) -> Binding:
        return Binding(self.rows, self.at[rows], self.nullable)


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """`length` rows over the bindings. No binding and one row is where every query begins.

    Args:
        weight: how often each row stands, where that isn't once; see `multiset`.
    """

    length: int
    bound: Mapping[str, Binding] = field(default_factory=dict)
    weight: npt.NDArray[np.int64] | None = None

    def take(self, rows: Indices | npt.NDArray[np.bool_]) -> Frame:
        """The given rows (indices or a mask), in that order."""
        bound = {v: b.take(rows) for v, b in self.bound.items()}
        length = int(np.count_nonzero(rows)) if rows.dtype == np.bool_ else len(rows)
        return Frame(length, bound, None if self.weight is None else self.weight[rows])

    def bind(self, var: str, binding: Binding) -> Frame:
        return Frame(self.length, {**self.bound, var: binding}, self.weight)

    def keep(self, names: frozenset[str]) -> Frame:
        """Without the variables nobody asks for any more."""
        if names.issuperset(self.bound):
            return self
        return Frame(self.length, {v: b for v, b in self.bound.items() if v in names}, self.weight)


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """Statistics of a whole column of texts, while only the rows that have one of a few words are read.

    Args:
        texts: rows of the table that have a text.
        length: words in all of them.
        words: the few words.
    """

    texts: int
    length: int
    words: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class Context:
    """What one execution has at hand: one snapshot, one instant, one set of parameters.

    Args:
        trace: notes what each step did, or None.
        counted: by table and column: the statistics `bm25` scores rows by that were read by themselves.
    """

    snapshot: Readable
    catalog: Catalog
    params: Mapping[str, Any]
    now: datetime
    tables: TableCache
    adjacency: AdjacencyCache
    settings: ReadSettings
    trace: Trace | None = None
    counted: dict[tuple[str, str], Counted] = field(default_factory=dict)
    _partials: dict[str, PartialTable] = field(default_factory=dict)
    _spent: dict[Hashable, tuple[float, float]] = field(default_factory=dict)  # by earlier queries, by this one

    def partial(self, table_key: str) -> PartialTable:
        """The rows of a table that this execution has read by themselves."""
        found = self._partials.get(table_key)
        if found is None:
            found = self._partials[table_key] = PartialTable(
                table_key, self.snapshot, scans=self.settings.traversal_mode == "scan"
            )
        return found

    def rather_alone(self, key: Hashable, alone: float, whole: float, *, count: bool) -> bool:
        """Whether to answer a question by itself once more, instead of preparing for all that follow.

        The first query does, as far as that is cheaper; who asks again will go on asking, so what earlier queries spent
        counts `_AGAIN` times against the preparation.

        Args:
            key: what would be prepared.
            alone, whole: microseconds of this answer, and of the preparation.
            count: whether it is done now, and not only looked at.
        """
        before, own = self._spent.setdefault(key, (self.tables.spent(key), 0.0))
        rather = own + alone + before * _AGAIN < whole
        if rather and count:
            self._spent[key] = (before, own + alone)
            self.tables.spend(key, alone)
        return rather

    def check(self) -> None:
        """Raises BadRequest once the query's time is over or its caller is gone."""
        limits.check()

    def check_rows(self, rows: int, what: str) -> None:
        """Raises BadRequest where a step would make more rows than `max_rows`, or more bytes of positions."""
        if rows > self.settings.max_rows:
            raise BadRequest(
                f"{what} gives {rows} rows, more than the {self.settings.max_rows} a query may hold: "
                "narrow the match, or raise OMNIGRAPH_READ_MAX_ROWS",
                code="query_too_large",
            )
        self.check_bytes(rows * 16, what)  # a row's origin and its new end

    def check_bytes(self, size: int, what: str) -> None:
        """Raises BadRequest where something would take more memory than `max_bytes`."""
        if size > self.settings.max_bytes:
            raise BadRequest(
                f"{what} takes about {size:,} bytes, more than the {self.settings.max_bytes:,} a query may hold: "
                "narrow the match or return less, or raise OMNIGRAPH_READ_MAX_BYTES",
                code="query_too_large",
            )
