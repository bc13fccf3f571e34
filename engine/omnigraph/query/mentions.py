"""The variables that clauses and expressions name, by walking the syntax tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass

from omnigraph.query import ast
from omnigraph.schema.ast import Name

__all__ = ["bindable", "mentions"]


def mentions(node: object) -> Iterator[Name]:
    """Every variable that a clause, an expression or a tuple of them names, nested blocks included; parameters too."""
    if isinstance(node, tuple):
        for item in node:
            yield from mentions(item)
    elif isinstance(node, ast.VarRef):
        yield Name(node.name, node.place)
    elif isinstance(node, ast.PropRef):
        yield Name(node.var, (node.place[0], node.place[0] + 1 + len(node.var)))
    elif is_dataclass(node) and not isinstance(node, Name):
        yield from _named(node)
        for field in fields(node):
            yield from mentions(getattr(node, field.name))


def _named(node: object) -> Iterator[Name]:
    """The variables a clause binds or uses by its own words, in the order in which they are bound."""
    if isinstance(node, ast.Binding):
        yield node.var
    elif isinstance(node, (ast.Traversal, ast.Shortest)):
        yield from (node.source, node.target)
        own = node.path if isinstance(node, ast.Shortest) else node.edge.var
        if own is not None:
            yield own


def bindable(clauses: Iterable[ast.Clause]) -> Iterator[str]:
    """The names that these clauses could bind for what stands outside of them: their own and those of `optional`."""
    for clause in clauses:
        if isinstance(clause, ast.Optional):
            yield from bindable(clause.clauses)
        else:
            yield from (name.text for name in _named(clause) if name.text != "_")
