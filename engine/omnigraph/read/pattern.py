"""A match taken apart: the variables to bind, the edges and blocks between them, the conditions on each.

A condition on one variable goes into that variable's scan or traversal. One that may be an error in some row does not:
it is asked last, in written order, about the rows that everything else keeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from omnigraph.errors import Internal
from omnigraph.query.ir import (
    AntiJoin,
    Call,
    Expand,
    Expr,
    Filter,
    Lit,
    NodeScan,
    Operator,
    Optional,
    Param,
    Prop,
    Shortest,
)
from omnigraph.read.walk import conjuncts, has_block, may_fail, operators_may_fail, variables
from omnigraph.records import dataclass
from omnigraph.schema.catalog import Catalog, Type

__all__ = ["Pattern", "conjunction", "pinned_id", "selectivity", "take_apart", "types_of"]

_HOLDS = {"=": 0.01, "in": 0.05, "starts_with": 0.05, "contains": 0.1, "<": 0.3, "<=": 0.3, ">": 0.3, ">=": 0.3}
_HOLDS |= {"search": 0.05, "match_text": 0.01, "fuzzy": 0.05}
_BOOL = Type("Bool")


@dataclass
class Pattern:
    """One level of a match, taken apart."""

    types: Mapping[str, str]  # variable → node type, of this level and those around it
    nodes: dict[str, str] = field(default_factory=dict)  # to be bound here → node type, in binding order
    where: dict[str, list[Expr]] = field(default_factory=dict)
    edges: list[Expand] = field(default_factory=list)
    edge_where: dict[str, list[Expr]] = field(default_factory=dict)
    paths: list[Shortest] = field(default_factory=list)
    filters: list[Expr] = field(default_factory=list)
    antis: list[AntiJoin] = field(default_factory=list)
    optionals: list[Optional] = field(default_factory=list)
    late: list[Expr | AntiJoin] = field(default_factory=list)  # what may fail, in written order
    later: set[str] = field(default_factory=set)  # variables that an optional block binds


def types_of(operators: Iterable[Operator], catalog: Catalog, outer: Mapping[str, str]) -> dict[str, str]:
    """Variable → node type of what a level binds, its optional blocks included, and what is bound around it."""
    out = dict(outer)
    for op in operators:
        if isinstance(op, NodeScan):
            out[op.var] = op.node
        elif isinstance(op, (Expand, Shortest)):
            edge = catalog.edges[op.ways[0].edge]
            near = edge.target if op.ways[0].direction == "in" else edge.source
            out.setdefault(op.target, op.target_node)
            out.setdefault(op.source, near)
        elif isinstance(op, Optional):
            inner = types_of(op.inner, catalog, out)
            out |= {v: inner[v] for v in op.binds if v in inner}
    return out


def take_apart(operators: Iterable[Operator], bound: set[str], types: Mapping[str, str]) -> Pattern:
    """The parts of one level; `bound` is bound before it begins."""
    operators = tuple(operators)
    pattern = Pattern(types)
    pattern.later = {v for op in operators if isinstance(op, Optional) for v in op.binds}
    loose: list[Expr | AntiJoin] = []
    for op in operators:
        match op:
            case NodeScan(var, node, where):
                if var not in bound and var not in pattern.later:
                    pattern.nodes[var] = node
                loose += conjuncts(where)
            case Expand() | Shortest():
                for end in (op.source, op.target):
                    if end not in bound and end not in pattern.later:
                        pattern.nodes.setdefault(end, types[end])
                loose += conjuncts(op.where)
                if isinstance(op, Shortest):
                    pattern.paths.append(op)
                    continue
                pattern.edges.append(op)
                if op.edge_var is not None:
                    pattern.edge_where[op.edge_var] = []
                    loose += conjuncts(op.edge_where)
            case Filter(predicate):
                loose += conjuncts(predicate)
            case AntiJoin():
                loose.append(op)
            case Optional():
                pattern.optionals.append(op)
            case _:
                raise Internal(f"no plan for {type(op).__name__} inside a match")
    for condition in loose:
        _place(condition, pattern)
    return pattern


def _place(condition: Expr | AntiJoin, pattern: Pattern) -> None:
    if isinstance(condition, AntiJoin):
        (pattern.late if operators_may_fail(condition.inner) else pattern.antis).append(condition)
        return
    touched = variables(condition)
    only = next(iter(touched)) if len(touched) == 1 and not has_block(condition) else ""
    if may_fail(condition):
        pattern.late.append(condition)
    elif only in pattern.nodes:
        pattern.where.setdefault(only, []).append(condition)
    elif only in pattern.edge_where:
        pattern.edge_where[only].append(condition)
    else:
        pattern.filters.append(condition)


def conjunction(conditions: list[Expr]) -> Expr | None:
    """All of them in one expression; None for none."""
    if not conditions:
        return None
    return conditions[0] if len(conditions) == 1 else Call("and", tuple(conditions), _BOOL)


def selectivity(conditions: Iterable[Expr]) -> float:
    """The share of rows for which the conditions are expected to hold."""
    share = 1.0
    for c in conditions:
        share *= _HOLDS.get(c.fn, 0.5) if isinstance(c, Call) else 0.5
    return share


def pinned_id(catalog: Catalog, node: str, conditions: list[Expr]) -> tuple[Call, Lit | Param] | None:
    """(the equality that pins the id, what gives it), on `id` or on a key of one property; None without one."""
    kind = catalog.nodes[node]
    names = {"id"}
    if len(kind.key) == 1 and kind.properties[kind.key[0]].type.base in ("String", "Enum", "I32", "I64", "U32", "U64"):
        names.add(kind.key[0])
    for c in conditions:
        if not isinstance(c, Call) or c.fn != "=":
            continue
        for prop, value in (c.args, c.args[::-1]):
            if isinstance(prop, Prop) and prop.name in names and isinstance(value, (Lit, Param)):
                # An integer key's id is its decimals; a float would render otherwise.
                if value.type.base in ("F32", "F64", "Null"):
                    continue
                return c, value
    return None
