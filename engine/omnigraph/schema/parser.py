"""From `.pg` text to its syntax tree: one callback a grammar rule."""

from __future__ import annotations

from typing import Any

from omnigraph.schema import ast
from omnigraph.schema.driver import Token, is_token
from omnigraph.schema.grammar import Grammar
from omnigraph.schema.habits import SCHEMA_HABITS
from omnigraph.schema.literals import Literal, read_float, read_int, read_string
from omnigraph.schema.source import SourceText

__all__ = ["GRAMMAR", "LiteralCallbacks", "parse_schema", "place_of"]

Children = list[Any]


def place_of(children: Children) -> tuple[int, int]:
    """From the first child's start to the last one's end; children are tokens or nodes with a `place`."""
    return _start(children[0]), _end(children[-1])


def _start(child: Any) -> int:
    return (child.start_pos or 0) if is_token(child) else int(child.place[0])


def _end(child: Any) -> int:
    return (child.end_pos or 0) if is_token(child) else int(child.place[1])


def _name(token: Token) -> ast.Name:
    return ast.Name(str(token), (token.start_pos or 0, token.end_pos or 0))


class LiteralCallbacks:
    """Rules that both grammars share."""

    @staticmethod
    def string(c: Children) -> Literal:
        return Literal("string", read_string(c[0], c[0].start_pos), place_of(c))

    @staticmethod
    def int(c: Children) -> Literal:
        return Literal("int", read_int(c[0], c[0].start_pos), place_of(c))

    @staticmethod
    def float(c: Children) -> Literal:
        return Literal("float", read_float(c[0], c[0].start_pos), place_of(c))

    @staticmethod
    def true(c: Children) -> Literal:
        return Literal("bool", True, place_of(c))

    @staticmethod
    def false(c: Children) -> Literal:
        return Literal("bool", False, place_of(c))

    @staticmethod
    def null(c: Children) -> Literal:
        return Literal("null", None, place_of(c))

    # ---- types ----

    @staticmethod
    def scalar(c: Children) -> ast.TypeNode:
        return ast.TypeNode("scalar", place_of(c), name=str(c[0]))

    @staticmethod
    def vector(c: Children) -> ast.TypeNode:
        return ast.TypeNode("vector", place_of(c), name=str(c[0]), dim=read_int(c[1], c[1].start_pos))

    @staticmethod
    def enum(c: Children) -> ast.TypeNode:
        return ast.TypeNode("enum", place_of(c), values=tuple(_name(t) for t in c[1:]))

    @staticmethod
    def list(c: Children) -> ast.TypeNode:
        return ast.TypeNode("list", place_of(c), element=c[1])

    @staticmethod
    def nullable(c: Children) -> ast.TypeNode:
        t: ast.TypeNode = c[0]
        return ast.TypeNode(t.kind, t.place, t.name, t.dim, t.values, t.element, nullable=True)


class _Callbacks(LiteralCallbacks):
    @staticmethod
    def array(c: Children) -> Literal:
        return Literal("list", tuple(c[1:-1]), place_of(c))

    @staticmethod
    def dated(c: Children) -> Literal:
        return Literal(str(c[0]), read_string(c[1], c[1].start_pos), place_of(c))

    @staticmethod
    def bare(c: Children) -> Literal:  # `@embed(body)` is `@embed("body")`
        return Literal("string", str(c[0]), place_of(c))

    @staticmethod
    def keyword(c: Children) -> tuple[str, Literal]:
        return str(c[0]), c[1]

    @staticmethod
    def annotation(c: Children) -> ast.Annotation:
        token, *arguments = c
        return ast.Annotation(
            str(token)[1:],
            tuple(a for a in arguments if isinstance(a, Literal)),
            tuple(a for a in arguments if isinstance(a, tuple)),
            (token.start_pos, token.end_pos),
        )

    @staticmethod
    def property(c: Children) -> ast.PropertyNode:
        return ast.PropertyNode(_name(c[0]), c[1], tuple(c[2:]), place_of(c))

    @staticmethod
    def columns(c: Children) -> ast.Columns:
        return ast.Columns(str(c[0])[1:], tuple(_name(t) for t in c[1:]), place_of(c))

    @staticmethod
    def low(c: Children) -> tuple[str, Literal]:
        return "low", _number(c[0])

    @staticmethod
    def high(c: Children) -> tuple[str, Literal]:
        return "high", _number(c[0])

    @staticmethod
    def range(c: Children) -> ast.RangeNode:
        word, *rest = c
        column = _name(rest.pop(0)) if is_token(rest[0]) else None
        ends = dict(rest)
        return ast.RangeNode(column, ends.get("low"), ends.get("high"), place_of([word, rest[-1][1]]))

    @staticmethod
    def check(c: Children) -> ast.CheckNode:
        column = _name(c[1]) if len(c) == 3 else None
        return ast.CheckNode(column, LiteralCallbacks.string(c[-1:]), place_of(c))

    @staticmethod
    def card(c: Children) -> ast.CardinalityNode:
        low, *high = (read_int(t, t.start_pos) for t in c[1:])
        return ast.CardinalityNode(low, high[0] if high else None, place_of(c))

    @staticmethod
    def stray(c: Children) -> ast.Stray:
        words = {ast.RangeNode: "range", ast.CheckNode: "check", ast.CardinalityNode: "card"}
        return ast.Stray(words[type(c[0])], c[0].place)

    stray_in_edge = stray_card = stray

    @staticmethod
    def implements(c: Children) -> tuple[Any, ...]:
        return tuple(c)

    @staticmethod
    def interface(c: Children) -> ast.InterfaceNode:
        return ast.InterfaceNode(_name(c[0]), _only(c, ast.Annotation), _members(c[1:]), place_of(c[:1]))

    @staticmethod
    def node(c: Children) -> ast.NodeNode:
        flat = [x for child in c[1:] for x in (child if isinstance(child, tuple) else (child,))]
        interfaces = tuple(_name(t) for t in flat if is_token(t))
        return ast.NodeNode(_name(c[0]), interfaces, _only(flat, ast.Annotation), _members(flat), place_of(c[:1]))

    @staticmethod
    def edge(c: Children) -> ast.EdgeNode:
        name, source, target, *rest = c
        return ast.EdgeNode(
            _name(name),
            _name(source),
            _name(target),
            _only(rest, ast.Annotation),
            _only(rest, ast.CardinalityNode),
            _members(rest),
            place_of(c[:1]),
        )

    @staticmethod
    def start(c: Children) -> ast.SchemaText:
        return ast.SchemaText(tuple(c))


def _number(token: Token) -> Literal:
    return LiteralCallbacks.int([token]) if token.type == "INT" else LiteralCallbacks.float([token])


def _only(children: Any, kind: type) -> tuple[Any, ...]:
    return tuple(x for x in children if isinstance(x, kind))


def _members(children: Any) -> tuple[ast.Member, ...]:
    return tuple(x for x in children if isinstance(x, ast.Member))


GRAMMAR = Grammar(
    package="omnigraph.schema",
    filename="schema.lark",
    callbacks=_Callbacks(),
    code="S00",
    words=("interface", "node", "edge"),
    habits=SCHEMA_HABITS,
    groups=(  # where a constraint is parsed only to be refused, it isn't expected
        ("COLUMNS", frozenset({"COLUMNS", "RANGE", "CHECK", "CARD"}), "a constraint such as `@key(…)`"),
        ("_NODE", frozenset({"CARD"}), "`@card`"),
        ("ANNOTATION", frozenset({"ANNOTATION", "RANGE", "CHECK", "CARD"}), "an annotation"),
    ),
    names={
        "TYPE": "a type name (upper-case first)",
        "NAME": "a name (lower-case first)",
        "LOWER": "a type name (upper-case first)",
        "COLUMNS": "a constraint such as `@key(…)`",
        "RANGE": "`@range`",
        "CHECK": "`@check`",
        "CARD": "`@card`",
        "ANNOTATION": "an annotation",
        "ENUM": "`enum(…)`",
        "ENUM_VALUE": "an enum value (letters, digits, `_`, `-`; no quotes)",
        "DATED": '`date("…")`',
        "TRUE": "`true`",
        "FALSE": "`false`",
        "NULL": "`null`",
        "INT": "a number",
        "FLOAT": "a number",
        "STRING": "a string",
        "_INTERFACE": "`interface`",
        "_NODE": "`node`",
        "_EDGE": "`edge`",
        "_IMPLEMENTS": "`implements`",
    },
)


def parse_schema(source: SourceText) -> ast.SchemaText:
    """Raises: LanguageError (S00) with every syntax error that can be told apart."""
    tree: ast.SchemaText = GRAMMAR.parse(source)
    return tree
