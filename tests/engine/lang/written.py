"""Syntax trees written as texts, with no more parentheses than needed: what the parser must read back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from omnigraph.query import ast as q
from omnigraph.schema import ast as s
from omnigraph.schema.literals import Literal

__all__ = ["bare", "write_queries", "write_schema"]


def bare(node: Any) -> Any:
    """A tree as plain tuples without places, to compare."""
    if is_dataclass(node):
        pairs = ((f.name, getattr(node, f.name)) for f in fields(node) if "place" not in f.name)
        return type(node).__name__, *((n, v is not None if n == "distinct" else bare(v)) for n, v in pairs)
    if isinstance(node, tuple):
        return tuple(map(bare, node))
    return node if node == node else "not a number"


def commas(parts: Iterable[str]) -> str:
    return ", ".join(parts)


# ---- both languages ----


def literal(node: Literal) -> str:
    match node.kind:
        case "string":
            return json.dumps(node.value, ensure_ascii=len(node.value) % 2 == 0)
        case "date" | "datetime":
            return f"{node.kind}({json.dumps(node.value)})"
        case "list":
            return f"[{commas(map(literal, node.value))}]"
        case "float":
            text = repr(node.value)
            return text if re.search(r"[.e]", text) else f"{text}.0"
        case _:
            return json.dumps(node.value)


def type_(node: s.TypeNode) -> str:
    match node.kind:
        case "vector":
            text = f"{node.name}({node.dim})"
        case "enum":
            text = f"enum({commas(v.text for v in node.values)})"
        case "list":
            assert node.element is not None
            text = f"[{type_(node.element)}]"
        case _:
            text = node.name
    return text + "?" * node.nullable


def annotation(node: s.Annotation) -> str:
    given = [*map(literal, node.arguments), *(f"{k}={literal(v)}" for k, v in node.keywords)]
    return f"@{node.name}({commas(given)})" if given else f"@{node.name}"


# ---- schemas ----


def write_schema(tree: s.SchemaText) -> str:
    return "\n".join(map(declaration, tree.declarations)) + "\n"


def declaration(node: s.Declaration) -> str:
    tail = [annotation(a) for a in node.annotations]
    body = "{ " + "".join(f"{member(m)} " for m in node.members) + "}"
    match node:
        case s.InterfaceNode():
            return " ".join([f"interface {node.name.text}", *tail, body])
        case s.NodeNode():
            implements = [f"implements {commas(i.text for i in node.interfaces)}"] if node.interfaces else []
            return " ".join([f"node {node.name.text}", *tail[:1], *implements, *tail[1:], body])
        case s.EdgeNode():
            cards = [f"@card({c.min}..{'' if c.max is None else c.max})" for c in node.cardinalities]
            head = f"edge {node.name.text}: {node.source.text} -> {node.target.text}"
            return " ".join([head, *cards, *tail, *([body] if node.members else [])])


def member(node: s.Member) -> str:
    match node:
        case s.PropertyNode():
            return " ".join([f"{node.name.text}: {type_(node.type)}", *map(annotation, node.annotations)])
        case s.Columns():
            return f"@{node.word}({commas(c.text for c in node.columns)})"
        case s.RangeNode():
            ends = "..".join("" if end is None else literal(end) for end in (node.low, node.high))
            return f"@range({node.column.text}, {ends})" if node.column else f"@range({ends})"
        case s.CheckNode():
            column = f"{node.column.text}, " if node.column else ""
            return f"@check({column}{literal(node.pattern)})"


# ---- queries ----


def write_queries(tree: q.QueryText) -> str:
    return "\n".join(map(query, tree.queries)) + "\n"


def query(node: q.QueryNode) -> str:
    parameters = commas(f"${p.name.text}: {type_(p.type)}" for p in node.parameters)
    head = " ".join([f"query {node.name.text}({parameters})", *map(annotation, node.annotations)])
    body = read(node.body) if isinstance(node.body, q.ReadBody) else " ".join(map(statement, node.body))
    return f"{head} {{ {body} }}"


def read(node: q.ReadBody) -> str:
    parts = [f"match {clauses(node.clauses)}"]
    parts += [f"return {'distinct ' if node.distinct else ''}{{ {commas(map(item, node.items))} }}"]
    if node.order:
        parts.append(f"order {{ {commas(map(order_key, node.order))} }}")
    return " ".join([*parts, *(f"{c.word} {expr(c.value)}" for c in node.counts)])


def item(node: q.Item) -> str:
    return expr(node.expr) + (f" as {node.alias.text}" if node.alias else "")


def order_key(node: q.OrderItem) -> str:
    return expr(node.expr) + {None: "", True: " desc", False: " asc"}[node.descending]


def statement(node: q.Statement) -> str:
    match node:
        case q.Insert():
            return f"insert {node.type.text} {assignments(node.values)}"
        case q.Update():
            return f"update {node.type.text} set {assignments(node.values)} where {expr(node.where)}"
        case q.DeleteNode():
            return f"delete {node.type.text} where {expr(node.where)}"


def assignments(values: Sequence[q.Assignment]) -> str:
    return f"{{ {commas(f'{v.name.text}: {expr(v.value)}' for v in values)} }}"


def clauses(nodes: Sequence[q.Clause]) -> str:
    return f"{{ {' '.join(map(clause, nodes))} }}"


def clause(node: q.Clause) -> str:
    match node:
        case q.Binding():
            return f"${node.var.text}: {node.type.text}" + (f" {assignments(node.matches)}" if node.matches else "")
        case q.Traversal():
            return f"${node.source.text} {step(node.edge)} ${node.target.text}"
        case q.Shortest():
            return f"${node.path.text} = shortest ${node.source.text} {step(node.edge)} ${node.target.text}"
        case q.Negation():
            return f"not {clauses(node.clauses)}"
        case q.Optional():
            return f"optional {clauses(node.clauses)}"
        case q.FilterClause():
            # Alone after another clause an expression could be read on from it.
            plain = isinstance(node.expr, q.Comparison) and isinstance(node.expr.left, q.PropRef)
            return expr(node.expr) if plain else f"({expr(node.expr)})"


def step(node: q.EdgeStep) -> str:
    names = "|".join(n.text for n in node.names)
    edge = f"<{names}>" if node.undirected else f"({names})" if len(node.names) > 1 else names or "*"
    hops = ""
    if node.hops:
        hops = f"{{{node.hops.min},{'' if node.hops.max is None else node.hops.max}}}"
    return (f"${node.var.text}:" if node.var else "") + edge + hops + (f"[{expr(node.filter)}]" if node.filter else "")


_BINDS = {"or": 1, "and": 2, "+": 5, "-": 5, "*": 6, "/": 6}


def binds(node: q.Expr) -> int:
    """How tightly an expression holds together."""
    match node:
        case q.Chain():
            return _BINDS[node.operators[0]]
        case q.Not():
            return 3
        case q.Comparison() | q.IsNull():
            return 4
        case q.Negative():
            return 7
        case Literal() if node.kind in ("int", "float") and node.value < 0:
            return 7
        case _:
            return 8


def inner(node: q.Expr, least: int) -> str:
    return expr(node) if binds(node) >= least else f"({expr(node)})"


def argument(node: q.Expr) -> str:
    """`a = 1` as an argument would be one by name."""
    text = expr(node)
    return f"({text})" if re.match(r"[a-z_]\w*\s*=", text) else text


def expr(node: q.Expr) -> str:
    match node:
        case Literal():
            return literal(node)
        case q.VarRef():
            return f"${node.name}"
        case q.PropRef():
            return f"${node.var}.{node.name.text}"
        case q.NameRef():
            return node.name
        case q.ListExpr():
            return f"[{commas(map(expr, node.items))}]"
        case q.Chain():
            first, *rest = (inner(o, binds(node) + 1) for o in node.operands)
            return " ".join([first, *(f"{o} {r}" for o, r in zip(node.operators, rest, strict=True))])
        case q.Not():
            return f"not {inner(node.operand, 3)}"
        case q.Negative():
            return f"-{inner(node.operand, 7)}"
        case q.Comparison():
            return f"{inner(node.left, 5)} {node.operator} {inner(node.right, 5)}"
        case q.IsNull():
            return f"{inner(node.operand, 5)} is {'not ' if node.negated else ''}null"
        case q.CallExpr():
            given = [*map(argument, node.arguments), *(f"{k.name.text}={expr(k.value)}" for k in node.keywords)]
            return f"{node.name}({'distinct ' if node.distinct else ''}{commas(given)})"
        case q.Block():
            return f"{node.word} {clauses(node.clauses)}"
        case q.Case():
            whens = " ".join(f"when {expr(c)} then {expr(v)}" for c, v in node.whens)
            return f"case {whens} {f'else {expr(node.otherwise)} ' if node.otherwise else ''}end"
