"""How deep the parts of a query stand inside one another: asked without recursion, before the passes that recurse."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

from omnigraph.query import ast
from omnigraph.schema.ast import Name, Place
from omnigraph.schema.literals import Literal

__all__ = ["MAX_DEPTH", "Part", "parts"]

MAX_DEPTH = 200
"""Most operations inside one another. A chain of `+` nests to the left; a `case` or a block counts as two or three,
since some pass takes so many more calls through it."""


class Part(NamedTuple):
    """A node of a syntax tree.

    Args:
        node: it.
        depth: how many operations stand one inside another down to here.
        outermost: the place of the first of them.
    """

    node: object
    depth: int
    outermost: Place | None


def parts(root: object) -> Iterator[Part]:
    """Every node of a syntax tree, outside in, in the order of the text; literals and names are not entered."""
    waiting = [Part(root, 0, None)]
    while waiting:
        node, depth, outermost = waiting.pop()
        if isinstance(node, tuple):
            waiting += [Part(item, depth, outermost) for item in reversed(node)]
        elif is_dataclass(node) and not isinstance(node, (Literal, Name)):
            if outermost is None and _levels(node):
                outermost = getattr(node, "place", None)
            inner = [Part(value, depth + levels, outermost) for value, levels in _inside(node)]
            yield Part(node, max((part.depth for part in inner), default=depth), outermost)
            waiting += reversed(inner)


def _levels(node: object) -> int:
    """How many operations a node is."""
    match node:
        case ast.Block():
            return 3
        case ast.Negation() | ast.Optional() | ast.Case():
            return 2
        case ast.Comparison(operator="not in") | ast.IsNull(negated=True):
            return 2
        case ast.Chain(operators):
            return 1 if operators[0] in ("and", "or") else len(operators)
        case ast.Not() | ast.Negative() | ast.Comparison() | ast.IsNull() | ast.CallExpr() | ast.ListExpr():
            return 1
    return 0


def _inside(node: Any) -> Iterable[tuple[object, int]]:
    """What a node is made of, and how many operations of the node each stands in."""
    levels = _levels(node)
    if levels > 1 and isinstance(node, ast.Chain):
        return [(operand, min(levels, levels + 1 - i)) for i, operand in enumerate(node.operands)]
    return [(getattr(node, field.name), levels) for field in fields(node)]
