"""What a result becomes in other libraries: pandas, polars, networkx. None of them is needed until it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import pyarrow as pa

from omnigraph.errors import BadRequest
from omnigraph.query.ir import ResultColumn
from omnigraph.schema.catalog import Catalog

__all__ = ["library", "networkx_graph"]


def library(name: str, method: str) -> Any:
    """A library that the user may have.

    Raises:
        BadRequest: it isn't installed (`missing_extra`).
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise BadRequest(
            f"{method} needs {name}, which isn't installed: pip install 'omnigraph[{name}]'",
            code="missing_extra",
            details={"package": name},
        ) from None


def networkx_graph(table: pa.Table, columns: Sequence[ResultColumn], catalog: Catalog) -> Any:
    """The nodes and edges among the columns, as a `networkx.MultiDiGraph`.

    A node is named `(type, id)` and has its type and properties as attributes; an edge has them too, and its id as key.
    An edge's ends are there even where they were not returned, with their type alone. Null is left out, and so is
    a property that is called `type`.

    Raises:
        BadRequest: no column is a node or an edge, or networkx isn't installed (`missing_extra`).
    """
    networkx = library("networkx", "to_networkx")
    nodes = [c for c in columns if c.type.base == "Node" and not c.type.list]
    edges = [c for c in columns if c.type.base == "Edge" and not c.type.list]
    if not nodes and not edges:
        raise BadRequest("to_networkx needs whole nodes or edges among the columns, such as return { $p, $e, $q }")
    graph = networkx.MultiDiGraph()
    for column in nodes:
        for row in _rows(table, column.name):
            graph.add_node((column.type.entity, row["id"]), type=column.type.entity, **_properties(row))
    for column in edges:
        declared = catalog.edge(column.type.entity)
        assert declared is not None  # the query was compiled against this catalog
        for row in _rows(table, column.name):
            ends = (declared.source, row.pop("src")), (declared.target, row.pop("dst"))
            for end in ends:
                graph.add_node(end, type=end[0])
            graph.add_edge(*ends, key=row["id"], type=declared.name, **_properties(row))
    return graph


def _rows(table: pa.Table, name: str) -> list[dict[str, Any]]:
    """The objects of a column, each once; where an `optional` bound nothing there is none."""
    found: list[dict[str, Any] | None] = table[name].to_pylist()
    return list({row["id"]: row for row in found if row is not None}.values())


def _properties(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None and name not in ("id", "type")}
