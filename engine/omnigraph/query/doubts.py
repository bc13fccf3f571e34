"""What is allowed and yet doubtful: an operand of `not` that may be null (L203), a parameter that isn't used (L204).

Whether something may be null is judged on the syntax tree, where its place is known; which type a variable has is taken
from the compiled query.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass

from omnigraph.errors import Diagnostic
from omnigraph.query import ast
from omnigraph.query.compile import CheckedQuery
from omnigraph.query.ir import CompiledQuery, Expand, NodeScan, Optional, Shortest
from omnigraph.records import dataclass
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.schema.literals import Literal
from omnigraph.schema.source import SourceText

__all__ = ["null_doubts", "unused_parameters"]


def unused_parameters(node: ast.QueryNode, source: SourceText) -> Iterator[Diagnostic]:
    """L204 for each declared parameter that the body doesn't name."""
    parts = list(_parts(node.body))
    used = {part.name for part in parts if isinstance(part, ast.VarRef)}
    bound = {name for part in parts for name in _binds(part)}
    for parameter in node.parameters:
        name = parameter.name.text
        if name not in used:
            span = source.span(*parameter.name.place)
            hint = f"`${name}` in the match is another, which hides it: rename one" if name in bound else None
            message = f"parameter `${name}` is never used"
            yield Diagnostic("L204", message, span, "warning", hint or "use it or remove it")


def _binds(part: object) -> tuple[str, ...]:
    """The variables that a clause of a match binds, or would, were they not bound."""
    if isinstance(part, ast.Binding):
        return (part.var.text,)
    if isinstance(part, ast.Traversal):
        edge = (part.edge.var.text,) if part.edge.var is not None else ()
        return (part.source.text, part.target.text, *edge)
    if isinstance(part, ast.Shortest):
        return (part.path.text, part.source.text, part.target.text)
    return ()


def null_doubts(query: CheckedQuery, source: SourceText, catalog: Catalog) -> list[Diagnostic]:
    """L203 for each operand under a `not` that may be null, unless the query tests it with `is null` somewhere."""
    judge = _Judge(source, catalog, query.compiled, _bound_types(query.compiled, catalog))
    tested = {judge.words(part.operand) for part in _parts(query.node.body) if isinstance(part, ast.IsNull)}
    found: dict[tuple[int, int], Diagnostic] = {}
    for operand, message, hint in judge.doubts(_conditions(query.node)):
        if judge.words(operand) not in tested:
            span = source.span(*operand.place)
            found.setdefault(operand.place, Diagnostic("L203", message, span, "warning", hint))
    return list(found.values())


def _conditions(node: ast.QueryNode) -> tuple[object, ...]:
    """The parts of a query that choose rows; elsewhere a null is a value that shows."""
    if isinstance(node.body, ast.ReadBody):
        return node.body.clauses
    return tuple(s for s in node.body if not isinstance(s, ast.Insert))


def _parts(node: object) -> Iterator[object]:
    """Every node of a syntax tree or of a compiled query, outside in; also of a tree too deep to be compiled."""
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, tuple):
            waiting += reversed(part)
        elif is_dataclass(part):
            yield part
            waiting += [getattr(part, field.name) for field in reversed(fields(part))]


@dataclass(frozen=True, slots=True)
class _Bound:
    """What a variable may stand for: one type, but where nested blocks use a name again."""

    types: tuple[NodeType | EdgeType, ...] = ()
    nullable: bool = False

    def may_lack(self, name: str) -> bool:
        return self.nullable or any(name in t.properties and t.properties[name].type.nullable for t in self.types)


def _bound_types(compiled: CompiledQuery, catalog: Catalog) -> dict[str, _Bound]:
    types: dict[str, list[NodeType | EdgeType]] = {}
    nullable: set[str] = set()
    for part in _parts((compiled.operators, compiled.statements)):
        if isinstance(part, NodeScan):
            types.setdefault(part.var, []).append(catalog.nodes[part.node])
        elif isinstance(part, (Expand, Shortest)):
            types.setdefault(part.target, []).append(catalog.nodes[part.target_node])
            if isinstance(part, Expand) and part.edge_var:
                types.setdefault(part.edge_var, []).extend(catalog.edges[way.edge] for way in part.ways)
        elif isinstance(part, Optional):
            nullable |= set(part.binds)
    return {name: _Bound(tuple(types.get(name, ())), name in nullable) for name in {*types, *nullable}}


_Doubt = tuple[ast.Expr, str, str]


@dataclass(frozen=True, slots=True)
class _Judge:
    source: SourceText
    catalog: Catalog
    compiled: CompiledQuery
    bound: Mapping[str, _Bound]

    def words(self, node: ast.Expr) -> str:
        """The node as it was written, white space aside."""
        return "".join(self.source.text[node.place[0] : node.place[1]].split())

    # ---- where a `not` stands ----

    def doubts(self, node: object, bare: _Bound | None = None) -> Iterator[_Doubt]:
        """Operands of every `not` in a tree that may be null; `bare` is what names without `$` belong to."""
        if isinstance(node, tuple):
            for item in node:
                yield from self.doubts(item, bare)
            return
        if not is_dataclass(node):
            return
        if isinstance(node, ast.Not):
            yield from self._under_not(node.operand, bare)
        elif isinstance(node, ast.Negation):
            yield from self._in_block(node.clauses)
        elif isinstance(node, (ast.Update, ast.DeleteNode)):
            yield from self.doubts(node.where, self._of_type(node.type.text))
            return
        elif isinstance(node, ast.EdgeStep):
            bare = self._of_edges(node)
        for field in fields(node):
            yield from self.doubts(getattr(node, field.name), bare)

    def _under_not(self, operand: ast.Expr, bare: _Bound | None) -> Iterator[_Doubt]:
        if isinstance(operand, ast.Block):  # `not exists { … }` is `not { … }`
            yield from self._in_block(operand.clauses) if operand.word == "exists" else ()
            return
        lacking = self._lacking(operand, bare)
        if lacking is not None:
            words = self.words(lacking)
            message = f"`{words}` may be null: this and its opposite are unknown then, and the row is left out"
            yield lacking, message, f"add `or {words} is null` to keep such rows, or `{words} is not null` to say it"

    def _in_block(self, clauses: Iterable[ast.Clause]) -> Iterator[_Doubt]:
        for clause in clauses:
            lacking = self._lacking(clause.expr, None) if isinstance(clause, ast.FilterClause) else None
            if lacking is not None:
                words = self.words(lacking)
                message = f"`{words}` may be null: the block finds nothing then, and the row is kept"
                yield lacking, message, f"test `{words}` with `is null` or `is not null` to say what should happen"

    def _of_type(self, name: str) -> _Bound | None:
        found = self.catalog.nodes.get(name) or self.catalog.edge(name)
        return _Bound((found,)) if found else None

    def _of_edges(self, step: ast.EdgeStep) -> _Bound:
        named = [self.catalog.edge(name.text) for name in step.names] if step.names else self.catalog.edges.values()
        return _Bound(tuple(edge for edge in named if edge is not None))

    # ---- what may be null ----

    def _lacking(self, node: ast.Expr, bare: _Bound | None) -> ast.Expr | None:
        """The first part of an expression that makes it null where that part is null; None if it never is."""

        def first(nodes: Iterable[ast.Expr]) -> ast.Expr | None:
            return next((found for n in nodes if (found := self._lacking(n, bare)) is not None), None)

        match node:
            case Literal():
                return node if node.kind == "null" else None
            case ast.VarRef(name):
                declared = any(p.name == name and p.type.nullable for p in self.compiled.params)
                return node if declared or (name in self.bound and self.bound[name].nullable) else None
            case ast.PropRef(var, name):
                return node if var in self.bound and self.bound[var].may_lack(name.text) else None
            case ast.NameRef(name):
                return node if bare is not None and bare.may_lack(name) else None
            case ast.Not(operand) | ast.Negative(operand):
                return self._lacking(operand, bare)
            case ast.Comparison(_, left, right):
                return first((left, right))
            case ast.Chain(_, operands) | ast.ListExpr(operands):
                return first(operands)
            case ast.CallExpr("coalesce", arguments):
                found = [self._lacking(a, bare) for a in arguments]
                return found[0] if found and all(f is not None for f in found) else None
            case ast.CallExpr(_, arguments):
                return first(arguments)
            case ast.Case(whens, otherwise):
                return node if otherwise is None else first([*(value for _, value in whens), otherwise])
            case _:  # `is null`, exists and count are never unknown
                return None
