"""Clauses: from the syntax tree of a `match` to a checked `Block`, every variable typed and every edge oriented.

Clauses may stand in any order. Bindings are read first; then edges, those with a known end before the others, so that
an edge written against its direction finds its way; then filters and negations.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from omnigraph.query import ast
from omnigraph.query.assign import match_value
from omnigraph.query.expressions import check, unsupported
from omnigraph.query.ir import Call, Expand, Expr, Lit, Prop, Way
from omnigraph.query.plan import Block, variables_of
from omnigraph.query.scope import Refused, Scope, did_you_mean
from omnigraph.schema.ast import Name
from omnigraph.schema.catalog import EdgeType, Type
from omnigraph.schema.literals import Literal as LiteralNode

__all__ = ["MAX_HOPS", "check_block", "check_inner"]

MAX_HOPS = 1000
"""Largest hop bound that is accepted; a traversal visits a node once, so larger ones are mistakes."""

Direction = Literal["out", "in", "both"]


@dataclass
class _Draft:
    """A block while its clauses are read."""

    scope: Scope
    nodes: dict[str, str] = field(default_factory=dict)
    steps: list[tuple[int, Expand]] = field(default_factory=list)
    predicates: list[Expr] = field(default_factory=list)
    negations: list[tuple[Block, tuple[str, ...]]] = field(default_factory=list)
    used: set[str] = field(default_factory=set)  # variables of the outer block that are named here


def check_block(clauses: Iterable[ast.Clause], scope: Scope) -> Block:
    """Check the clauses and bind their variables in `scope`; refusals are noted in it, one a clause at most."""
    return _draft(tuple(clauses), scope).block()


def check_inner(clauses: Iterable[ast.Clause], scope: Scope) -> tuple[Block, tuple[str, ...]]:
    """A nested block of `scope`, and the variables of `scope` that it uses; refusals are noted in it."""
    finished = _draft(tuple(clauses), scope.inner(), frozenset(scope.variables))
    used = finished.draft.used | {v for _, names in finished.draft.negations for v in names}
    return finished.block(), tuple(v for v in scope.variables if v in used)


def _draft(clauses: tuple[ast.Clause, ...], scope: Scope, outer: frozenset[str] = frozenset()) -> _FinishedDraft:
    draft = _Draft(scope)
    for clause in clauses:
        if isinstance(clause, ast.Binding):
            try:
                _bind(clause, draft, outer)
            except Refused as refused:
                scope.refuse(refused)
                scope.failed.add(clause.var.text)
    _traversals([(i, c) for i, c in enumerate(clauses) if isinstance(c, ast.Traversal)], draft, outer)
    for clause in clauses:
        if isinstance(clause, (ast.Shortest, ast.Optional)):
            word = "shortest" if isinstance(clause, ast.Shortest) else "optional"
            scope.refuse(unsupported(f"`{word}`", clause.place))
            scope.failed |= _names_of(clause)
    for clause in clauses:
        if isinstance(clause, ast.Binding) and clause.var.text not in scope.failed:
            for match in clause.matches:
                with scope.collecting():
                    draft.predicates.append(_match(clause, match, scope))
        elif isinstance(clause, ast.FilterClause):
            _filter(clause, draft, outer)
        elif isinstance(clause, ast.Negation):
            _negation(clause, draft)
    return _FinishedDraft(draft, _names_in_order(clauses))


@dataclass(frozen=True)
class _FinishedDraft:
    draft: _Draft
    order: tuple[str, ...]

    def block(self) -> Block:
        d = self.draft
        rank = {name: i for i, name in enumerate(self.order)}
        nodes = dict(sorted(d.nodes.items(), key=lambda item: rank.get(item[0], len(rank))))
        steps = tuple(step for _, step in sorted(d.steps, key=lambda s: s[0]))
        return Block(nodes, steps, tuple(d.predicates), tuple(d.negations))


def _names_in_order(clauses: Iterable[ast.Clause]) -> tuple[str, ...]:
    names: list[str] = []
    for clause in clauses:
        if isinstance(clause, ast.Binding):
            names.append(clause.var.text)
        elif isinstance(clause, ast.Traversal):
            names += [clause.source.text, clause.target.text]
    return tuple(dict.fromkeys(names))


def _names_of(clause: ast.Shortest | ast.Optional) -> set[str]:
    if isinstance(clause, ast.Shortest):
        return {clause.path.text, clause.source.text, clause.target.text}
    return {v for c in clause.clauses if isinstance(c, ast.Traversal) for v in (c.source.text, c.target.text)} | {
        c.var.text for c in clause.clauses if isinstance(c, ast.Binding)
    }


# ---- bindings ----


def _bind(clause: ast.Binding, draft: _Draft, outer: frozenset[str]) -> None:
    scope, name = draft.scope, clause.var.text
    if clause.type.text not in scope.catalog.nodes:
        edge = scope.catalog.edge(clause.type.text)
        hint = did_you_mean(clause.type.text, scope.catalog.nodes)
        if edge is not None:
            hint = f"{edge.name} is an edge: write `$a ${name}:{edge.name[0].lower()}{edge.name[1:]} $b`"
        raise Refused("T1", f"unknown node type `{clause.type.text}`", clause.type.place, hint)
    earlier = scope.variables.get(name)
    if earlier is not None and earlier != Type("Node", entity=clause.type.text):
        raise Refused("T5", f"`${name}` is a {earlier.entity} already", clause.type.place)
    _declare(name, clause.type.text, draft, outer)


def _declare(name: str, node: str, draft: _Draft, outer: frozenset[str]) -> None:
    if name in outer:
        draft.used.add(name)
    else:
        draft.nodes.setdefault(name, node)
    draft.scope.variables[name] = Type("Node", entity=node)


def _match(clause: ast.Binding, match: ast.Assignment, scope: Scope) -> Expr:
    """`{ name: value }` as a predicate: equality, or membership for a list property."""
    node = scope.catalog.nodes[clause.type.text]
    name = match.name.text
    if name != "id" and name not in node.properties:
        hint = did_you_mean(name, node.properties)
        raise Refused("T2", f"{node.name} has no property `{name}`", match.name.place, hint)
    type_ = Type("String") if name == "id" else node.properties[name].type
    if type_.base in ("Blob", "Vector"):
        raise Refused("T3", f"`{name}` is {type_}, which can't be matched", match.name.place)
    element = Type(type_.base, nullable=True, enum=type_.enum)
    if isinstance(match.value, LiteralNode) and match.value.kind == "null":
        raise Refused("T3", "null matches nothing", match.value.place, f"write `${clause.var.text}.{name} is null`")
    value = match_value(match.value, element, scope)
    truth = Type("Bool", type_.nullable or value.type.nullable)
    return Call("contains" if type_.list else "=", (Prop(clause.var.text, name, type_), _without_null(value)), truth)


def _without_null(value: Expr) -> Expr:
    return replace(value, type=replace(value.type, nullable=False)) if isinstance(value, Lit) else value


# ---- edges ----


def _traversals(clauses: list[tuple[int, ast.Traversal]], draft: _Draft, outer: frozenset[str]) -> None:
    """Orient the edges; where no end of any is known yet, the first written one goes along its direction."""
    scope = draft.scope
    waiting = list(clauses)
    while waiting:
        ready = next((w for w in waiting if w[1].source.text in scope.variables), None)
        ready = ready or next((w for w in waiting if w[1].target.text in scope.variables), None) or waiting[0]
        waiting.remove(ready)
        index, clause = ready
        try:
            draft.steps.append((index, _step(clause, draft, outer)))
        except Refused as refused:
            if not {clause.source.text, clause.target.text} & scope.failed:
                scope.refuse(refused)
            names = {clause.source.text, clause.target.text} - set(scope.variables)
            scope.failed |= names | ({clause.edge.var.text} if clause.edge.var else set())


def _step(clause: ast.Traversal, draft: _Draft, outer: frozenset[str]) -> Expand:
    scope, step = draft.scope, clause.edge
    if len(step.names) != 1:
        raise unsupported("a traversal over several edge types", step.place)
    if step.filter is not None:
        raise unsupported("a filter on the edges of a hop", step.filter.place)
    name = step.names[0]
    edge = scope.catalog.edge(name.text)
    if edge is None or not name.text[0].islower():
        known = [e[0].lower() + e[1:] for e in scope.catalog.edges]
        raise Refused("T4", f"unknown edge `{name.text}`", name.place, did_you_mean(name.text, iter(known)))
    low, high = _hops(step)
    if step.undirected and edge.source != edge.target:
        message = f"{edge.name} joins {edge.source} and {edge.target}; only an edge within one type goes both ways"
        raise Refused("T22", message, name.place)
    if (low, high) != (1, 1) and edge.source != edge.target:
        message = f"{edge.name} leads from {edge.source} to {edge.target} and can't be followed twice"
        raise Refused("T5", message, step.hops.place if step.hops else step.place)
    source, target = (_end(end, scope) for end in (clause.source, clause.target))
    direction = _orient(clause, edge, source, target, scope)
    near, far = (edge.target, edge.source) if direction == "in" else (edge.source, edge.target)
    edge_var = _edge_variable(step, edge, scope, single=step.hops is None or (low, high) == (1, 1))
    _declare(source, near, draft, outer)
    _declare(target, far, draft, outer)
    if edge_var is not None:
        scope.variables[edge_var] = Type("Edge", entity=edge.name)
    return Expand(source, target, (Way(edge.name, direction),), far, low, high, edge_var=edge_var)


def _hops(step: ast.EdgeStep) -> tuple[int, int]:
    if step.hops is None:
        return 1, 1
    hops = step.hops
    if hops.max is None:
        raise Refused("T15", "the most hops must be given", hops.place, f"write `{{{hops.min},{hops.min + 2}}}`")
    if hops.min < 1 or hops.max < hops.min:
        raise Refused("T15", f"hops {{{hops.min},{hops.max}}}: the least is 1, and the most not below it", hops.place)
    if hops.max > MAX_HOPS:
        raise Refused("T15", f"at most {MAX_HOPS} hops", hops.place)
    return hops.min, hops.max


def _end(end: Name, scope: Scope) -> str:
    """The variable at one end; `$_` is another one each time."""
    if end.text == "_":
        return scope.anonymous()
    known = scope.variables.get(end.text)
    if known is not None and known.base != "Node":
        raise Refused("T5", f"`${end.text}` is an edge, not a node", end.place)
    return end.text


def _orient(clause: ast.Traversal, edge: EdgeType, source: str, target: str, scope: Scope) -> Direction:
    known = {end: scope.variables[end].entity for end in (source, target) if end in scope.variables}
    a, b = known.get(source), known.get(target)
    if a in (None, edge.source) and b in (None, edge.target):
        return "both" if clause.edge.undirected else "out"
    if a in (None, edge.target) and b in (None, edge.source):
        return "in"
    wrong = clause.source if a not in (None, edge.source, edge.target) else clause.target
    message = f"{edge.name} leads from {edge.source} to {edge.target}, and `${wrong.text}` is a {known[wrong.text]}"
    raise Refused("T5", message, wrong.place)


def _edge_variable(step: ast.EdgeStep, edge: EdgeType, scope: Scope, *, single: bool) -> str | None:
    if step.var is None:
        return None
    name = step.var.text
    if not single:
        raise Refused("T23", "an edge is bound over a single hop only", step.var.place)
    if name == "_":
        return scope.anonymous()
    if name in scope.variables:
        raise Refused("T23", f"`${name}` is bound already", step.var.place)
    return name


# ---- filters and negations ----


def _filter(clause: ast.FilterClause, draft: _Draft, outer: frozenset[str]) -> None:
    scope = draft.scope
    try:
        expr = check(clause.expr, scope)
        if expr.type.base != "Bool" or expr.type.list:
            raise Refused("T7", f"a filter must be true or false, and this is {expr.type}", clause.place)
        draft.predicates.append(expr)
        draft.used |= variables_of(expr) & outer
    except Refused as refused:
        scope.refuse(refused)
        draft.used |= outer


def _negation(clause: ast.Negation, draft: _Draft) -> None:
    scope = draft.scope
    before = len(scope.found)
    block, used = check_inner(clause.clauses, scope)
    if not used and len(scope.found) == before:
        hint = "it would keep all rows or none"
        scope.refuse(Refused("T9", "`not { … }` uses no variable from outside", clause.place, hint))
    draft.negations.append((block, used))
