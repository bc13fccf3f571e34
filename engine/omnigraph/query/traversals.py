"""Edges: from `$a (knows|likes){1,3}[filter] $b` and `$path = shortest …` to steps with their types and directions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from omnigraph.query import ast
from omnigraph.query.ends import Walk, settle
from omnigraph.query.expressions import check
from omnigraph.query.ir import Expand, Expr, Shortest, Way
from omnigraph.query.mentions import mentions
from omnigraph.query.scope import Bare, Refused, Scope, did_you_mean
from omnigraph.records import dataclass
from omnigraph.schema.ast import Name, Place
from omnigraph.schema.catalog import EdgeType, Type

__all__ = ["MAX_HOPS", "Edges", "check_edges"]

MAX_HOPS = 1000
"""Largest hop bound that is accepted; a traversal visits a node once, so larger ones are mistakes."""

Clause = ast.Traversal | ast.Shortest
Direction = Literal["out", "in", "both"]
_Taken = Callable[[str], Place | None]


@dataclass(frozen=True)
class Edges:
    """What came of a block's edges: the steps, the node types of their ends, and the edges and paths they bind."""

    steps: tuple[Expand | Shortest, ...]
    ends: dict[str, str]
    bound: dict[str, Type]


@dataclass
class _Edge:
    """One clause while it is judged. `named` are the edge types written, none for `*`; `walk` is for its types."""

    clause: Clause
    named: tuple[EdgeType, ...]
    low: int
    high: int
    var: str | None  # of the edge, or of the path
    walk: Walk

    @property
    def step(self) -> ast.EdgeStep:
        return self.clause.edge


def check_edges(clauses: Sequence[Clause], nodes: Mapping[str, Place], scope: Scope) -> Edges:
    """Judge the edges of a block together; refusals are noted in the scope, one a clause at most.

    Args:
        clauses: the block's traversals and shortest paths, as written.
        nodes: every name that stands as a node in this block, and where it does so first.
        scope: its variables are what is bound already.
    """
    edges: list[_Edge] = []
    bound: dict[str, Type] = {}
    places: dict[str, Place] = {}
    for clause in clauses:
        try:
            edge = _read(clause, scope, lambda name: places.get(name, nodes.get(name)))
        except Refused as refused:
            scope.refuse(refused)
            _give_up(clause, scope)
            continue
        edges.append(edge)
        if edge.var:
            bound[edge.var] = Type("Path" if isinstance(clause, ast.Shortest) else "Edge")
            places[edge.var] = clause.place
    names = {end for edge in edges for end in (edge.walk.source, edge.walk.target)}
    before = names & scope.variables.keys()
    known = {name: scope.variables[name].entity for name in before}
    settle([edge.walk for edge in edges], known)
    steps: list[Expand | Shortest] = []
    for edge in edges:
        try:
            steps.append(_lower(edge, known, scope, bound))
        except Refused as refused:
            if edge.walk.pair is not None:
                scope.refuse(refused)
                scope.failed |= {edge.var} if edge.var else set()
            elif not {edge.walk.source, edge.walk.target} & scope.failed:
                scope.refuse(refused)
                _give_up(edge.clause, scope)
    ends = {name: type_ for name, type_ in known.items() if name not in before}
    failed = scope.failed
    return Edges(tuple(steps), ends, {name: t for name, t in bound.items() if t.entity and name not in failed})


def _give_up(clause: Clause, scope: Scope) -> None:
    """What is unknown because of a refused clause: no second complaint about it."""
    own = clause.path if isinstance(clause, ast.Shortest) else clause.edge.var
    names = {clause.source.text, clause.target.text} - scope.variables.keys()
    scope.failed |= names | ({own.text} if own else set())


# ---- one edge by itself ----


def _read(clause: Clause, scope: Scope, taken: _Taken) -> _Edge:
    """All that can be said of one edge without knowing its ends. `taken` is where else a name stands in the block."""
    step, shortest = clause.edge, isinstance(clause, ast.Shortest)
    named = _edge_types(step, scope)
    low, high = _hops(clause)
    if step.undirected and named[0].source != named[0].target:
        message = f"{named[0].name} joins {named[0].source} and {named[0].target}"
        hint = "only an edge within one type goes both ways"
        raise Refused("T22", message, step.names[0].place, hint)
    several = shortest or (low, high) != (1, 1)
    for name, type_ in zip(step.names, named, strict=True):
        if several and type_.source != type_.target:
            raise Refused("T5", f"{_leads(type_)} and can't be followed twice", name.place)
    source, target = (_end(end, scope) for end in (clause.source, clause.target))
    if isinstance(clause, ast.Shortest):
        var: str | None = _path_variable(clause, scope, taken)
    else:
        var = _edge_variable(step, scope, taken, single=not several)
    return _Edge(clause, named, low, high, var, _walk(named, several, source, target, scope))


def _walk(named: tuple[EdgeType, ...], several: bool, source: str, target: str, scope: Scope) -> Walk:
    """The types its ends may have: those that every named edge fits, or with `*` any."""
    if named:
        pairs = frozenset.intersection(*(_pairs(edge) for edge in named))
    else:
        pairs = frozenset().union(*(_pairs(edge) for edge in _any(several, scope)))
    along = {(edge.source, edge.target) for edge in named}
    return Walk(source, target, pairs, along.pop() if len(along) == 1 else None)


def _pairs(edge: EdgeType) -> frozenset[tuple[str, str]]:
    return frozenset({(edge.source, edge.target), (edge.target, edge.source)})


def _any(several: bool, scope: Scope) -> tuple[EdgeType, ...]:
    """The edge types of `*`: over several hops, those within one type."""
    return tuple(e for e in scope.catalog.edges.values() if not several or e.source == e.target)


def _edge_types(step: ast.EdgeStep, scope: Scope) -> tuple[EdgeType, ...]:
    out: list[EdgeType] = []
    for name in step.names:
        edge = scope.catalog.edge(name.text)
        if edge is None:
            known = iter([_written(e) for e in scope.catalog.edges])
            raise Refused("T4", f"unknown edge `{name.text}`", name.place, did_you_mean(name.text, known))
        if edge in out:
            raise Refused("T36", f"`{name.text}` stands there twice", name.place, "name each edge once")
        out.append(edge)
    return tuple(out)


def _written(edge: str) -> str:
    return edge[0].lower() + edge[1:]


def _leads(edge: EdgeType) -> str:
    return f"{edge.name} leads from {edge.source} to {edge.target}"


def _hops(clause: Clause) -> tuple[int, int]:
    hops = clause.edge.hops
    if hops is None:
        if isinstance(clause, ast.Shortest):
            hint = f"as in `{_written(clause.edge.names[0].text) if clause.edge.names else '*'}{{1,6}}`"
            raise Refused("T37", "`shortest` must say how many hops at most", clause.edge.place, hint)
        return 1, 1
    if hops.max is None:
        raise Refused("T15", "the most hops must be given", hops.place, f"write `{{{hops.min},{hops.min + 2}}}`")
    if not 1 <= hops.min <= hops.max:
        message = f"hops {{{hops.min},{hops.max}}}: the least is 1, and the most not below it"
        raise Refused("T15", message, hops.place)
    if hops.max > MAX_HOPS:
        raise Refused("T15", f"more than {MAX_HOPS} hops", hops.place)
    return hops.min, hops.max


def _end(end: Name, scope: Scope) -> str:
    if end.text == "_":
        return scope.anonymous()
    known = scope.variables.get(end.text)
    if known is not None and known.base == "Path":
        raise Refused("T37", f"`${end.text}` is a path, not a node", end.place)
    if known is not None and known.base != "Node":
        raise Refused("T5", f"`${end.text}` is an edge, not a node", end.place)
    return end.text


def _edge_variable(step: ast.EdgeStep, scope: Scope, taken: _Taken, *, single: bool) -> str | None:
    if step.var is None:
        return None
    name = step.var.text
    if not single:
        hint = "write it without hops, or leave the binding out and filter the hops in `[…]`"
        raise Refused("T23", "an edge is bound over a single hop only", step.var.place, hint)
    if name == "_":
        return scope.anonymous()
    place = step.var.place
    other = taken(name)
    if other is not None and other > place:
        raise Refused("T23", f"`${name}` is an edge, not a node", other, "give each a name of its own")
    if name in scope.variables or other is not None:
        raise Refused("T23", f"`${name}` is bound already", place, "give the edge a name of its own")
    return name


def _path_variable(clause: ast.Shortest, scope: Scope, taken: _Taken) -> str:
    path, var = clause.path, clause.edge.var
    if var is not None:
        hint = f"edges(${path.text}) has the ids of its edges"
        raise Refused("T37", "a shortest path binds no edge", var.place, hint)
    if path.text == "_":
        return scope.anonymous()
    other = taken(path.text)
    if other is not None and other > path.place:
        raise Refused("T37", f"`${path.text}` is a path, not a node", other, "give each a name of its own")
    if path.text in scope.variables or other is not None:
        raise Refused("T37", f"`${path.text}` is bound already", path.place, "give the path a name of its own")
    return path.text


# ---- with its ends ----


def _lower(edge: _Edge, known: dict[str, str], scope: Scope, bound: dict[str, Type]) -> Expand | Shortest:
    walk, clause = edge.walk, edge.clause
    if walk.pair is None:
        raise _misfit(edge, known, scope)
    if walk.unclear:
        hint = f"bind one: `${walk.source}: {walk.pair[0]}` or `${walk.source}: {walk.pair[1]}`"
        raise Refused("T5", "this can be read along the edges or against them", clause.source.place, hint)
    near, far = walk.pair
    shortest = isinstance(clause, ast.Shortest)
    several = shortest or (edge.low, edge.high) != (1, 1)
    types = edge.named or tuple(e for e in _any(several, scope) if walk.pair in _pairs(e))
    ways = tuple(Way(type_.name, _direction(type_, near, far, edge.step)) for type_ in types)
    if edge.var:
        entity = near if shortest else "|".join(sorted(type_.name for type_ in types))
        bound[edge.var] = replace(bound[edge.var], entity=entity)
    hop_where = None if edge.step.filter is None else _hop_filter(edge.step.filter, types, scope, known)
    if shortest:
        assert edge.var is not None
        return Shortest(edge.var, walk.source, walk.target, ways, far, edge.low, edge.high, hop_where=hop_where)
    return Expand(walk.source, walk.target, ways, far, edge.low, edge.high, edge_var=edge.var, hop_where=hop_where)


def _direction(edge: EdgeType, near: str, far: str, step: ast.EdgeStep) -> Direction:
    if step.undirected:
        return "both"
    return "out" if (edge.source, edge.target) == (near, far) else "in"


def _misfit(edge: _Edge, known: dict[str, str], scope: Scope) -> Refused:
    """Why no types, or more than one, are left for the ends."""
    clause, walk = edge.clause, edge.walk
    a, b = known.get(walk.source), known.get(walk.target)
    for name, type_ in zip(edge.step.names, edge.named, strict=True):
        alone = Walk(walk.source, walk.target, _pairs(type_), None)
        if not alone.fitting(known):
            return _wrong_end(clause, type_, a, b, name if len(edge.named) > 1 else None)
    if edge.named:
        ways = ", ".join(_leads(type_) for type_ in edge.named)
        hint = f"name those that lead to one type, or write `*` and bind `{_shown(clause.target)}: Type`"
        if walk.pairs:
            hint = f"bind `{_shown(clause.target)}: Type`"
        return Refused("T36", f"one step leads to one type, and {ways}", edge.step.place, hint)
    fits = walk.fitting(known)
    if not fits:
        between = " and ".join(t for t in (a, b) if t) or "these"
        return Refused("T36", f"no edge type fits {between}", edge.step.place, _star_hint(edge))
    open_end, types = (clause.target, {p[1] for p in fits}) if b is None else (clause.source, {p[0] for p in fits})
    hint = f"bind `{_shown(open_end)}: Type`"
    return Refused("T36", f"`*` leads to several types: {', '.join(sorted(types))}", edge.step.place, hint)


def _shown(end: Name) -> str:
    return "$x" if end.text == "_" else f"${end.text}"


def _star_hint(edge: _Edge) -> str | None:
    several = isinstance(edge.clause, ast.Shortest) or (edge.low, edge.high) != (1, 1)
    return "over several hops `*` takes the edges within one type" if several else None


def _wrong_end(clause: Clause, edge: EdgeType, a: str | None, b: str | None, name: Name | None) -> Refused:
    """An edge type that doesn't fit what its ends are, at the wrong end; of several edge types, at its name."""
    ends = (edge.source, edge.target)
    if a is not None and a not in ends:
        wrong, type_ = clause.source, a
    elif b is not None:
        wrong, type_ = clause.target, b
    else:
        wrong, type_ = clause.source, f"{ends[0]} and a {ends[1]} at once"
    message = f"{_leads(edge)}, and `${wrong.text}` is a {type_}"
    return Refused("T5", message, name.place if name else wrong.place)


# ---- the filter of a hop ----


def _hop_filter(node: ast.Expr, types: tuple[EdgeType, ...], scope: Scope, known: dict[str, str]) -> Expr:
    """`[expr]`: bare names are properties that each edge type has alike; of variables only parameters are seen."""
    text = Type("String")
    names = {"id": text, "src": text, "dst": text}
    first, *others = types
    for name, p in first.properties.items():
        if all(name in o.properties and o.properties[name].type == p.type for o in others):
            names[name] = p.type
    of = first.name if not others else f"one of {', '.join(t.name for t in types)}"
    bare = Bare({n: (n, t) for n, t in names.items()}, of, unknown="T36")
    inside = replace(
        scope, variables={}, bare=bare, aliases=None, aggregates=False, rankings=False, searches=True, blocks=False
    )
    try:
        expr = check(node, inside)
    except Refused as refused:
        outside = {name.place: name.text for name in mentions(node) if name.text in {*scope.variables, *known}}
        if refused.code == "T6" and refused.place in outside:
            message = f"`${outside[refused.place]}` can't be used here: a hop's filter sees the edge and parameters"
            raise Refused("T6", message, refused.place, "write the edge's properties as bare names") from None
        raise
    if expr.type.base != "Bool" or expr.type.list:
        raise Refused("T36", f"a hop's filter must be true or false, and this is {expr.type}", node.place)
    return expr
