"""Clauses: from the syntax tree of a `match` to a checked `Block`, every variable typed and every edge oriented.

Clauses may stand in any order. Bindings are read first, then the edges, then the `optional` blocks, which may use what
those bound; filters and negations see all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field, replace
from itertools import islice

from omnigraph.query import ast
from omnigraph.query.assign import match_value
from omnigraph.query.expressions import check
from omnigraph.query.ir import Call, Expand, Expr, Lit, Prop, Shortest
from omnigraph.query.mentions import bindable, mentions
from omnigraph.query.optionals import in_order
from omnigraph.query.plan import Block, Nested, variables_of
from omnigraph.query.scope import Refused, Scope, did_you_mean
from omnigraph.query.traversals import MAX_HOPS, check_edges
from omnigraph.query.unify import shown
from omnigraph.records import dataclass
from omnigraph.schema.ast import Name, Place
from omnigraph.schema.catalog import Type
from omnigraph.schema.literals import Literal as LiteralNode

__all__ = ["MAX_HOPS", "check_block", "check_inner"]

_TEXT, _BOOL = Type("String"), Type("Bool")


def check_block(clauses: Iterable[ast.Clause], scope: Scope) -> Block:
    """Check the clauses and bind their variables in `scope`; refusals are noted in it, one a clause at most."""
    return _Reader(tuple(clauses), scope, frozenset()).block()


def check_inner(clauses: Iterable[ast.Clause], scope: Scope) -> tuple[Block, tuple[str, ...]]:
    """A block whose variables aren't seen outside, and the variables of `scope` it uses; refusals are noted there."""
    inner = scope.inner()
    inner.fresh = list(scope.fresh)  # the same block is the same expression, wherever it is written again
    nested = _nested(tuple(clauses), scope, inner)
    return nested.block, nested.outer


def _nested(clauses: tuple[ast.Clause, ...], scope: Scope, inner: Scope) -> Nested:
    """A block inside `scope`, read with the scope `inner`, which takes what it binds."""
    outer = frozenset(scope.variables)
    reader = _Reader(clauses, inner, outer)
    block = reader.block()
    binds = tuple(islice(inner.variables, len(outer), None))  # what is from outside comes first
    return Nested(block, tuple(filter(reader.used.__contains__, scope.variables)), binds)


@dataclass
class _Reader:
    """One block while it is read. `outer` are the variables around it, `used` those of them that it names."""

    clauses: tuple[ast.Clause, ...]
    scope: Scope
    outer: frozenset[str]
    used: set[str] = field(default_factory=set)
    nodes: dict[str, str] = field(default_factory=dict)
    predicates: list[Expr] = field(default_factory=list)
    matches: list[tuple[ast.Binding, str]] = field(default_factory=list)  # with the name it is bound to
    order: list[str] = field(default_factory=list)  # the block's own variables as they come in the text

    def block(self) -> Block:
        for clause in self.clauses:
            if isinstance(clause, ast.Binding):
                self._bind(clause)
        steps = self._edges()
        optionals = tuple(self._optionals())
        for binding, name in self.matches:
            for match in binding.matches:
                with self.scope.collecting():
                    self._condition(_match(binding, name, match, self.scope))
        self._filters()
        negations = tuple(self._negation(c) for c in self.clauses if isinstance(c, ast.Negation))
        self._sort()
        return Block(self.nodes, steps, tuple(self.predicates), negations, optionals)

    def _sort(self) -> None:
        """Variables in the order in which they are first written: ties in an `order` go by it."""
        written = dict.fromkeys(name.text for clause in self.clauses for name in _own(clause))
        rank = {name: i for i, name in enumerate(written)}
        last = len(rank)
        self.nodes = dict(sorted(self.nodes.items(), key=lambda item: rank.get(item[0], last)))
        variables = self.scope.variables
        for name in sorted(islice(variables, len(self.outer), None), key=lambda name: rank.get(name, last)):
            variables[name] = variables.pop(name)

    # ---- bindings ----

    def _bind(self, clause: ast.Binding) -> None:
        scope, name = self.scope, clause.var.text
        try:
            _check_type(clause, scope)
        except Refused as refused:
            scope.refuse(refused)
            scope.failed.add(name)
            return
        if name == "_":
            name = scope.anonymous()
        self._node(name, clause.type.text)
        self.matches.append((clause, name))

    def _node(self, name: str, type_: str) -> None:
        """A variable that stands as a node here. One from outside is used, and must be there if it might not be."""
        known = self.scope.variables.get(name)
        if name not in self.outer:
            self.nodes.setdefault(name, type_)
        else:
            self.used.add(name)
            if known is not None and known.nullable:
                absent = Call("is_null", (Prop(name, "id", replace(_TEXT, nullable=True)),), _BOOL)
                self.predicates.append(Call("not", (absent,), _BOOL))
        self.scope.variables[name] = Type("Node", entity=type_)

    # ---- edges ----

    def _edges(self) -> tuple[Expand | Shortest, ...]:
        scope = self.scope
        clauses = [c for c in self.clauses if isinstance(c, (ast.Traversal, ast.Shortest))]
        ends = frozenset(end.text for c in clauses for end in (c.source, c.target)) - {"_"}
        edges = check_edges(clauses, self._named_nodes(), scope)
        for name in sorted(ends & self.outer):
            if scope.variables[name].base == "Node":
                self._node(name, scope.variables[name].entity)
        for name, type_ in edges.ends.items():
            self._node(name, type_)
        scope.variables |= edges.bound
        return edges.steps

    def _named_nodes(self) -> dict[str, Place]:
        """Every name that stands as a node in this block, and where it does so first."""
        first: dict[str, Place] = {}
        for clause in self.clauses:
            names = [clause.var] if isinstance(clause, ast.Binding) else []
            if isinstance(clause, (ast.Traversal, ast.Shortest)):
                names = [clause.source, clause.target]
            for name in names:
                first.setdefault(name.text, name.place)
        return {name: place for name, place in first.items() if name != "_"}

    # ---- blocks ----

    def _optionals(self) -> Iterator[Nested]:
        optionals = [c for c in self.clauses if isinstance(c, ast.Optional)]
        for clause in in_order(optionals, self.scope.variables.keys()):
            yield self._optional(clause)

    def _optional(self, clause: ast.Optional) -> Nested:
        scope = self.scope
        before, inner, named = len(scope.found), scope.inner(), tuple(bindable(clause.clauses))
        nested = _nested(clause.clauses, scope, inner)
        self.used |= self.outer.intersection(nested.outer)
        if len(scope.found) > before:
            scope.failed |= {name for name in named if name not in inner.variables}
        elif all(name.startswith("_@") for name in nested.binds) and scope.failed.isdisjoint(named):
            hint = "write `exists { … }` to ask whether there is such a match"
            if shared := [name for name in named if scope.variables[name].nullable]:
                hint = f"`${shared[0]}` is bound by another `optional`: give it a name of its own, or nest the two"
            scope.refuse(Refused("T34", "this `optional { … }` binds nothing new", clause.place, hint))
        for name in nested.binds:
            scope.variables[name] = replace(inner.variables[name], nullable=True)
        return nested

    def _negation(self, clause: ast.Negation) -> Nested:
        scope = self.scope
        before = len(scope.found)
        block, outer = check_inner(clause.clauses, scope)
        if not outer and len(scope.found) == before:
            hint = "it would keep all rows or none"
            scope.refuse(Refused("T9", "`not { … }` uses no variable from outside", clause.place, hint))
        self.used |= self.outer.intersection(outer)
        return Nested(block, outer)

    # ---- conditions ----

    def _filters(self) -> None:
        refused = False  # the clause before: an unknown `$x` alone after it is the rest of the same mistake
        known = self.scope.variables.keys() | self.scope.params.keys()
        for clause in self.clauses:
            if not isinstance(clause, ast.FilterClause):
                refused = False
            elif not (refused and isinstance(clause.expr, ast.VarRef) and clause.expr.name not in known):
                before = len(self.scope.found)
                self._filter(clause)
                refused = len(self.scope.found) > before

    def _filter(self, clause: ast.FilterClause) -> None:
        try:
            expr = check(clause.expr, self.scope)
            if expr.type.base != "Bool" or expr.type.list:
                raise Refused("T35", f"a filter must be true or false, and this is {shown(expr.type)}", clause.place)
            self._condition(expr)
        except Refused as refused:
            self.scope.refuse(refused)

    def _condition(self, expr: Expr) -> None:
        self.predicates.append(expr)
        self.used |= variables_of(expr) & self.outer


def _own(clause: ast.Clause) -> Iterator[Name]:
    """The variables that a clause may bind in its block, in the order in which they are bound."""
    if isinstance(clause, (ast.Optional, ast.Binding, ast.Traversal, ast.Shortest)):
        yield from mentions(clause)


# ---- a binding's braces ----


def _check_type(clause: ast.Binding, scope: Scope) -> None:
    name, type_ = clause.var.text, clause.type.text
    if type_ not in scope.catalog.nodes:
        edge = scope.catalog.edge(type_)
        hint = did_you_mean(type_, scope.catalog.nodes)
        implementing = [node.name for node in scope.catalog.nodes.values() if type_ in node.interfaces]
        if implementing:
            hint = f"`{type_}` is an interface: write `${name}: {implementing[0]}`, or another that implements it"
        if edge is not None:
            hint = f"{edge.name} is an edge: write `$a ${name}:{edge.name[0].lower()}{edge.name[1:]} $b`"
        raise Refused("T1", f"unknown node type `{type_}`", clause.type.place, hint)
    earlier = scope.variables.get(name)
    if earlier is not None and (earlier.base, earlier.entity) != ("Node", type_):
        what = "a path" if earlier.base == "Path" else f"a {earlier.entity}"
        code = "T37" if earlier.base == "Path" else "T5"
        raise Refused(code, f"`${name}` is {what} already", clause.type.place)


def _match(clause: ast.Binding, var: str, match: ast.Assignment, scope: Scope) -> Expr:
    """`{ name: value }` as a predicate: equality, or membership for a list property."""
    node = scope.catalog.nodes[clause.type.text]
    name = match.name.text
    if name != "id" and name not in node.properties:
        hint = did_you_mean(name, node.properties)
        raise Refused("T2", f"{node.name} has no property `{name}`", match.name.place, hint)
    type_ = _TEXT if name == "id" else node.properties[name].type
    if type_.base in ("Blob", "Vector"):
        raise Refused("T3", f"`{name}` is {type_}, which can't be matched", match.name.place)
    element = Type(type_.base, nullable=True, enum=type_.enum)
    if isinstance(match.value, LiteralNode) and match.value.kind == "null":
        raise Refused("T3", "null matches nothing", match.value.place, f"write `${clause.var.text}.{name} is null`")
    value = match_value(match.value, element, scope)
    truth = Type("Bool", type_.nullable or value.type.nullable)
    return Call("contains" if type_.list else "=", (Prop(var, name, type_), _without_null(value)), truth)


def _without_null(value: Expr) -> Expr:
    return replace(value, type=replace(value.type, nullable=False)) if isinstance(value, Lit) else value
