"""From `.gq` text to its syntax tree: one callback a grammar rule."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

from omnigraph.errors import Diagnostic
from omnigraph.query import ast
from omnigraph.query.habits import QUERY_HABITS, WORD_HABITS
from omnigraph.schema.ast import Annotation, Name
from omnigraph.schema.driver import Token, is_token
from omnigraph.schema.grammar import Grammar, RefusedWhileParsing
from omnigraph.schema.literals import Literal, read_int
from omnigraph.schema.parser import LiteralCallbacks, place_of
from omnigraph.schema.source import SourceText

__all__ = ["GRAMMAR", "parse_each_query", "parse_queries"]

Children = list[Any]
_WORD = re.compile(r"[a-z_][A-Za-z0-9_]*")
_COMMENT = re.compile(r"//[^\n]*|/\*[\s\S]*?\*/")


def _name(token: Token) -> Name:
    """A name token; a variable's loses its `$` but keeps its place."""
    return Name(token.lstrip("$"), (token.start_pos or 0, token.end_pos or 0))


def _names_in(token: Token) -> tuple[Name, ...]:
    """The names inside `(knows|likes)` or `<knows>`, each at its own place; `*` has none."""
    base = token.start_pos or 0
    text = _COMMENT.sub(lambda comment: " " * len(comment.group()), token)
    return tuple(Name(m.group(), (base + m.start(), base + m.end())) for m in _WORD.finditer(text))


def _chain(c: Children) -> ast.Chain:
    tokens = c[1::2]
    places = tuple((t.start_pos, t.end_pos) for t in tokens)
    return ast.Chain(tuple(str(t) for t in tokens), tuple(c[::2]), place_of(c), places)


class _Callbacks(LiteralCallbacks):
    # ---- expressions ----

    @staticmethod
    def or_(c: Children) -> ast.Chain:
        return ast.Chain(("or",) * (len(c) - 1), tuple(c), place_of(c))

    @staticmethod
    def and_(c: Children) -> ast.Chain:
        return ast.Chain(("and",) * (len(c) - 1), tuple(c), place_of(c))

    @staticmethod
    def not_(c: Children) -> ast.Not:
        return ast.Not(c[1], place_of(c))

    @staticmethod
    def comparison(c: Children) -> ast.Comparison:
        left, token, right = c
        operator = "not in" if token.type == "NOT_IN" else str(token)
        return ast.Comparison(operator, left, right, (token.start_pos, token.end_pos), place_of(c))

    @staticmethod
    def is_null(c: Children) -> ast.IsNull:
        return ast.IsNull(c[0], len(c) == 4, place_of(c))

    @staticmethod
    def sum(c: Children) -> ast.Chain:
        return _chain(c)

    @staticmethod
    def product(c: Children) -> ast.Chain:
        return _chain(c)

    @staticmethod
    def negative(c: Children) -> ast.Expr:
        operand = c[1]
        if isinstance(operand, Literal) and operand.kind in ("int", "float") and operand.value >= 0:
            return Literal(operand.kind, -operand.value, place_of(c))
        return ast.Negative(operand, place_of(c))

    @staticmethod
    def var(c: Children) -> ast.VarRef:
        return ast.VarRef(str(c[0])[1:], place_of(c))

    @staticmethod
    def prop(c: Children) -> ast.PropRef:
        token = c[0]
        var, name = _WORD.findall(_COMMENT.sub(" ", token))
        return ast.PropRef(var, Name(name, (token.end_pos - len(name), token.end_pos)), place_of(c))

    @staticmethod
    def name(c: Children) -> ast.NameRef:
        return ast.NameRef(str(c[0]), place_of(c))

    @staticmethod
    def array(c: Children) -> ast.Expr:
        items = tuple(c[1:-1])
        if all(isinstance(item, Literal) for item in items):
            return Literal("list", items, place_of(c))
        return ast.ListExpr(items, place_of(c))

    @staticmethod
    def distinct(c: Children) -> Children:
        return c

    @staticmethod
    def call(c: Children) -> ast.Expr:
        token, *rest = c
        arguments: list[Any] = []
        keywords: list[ast.Keyword] = []
        distinct: tuple[int, int] | None = None
        for child in rest[:-1]:
            if isinstance(child, ast.Keyword):
                keywords.append(child)
            elif isinstance(child, list):
                distinct = (child[0].start_pos, child[0].end_pos)
                arguments.append(child[1])
            else:
                arguments.append(child)
        if token in ("date", "datetime") and len(rest) == 2 and _is_string(rest[0]):
            return Literal(str(token), rest[0].value, place_of(c))
        return ast.CallExpr(
            str(token), tuple(arguments), tuple(keywords), distinct, (token.start_pos, token.end_pos), place_of(c)
        )

    @staticmethod
    def parenthesised(c: Children) -> ast.Expr:
        return cast("ast.Expr", replace(c[1], place=place_of(c)))

    @staticmethod
    def keyword(c: Children) -> ast.Keyword:
        return ast.Keyword(_name(c[0]), c[1], place_of(c))

    @staticmethod
    def block(c: Children) -> ast.Block:
        return ast.Block(str(c[0]), _clauses(c[1:-1]), place_of(c))

    @staticmethod
    def when(c: Children) -> tuple[Any, Any]:
        return c[0], c[1]

    @staticmethod
    def else_(c: Children) -> list[Any]:
        return c

    @staticmethod
    def case(c: Children) -> ast.Case:
        rest = c[1:-1]
        otherwise = rest.pop()[0] if isinstance(rest[-1], list) else None
        return ast.Case(tuple(rest), otherwise, place_of(c))

    # ---- clauses ----

    @staticmethod
    def assignment(c: Children) -> ast.Assignment:
        return ast.Assignment(_name(c[0]), c[1], place_of(c))

    @staticmethod
    def binding(c: Children) -> ast.Binding:
        return ast.Binding(_name(c[0]), _name(c[1]), tuple(c[2:]), place_of(c))

    @staticmethod
    def hops(c: Children) -> tuple[str, int, int | None, tuple[int, int]]:
        """`{n}` is exactly n hops, `{n,}` has no end."""
        low, *high = (read_int(t, t.start_pos) for t in c if t.type == "INT")
        most = high[0] if high else None if len(c) > 2 else low
        return "hops", low, most, place_of(c)

    @staticmethod
    def hop_filter(c: Children) -> tuple[str, Any]:
        return "filter", c[0]

    @staticmethod
    def edge(c: Children) -> ast.EdgeStep:
        var = _name(c[0]) if c[0].type == "VAR_EDGE" else None
        token = c[1] if var else c[0]
        return _step(var, token, c[2:] if var else c[1:])

    @staticmethod
    def undirected(c: Children) -> ast.EdgeStep:
        var = _name(c[0]) if c[0].type == "VAR_EDGE" else None
        return _step(var, c[1] if var else c[0], c[2:] if var else c[1:])

    @staticmethod
    def traversal(c: Children) -> ast.Traversal:
        return ast.Traversal(_name(c[0]), c[1], _name(c[2]), place_of(c))

    @staticmethod
    def shortest(c: Children) -> ast.Shortest:
        return ast.Shortest(_name(c[0]), _name(c[1]), c[2], _name(c[3]), place_of(c))

    @staticmethod
    def negation(c: Children) -> ast.Negation:
        return ast.Negation(_clauses(c[1:]), place_of(c))

    @staticmethod
    def optional(c: Children) -> ast.Optional:
        return ast.Optional(_clauses(c[1:]), place_of(c))

    @staticmethod
    def filter(c: Children) -> ast.FilterClause:
        word = c[0].operand if isinstance(c[0], ast.Not) else c[0]
        if isinstance(word, ast.NameRef):  # an operator of another language, mostly: `$p.name like "x"`
            hint = WORD_HABITS.get(word.name.lower(), _CLAUSES)
            raise RefusedWhileParsing(f"`{word.name}` can't stand here", *word.place, hint)
        return ast.FilterClause(c[0], c[0].place)

    # ---- queries ----

    @staticmethod
    def annotation(c: Children) -> Annotation:
        token, *arguments = c
        return Annotation(
            str(token)[1:],
            tuple(a for a in arguments if not isinstance(a, ast.Keyword)),
            tuple((a.name.text, cast("Literal", a.value)) for a in arguments if isinstance(a, ast.Keyword)),
            (token.start_pos, token.end_pos),
        )

    @staticmethod
    def param(c: Children) -> ast.Parameter:
        return ast.Parameter(_name(c[0]), c[1], place_of(c))

    @staticmethod
    def match(c: Children) -> Children:
        return list(_clauses(c[1:]))

    @staticmethod
    def item(c: Children) -> ast.Item:
        if isinstance(c[0], ast.NameRef) and c[0].name in _NO_COLUMN:
            raise RefusedWhileParsing(f"unexpected `{c[0].name}`", *c[0].place, _NO_COLUMN[c[0].name])
        return ast.Item(c[0], _name(c[1]) if len(c) > 1 else None, c[0].place)

    @staticmethod
    def return_(c: Children) -> tuple[Any, ...]:
        distinct = c[1] if is_token(c[1]) else None
        return distinct and (distinct.start_pos, distinct.end_pos), tuple(c[2 if distinct else 1 :])

    @staticmethod
    def order_key(c: Children) -> ast.OrderItem:
        return ast.OrderItem(c[0], c[1].type == "DESC" if len(c) > 1 else None, c[0].place)

    @staticmethod
    def order(c: Children) -> Children:
        return c[1:]

    @staticmethod
    def limit(c: Children) -> ast.Count:
        return ast.Count(str(c[0]), c[1], c[1].place)

    skip = limit

    @staticmethod
    def insert(c: Children) -> ast.Insert:
        return ast.Insert(_name(c[1]), tuple(c[2:]), place_of(c[:2]))

    @staticmethod
    def update(c: Children) -> ast.Update:
        return ast.Update(_name(c[1]), tuple(c[2:-1]), c[-1], place_of(c[:2]))

    @staticmethod
    def delete(c: Children) -> ast.DeleteNode:
        return ast.DeleteNode(_name(c[1]), c[2], place_of(c[:2]))

    @staticmethod
    def statement(c: Children) -> ast.Statement:
        statement: ast.Statement = c[0]
        return statement

    @staticmethod
    def query(c: Children) -> ast.QueryNode:
        name, *rest = c
        parameters = tuple(x for x in rest if isinstance(x, ast.Parameter))
        annotations = tuple(x for x in rest if isinstance(x, Annotation))
        parts = rest[len(parameters) + len(annotations) :]
        body: Any = tuple(parts)
        if isinstance(parts[0], list):
            clauses, (distinct, items), *tail = parts
            order = tail.pop(0) if tail and isinstance(tail[0], list) else []
            body = ast.ReadBody(tuple(clauses), items, distinct, tuple(order), tuple(tail))
        return ast.QueryNode(_name(name), parameters, annotations, body, place_of(c[:1]))

    @staticmethod
    def start(c: Children) -> ast.QueryText:
        return ast.QueryText(tuple(c))


# Rules whose names are words of Python.
for _rule in ("or", "and", "not", "else", "return"):
    setattr(_Callbacks, _rule, staticmethod(getattr(_Callbacks, f"{_rule}_")))


_CLAUSES = "a clause is a binding `$x: Type`, an edge `$a knows $b`, or a condition as `$x.age > 3`"
_NO_COLUMN = {
    "distinct": "write `return distinct { … }`",
    "as": "a column has one name",
    "asc": "directions stand in `order { … }`",
    "desc": "directions stand in `order { … }`",
}


def _clauses(clauses: Iterable[ast.Clause]) -> tuple[ast.Clause, ...]:
    """The clauses of a block. `$x[…]` would be read as two of them, and nobody means that."""
    found = tuple(clauses)
    for one, two in pairwise(found):
        if isinstance(one, ast.FilterClause) and isinstance(two, ast.FilterClause) and one.place[1] == two.place[0]:
            first: Any = two.expr
            while not isinstance(first, (Literal, ast.ListExpr)):
                first = getattr(first, "left", None) or getattr(first, "operand", None)
                if first is None:
                    break
            if isinstance(first, ast.ListExpr) or (isinstance(first, Literal) and first.kind == "list"):
                start = two.place[0]
                hint = "a property is written `$x.name`; lists are searched with `contains`"
                raise RefusedWhileParsing("unexpected `[`", start, start + 1, hint)
    return found


def _is_string(node: Any) -> bool:
    return isinstance(node, Literal) and node.kind == "string"


def _step(var: Name | None, token: Token, rest: Children) -> ast.EdgeStep:
    hops = next((ast.Hops(*x[1:]) for x in rest if x[0] == "hops"), None)
    edge_filter = next((x[1] for x in rest if x[0] == "filter"), None)
    place = (token.start_pos or 0, token.end_pos or 0)
    return ast.EdgeStep(_names_in(token), token.type == "UNDIRECTED", var, hops, edge_filter, place)


_STARTS_EXPRESSION = frozenset(
    {
        *("PROP", "NAME", "STRING", "INT", "FLOAT", "TRUE", "FALSE", "NULL", "LSQB", "FUNC", "EXISTS", "COUNT_BLOCK"),
        *("CASE", "LPAR", "NOT", "MINUS", "TEXT_TEST"),
    }
)
_OPERATORS = frozenset(
    {
        *(
            "COMPARE",
            "CONTAINS",
            "STARTS_WITH",
            "IN",
            "NOT_IN",
            "IS",
            "_AND",
            "_OR",
            "PLUS",
            "MINUS",
            "TIMES",
            "DIVIDE",
        ),
    }
)

GRAMMAR = Grammar(
    package="omnigraph.query",
    filename="query.lark",
    callbacks=_Callbacks(),
    code="Q000",
    words=("query",),
    habits=QUERY_HABITS,
    groups=(
        ("PROP", frozenset({"VAR", *_STARTS_EXPRESSION}), "an expression"),
        ("COMPARE", _OPERATORS, "an operator"),
        ("_AND", _OPERATORS, "an operator"),
        ("VAR_EDGE", frozenset({"VAR_EDGE", "UNDIRECTED", "ALTERNATION", "EDGE_STAR"}), "an edge"),
    ),
    names={
        "_QUERY": "`query`",
        "MATCH": "`match`",
        "RETURN": "`return`",
        "ORDER": "`order`",
        "LIMIT": "`limit`",
        "SKIP": "`skip`",
        "DISTINCT": "`distinct`",
        "ASC": "`asc`",
        "DESC": "`desc`",
        "OPTIONAL": "`optional`",
        "EXISTS": "`exists`",
        "COUNT_BLOCK": "`count { … }`",
        "CASE": "`case`",
        "NOT_IN": "`not in`",
        "NOT": "`not`",
        "IN": "`in`",
        "IS": "`is`",
        "CONTAINS": "`contains`",
        "STARTS_WITH": "`starts_with`",
        "NULL": "`null`",
        **{f"_{word.upper()}": f"`{word}`" for word in (["or", "and", "as", "when", "then", "else", "set", "where"])},
        "END": "`end`",
        "TRUE": "`true`",
        "FALSE": "`false`",
        "INSERT": "`insert`",
        "UPDATE": "`update`",
        "DELETE": "`delete`",
        "_SHORTEST": "`= shortest`",
        "ENUM": "`enum(…)`",
        "VAR_NODE": "a binding `$x: Type`",
        "VAR_EDGE": "an edge binding `$w:edge`",
        "PROP": "a property `$x.name`",
        "VAR": "a variable `$x`",
        "UNDIRECTED": "an undirected edge `<edge>`",
        "ALTERNATION": "edges `(a|b)`",
        "EDGE_STAR": "`*`",
        "FUNC": "a function",
        "TEXT_TEST": "a function",
        "LPAR": "`(`",
        "KEYWORD": "a named argument",
        "FIELD": "a property name and `:`",
        "COMPARE": "a comparison",
        "PLUS": "`+`",
        "MINUS": "`-`",
        "TIMES": "`*`",
        "DIVIDE": "`/`",
        "ANNOTATION": "an annotation",
        "TYPE": "a type name (upper-case first)",
        "NAME": "a name (lower-case first)",
        "ENUM_VALUE": "an enum value",
        "FLOAT": "a number",
        "INT": "a number",
        "STRING": "a string",
    },
)


def parse_queries(source: SourceText) -> ast.QueryText:
    """Raises: LanguageError (Q000) with every syntax error that can be told apart."""
    tree: ast.QueryText = GRAMMAR.parse(source)
    return tree


def parse_each_query(source: SourceText) -> tuple[list[ast.QueryNode], list[Diagnostic]]:
    """The queries that can be read, and the syntax errors (Q000) of the others."""
    trees, found = GRAMMAR.parse_parts(source)
    return [query for tree in trees for query in tree.queries], found
