"""What an expression is made of: the properties it reads, the variables it waits for, whether it may fail."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from omnigraph.query.ir import (
    Agg,
    AntiJoin,
    Call,
    Expand,
    Expr,
    Filter,
    NodeScan,
    Operator,
    Optional,
    Prop,
    Shortest,
    SubMatch,
    Var,
)

__all__ = [
    "aggregates_in",
    "conjuncts",
    "counts_rows",
    "has_block",
    "inner_expressions",
    "may_fail",
    "operators_may_fail",
    "parts_of",
    "properties",
    "variables",
]

_FAILING = frozenset(
    {"+", "-", "*", "/", "mod", "neg", "to_int", "to_float", "to", "add_days", "add_months", "substring", "split"}
)


def conjuncts(predicate: Expr | None) -> tuple[Expr, ...]:
    """The parts that must all be true."""
    if predicate is None:
        return ()
    if isinstance(predicate, Call) and predicate.fn == "and":
        return tuple(c for arg in predicate.args for c in conjuncts(arg))
    return (predicate,)


def parts_of(expr: Expr) -> Iterator[Expr]:
    """An expression and all that stands in it, left to right, blocks not entered."""
    waiting = [expr]
    while waiting:
        part = waiting.pop()
        yield part
        if isinstance(part, Call):
            waiting += reversed(part.args)
        elif isinstance(part, Agg) and part.arg is not None:
            waiting.append(part.arg)


def inner_expressions(operators: Iterable[Operator]) -> Iterator[Expr]:
    """Every expression of a match and of the blocks inside it."""
    for op in operators:
        match op:
            case NodeScan():
                found = [op.where]
            case Expand():
                found = [op.where, op.edge_where, op.hop_where]
            case Shortest():
                found = [op.where, op.hop_where]
            case Filter():
                found = [op.predicate]
            case AntiJoin() | Optional():
                found = []
                yield from inner_expressions(op.inner)
            case _:
                found = []
        for expr in found:
            if expr is not None:
                yield expr


def operators_may_fail(operators: Iterable[Operator]) -> bool:
    """Whether an expression inside may be an error in some row."""
    return any(may_fail(expr) for expr in inner_expressions(operators))


def properties(expr: Expr) -> frozenset[tuple[str, str]]:
    """The (variable, property) pairs an expression reads, its blocks included; an entity inside reads its id."""
    out: set[tuple[str, str]] = set()
    for e in parts_of(expr):
        if isinstance(e, Prop):
            out.add((e.var, e.name))
        elif isinstance(e, Var):
            out.add((e.name, "id"))
        elif isinstance(e, SubMatch):
            for inner in inner_expressions(e.inner):
                out |= properties(inner)
    return frozenset(out)


def variables(expr: Expr) -> frozenset[str]:
    """The variables that must be bound before an expression has a value."""
    out: set[str] = set()
    for e in parts_of(expr):
        if isinstance(e, Prop):
            out.add(e.var)
        elif isinstance(e, Var):
            out.add(e.name)
        elif isinstance(e, SubMatch):
            out.update(e.outer)
    return frozenset(out)


def has_block(expr: Expr) -> bool:
    """Whether `exists { … }` or `count { … }` stands in it."""
    return any(isinstance(e, SubMatch) for e in parts_of(expr))


def may_fail(expr: Expr) -> bool:
    """Whether evaluating it may be an error in some row: then it may only be asked about rows that count."""
    for e in parts_of(expr):
        if isinstance(e, Call) and e.fn in _FAILING:
            return True
        if isinstance(e, Call) and e.fn == "abs" and e.type.base == "I64":
            return True
        if isinstance(e, SubMatch) and operators_may_fail(e.inner):
            return True
    return False


def aggregates_in(expr: Expr) -> list[Agg]:
    """The aggregates of an expression, left to right."""
    return [e for e in parts_of(expr) if isinstance(e, Agg)]


def counts_rows(agg: Agg) -> bool:
    """Whether an aggregate counts rows, whatever stands in them."""
    rows = agg.arg is None or (isinstance(agg.arg, Var) and not agg.arg.type.nullable)
    return agg.fn == "count" and not agg.distinct and rows
