"""A read query's body: match, return, order, limit, to IR operators and result columns."""

from __future__ import annotations

from omnigraph.query import ast
from omnigraph.query.ir import Operator, ResultColumn
from omnigraph.query.match import check_block
from omnigraph.query.ordering import check_limit, check_order
from omnigraph.query.plan import order_operators
from omnigraph.query.returns import check_return
from omnigraph.query.scope import Scope
from omnigraph.query.tables import tables_read

__all__ = ["check_read"]


def check_read(
    body: ast.ReadBody, scope: Scope
) -> tuple[tuple[Operator, ...], tuple[ResultColumn, ...], frozenset[str]]:
    """Operators, result columns and the table keys read; refusals are noted in the scope."""
    block = check_block(body.clauses, scope)
    returned = check_return(body, scope)
    order = check_order(body, returned, scope)
    limit = check_limit(body.counts, scope)
    if scope.found:
        return (), (), frozenset()
    tail = (op for op in (order, limit) if op is not None)
    operators = (*order_operators(block, scope.catalog), *returned.operators, *tail)
    return operators, returned.result, tables_read(operators)
