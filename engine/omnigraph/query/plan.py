"""From what a `match` says to the order it is done in: filters pushed down, operators ordered. Pure functions.

The order: start at the binding that promises the fewest rows, follow edges from what is bound, semi-join as soon as
both ends are, filter as soon as everything a filter names is bound; negations come last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from omnigraph.query.ir import AntiJoin, Call, Expand, Expr, Filter, Lit, NodeScan, Operator, Param, Prop, SubMatch, Var
from omnigraph.schema.catalog import Catalog, NodeType, Type

__all__ = ["Block", "conjunction", "order_operators", "variables_of"]


@dataclass(frozen=True)
class Block:
    """The checked clauses of one `match` or nested block, in written order.

    `nodes`: variable → node type, in order of first appearance, of those this block binds. `steps` have their direction
    as written and no `where` yet.
    """

    nodes: Mapping[str, str]
    steps: tuple[Expand, ...]
    predicates: tuple[Expr, ...]
    negations: tuple[tuple[Block, tuple[str, ...]], ...]


def variables_of(expr: Expr) -> frozenset[str]:
    """Bound variables an expression touches."""
    if isinstance(expr, Prop):
        return frozenset({expr.var})
    if isinstance(expr, Var):
        return frozenset({expr.name})
    if isinstance(expr, Call):
        return frozenset().union(*(variables_of(a) for a in expr.args))
    if isinstance(expr, SubMatch):
        return frozenset(expr.outer)
    return frozenset()


def conjunction(predicates: Iterable[Expr]) -> Expr | None:
    """All of them in one expression, in order; None for none."""
    flat = tuple(predicates)
    if len(flat) < 2:
        return flat[0] if flat else None
    return Call("and", flat, Type("Bool", any(p.type.nullable for p in flat)))


def order_operators(block: Block, catalog: Catalog, bound: frozenset[str] = frozenset()) -> tuple[Operator, ...]:
    """The operators of a block whose frame has `bound` already."""
    local, waiting = _push_down(block.predicates, bound)
    steps = list(block.steps)
    have = set(bound)
    out: list[Operator] = []

    def settle() -> None:
        for predicate in [p for p in waiting if variables_of(p) <= have]:
            waiting.remove(predicate)
            out.append(Filter(predicate))

    settle()
    while True:
        step = _next_step(steps, have)
        if step is not None:
            steps.remove(step)
            out.append(_place(step, block, have, local))
            have |= {step.source, step.target} | ({step.edge_var} if step.edge_var else set())
            settle()
            continue
        unbound = [v for v in block.nodes if v not in have]
        if not unbound:
            break
        var = min(unbound, key=lambda v: _promise(local.get(v, ()), v, catalog.nodes[block.nodes[v]]))
        out.append(NodeScan(var, block.nodes[var], conjunction(local.get(var, ()))))
        have.add(var)
        settle()
    out += [AntiJoin(order_operators(inner, catalog, frozenset(have)), outer) for inner, outer in block.negations]
    return tuple(out)


def _push_down(predicates: Iterable[Expr], bound: frozenset[str]) -> tuple[dict[str, list[Expr]], list[Expr]]:
    """Split conjunctions; give each predicate that touches one variable of this block to that variable."""
    local: dict[str, list[Expr]] = {}
    rest: list[Expr] = []
    pending = list(predicates)
    while pending:
        predicate = pending.pop(0)
        if isinstance(predicate, Call) and predicate.fn == "and":
            pending[:0] = predicate.args
            continue
        touched = variables_of(predicate)
        if len(touched) == 1 and not touched & bound and not _has_block(predicate):
            local.setdefault(next(iter(touched)), []).append(predicate)
        else:
            rest.append(predicate)
    return local, rest


def _has_block(expr: Expr) -> bool:
    """A nested block is run over the frame, never inside a scan."""
    return isinstance(expr, SubMatch) or (isinstance(expr, Call) and any(_has_block(a) for a in expr.args))


def _next_step(steps: list[Expand], have: set[str]) -> Expand | None:
    """A step with both ends bound first (it only removes rows), else the first written one with one end bound."""
    both = (s for s in steps if s.source in have and s.target in have)
    one = (s for s in steps if s.source in have or s.target in have)
    return next(both, None) or next(one, None)


_TURNED: dict[str, Literal["out", "in", "both"]] = {"out": "in", "in": "out", "both": "both"}


def _place(step: Expand, block: Block, have: set[str], local: Mapping[str, list[Expr]]) -> Expand:
    """The step as it is done: turned around where only its far end is bound, with the filters of what it binds."""
    edge_where = conjunction(local.get(step.edge_var, ())) if step.edge_var else None
    if step.source not in have:
        step = replace(
            step,
            source=step.target,
            target=step.source,
            ways=tuple(replace(way, direction=_TURNED[way.direction]) for way in step.ways),
            target_node=block.nodes[step.source],
        )
    if step.target in have:
        return replace(step, target_bound=True, edge_where=edge_where)
    where = conjunction(local.get(step.target, ()))
    return replace(step, where=where, edge_where=edge_where)


def _promise(predicates: Iterable[Expr], var: str, node: NodeType) -> int:
    """How few rows a scan promises: 0 one by key, 1 equality on an indexed or unique property, 2 any filter, 3 none."""
    predicates = tuple(predicates)
    equal = {
        side.name
        for p in predicates
        if isinstance(p, Call) and p.fn == "="
        for side, other in (p.args, p.args[::-1])
        if isinstance(side, Prop) and side.var == var and isinstance(other, (Lit, Param))
    }
    if "id" in equal or (node.key and set(node.key) <= equal):
        return 0
    if any(set(columns) <= equal for columns in (*node.uniques, *node.indexes)):
        return 1
    return 2 if predicates else 3
