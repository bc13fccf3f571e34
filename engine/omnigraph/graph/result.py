"""What a read query gives back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from omnigraph import read
from omnigraph.query.ir import ResultColumn
from omnigraph.records import dataclass
from omnigraph.storage import Snapshot

__all__ = ["QueryResult"]


@dataclass(frozen=True, repr=False)
class QueryResult:
    """The rows of a read query.

    Args:
        table: the rows, columns in the order of `columns`.
        columns: names and types as the query declares them.
        name: the query's name.
        snapshot: what was read.
    """

    table: pa.Table
    columns: tuple[ResultColumn, ...]
    name: str
    snapshot: Snapshot

    def __len__(self) -> int:
        return self.table.num_rows

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.to_pylist())

    def to_pylist(self) -> list[dict[str, Any]]:
        """The rows as Python values."""
        rows: list[dict[str, Any]] = self.table.to_pylist()
        return rows

    def to_pandas(self) -> Any:
        """The rows as a pandas DataFrame; needs `omnigraph[pandas]`."""
        read.library("pandas", "to_pandas")
        return self.table.to_pandas()

    def to_polars(self) -> Any:
        """The rows as a polars DataFrame; needs `omnigraph[polars]`."""
        return read.library("polars", "to_polars").from_arrow(self.table)

    def to_networkx(self) -> Any:
        """The nodes and edges of the rows as a `networkx.MultiDiGraph`; needs `omnigraph[networkx]`.

        Nodes are named `(type, id)`; nodes and edges have their type and properties as attributes.

        Raises:
            BadRequest: no column is a whole node or edge (`return { $p, $e }`), or networkx isn't installed.
        """
        return read.networkx_graph(self.table, self.columns, self.snapshot.catalog)

    def render(self, format: str = "table") -> Iterator[str | bytes]:
        """The rows written in one of the formats table, json, jsonl, csv, kv and arrow, piece by piece."""
        return read.render(self.table, self.columns, format)

    def __repr__(self) -> str:
        return "".join(str(piece) for piece in self.render("table")).rstrip("\n")

    def _repr_html_(self) -> str:
        return read.html_table(self.table, self.columns)
