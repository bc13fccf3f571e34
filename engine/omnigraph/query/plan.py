"""From what a `match` says to the order it is done in: filters pushed down, operators ordered. Pure functions.

The order: start at the binding that promises the fewest rows, follow edges from what is bound, semi-join as soon as
both ends are, filter as soon as everything a filter names is bound. Negations come after that, then the optional
blocks, and last the filters and negations over what those bind.

This order always works and needs no data, so the IR can be run and read as it stands. `read.planner` takes it apart
again and orders by the sizes of the tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import replace
from heapq import heappop, heappush
from typing import Literal, TypeVar

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
    SubMatch,
    Var,
)
from omnigraph.records import dataclass
from omnigraph.schema.catalog import Catalog, NodeType, Type

__all__ = ["Block", "Nested", "conjunction", "order_operators", "variables_of"]

Step = Expand | Shortest
_AnyStep = TypeVar("_AnyStep", Expand, Shortest)


@dataclass(frozen=True)
class Nested:
    """A block inside a block: `outer` are the variables it uses, `binds` those that an `optional` adds."""

    block: Block
    outer: tuple[str, ...]
    binds: tuple[str, ...] = ()


@dataclass(frozen=True)
class Block:
    """The checked clauses of one `match` or nested block.

    `nodes`: variable → node type, in order of first appearance, of those this block binds itself. `steps` have their
    direction as written and no `where` yet. `optionals` stand in an order in which each has what it uses.
    """

    nodes: Mapping[str, str]
    steps: tuple[Step, ...]
    predicates: tuple[Expr, ...]
    negations: tuple[Nested, ...]
    optionals: tuple[Nested, ...] = ()


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
    local, rest = _push_down(block)
    plan = _Plan(block, local, [(p, variables_of(p)) for p in rest], set(bound))
    plan.begin()
    unbound = sorted(block.nodes, key=lambda v: _promise(local.get(v, ()), v, catalog.nodes[block.nodes[v]]))
    for var in unbound:
        plan.follow()
        if var not in plan.have:
            plan.out.append(NodeScan(var, block.nodes[var], conjunction(local.get(var, ()))))
            plan.bind({var})
    plan.follow()
    plan.negate(catalog)
    for nested in block.optionals:
        inner = order_operators(nested.block, catalog, frozenset(plan.have))
        plan.out.append(Optional(inner, nested.outer, nested.binds))
        plan.bind(set(nested.binds))
    plan.negate(catalog)
    return tuple(plan.out)


class _Plan:
    """Operators as they are put in order. What waits is kept by the variables it waits for."""

    def __init__(
        self, block: Block, local: Mapping[str, list[Expr]], waiting: list[tuple[Expr, frozenset[str]]], have: set[str]
    ) -> None:
        self.block, self.local, self.waiting, self.have = block, local, waiting, have
        self.out: list[Operator] = []
        self.negations = list(block.negations)
        self._lacking = [len(names - have) for _, names in waiting]
        self._filters_of = _by_variable((i, names) for i, (_, names) in enumerate(waiting))
        self._steps_of = _by_variable((i, {s.source, s.target}) for i, s in enumerate(block.steps))
        self._done: set[int] = set()
        self._both: list[int] = []  # heaps of steps with both ends bound, and with one
        self._one: list[int] = []

    def begin(self) -> None:
        """What only needs the variables from outside."""
        self._filter(i for i, lacking in enumerate(self._lacking) if not lacking)
        for var in self.have:
            self._reach(var)

    def bind(self, names: set[str]) -> None:
        """More variables are bound: what waited for them alone is ready."""
        fresh = names - self.have
        self.have |= fresh
        ready: list[int] = []
        for var in fresh:
            self._reach(var)
            for i in self._filters_of.get(var, ()):
                self._lacking[i] -= 1
                if not self._lacking[i]:
                    ready.append(i)
        self._filter(sorted(ready))

    def _filter(self, ready: Iterable[int]) -> None:
        self.out += [Filter(self.waiting[i][0]) for i in ready]

    def _reach(self, var: str) -> None:
        """Steps at this variable: a shortest path is walked from its start."""
        for i in self._steps_of.get(var, ()):
            step = self.block.steps[i]
            if step.source in self.have and step.target in self.have:
                heappush(self._both, i)
            elif step.source in self.have or isinstance(step, Expand):
                heappush(self._one, i)

    def follow(self) -> None:
        """Every step that can be reached: one with both ends bound first (it only removes rows), else the first
        written one with one end bound."""
        while self._both or self._one:
            i = heappop(self._both or self._one)
            if i not in self._done:
                self._done.add(i)
                step = self.block.steps[i]
                self.out.append(_place(step, self.block, self.have, self.local))
                self.bind(_bound_by(step))

    def negate(self, catalog: Catalog) -> None:
        ready = [n for n in self.negations if self.have.issuperset(n.outer)]
        self.negations = [n for n in self.negations if not self.have.issuperset(n.outer)]
        have = frozenset(self.have)
        self.out += [AntiJoin(order_operators(n.block, catalog, have), n.outer) for n in ready]


def _by_variable(named: Iterable[tuple[int, Set[str]]]) -> dict[str, list[int]]:
    out: dict[str, list[int]] = {}
    for i, names in named:
        for name in names:
            out.setdefault(name, []).append(i)
    return out


def _push_down(block: Block) -> tuple[dict[str, list[Expr]], list[Expr]]:
    """Split conjunctions; give each predicate that touches only one variable that a scan or an edge of this block
    binds to that variable."""
    places = {*block.nodes, *(s.edge_var for s in block.steps if isinstance(s, Expand))}
    local: dict[str, list[Expr]] = {}
    rest: list[Expr] = []
    pending = list(reversed(block.predicates))
    while pending:
        predicate = pending.pop()
        if isinstance(predicate, Call) and predicate.fn == "and":
            pending += reversed(predicate.args)
            continue
        touched = variables_of(predicate)
        if len(touched) == 1 and touched <= places and not _has_block(predicate):
            local.setdefault(next(iter(touched)), []).append(predicate)
        else:
            rest.append(predicate)
    return local, rest


def _has_block(expr: Expr) -> bool:
    """Whether `exists { … }` or `count { … }` is in it: a scan can't answer those."""
    return isinstance(expr, SubMatch) or (isinstance(expr, Call) and any(_has_block(a) for a in expr.args))


def _bound_by(step: Step) -> set[str]:
    own = step.path if isinstance(step, Shortest) else step.edge_var
    return {step.source, step.target} | ({own} if own else set())


_TURNED: dict[str, Literal["out", "in", "both"]] = {"out": "in", "in": "out", "both": "both"}


def _place(step: Step, block: Block, have: set[str], local: Mapping[str, list[Expr]]) -> Step:
    """The step as it is done, with the filters of what it binds."""
    if isinstance(step, Expand):
        return _with_target(_turned(step, block, have, local), have, local)
    return _with_target(step, have, local)


def _turned(step: Expand, block: Block, have: set[str], local: Mapping[str, list[Expr]]) -> Expand:
    """Turned around where only its far end is bound."""
    if step.edge_var:
        step = replace(step, edge_where=conjunction(local.get(step.edge_var, ())))
    if step.source in have:
        return step
    return replace(
        step,
        source=step.target,
        target=step.source,
        ways=tuple(replace(way, direction=_TURNED[way.direction]) for way in step.ways),
        target_node=block.nodes[step.source],
    )


def _with_target(step: _AnyStep, have: set[str], local: Mapping[str, list[Expr]]) -> _AnyStep:
    if step.target in have:
        return replace(step, target_bound=True)
    return replace(step, where=conjunction(local.get(step.target, ())))


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
