"""Random graphs and random queries, answered by the product and by a plain evaluator written from the specification.

The evaluator below knows nothing of frames, arrays or plans: it keeps Python objects, tries every binding, and follows
the words of 02 §2.2 and 07 §21. Rows are compared with their order where the query orders, as multisets otherwise.

Each query runs with edges looked up, through adjacency, and as the product chooses; on graphs in memory, and on
repositories in every state (`every_state`). OMNIGRAPH_ORACLE_EXAMPLES makes it longer, OMNIGRAPH_ORACLE_SEED repeats
it.
"""

from __future__ import annotations

import datetime as dt
import os
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, seed, settings
from hypothesis import strategies as st

from omnigraph import read
from omnigraph.query import bind_params, compile_query
from omnigraph.read.settings import read_settings
from omnigraph.schema import compile_schema

SCHEMA = """
node Person {
  name: String @key  age: I32?  big: I64?  score: F64?  city: String?  tags: [String]
  born: Date?  seen: DateTime?  ok: Bool?
}
node Company { name: String @key  size: U64? }
edge Knows: Person -> Person { since: Date?  weight: I32? }
edge WorksAt: Person -> Company { role: String? }
"""
CATALOG = compile_schema(SCHEMA)

SEED = int(os.environ.get("OMNIGRAPH_ORACLE_SEED", random.randrange(2**32)))
EXAMPLES = int(os.environ.get("OMNIGRAPH_ORACLE_EXAMPLES", 4))
"""Repositories made; the rest of the time is small beside theirs."""

DAY = dt.date(2020, 1, 1)
MOMENT = dt.datetime(2020, 1, 1, 12, 30, 0, 5000, tzinfo=dt.UTC)


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), values)


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, list[dict[str, Any]]]:
    names = draw(st.lists(st.sampled_from(["zebra", "ant", "é", "bee", "a", "ab"]), unique=True, max_size=6))
    people = [
        {
            "id": name,
            "name": name,
            "age": draw(maybe(st.integers(-2, 3))),
            "big": draw(maybe(st.sampled_from([-(2**60), 0, 2**53 + 1, 2**60]))),
            "score": draw(maybe(st.sampled_from([-1.5, 0.0, 0.25, 3.0]))),
            "city": draw(maybe(st.sampled_from(["x", "y", "xy", ""]))),
            "tags": draw(st.lists(st.sampled_from("pqr"), max_size=3)),
            "born": draw(maybe(st.sampled_from([DAY, DAY + dt.timedelta(400)]))),
            "seen": draw(maybe(st.sampled_from([MOMENT, MOMENT + dt.timedelta(milliseconds=1)]))),
            "ok": draw(maybe(st.booleans())),
        }
        for name in names
    ]
    companies = [
        {"id": n, "name": n, "size": draw(maybe(st.sampled_from([0, 5, 2**63 + 1])))}
        for n in draw(st.lists(st.sampled_from(["acme", "ant"]), unique=True))
    ]
    knows, works = [], []
    if names:
        ends = st.one_of(
            st.tuples(st.sampled_from(names), st.sampled_from(names)),
            st.sampled_from(names).map(lambda name: (name, name)),  # a self-loop
        )
        for i, (src, dst) in enumerate(draw(st.lists(ends, max_size=12))):
            knows.append(
                {"id": f"k{i:02}", "src": src, "dst": dst,
                 "since": draw(maybe(st.just(DAY))), "weight": draw(maybe(st.integers(0, 2)))}
            )  # fmt: skip
    if names and companies:
        for i, src in enumerate(draw(st.lists(st.sampled_from(names), max_size=4))):
            dst = draw(st.sampled_from(companies))["id"]
            works.append({"id": f"w{i}", "src": src, "dst": dst, "role": draw(maybe(st.sampled_from("ab")))})
    return {"node:Person": people, "node:Company": companies, "edge:Knows": knows, "edge:WorksAt": works}


# ---- random queries, as data that both the text and the evaluator come from ------------------------------------------

FIELDS = {"age": "int", "big": "int", "score": "num", "city": "text", "name": "text", "ok": "bool", "born": "date"}


@st.composite
def conditions(draw: st.DrawFn, people: list[str]) -> tuple[str, Any]:
    """(text, predicate over an environment → True, False or None)."""
    var = draw(st.sampled_from(people))
    kind = draw(st.sampled_from(["int", "text", "list", "pair", "null", "or", "not", "in", "param", "date", "moment"]))
    ops = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
    if kind == "int":
        name, op, value = draw(st.sampled_from(["age", "big", "score"])), draw(ops), draw(st.integers(-1, 3))
        return f"${var}.{name} {op} {value}", lambda e: compare(op, e[var][name], value)
    if kind == "text":
        op = draw(st.sampled_from(["=", "contains", "starts_with", "<"]))
        name, value = draw(st.sampled_from(["city", "name"])), draw(st.sampled_from(["x", "y", "a", ""]))
        return f'${var}.{name} {op} "{value}"', lambda e: compare(op, e[var][name], value)
    if kind == "list":
        value = draw(st.sampled_from("pq"))
        return f'${var}.tags contains "{value}"', lambda e: value in e[var]["tags"]
    if kind == "pair":
        other, op = draw(st.sampled_from(people)), draw(st.sampled_from(["=", "<", "contains", "starts_with"]))
        name = "city" if op in ("contains", "starts_with") else draw(st.sampled_from(["age", "city", "score"]))
        return f"${var}.{name} {op} ${other}.{name}", lambda e: compare(op, e[var][name], e[other][name])
    if kind == "null":
        negated = draw(st.booleans())
        return f"${var}.age is {'not ' if negated else ''}null", lambda e: (e[var]["age"] is None) != negated
    if kind == "in":
        return f"${var}.age in [1, 2, 7]", lambda e: None if e[var]["age"] is None else e[var]["age"] in (1, 2, 7)
    if kind == "param":
        return f"${var}.age >= $least", lambda e: compare(">=", e[var]["age"], e["$least"])
    if kind == "date":
        op = draw(ops)
        return f'${var}.born {op} date("2020-01-01")', lambda e: compare(op, e[var]["born"], DAY)
    if kind == "moment":
        op = draw(ops)
        text = "2020-01-01T12:30:00.005Z"
        return f'${var}.seen {op} datetime("{text}")', lambda e: compare(op, e[var]["seen"], MOMENT)
    if kind == "not":
        text, inner = draw(conditions(people))
        return f"not ({text})", lambda e: None if inner(e) is None else not inner(e)
    (left, a), (right, b) = draw(conditions(people)), draw(conditions(people))
    return f"({left} or {right})", lambda e: either(a(e), b(e))


def either(a: bool | None, b: bool | None) -> bool | None:
    if a is True or b is True:
        return True
    return None if a is None or b is None else False


def compare(op: str, a: Any, b: Any) -> bool | None:
    if a is None or b is None:
        return None
    table = {
        "=": lambda: a == b, "!=": lambda: a != b, "<": lambda: a < b, "<=": lambda: a <= b, ">": lambda: a > b,
        ">=": lambda: a >= b, "contains": lambda: b in a, "starts_with": lambda: a.startswith(b),
    }  # fmt: skip
    return bool(table[op]())


class Edge:
    """A traversal clause."""

    def __init__(self, a: str, b: str, edge: str, low: int, high: int, both: bool, var: str | None) -> None:
        self.a, self.b, self.edge, self.low, self.high, self.both, self.var = a, b, edge, low, high, both, var

    def text(self) -> str:
        name = "<knows>" if self.both else self.edge[0].lower() + self.edge[1:]
        hops = "" if self.low == self.high == 1 else f"{{{self.low},{self.high}}}"
        return f"${self.a} {f'${self.var}:' if self.var else ''}{name}{hops} ${self.b}"

    def reached(self, graph: dict[str, list[dict[str, Any]]], start: str) -> set[str]:
        """Far ends whose shortest distance lies in the bounds; the start only through its own self-loop."""
        steps: dict[str, set[str]] = {}
        for e in graph[f"edge:{self.edge}"]:
            steps.setdefault(e["src"], set()).add(e["dst"])
            if self.both:
                steps.setdefault(e["dst"], set()).add(e["src"])
        distance = {start: 0}
        for hop in range(1, self.high + 1):
            for node in [n for n, d in distance.items() if d == hop - 1]:
                for far in steps.get(node, ()):
                    distance.setdefault(far, hop)
        found = {n for n, d in distance.items() if self.low <= d <= self.high and d > 0}
        if self.low == 1 and start in steps.get(start, ()):
            found.add(start)
        return found

    def pairs(
        self, graph: dict[str, list[dict[str, Any]]], near: list[str]
    ) -> list[tuple[str, str, dict[str, Any] | None]]:
        if self.var is None:
            return [(a, b, None) for a in near for b in self.reached(graph, a)]
        out: list[tuple[str, str, dict[str, Any] | None]] = []
        for e in graph[f"edge:{self.edge}"]:
            out.append((e["src"], e["dst"], e))
            if self.both and e["src"] != e["dst"]:
                out.append((e["dst"], e["src"], e))
        return out


class Query:
    """A read query: its text, and what it means."""

    def __init__(self) -> None:
        self.people: list[str] = []  # in order of first mention
        self.companies: list[str] = []
        self.order: list[str] = []
        self.edges: list[Edge] = []
        self.conditions: list[tuple[str, Any]] = []
        self.negations: list[tuple[list[Edge], list[tuple[str, Any]]]] = []
        self.typed: list[str] = []
        self.returns: list[tuple[str, str, str]] = []  # (column, kind, operand)
        self.sort: list[tuple[str, bool]] = []
        self.limit: int | None = None
        self.skip = 0

    def text(self) -> str:
        lines = [f"${v}: Person" for v in self.typed]
        lines += [e.text() for e in self.edges] + [t for t, _ in self.conditions]
        lines += [
            "not { " + "  ".join([*(e.text() for e in es), *(t for t, _ in cs)]) + " }" for es, cs in self.negations
        ]
        items = []
        for column, kind, operand in self.returns:
            shown = {"value": operand, "entity": operand, "rows": f"count({operand})"}.get(kind, f"{kind}({operand})")
            items.append(f"{shown} as {column}")
        out = (
            "query q($least: I32?) {\n match {\n  " + "\n  ".join(lines) + "\n }\n return { " + ", ".join(items) + " }"
        )
        if self.sort:
            out += "\n order { " + ", ".join(f"{c}{' desc' if down else ''}" for c, down in self.sort) + " }"
        if self.limit is not None:
            out += f"\n limit {self.limit}"
        if self.skip:
            out += f" skip {self.skip}"
        return out + "\n}"


@st.composite
def queries(draw: st.DrawFn) -> Query:
    q = Query()
    q.typed = ["p"] + (["z"] if draw(st.integers(0, 3)) == 0 else [])
    q.people = list(q.typed)
    q.order = list(q.typed)
    for i in range(draw(st.integers(0, 3))):
        a = draw(st.sampled_from(q.people))
        if draw(st.integers(0, 4)) == 0:
            b = draw(st.sampled_from([*q.companies, f"c{i}"]))
            q.edges.append(Edge(a, b, "WorksAt", 1, 1, False, None))
            if b not in q.order:
                q.companies.append(b)
                q.order.append(b)
            continue
        b = draw(st.sampled_from([*q.people, f"v{i}", f"v{i}"]))
        if draw(st.booleans()):
            low = draw(st.integers(1, 2))
            edge = Edge(a, b, "Knows", low, draw(st.integers(low, 3)), draw(st.booleans()), None)
        else:
            edge = Edge(a, b, "Knows", 1, 1, draw(st.booleans()), f"e{i}" if draw(st.booleans()) else None)
        q.edges.append(edge)
        if b not in q.order:
            q.people.append(b)
            q.order.append(b)
        if edge.var:
            q.order.append(edge.var)
    q.conditions = draw(st.lists(conditions(q.people), max_size=2))
    for i in range(draw(st.integers(0, 2))):
        inner_var = f"n{i}"
        a = draw(st.sampled_from(q.people))
        both = draw(st.booleans())
        inner_edge = Edge(a, inner_var, "Knows", 1, draw(st.integers(1, 2)), both, None)
        inner = draw(st.lists(conditions([inner_var, a]), max_size=1))
        q.negations.append(([inner_edge], inner))
    person = st.sampled_from(q.people)
    for i in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from(list(FIELDS)))
        q.returns.append((f"r{i}", "value", f"${draw(person)}.{name}"))
    grouped = draw(st.booleans())
    if grouped:
        if draw(st.integers(0, 2)) == 0:
            q.returns = []
        q.returns.append(("n", "rows", f"${draw(person)}"))
        for i, kind in enumerate(draw(st.lists(st.sampled_from(["count", "sum", "avg", "min", "max"]), max_size=3))):
            name = draw(
                st.sampled_from(["age", "score"] if kind in ("sum", "avg") else ["age", "score", "city", "born"])
            )
            q.returns.append((f"a{i}", kind, f"${draw(person)}.{name}"))
    elif draw(st.booleans()):
        q.returns.append(("whole", "entity", f"${draw(person)}"))
    sortable = [c for c, kind, _ in q.returns if kind != "entity"]
    if draw(st.integers(0, 3)):
        q.sort = [
            (c, draw(st.booleans()))
            for c in draw(st.lists(st.sampled_from(sortable), min_size=1, max_size=2, unique=True))
        ]
        q.limit = draw(maybe(st.integers(0, 4)))
    return q


# ---- the evaluator ---------------------------------------------------------------------------------------------------


def matches(q: Query, graph: dict[str, list[dict[str, Any]]], params: dict[str, Any]) -> list[dict[str, Any]]:
    people = {r["id"]: r for r in graph["node:Person"]}
    companies = {r["id"]: r for r in graph["node:Company"]}
    rows: list[dict[str, Any]] = [dict(params)]
    for var in q.typed:
        rows = [{**row, var: person} for row in rows for person in people.values()]
    for edge in q.edges:
        far = people if edge.edge == "Knows" else companies
        joined = []
        pairs = edge.pairs(graph, list(people))
        for row in rows:
            for a, b, e in pairs:
                if row[edge.a]["id"] != a or (edge.b in row and row[edge.b]["id"] != b):
                    continue
                joined.append({**row, edge.b: far[b], **({edge.var: e} if edge.var else {})})
        rows = joined
    rows = [row for row in rows if all(test(row) is True for _, test in q.conditions)]
    for edges, tests in q.negations:
        rows = [row for row in rows if not inner_match(edges, tests, row, graph, people)]
    return rows


def inner_match(edges: list[Edge], tests: list[tuple[str, Any]], row: dict[str, Any], graph: Any, people: Any) -> bool:
    (edge,) = edges
    for far in edge.reached(graph, row[edge.a]["id"]):
        if all(test({**row, edge.b: people[far]}) is True for _, test in tests):
            return True
    return False


def value_of(operand: str, row: dict[str, Any]) -> Any:
    var, _, name = operand[1:].partition(".")
    return row[var][name] if name else row[var]


def fold(kind: str, values: list[Any]) -> Any:
    known = [v for v in values if v is not None]
    if kind == "count":
        return len(known)
    if not known:
        return None
    if kind == "avg":
        return sum(known) / len(known)
    return {"sum": sum, "min": min, "max": max}[kind](known)


def sort_rank(value: Any) -> tuple[bool, Any]:
    return (value is not None, value if value is not None else 0)


def expected(q: Query, graph: dict[str, list[dict[str, Any]]], params: dict[str, Any]) -> list[tuple[Any, ...]]:
    rows = matches(q, graph, params)
    grouped = any(kind not in ("value", "entity") for _, kind, _ in q.returns)
    out: list[tuple[list[Any], tuple[Any, ...]]] = []  # (tie, row)
    if grouped:
        keys = [operand for _, kind, operand in q.returns if kind == "value"]
        groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for row in rows:
            groups.setdefault(tuple(value_of(k, row) for k in keys), []).append(row)
        if not keys:
            groups.setdefault((), [])
        for key, members in groups.items():
            parts = iter(key)
            cells = []
            for _, kind, operand in q.returns:
                if kind == "value":
                    cells.append(next(parts))
                elif kind == "rows":
                    cells.append(len(members))
                else:
                    cells.append(fold(kind, [value_of(operand, m) for m in members]))
            out.append(([sort_rank(k) for k in key], tuple(cells)))
    else:
        ties = tie_order(q)
        out = [([row[v]["id"] for v in ties], tuple(value_of(o, row) for _, _, o in q.returns)) for row in rows]
    if q.sort:
        names = [c for c, _, _ in q.returns]
        out.sort(key=lambda item: item[0])
        for column, down in reversed(q.sort):
            at = names.index(column)
            out.sort(key=lambda item, at=at: sort_rank(item[1][at]), reverse=down) if not down else _descending(out, at)
    cells = [c for _, c in out][q.skip :]
    return cells if q.limit is None else cells[: q.limit]


def _descending(out: list[Any], at: int) -> None:
    """Stable, greatest first, nulls last."""
    known = [x for x in out if x[1][at] is not None]
    known.reverse()
    known.sort(key=lambda x: x[1][at])
    known.reverse()
    out[:] = known + [x for x in out if x[1][at] is None]


def tie_order(q: Query) -> list[str]:
    """The bound names in binding order, as the compiler declares it."""
    compiled = compile_query(q.text(), CATALOG)
    order = next(op for op in compiled.operators if type(op).__name__ == "Order") if q.sort else None
    return list(order.ties) if order is not None else []


def frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(sorted((k, frozen(v)) for k, v in value.items()))
    return tuple(value) if isinstance(value, list) else value


def answered(text: str, snapshot: Any, params: dict[str, Any], mode: str) -> list[tuple[Any, ...]]:
    compiled = compile_query(text, snapshot.catalog)
    chosen = replace(read_settings(), traversal_mode=mode, small_table_rows=0)
    table = read.execute(compiled, snapshot, bind_params(compiled, params), settings=chosen)
    assert table.column_names == [c.name for c in compiled.columns]
    return [tuple(row) for row in zip(*(c.to_pylist() for c in table.columns), strict=True)]


def agree(snapshot: Any, graph: dict[str, list[dict[str, Any]]], q: Query, least: int | None) -> None:
    note(q.text())
    want = [tuple(frozen(v) for v in row) for row in expected(q, graph, {"$least": least})]
    for mode in ("indexed", "csr", "", "scan"):  # adjacency is there once csr was asked for
        note(mode)
        got = [tuple(frozen(v) for v in row) for row in answered(q.text(), snapshot, {"least": least}, mode)]
        if q.sort:
            assert got == want
        else:
            assert Counter(got) == Counter(want)


quiet = {
    "deadline": None,
    "print_blob": True,
    "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
}


@settings(max_examples=250, **quiet)
@given(graph=graphs(), q=queries(), least=maybe(st.integers(0, 2)))
def test_reads_agree_with_the_specification(
    memory_snapshot: Any, graph: dict[str, list[dict[str, Any]]], q: Query, least: int | None
) -> None:
    agree(memory_snapshot(CATALOG, graph), graph, q, least)


@pytest.mark.timeout(120 + 60 * EXAMPLES)
@seed(SEED)
@settings(max_examples=EXAMPLES, **quiet)
@given(graph=graphs(), several=st.lists(queries(), min_size=8, max_size=8), least=maybe(st.integers(0, 2)))
def test_every_state_of_a_repository_agrees_with_the_specification(
    every_state: Any, graph: dict[str, list[dict[str, Any]]], several: list[Query], least: int | None
) -> None:
    print(f"OMNIGRAPH_ORACLE_SEED={SEED}")
    for name, snapshot in every_state(CATALOG, graph):
        note(name)
        for q in several:
            agree(snapshot, graph, q, least)


def test_the_evaluator_itself_knows_distances() -> None:
    graph = {
        "edge:Knows": [
            {"src": "a", "dst": "b"},
            {"src": "a", "dst": "c"},
            {"src": "c", "dst": "b"},
            {"src": "a", "dst": "a"},
        ]
    }
    assert Edge("x", "y", "Knows", 2, 2, False, None).reached(graph, "a") == set()
    assert Edge("x", "y", "Knows", 1, 2, False, None).reached(graph, "a") == {"a", "b", "c"}
    assert Edge("x", "y", "Knows", 2, 2, True, None).reached(graph, "b") == set()
