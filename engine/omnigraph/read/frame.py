"""The state between two steps: a set of rows, and for each bound variable which row of which table it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.errors import BadRequest
from omnigraph.read.adjacency import AdjacencyCache
from omnigraph.read.compute import Array, taken
from omnigraph.read.partial import PartialTable
from omnigraph.read.settings import ReadSettings
from omnigraph.read.tables import Readable, Rows, TableCache
from omnigraph.schema.catalog import Catalog

__all__ = ["Binding", "Context", "Frame", "Indices"]

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
        if self.nullable:
            return taken(column, pa.array(self.at, mask=self.at < 0))
        return column.slice(int(self.at[0]), 1) if len(self.at) == 1 else taken(column, pa.array(self.at))

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
        if all(v in names for v in self.bound):
            return self
        return Frame(self.length, {v: b for v, b in self.bound.items() if v in names}, self.weight)


@dataclass(frozen=True, slots=True, eq=False)
class Context:
    """What one execution has at hand: one snapshot, one instant, one set of parameters.

    Args:
        deadline: `time.monotonic()` after which the query is given up, or None.
        cancelled: asked between steps; True gives the query up.
    """

    snapshot: Readable
    catalog: Catalog
    params: Mapping[str, Any]
    now: datetime
    tables: TableCache
    adjacency: AdjacencyCache
    settings: ReadSettings
    deadline: float | None = None
    cancelled: Callable[[], bool] | None = None
    _partials: dict[str, PartialTable] = field(default_factory=dict)

    def partial(self, table_key: str) -> PartialTable:
        """The rows of a table that this execution has read by themselves."""
        found = self._partials.get(table_key)
        if found is None:
            found = self._partials[table_key] = PartialTable(table_key, self.snapshot)
        return found

    def check(self) -> None:
        """Raises BadRequest once the query's time is over or its caller is gone."""
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise BadRequest(
                "the query took longer than its time allows: narrow it, or allow more", code="query_timeout"
            )
        if self.cancelled is not None and self.cancelled():
            raise BadRequest("the query was cancelled", code="query_cancelled")

    def check_rows(self, rows: int, what: str) -> None:
        """Raises BadRequest where a step would make more rows than `max_rows`."""
        if rows > self.settings.max_rows:
            raise BadRequest(
                f"{what} gives {rows} rows, more than the {self.settings.max_rows} a query may hold: "
                "narrow the match, or raise OMNIGRAPH_READ_MAX_ROWS",
                code="query_too_large",
            )
