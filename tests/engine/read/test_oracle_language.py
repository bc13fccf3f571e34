"""Random graphs and random queries over blocks, alternation, hop filters, shortest paths and expressions.

Like `test_oracle`, with another evaluator: each clause is an object that knows its text and, for one row in Python
objects, the rows that come of it. Nothing here knows arrays or plans.
"""

from __future__ import annotations

import itertools
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, seed, settings
from hypothesis import strategies as st

from omnigraph import read
from omnigraph.errors import BadRequest
from omnigraph.query import compile_query
from omnigraph.read.settings import read_settings
from omnigraph.schema import compile_schema

CATALOG = compile_schema("""
node Person { name: String @key  age: I32?  score: F64?  bio: String? }
node Firm { name: String @key  age: I32? }
edge Knows: Person -> Person { weight: I32? }
edge Likes: Person -> Person { weight: I32? }
edge Works: Person -> Firm { weight: I32? }
""")
SEED = int(os.environ.get("OMNIGRAPH_ORACLE_SEED", random.randrange(2**32)))
EXAMPLES = int(os.environ.get("OMNIGRAPH_ORACLE_EXAMPLES", 4))
EDGES = {"knows": ("Person", "Person"), "likes": ("Person", "Person"), "works": ("Person", "Firm")}

Row = dict[str, Any]
Graph = dict[str, list[dict[str, Any]]]


class Bad(Exception):
    """The expression has no value in this row."""


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Up to five people with enough edges between them that most queries find something; drawn as one seed."""
    rng = random.Random(draw(st.binary(min_size=4, max_size=4)))
    names = rng.sample(["a", "b", "c", "d", "é"], rng.choice([0, 1, 3, 4, 5, 5, 5, 5]))
    words = ["Red fox", "red, RED fóx!", "a fox is red", "", "blue", "fix", None]
    people = [
        {"id": n, "name": n, "age": rng.choice([None, -1, 0, 1, 2, 3]), "score": rng.choice([None, 0.5, -2.5, 0.0]),
         "bio": rng.choice(words)}
        for n in names
    ]  # fmt: skip
    firms = [{"id": n, "name": n, "age": rng.choice([None, 1])} for n in rng.choice([[], ["x"], ["x", "a"]])]
    out: Graph = {"node:Person": people, "node:Firm": firms}
    for edge, (_, far) in EDGES.items():
        ends = [r["id"] for r in out[f"node:{far}"]]
        out[f"edge:{edge.title()}"] = [
            {
                "id": f"{edge[0]}{i}",
                "src": rng.choice(names),
                "dst": rng.choice(ends),
                "weight": rng.choice([None, 0, 1, 2]),
            }
            for i in range(rng.choice([0, 3, 5, 8]) if names and ends else 0)
        ]
    return out


# ---- expressions: text, function of a row, and whether it may fail (all arithmetic) ----


@dataclass(frozen=True)
class E:
    text: str
    of: Callable[[Row, Graph], Any]
    fails: bool = False


def read_prop(row: Row, var: str, name: str) -> Any:
    return None if row[var] is None else row[var][name]


def null_in(work: Callable[..., Any], *parts: E) -> Callable[[Row, Graph], Any]:
    def of(row: Row, graph: Graph) -> Any:
        values = [p.of(row, graph) for p in parts]
        return None if any(v is None for v in values) else work(*values)

    return of


def divided(a: float, b: float) -> float:
    if b == 0:
        raise Bad
    return a / b


def remainder(a: int, b: int) -> int:
    if b == 0:
        raise Bad
    return abs(a) % abs(b) * (1 if a >= 0 else -1)


@st.composite
def numbers(draw: st.DrawFn, people: list[str], depth: int = 2, *, search: bool = True) -> E:
    kind = draw(st.sampled_from(["age", "literal", "+", "*", "-", "/", "mod", "case", "coalesce", "length", "abs"]))
    if kind == "age" or depth == 0:
        var = draw(st.sampled_from(people))
        return E(f"${var}.age", lambda r, g: read_prop(r, var, "age"))
    if kind == "literal":
        value = draw(st.integers(0, 3))
        return E(str(value), lambda r, g: value)
    if kind == "length":
        var = draw(st.sampled_from(people))
        return E(f"length(${var}.name)", lambda r, g: None if r[var] is None else len(r[var]["name"]))
    a, b = (draw(numbers(people, depth - 1, search=search)) for _ in range(2))
    if kind == "abs":
        return E(f"abs({a.text})", null_in(abs, a), True)
    if kind == "case":
        test = draw(conditions(people, depth - 1, search=search))
        of = lambda r, g: a.of(r, g) if test.of(r, g) is True else b.of(r, g)  # noqa: E731
        return E(f"case when {test.text} then {a.text} else {b.text} end", of, a.fails or b.fails or test.fails)
    if kind == "coalesce":
        of = lambda r, g: x if (x := a.of(r, g)) is not None else b.of(r, g)  # noqa: E731
        return E(f"coalesce({a.text}, {b.text})", of, a.fails or b.fails)
    work = {"+": lambda x, y: x + y, "*": lambda x, y: x * y, "-": lambda x, y: x - y, "/": divided, "mod": remainder}[
        kind
    ]
    text = f"mod({a.text}, {b.text})" if kind == "mod" else f"({a.text}) {kind} ({b.text})"
    return E(text, null_in(work, a, b), True)


@st.composite
def conditions(draw: st.DrawFn, people: list[str], depth: int = 2, *, search: bool = True) -> E:
    kinds = ["compare", "null", "and", "or", "not", "exists", "count", "compare"]
    kind = draw(st.sampled_from([*kinds, "search"] if search else kinds))
    if depth == 0 or kind == "null":
        var = draw(st.sampled_from(people))
        return E(f"${var}.age is null", lambda r, g: read_prop(r, var, "age") is None)
    if kind == "search":
        var, fn = draw(st.sampled_from(people)), draw(st.sampled_from(["search", "match_text", "fuzzy"]))
        query = draw(st.sampled_from(["fox red", "RED fox", "fux", "", "blue"]))
        return E(f'{fn}(${var}.bio, "{query}")', lambda r, g: found(fn, read_prop(r, var, "bio"), query))
    if kind in ("exists", "count"):
        block = draw(blocks(people, depth - 1))
        if kind == "exists":
            return E(f"exists {{ {block.text()} }}", lambda r, g: any(True for _ in block.rows(r, g)), block.fails)
        least = draw(st.integers(0, 2))
        of = lambda r, g: sum(1 for _ in block.rows(r, g)) > least  # noqa: E731
        return E(f"count {{ {block.text()} }} > {least}", of, block.fails)
    if kind == "not":
        a = draw(conditions(people, depth - 1, search=search))
        return E(f"not ({a.text})", null_in(lambda x: not x, a), a.fails)
    if kind in ("and", "or"):
        a, b = (draw(conditions(people, depth - 1, search=search)) for _ in range(2))
        decides = kind == "or"

        def logic(r: Row, g: Graph) -> bool | None:
            left = a.of(r, g)
            if left is decides:
                return decides
            right = b.of(r, g)
            return right if right is decides else None if left is None or right is None else not decides

        return E(f"({a.text}) {kind} ({b.text})", logic, a.fails or b.fails)
    a, b = (draw(numbers(people, depth - 1, search=search)) for _ in range(2))
    op = draw(st.sampled_from(["=", "<", ">=", "!="]))
    work = {"=": lambda x, y: x == y, "<": lambda x, y: x < y, ">=": lambda x, y: x >= y, "!=": lambda x, y: x != y}[op]
    return E(f"({a.text}) {op} ({b.text})", null_in(work, a, b), a.fails or b.fails)


def words(text: str) -> list[str]:
    plain = text.lower().replace("ó", "o")
    return "".join(c if c.isalnum() else " " for c in plain).split()


def edits(a: str, b: str) -> int:
    if not a or not b:
        return len(a) + len(b)
    return min(edits(a[1:], b) + 1, edits(a, b[1:]) + 1, edits(a[1:], b[1:]) + (a[0] != b[0]))


def found(fn: str, text: str | None, query: str) -> bool | None:
    if text is None:
        return None
    have, asked = words(text), words(query)
    if fn == "match_text":
        return bool(asked) and any(have[i : i + len(asked)] == asked for i in range(len(have)))
    return any(edits(w, q) <= (fn == "fuzzy") for w in have for q in asked)


# ---- clauses ---------------------------------------------------------------------------------------------------------


@dataclass
class Walk:
    """`$a edge $b`, over one or more edge types; `path` makes it a shortest path."""

    a: str
    b: str
    edges: list[str]
    low: int = 1
    high: int = 1
    both: bool = False
    least: int | None = None
    var: str | None = None
    path: str | None = None

    def text(self) -> str:
        name = self.edges[0] if len(self.edges) == 1 else f"({'|'.join(self.edges)})"
        name = f"<{self.edges[0]}>" if self.both else name
        hops = "" if self.low == self.high == 1 and not self.path else f"{{{self.low},{self.high}}}"
        test = f"[weight >= {self.least}]" if self.least is not None else ""
        edge = f"${self.var}:" if self.var else ""
        return f"{f'${self.path} = shortest ' if self.path else ''}${self.a} {edge}{name}{hops}{test} ${self.b}"

    def steps(self, graph: Graph) -> Iterator[tuple[str, str, dict[str, Any]]]:
        for edge in self.edges:
            for e in graph[f"edge:{edge.title()}"]:
                if self.least is not None and (e["weight"] is None or e["weight"] < self.least):
                    continue
                yield e["src"], e["dst"], e
                if self.both and e["src"] != e["dst"]:
                    yield e["dst"], e["src"], e

    def paths(self, graph: Graph, start: str) -> dict[str, tuple[list[str], list[str]]]:
        """Far end → the first of the shortest paths, by node ids and then by edge ids; its own loop for the start."""
        best: dict[str, tuple[list[str], list[str]]] = {start: ([start], [])}
        level = dict(best)
        out: dict[str, tuple[list[str], list[str]]] = {}
        steps = list(self.steps(graph))
        loops = sorted(e["id"] for s, d, e in steps if s == d == start)
        if loops and self.low == 1:
            out[start] = ([start, start], loops[:1])
        for hop in range(1, self.high + 1):
            reached: dict[str, tuple[list[str], list[str]]] = {}
            for s, d, e in steps:
                if s in level and d not in best:
                    nodes, edges = level[s]
                    new = ([*nodes, d], [*edges, e["id"]])
                    reached[d] = min(reached.get(d, new), new)
            best |= reached
            level = reached
            if hop >= self.low:
                out |= reached
        return out

    def rows(self, row: Row, graph: Graph) -> Iterator[Row]:
        kind = EDGES[self.edges[0]]
        near = {r["id"]: r for r in graph[f"node:{kind[0]}"]}
        far = {r["id"]: r for r in graph[f"node:{kind[1]}"]}
        for a in near if self.a not in row else [row[self.a] and row[self.a]["id"]]:
            if a is None:
                continue
            if self.var:
                ends = [(d, e) for s, d, e in self.steps(graph) if s == a]
            else:
                ends = [(d, p) for d, p in self.paths(graph, a).items()]
            for b, extra in ends:
                if self.b in row and (row[self.b] is None or row[self.b]["id"] != b):
                    continue
                new = {**row, self.a: near[a], self.b: far[b]}
                if self.var or self.path:
                    new[self.var or self.path or ""] = extra
                yield new


@dataclass
class Block:
    """Clauses that hold together: bound names first, then walks, conditions, optional blocks, late conditions."""

    nodes: list[tuple[str, str]] = field(default_factory=list)
    walks: list[Walk] = field(default_factory=list)
    tests: list[E] = field(default_factory=list)
    nots: list[Block] = field(default_factory=list)
    optionals: list[Block] = field(default_factory=list)
    after: list[E] = field(default_factory=list)  # over what optionals bind

    @property
    def fails(self) -> bool:
        inner = (b.fails for b in (*self.nots, *self.optionals))
        return any(t.fails for t in (*self.tests, *self.after)) or any(inner)

    def text(self) -> str:
        parts = [f"${v}: {t}" for v, t in self.nodes] + [w.text() for w in self.walks]
        parts += [f"({t.text})" for t in self.tests] + [f"not {{ {b.text()} }}" for b in self.nots]
        parts += [f"optional {{ {b.text()} }}" for b in self.optionals] + [f"({t.text})" for t in self.after]
        return "  ".join(parts)

    def binds(self) -> list[str]:
        names = [v for v, _ in self.nodes]
        for w in self.walks:
            names += [v for v in (w.a, w.b, w.var, w.path) if v]
        for b in self.optionals:
            names += b.binds()
        return list(dict.fromkeys(names))

    def rows(self, row: Row, graph: Graph) -> Iterator[Row]:
        rows = [row]
        for var, kind in self.nodes:
            rows = [{**r, var: n} for r in rows for n in graph[f"node:{kind}"]]
        for walk in self.walks:
            rows = [new for r in rows for new in walk.rows(r, graph)]
        for late in (False, True):
            for test in self.tests:
                if test.fails == late:
                    rows = [r for r in rows if test.of(r, graph) is True]
            for block in self.nots:
                if block.fails == late:
                    rows = [r for r in rows if not list(block.rows(r, graph))]
        for block in self.optionals:
            null = dict.fromkeys(block.binds())
            rows = [new for r in rows for new in (list(block.rows(r, graph)) or [{**null, **r}])]
        for late in (False, True):
            for test in self.after:
                if test.fails == late:
                    rows = [r for r in rows if test.of(r, graph) is True]
        yield from rows


FRESH = itertools.count()


@st.composite
def walks(draw: st.DrawFn, people: list[str], known: list[str]) -> tuple[Walk, str]:
    """A walk from a person to a new name or one of `known`; with the far end's kind."""
    a, new = draw(st.sampled_from(people)), f"v{next(FRESH)}"
    if draw(st.integers(0, 5)) == 5:
        return Walk(a, new, ["works"], least=draw(st.sampled_from([None, 1]))), "Firm"
    b = draw(st.sampled_from([new, new, *known]))
    edges = draw(st.sampled_from([["knows"], ["likes"], ["knows", "likes"]]))
    walk = Walk(a, b, edges, least=draw(st.sampled_from([None, None, 1])))
    kind = draw(st.sampled_from(["hops", "hops", "edge", "path"]))
    if len(edges) == 1:
        walk.both = draw(st.booleans())
    if kind == "edge":
        walk.var = f"e{next(FRESH)}"
    else:
        walk.low = draw(st.integers(1, 2))
        walk.high = draw(st.integers(walk.low, 3))
        walk.path = f"z{next(FRESH)}" if kind == "path" else None
    return walk, "Person"


@st.composite
def blocks(draw: st.DrawFn, outer: list[str], depth: int = 1, *, optional: bool = False) -> Block:
    """A block that walks from an outer variable to a new one."""
    out = Block()
    known = list(outer)
    for number in range(1 + (draw(st.integers(0, 3)) == 3)):
        walk, kind = draw(walks(known, [] if optional and not number else known))
        out.walks.append(walk)
        if kind == "Person" and walk.b not in known:
            known.append(walk.b)
    if draw(st.integers(0, 2)) == 2:
        out.tests.append(draw(conditions(known, depth)))
    return out


@st.composite
def matches(draw: st.DrawFn) -> tuple[Block, list[str]]:
    out = Block(nodes=[("p", "Person")] + ([("q", "Person")] if draw(st.integers(0, 2)) == 2 else []))
    people = [v for v, _ in out.nodes]
    for _ in range(draw(st.integers(0, 2))):
        walk, kind = draw(walks(people, people))
        out.walks.append(walk)
        if kind == "Person" and walk.b not in people:
            people.append(walk.b)
    if draw(st.integers(0, 2)) == 2:
        out.tests = draw(st.lists(conditions(people), min_size=1, max_size=2))
    if draw(st.integers(0, 3)) == 3:
        out.nots = [draw(blocks(people))]
    bound = list(people)
    for _ in range(draw(st.integers(0, 2))):
        block = draw(blocks(bound, optional=True))
        out.optionals.append(block)
        bound += [w.b for w in block.walks if w.edges != ["works"] and w.b not in bound]
    if bound != people:
        for test in draw(st.lists(conditions(bound), min_size=1, max_size=1)) if draw(st.booleans()) else []:
            waits = set(re.findall(r"\$(\w+)", test.text)) & set(bound[len(people) :])
            (out.after if waits else out.tests).append(test)
    return out, bound


# ---- queries ---------------------------------------------------------------------------------------------------------


@dataclass
class Query:
    match: Block
    columns: list[tuple[str, E]]  # with an aggregate: the keys
    grouped: list[tuple[str, str, Callable[[list[Any], Any], Any], E]] = field(default_factory=list)
    distinct: bool = False
    ordered: bool = False
    skip: int = 0
    limit: int | None = None

    def text(self) -> str:
        items = [f"{e.text} as {c}" for c, e in self.columns] + [f"{t} as {c}" for c, t, _, _ in self.grouped]
        distinct = "distinct " if self.distinct else ""
        out = f"query q() {{ match {{ {self.match.text()} }} return {distinct}{{ {', '.join(items)} }}"
        if self.ordered:
            names = [c for c, _ in self.columns] + [c for c, t, _, _ in self.grouped if "collect" not in t]
            out += f" order {{ {', '.join(f'{c} desc' if i % 2 else c for i, c in enumerate(names))} }}"
        out += f" limit {self.limit}" if self.limit is not None else ""
        return out + (f" skip {self.skip}" if self.skip else "") + " }"

    def answer(self, graph: Graph) -> list[tuple[Any, ...]]:
        rows = list(self.match.rows({}, graph))
        if self.grouped:
            groups: dict[tuple[Any, ...], list[Row]] = {}
            for row in rows:
                groups.setdefault(tuple(e.of(row, graph) for _, e in self.columns), []).append(row)
            if not self.columns:
                groups.setdefault((), [])
            out = [
                (*key, *(fold([e.of(m, graph) for m in members], key) for _, _, fold, e in self.grouped))
                for key, members in groups.items()
            ]
        else:
            out = [tuple(e.of(row, graph) for _, e in self.columns) for row in rows]
        if self.distinct:
            out = list(dict.fromkeys(out))
        if self.ordered:
            for at in reversed(range(len(self.columns) + len(self.grouped))):
                if not (out and isinstance(out[0][at], tuple) and self.grouped):
                    out.sort(key=lambda r, at=at: (r[at] is not None, r[at] or 0), reverse=at % 2 == 1)  # type: ignore[misc]
            out = out[self.skip :][: self.limit]
        return out


def known(values: list[Any]) -> list[Any]:
    return [v for v in values if v is not None]


def summed(values: list[Any]) -> Any:
    return sum(known(values)) if known(values) else None


@st.composite
def queries(draw: st.DrawFn) -> Query:
    match, people = draw(matches())
    columns = [
        (f"c{i}", draw(st.one_of(numbers(people, search=False), conditions(people, search=False))))
        for i in range(draw(st.integers(1, 2)))
    ]
    paths = [w.path for b in (match, *match.optionals) for w in b.walks if w.path]
    if paths and draw(st.booleans()):
        z = paths[0]
        columns.append(("len", E(f"length(${z})", lambda r, g: None if r[z] is None else len(r[z][1]))))
    query = Query(match, columns, distinct=draw(st.booleans()))
    if draw(st.integers(0, 2)) == 2:
        query.distinct = False
        arg = E(f"${people[-1]}.age", lambda r, g: read_prop(r, people[-1], "age"))
        whole = E(f"${people[-1]}", lambda r, g: None if r[people[-1]] is None else r[people[-1]]["id"])
        query.grouped = [
            ("n", f"count({whole.text})", lambda v, k: len(known(v)), whole),
            ("d", f"count(distinct {whole.text})", lambda v, k: len(set(known(v))), whole),
            ("s", f"coalesce(sum({arg.text}), 0) * 2", lambda v, k: (summed(v) or 0) * 2, arg),
            ("l", f"collect(distinct {arg.text})", lambda v, k: tuple(sorted(set(known(v)))), arg),
        ]
        query.columns = columns[: len(columns) - draw(st.integers(0, len(columns)))]
    elif not query.distinct and paths and draw(st.booleans()):
        query.columns += [
            (
                f"{word}",
                E(f"{word}(${paths[0]})", lambda r, g, i=i: None if r[paths[0]] is None else tuple(r[paths[0]][i])),
            )  # type: ignore[misc]
            for i, word in enumerate(("nodes", "edges"))
        ]
    if query.columns and not any(c in ("nodes", "edges") for c, _ in query.columns):
        query.ordered = draw(st.integers(0, 3)) > 0
        if query.ordered and draw(st.booleans()):
            query.skip, query.limit = draw(st.integers(0, 2)), draw(st.integers(0, 6))
    return query


def plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


QUIET: dict[str, Any] = {
    "deadline": None,
    "print_blob": True,
    "suppress_health_check": [
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
}


def agree(snapshot: Any, graph: Graph, query: Query) -> None:
    note(query.text())
    compiled = compile_query(query.text(), CATALOG)
    try:
        want = query.answer(graph)
    except Bad:
        want = None
    for mode in ("indexed", "csr", "", "scan"):  # adjacency is there once csr was asked for
        note(mode)
        chosen = replace(read_settings(), traversal_mode=mode, small_table_rows=0)
        if want is None:
            if query.limit is None and not query.skip:
                with pytest.raises(BadRequest):
                    read.execute(compiled, snapshot, {}, settings=chosen)
            continue
        table = read.execute(compiled, snapshot, {}, settings=chosen)
        got = [tuple(plain(v) for v in row) for row in zip(*(c.to_pylist() for c in table.columns), strict=True)]
        if query.ordered:
            assert got == want
        else:
            assert Counter(got) == Counter(want)


@settings(max_examples=300, **QUIET)
@given(several=st.lists(graphs(), min_size=4, max_size=4), query=queries())
def test_queries_agree_with_the_specification(memory_snapshot: Any, several: list[Graph], query: Query) -> None:
    for graph in several:
        agree(memory_snapshot(CATALOG, graph), graph, query)


@pytest.mark.timeout(120 + 60 * EXAMPLES)
@seed(SEED)
@settings(max_examples=EXAMPLES, **QUIET)
@given(graph=graphs(), several=st.lists(queries(), min_size=8, max_size=8))
def test_every_state_of_a_repository_agrees_with_the_specification(
    every_state: Any, graph: Graph, several: list[Query]
) -> None:
    print(f"OMNIGRAPH_ORACLE_SEED={SEED}")
    for name, snapshot in every_state(CATALOG, graph):
        note(name)
        for query in several:
            agree(snapshot, graph, query)
