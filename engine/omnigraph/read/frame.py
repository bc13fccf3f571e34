"""The state between two steps: a set of rows, and for each bound variable which row of which table it is."""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping
from dataclasses import field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.errors import BadRequest
from omnigraph.read import limits
from omnigraph.read.adjacency import AdjacencyCache, adjacency
from omnigraph.read.compute import Array, indices, taken
from omnigraph.read.partial import PartialTable
from omnigraph.read.settings import ReadSettings
from omnigraph.read.tables import TABLES, Readable, Rows, TableCache
from omnigraph.read.trace import Trace
from omnigraph.records import dataclass
from omnigraph.schema.catalog import Catalog

_AGAIN = 500.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

__all__ = ["Binding", "Context", "Counted", "Frame", "Indices"]

Indices = npt.NDArray[np.integer[Any]]


@dataclass(slots=True, eq=False)
class Binding:
    """One variable: position `at[i]` of `rows` in frame row i; where `nullable`, a negative one is null.

    Never changed; frozen it would take three times as long to make, which the smallest queries notice.
    """

    rows: Rows
    at: Indices
    nullable: bool = False
    _index: Array = field(default=None, init=False, repr=False)  # `at` for Arrow, one for all properties

    @property
    def whole(self) -> bool:
        """Whether it is every row of the table in order, made so."""
        return self.at is self.rows.kept("positions", "")

    def column(self, name: str) -> Array:
        """The property in each frame row, taken late; of a single row it is a view."""
        column = self.rows.column(name)
        if self.whole:
            return column
        if len(self.at) == 1 and not self.nullable:
            return column.slice(int(self.at[0]), 1)
        if self._index is None:
            self._index = pa.array(self.at, mask=self.at < 0) if self.nullable else indices(self.at)
        return taken(column, self._index)

    def take(self, rows: Indices | npt.NDArray[np.bool_]) -> Binding:
        return Binding(self.rows, self.at[rows], self.nullable)


@dataclass(slots=True, eq=False)
class Frame:
    """`length` rows over the bindings. No binding and one row is where every query begins. Never changed.

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

    def part(self, skip: int, stop: int | None) -> Frame:
        """The rows from `skip` to before `stop`, as views."""
        some = slice(skip, stop)
        bound = {v: Binding(b.rows, b.at[some], b.nullable) for v, b in self.bound.items()}
        return Frame(len(range(self.length)[some]), bound, None if self.weight is None else self.weight[some])

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


class Context:
    """What one execution has at hand: one snapshot, one instant, one set of parameters.

    Args:
        trace: notes what each step did, or None.
        counted: by table and column: the statistics `bm25` scores rows by that were read by themselves.
    """

    __slots__ = (
        "_began", "_now", "_partials", "_spent", "adjacency", "counted", "params", "settings", "snapshot", "tables",
        "trace",
    )  # fmt: skip

    def __init__(
        self,
        snapshot: Readable,
        params: Mapping[str, Any],
        settings: ReadSettings,
        trace: Trace | None = None,
        tables: TableCache = TABLES,
        edges: AdjacencyCache | None = None,
    ) -> None:
        self.snapshot = snapshot
        self.params = params
        self.settings = settings
        self.trace = trace
        self.tables = tables
        self.adjacency = edges or adjacency()
        self._began = time.time_ns()
        self._now: datetime | None = None
        self.counted: dict[tuple[str, str], Counted] = {}
        self._partials: dict[str, PartialTable] = {}
        self._spent: dict[Hashable, tuple[float, float]] = {}  # by earlier queries, by this one

    @property
    def catalog(self) -> Catalog:
        return self.snapshot.catalog

    @property
    def now(self) -> datetime:
        """When the execution began, in whole milliseconds."""
        if self._now is None:
            self._now = _EPOCH + timedelta(milliseconds=self._began // 1_000_000)
        return self._now

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
