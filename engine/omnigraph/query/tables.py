"""Which tables a read query touches: every node and edge type its operators name, in nested blocks too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from omnigraph.query.ir import (
    Agg,
    Aggregate,
    AntiJoin,
    Call,
    Expand,
    Expr,
    Filter,
    NodeScan,
    Operator,
    Optional,
    Order,
    Project,
    Shortest,
    SubMatch,
)
from omnigraph.schema.catalog import table_key

__all__ = ["tables_read"]


def tables_read(operators: Iterable[Operator]) -> frozenset[str]:
    """The table keys."""
    return frozenset(_tables(operators))


def _tables(operators: Iterable[Operator]) -> Iterator[str]:
    for operator in operators:
        if isinstance(operator, NodeScan):
            yield table_key("node", operator.node)
        elif isinstance(operator, (Expand, Shortest)):
            yield from (table_key("edge", way.edge) for way in operator.ways)
            yield table_key("node", operator.target_node)
        elif isinstance(operator, (AntiJoin, Optional)):
            yield from _tables(operator.inner)
        for expr in _expressions(operator):
            yield from _tables_of(expr)


def _expressions(operator: Operator) -> Iterator[Expr | None]:
    if isinstance(operator, (NodeScan, Expand, Shortest)):
        yield operator.where
    elif isinstance(operator, Filter):
        yield operator.predicate
    elif isinstance(operator, (Project, Aggregate)):
        yield from (expr for _, expr in operator.columns)
        yield from (expr for _, expr in operator.keys) if isinstance(operator, Aggregate) else ()
    elif isinstance(operator, Order):
        yield from (key.expr for key in operator.keys)


def _tables_of(expr: Expr | None) -> Iterator[str]:
    if isinstance(expr, SubMatch):
        yield from _tables(expr.inner)
    elif isinstance(expr, Call):
        for argument in expr.args:
            yield from _tables_of(argument)
    elif isinstance(expr, Agg):
        yield from _tables_of(expr.arg)
