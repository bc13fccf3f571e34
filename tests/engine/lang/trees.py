"""Random syntax trees of both languages: every kind of node, meaningful or not."""

from __future__ import annotations

from hypothesis import strategies as st

from omnigraph.query import ast as q
from omnigraph.schema import ast as s
from omnigraph.schema.literals import Literal

__all__ = ["query_texts", "schema_texts"]

P = (0, 0)


def some(strategy: st.SearchStrategy, least: int = 0, most: int = 3) -> st.SearchStrategy:
    return st.lists(strategy, min_size=least, max_size=most).map(tuple)


def maybe(strategy: st.SearchStrategy) -> st.SearchStrategy:
    return st.none() | strategy


def node(kind: type, *values: st.SearchStrategy, **more: st.SearchStrategy) -> st.SearchStrategy:
    """A node of this kind; places are all the same."""
    return st.builds(lambda *a, **k: kind(*a, place=P, **k), *values, **more)


def name(text: str) -> s.Name:
    return s.Name(text, P)


words = st.sampled_from(["a", "name", "since", "node", "edge", "long_name_of_a_property", "x2"])
names = words.map(name)
types_named = st.sampled_from(["A", "Person", "QuiteALongNameOfAType"]).map(name)
texts = st.text(alphabet=st.sampled_from('ab "\\/{}()é\t𝒳\n*'), max_size=8) | st.just("a longer text " * 5)

# ---- both languages ----

scalars = (
    st.builds(Literal, st.just("string"), texts, st.just(P))
    | st.builds(Literal, st.just("int"), st.integers(-(10**20), 10**20), st.just(P))
    | st.builds(Literal, st.just("float"), st.floats(allow_nan=False, allow_infinity=False), st.just(P))
    | st.builds(Literal, st.just("bool"), st.booleans(), st.just(P))
    | st.just(Literal("null", None, P))
    | st.builds(Literal, st.sampled_from(["date", "datetime"]), texts, st.just(P))
)
literals = st.recursive(
    scalars, lambda x: st.builds(Literal, st.just("list"), some(x, most=12), st.just(P)), max_leaves=4
)
numbers = scalars.filter(lambda x: x.kind in ("int", "float"))
whole = st.integers(0, 200)

plain_types = (
    st.builds(lambda n: s.TypeNode("scalar", P, name=n), st.sampled_from(["String", "I32", "Vector"]))
    | st.builds(lambda n: s.TypeNode("vector", P, name="Vector", dim=n), whole)
    | st.builds(
        lambda v: s.TypeNode("enum", P, values=v), some(st.sampled_from(["a", "B-2", "true"]).map(name), most=4)
    )
)


def nullable(t: s.TypeNode) -> s.TypeNode:
    return s.TypeNode(t.kind, P, t.name, t.dim, t.values, t.element, nullable=True)


any_types = plain_types | plain_types.map(nullable)
types = any_types | any_types.map(lambda t: s.TypeNode("list", P, element=t))
annotations = node(
    s.Annotation,
    st.sampled_from(["key", "unique", "index", "description", "embed", "default"]),
    arguments=some(literals, most=2),
    keywords=some(st.tuples(words, literals), most=2),
)
# What the schema language reads as a constraint when something follows in parentheses.
marks = annotations.map(lambda a: s.Annotation(a.name, (), (), P) if a.name in ("key", "unique", "index") else a)

# ---- schemas ----

members = (
    node(s.PropertyNode, names, types, some(marks))
    | node(s.Columns, st.sampled_from(["key", "unique", "index"]), some(names, 1))
    | node(s.RangeNode, names, st.none(), numbers)
    | node(s.RangeNode, names, numbers, maybe(numbers))
    | node(s.CheckNode, names, scalars.filter(lambda x: x.kind == "string"))
)
declarations = (
    node(s.InterfaceNode, types_named, some(marks), some(members))
    | node(s.NodeNode, types_named, some(types_named), some(marks), some(members, most=5))
    | node(
        s.EdgeNode,
        *(types_named, types_named, types_named, some(marks)),
        some(node(s.CardinalityNode, whole, maybe(whole)), most=1),
        some(members),
    )
)
schema_texts = some(declarations, most=4).map(s.SchemaText)

# ---- queries: expressions ----

operators = st.sampled_from(["=", "!=", ">", ">=", "<", "<=", "contains", "starts_with", "in", "not in"])
calls = st.sampled_from(["lower", "count", "coalesce", "nearest", "f"])
exprs: st.SearchStrategy = st.deferred(lambda: atoms | compound)
atoms = literals | node(q.VarRef, words) | node(q.NameRef, words) | node(q.PropRef, words, names)


def chain(binds: tuple[str, ...]) -> st.SearchStrategy:
    def build(first: q.Expr, rest: list[tuple[str, q.Expr]]) -> q.Chain:
        return q.Chain(tuple(o for o, _ in rest), (first, *(e for _, e in rest)), P)

    return st.builds(build, exprs, st.lists(st.tuples(st.sampled_from(binds), exprs), min_size=1, max_size=3))


def list_of(items: tuple[q.Expr, ...]) -> q.Expr:
    """A list of literals is a literal."""
    return Literal("list", items, P) if all(isinstance(i, Literal) for i in items) else q.ListExpr(items, P)


def negative(operand: q.Expr) -> q.Expr:
    """A number takes the sign in."""
    if isinstance(operand, Literal) and operand.kind in ("int", "float"):
        return Literal(operand.kind, -abs(operand.value), P)
    return q.Negative(operand, P)


def call(word: str, arguments: tuple[q.Expr, ...], keywords: tuple[q.Keyword, ...], distinct: bool) -> q.CallExpr:
    return q.CallExpr(word, arguments, keywords, P if distinct and arguments else None, P, P)


clauses: st.SearchStrategy = st.deferred(lambda: simple_clauses | blocks)
compound = (
    chain(("or",))
    | chain(("and",))
    | chain(("+", "-"))
    | chain(("*", "/"))
    | node(q.Not, exprs)
    | st.builds(negative, exprs)
    | st.builds(lambda o, a, b: q.Comparison(o, a, b, P, P), operators, exprs, exprs)
    | node(q.IsNull, exprs, st.booleans())
    | st.builds(list_of, some(exprs))
    | st.builds(call, calls, some(exprs), some(node(q.Keyword, names, exprs), most=2), st.booleans())
    | node(q.Block, st.sampled_from(["exists", "count"]), some(clauses, 1))
    | node(q.Case, some(st.tuples(exprs, exprs), 1), maybe(exprs))
)

# ---- queries: clauses and the rest ----

assigned = node(q.Assignment, names, exprs)
hops = node(q.Hops, whole, maybe(whole))
steps = node(q.EdgeStep, some(names, 0), st.just(False), maybe(names), maybe(hops), maybe(exprs)) | node(
    q.EdgeStep, some(names, 1, 1), st.just(True), maybe(names), maybe(hops), maybe(exprs)
)
simple_clauses = (
    node(q.Binding, names, types_named, some(assigned))
    | node(q.Traversal, names, steps, names)
    | node(q.Shortest, names, names, steps, names)
    | node(q.FilterClause, exprs.filter(lambda e: not isinstance(e.operand if isinstance(e, q.Not) else e, q.NameRef)))
)
blocks = node(q.Negation, some(clauses, 1)) | node(q.Optional, some(clauses, 1))
counts = st.lists(
    node(
        q.Count, st.sampled_from(["limit", "skip"]), whole.map(lambda n: Literal("int", n, P)) | node(q.VarRef, words)
    ),
    max_size=2,
    unique_by=lambda c: c.word,
).map(tuple)
reads = st.builds(
    q.ReadBody,
    some(clauses, 1, 4),
    some(node(q.Item, exprs.filter(lambda e: not isinstance(e, q.NameRef)), maybe(names)), 1),
    maybe(st.just(P)),
    some(node(q.OrderItem, exprs, maybe(st.booleans()))),
    counts,
)
statements = (
    node(q.Insert, types_named, some(assigned))
    | node(q.Update, types_named, some(assigned), exprs)
    | node(q.DeleteNode, types_named, exprs)
)
queries = node(
    q.QueryNode,
    names,
    some(node(q.Parameter, names, types)),
    some(annotations, most=2),
    reads | some(statements, 1),
)
query_texts = some(queries, most=2).map(q.QueryText)
