"""Each operator on one small graph in a real repository: committed, pinned, asked."""

from __future__ import annotations

import datetime as dt
import json
import operator
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from omnigraph import read
from omnigraph.errors import BadRequest
from omnigraph.query import bind_params, compile_query
from omnigraph.read.hashing import IdMap, hash_one, hash_strings
from omnigraph.read.kept import Kept
from omnigraph.read.order import first_rows, sort_key, sorted_rows
from omnigraph.read.scan import pushed_filter
from omnigraph.read.settings import read_settings
from omnigraph.read.tables import TABLES, TableCache
from omnigraph.schema import compile_schema
from omnigraph.storage import Repository, Snapshot, Staging, TableChange, WriterKind

SCHEMA = """
node Person { name: String @key  age: I32?  big: I64?  size: U64?  city: String?  tags: [String]  seen: DateTime? }
node Company { name: String @key }
edge Knows: Person -> Person { since: Date? }
edge WorksAt: Person -> Company
"""
CATALOG = compile_schema(SCHEMA)
MOMENT = dt.datetime(2020, 1, 1, 12, 30, 0, 5000, tzinfo=dt.UTC)

PEOPLE = [
    {"name": "ada", "age": 36, "big": 2**53 + 1, "size": 2**63 + 1, "city": "x", "tags": ["p", "q"], "seen": MOMENT},
    {"name": "bob", "age": None, "big": -(2**53) - 1, "size": 0, "city": "y", "tags": [], "seen": None},
    {"name": "cyd", "age": 5, "big": 1, "size": None, "city": None, "tags": ["q"], "seen": None},
    {"name": "dan", "age": 5, "big": None, "size": 7, "city": "x", "tags": [], "seen": None},
]
# ada→bob twice, ada→cyd, bob→cyd, cyd→cyd (a loop), cyd→dan, dan→ada (a cycle)
KNOWS = [("ada", "bob"), ("ada", "bob"), ("ada", "cyd"), ("bob", "cyd"), ("cyd", "cyd"), ("cyd", "dan"), ("dan", "ada")]
ROWS = {
    "node:Person": [{"id": p["name"], **p} for p in PEOPLE],
    "node:Company": [{"id": "acme", "name": "acme"}],
    "edge:Knows": [
        {"id": f"k{i}", "src": s, "dst": d, "since": dt.date(2020, 1, i + 1)} for i, (s, d) in enumerate(KNOWS)
    ],
    "edge:WorksAt": [{"id": "w0", "src": "bob", "dst": "acme"}],
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory, table_maker: Callable[..., pa.Table]) -> Snapshot:
    repository = Repository.create(str(tmp_path_factory.mktemp("read") / "graph"), CATALOG)
    changes = tuple(TableChange(k, appends=table_maker(CATALOG, k, rows)) for k, rows in ROWS.items())
    base = repository.snapshot()
    repository.commit(Staging("main", WriterKind.LOAD, changes, operation_id="01ARZ3NDEKTSV4RRFFQ69G5FAV"), base)
    return repository.snapshot()


@pytest.fixture
def ask(graph: Snapshot) -> Callable[..., list[tuple[Any, ...]]]:
    def run(text: str, **params: Any) -> list[tuple[Any, ...]]:
        compiled = compile_query(text, CATALOG)
        table = read.execute(compiled, graph, bind_params(compiled, params))
        return [tuple(row) for row in zip(*(c.to_pylist() for c in table.columns), strict=True)]

    return run


Ask = Callable[..., list[tuple[Any, ...]]]


def names(rows: list[tuple[Any, ...]]) -> str:
    return " ".join("-".join(str(v) for v in row) for row in rows)


PAIRS = "return { $a.name as a, $b.name as b } order { a, b }"


@pytest.mark.parametrize(
    ("clause", "expected"),
    [
        ("$a knows $b", "ada-bob ada-cyd bob-cyd cyd-cyd cyd-dan dan-ada"),
        ("$a knows{1,2} $b", "ada-bob ada-cyd ada-dan bob-cyd bob-dan cyd-ada cyd-cyd cyd-dan dan-ada dan-bob dan-cyd"),
        ("$a knows{2,2} $b", "ada-dan bob-dan cyd-ada dan-bob dan-cyd"),
        ("$a knows{3,3} $b", "bob-ada cyd-bob"),
        ("$a knows{2,9} $b", "ada-dan bob-ada bob-dan cyd-ada cyd-bob dan-bob dan-cyd"),
        ("$a <knows> $b", "ada-bob ada-cyd ada-dan bob-ada bob-cyd cyd-ada cyd-bob cyd-cyd cyd-dan dan-ada dan-cyd"),
        ("$a <knows>{2,2} $b", "bob-dan dan-bob"),
        ("$a knows $b  $b knows $a", "cyd-cyd"),
        ("$a knows $b  $b knows{2,2} $a", "ada-cyd cyd-dan dan-ada"),
        ('$a knows $b  $b.city = "x"', "cyd-dan dan-ada"),
        ("$a knows $b  $a.age = $b.age", "cyd-cyd cyd-dan"),
    ],
)
def test_traversals(ask: Ask, clause: str, expected: str) -> None:
    assert names(ask(f"query q() {{ match {{ {clause} }} {PAIRS} }}")) == expected


def test_an_edge_variable_gives_a_row_per_edge(ask: Ask) -> None:
    text = "query q() { match { $a $w:knows $b } return { $a.name as a, $b.name as b, $w.since } order { a, b } }"
    rows = ask(text)
    assert len(rows) == len(KNOWS)
    assert rows[:2] == [("ada", "bob", dt.date(2020, 1, 1)), ("ada", "bob", dt.date(2020, 1, 2))]
    both = ask("query q() { match { $a $w:<knows> $b } return { count($w) as n } }")
    assert both == [(2 * len(KNOWS) - 1,)]  # the loop stands once


def test_a_bound_far_end_is_a_semi_join(ask: Ask) -> None:
    match_ = 'match { $a: Person { name: "ada" } $b: Person $a knows{1,3} $b }'
    text = f"query q() {{ {match_} return {{ $b.name as b }} order {{ b }} }}"
    assert names(ask(text)) == "bob cyd dan"


@pytest.mark.parametrize(
    ("clause", "expected"),
    [
        ("$p.age > 5", "ada"),
        ("$p.age != 5", "ada"),
        ("not ($p.age = 5)", "ada"),
        ("not { $p.age = 5 }", "ada bob"),
        ("$p.age is null", "bob"),
        ('$p.age = 5 or $p.city = "y"', "bob cyd dan"),
        ("$p.age in [5, 7]", "cyd dan"),
        ('$p.name contains "d"', "ada cyd dan"),
        ('$p.name starts_with "d"', "dan"),
        ('$p.tags contains "q"', "ada cyd"),
        ("$p.size > $p.age", "ada dan"),
        ("$p.big = 9007199254740993", "ada"),
        ('$p.seen = datetime("2020-01-01T12:30:00.005Z")', "ada"),
        ("$p.seen < now()", "ada"),
        ("not { $p worksAt $c }", "ada cyd dan"),
        ("not { $p knows $x  not { $x worksAt $c } }", ""),
    ],
)
def test_filters_and_negation(ask: Ask, clause: str, expected: str) -> None:
    text = f"query q() {{ match {{ $p: Person  {clause} }} return {{ $p.name as n }} order {{ n }} }}"
    assert names(ask(text)) == expected


def test_a_filter_against_a_null_parameter_matches_nothing(ask: Ask) -> None:
    text = "query q($a: I32?) { match { $p: Person { age: $a } } return { $p.name } }"
    assert ask(text) == []
    assert len(ask(text, a=5)) == 2


def test_groups_and_their_order(ask: Ask) -> None:
    text = """query q() { match { $p: Person } return { $p.city as c, count($p) as n, count($p.age) as k,
              sum($p.age) as s, avg($p.age) as a, min($p.name) as lo, max($p.age) as hi } order { n desc } }"""
    assert ask(text) == [
        ("x", 2, 2, 41, 20.5, "ada", 36),
        (None, 1, 1, 5, 5.0, "cyd", 5),
        ("y", 1, 0, None, None, "bob", None),
    ]


def test_no_rows_and_no_grouping_give_one_row(ask: Ask) -> None:
    match_ = 'match { $p: Person { name: "nobody" } }'
    assert ask(f"query q() {{ {match_} return {{ count($p) as n, sum($p.age) as s }} }}") == [(0, None)]
    assert ask(f"query q() {{ {match_} return {{ $p.city as c, count($p) as n }} }}") == []


def test_sums_are_exact_or_refused(ask: Ask) -> None:
    exact = "query q() { match { $p: Person } return { sum($p.big) as s } }"
    assert ask(exact) == [(1,)]
    with pytest.raises(BadRequest) as refused:
        ask("query q() { match { $p: Person } return { sum($p.size) as s } }")
    assert refused.value.code == "overflow"
    with pytest.raises(BadRequest) as refused:
        ask("query q() { match { $p: Person } return { sum(1e308) as s } }")
    assert refused.value.code == "overflow"
    assert ask("query q() { match { $p: Person } return { avg(1e308) as s } }") == [(1e308,)]


def test_orders_are_total_and_limits_cut_them(ask: Ask) -> None:
    base = "query q() {{ match {{ $p: Person }} return {{ $p.name as n }} order {{ {} }} {} }}"
    assert names(ask(base.format("$p.age", ""))) == "bob cyd dan ada"
    assert names(ask(base.format("$p.age desc", ""))) == "ada cyd dan bob"
    assert names(ask(base.format("$p.age desc", "limit 2"))) == "ada cyd"
    assert names(ask(base.format("$p.age desc, n desc", "limit 2"))) == "ada dan"
    assert ask(base.format("n", "limit 0")) == []


def test_a_whole_entity_is_an_object(ask: Ask) -> None:
    ((whole,),) = ask('query q() { match { $p: Person { name: "ada" } } return { $p } }')
    assert whole == {"id": "ada", **PEOPLE[0]}


def test_a_query_over_empty_tables(memory_snapshot: Callable[..., Any]) -> None:
    empty = memory_snapshot(CATALOG, {})
    for text in (
        f"query q() {{ match {{ $a knows{{1,3}} $b }} {PAIRS} }}",
        f"query q() {{ match {{ $a: Person $b: Person $a $w:knows $b not {{ $a worksAt $c }} }} {PAIRS} }}",
    ):
        assert read.execute(compile_query(text, CATALOG), empty, {}).num_rows == 0


def test_the_first_point_look_up_of_a_big_table_reads_its_rows_alone(
    memory_snapshot: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_READ_SMALL_TABLE_ROWS", "10")
    read_settings.cache_clear()
    try:
        rows = [{"id": f"p{i}", "name": f"p{i}", "age": i, "tags": []} for i in range(100)]
        big = memory_snapshot(CATALOG, {"node:Person": rows})
        compiled = compile_query("query q($n: String) { match { $p: Person { name: $n } } return { $p.age } }", CATALOG)
        assert "`id` = 'p7'" in read.explain(compiled, big, {"n": "p7"})
        for _ in range(3):
            assert read.execute(compiled, big, {"n": "p7"}).to_pylist() == [{"p.age": 7}]
        assert [f for _, _, f in big.scans] == ["`id` = 'p7'", None]  # then cached, then nothing to read
    finally:
        read_settings.cache_clear()


def test_pushed_conditions_are_quoted() -> None:
    compiled = compile_query(
        'query q() { match { $p: Person $p.name = "o\'x" $p.age in [1, 2] $p.seen < now() } return { $p.age } }',
        CATALOG,
    )
    where: Any = compiled.operators[0]
    assert pushed_filter(where.where, {}) == "`name` = 'o''x' AND `age` IN (1, 2)"


OPS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(
    ("name", "kind", "value"),
    [
        ("name", "String", "bob"),
        ("city", "String", "x"),
        ("age", "I64", 5),
        ("age", "I64", 2**40),
        ("big", "I64", 2**53 + 1),
        ("size", "U64", 7),
        ("size", "I64", -1),
    ],
)
def test_what_is_pushed_leaves_the_rows_of_the_condition(
    graph: Snapshot, op: str, name: str, kind: str, value: Any
) -> None:
    rows: list[dict[str, Any]] = [p for p in PEOPLE if p[name] is not None]  # type: ignore[index]
    forward = [p["name"] for p in rows if OPS[op](p[name], value)]
    mirrored = [p["name"] for p in rows if OPS[op](value, p[name])]
    for condition, want in ((f"$p.{name} {op} $v", forward), (f"$v {op} $p.{name}", mirrored)):
        text = f"query q($v: {kind}) {{ match {{ $p: Person {condition} }} return {{ $p.name as n }} order {{ n }} }}"
        compiled = compile_query(text, CATALOG)
        scan: Any = compiled.operators[0]
        pushed = pushed_filter(scan.where, {"v": value})
        assert (pushed is None) == (value in (2**40, -1))  # what the column can't hold stays behind
        if pushed is not None:
            left = graph.scan("node:Person", columns=["name"], filter=pushed).column("name").to_pylist()
            assert sorted(left) == want, pushed
        assert read.execute(compiled, graph, {"v": value}).column("n").to_pylist() == want


def test_time_and_cancellation(graph: Snapshot) -> None:
    compiled = compile_query(f"query q() {{ match {{ $a knows $b }} {PAIRS} }}", CATALOG)
    with pytest.raises(BadRequest) as late:
        read.execute(compiled, graph, {}, deadline=time.monotonic() - 1)
    assert late.value.code == "query_timeout"
    with pytest.raises(BadRequest) as gone:
        read.execute(compiled, graph, {}, cancelled=lambda: True)
    assert gone.value.code == "query_cancelled"


def test_columns_are_read_once_and_dropped_past_the_limit(graph: Snapshot) -> None:
    cache = TableCache(Kept(limit_bytes=1))
    people = cache.get(graph, "node:Person").load(graph, ["name"])
    assert cache.get(graph, "node:Person") is people
    cache.get(graph, "node:Company").load(graph, ["name"])
    assert cache.get(graph, "node:Person") is not people
    assert TABLES.nbytes >= 0


def test_hashes_and_id_maps() -> None:
    texts = ["", "a", "abcdefgh", "abcdefghi", "é" * 9, "a\0", *(f"{'x' * (i % 31)}{i}" for i in range(3000))]
    column = pa.array(texts)
    assert [int(h) for h in hash_strings(column)] == [hash_one(t) for t in texts]
    assert [int(h) for h in hash_strings(column[7:])] == [hash_one(t) for t in texts[7:]]
    ids = IdMap(column)
    assert [ids.position(t) for t in texts] == list(range(len(texts)))
    assert ids.position("absent") == -1
    few = pa.array(["abcdefgh", None, "absent"])
    assert ids.positions(few).tolist() == [2, -1, -1]
    assert (
        ids.positions(column.take(pa.array(np.arange(len(texts))[::-1].copy()))).tolist()
        == list(range(len(texts)))[::-1]
    )


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(
    "values",
    [
        pa.array([3, None, -1, 2, -1], pa.int64()),
        pa.array([2**63 + 1, None, 0, 5, 5], pa.uint64()),
        pa.array([1.5, None, -0.0, 0.0, float("-inf")], pa.float64()),
        pa.array(["b", None, "é", "a", "b"]),
        pa.array([True, None, False, True, False]),
    ],
    ids=str,
)
def test_sort_keys(values: pa.Array, descending: bool) -> None:
    key = sort_key(values, descending=descending)
    got = [values[int(i)].as_py() for i in sorted_rows([key])]
    known = sorted((v for v in values.to_pylist() if v is not None), reverse=descending)
    assert got == ([*known, None] if descending else [None, *known])
    for count in range(1, 6):
        ahead = set(first_rows(key, count).tolist())
        assert set(sorted_rows([key])[:count].tolist()) <= ahead


def test_formats(graph: Snapshot) -> None:
    text = "query q() { match { $p: Person } return { $p.name as n, $p.big, $p.size, $p.seen, $p.tags } order { n } }"
    compiled = compile_query(text, CATALOG)
    table = read.execute(compiled, graph, {})
    rows = read.json_rows(table, compiled.columns)
    assert rows[0] == {
        "n": "ada",
        "p.big": str(2**53 + 1),
        "p.size": str(2**63 + 1),
        "p.seen": "2020-01-01T12:30:00.005Z",
        "p.tags": ["p", "q"],
    }
    assert rows[2]["p.big"] == 1
    assert rows[2]["p.size"] is None

    def shown(format: str) -> str:
        return "".join(str(piece) for piece in read.render(table, compiled.columns, format))

    assert json.loads(shown("json")) == rows
    assert [json.loads(line) for line in shown("jsonl").splitlines()] == rows
    assert shown("csv").splitlines()[1] == f'ada,{2**53 + 1},{2**63 + 1},2020-01-01T12:30:00.005Z,"[""p"", ""q""]"'
    assert shown("kv").splitlines()[0] == "n       ada"
    assert shown("table").splitlines()[-1] == "4 rows"
    (stream,) = read.render(table, compiled.columns, "arrow")
    assert isinstance(stream, bytes)
    assert pa.ipc.open_stream(stream).read_all().equals(table)
    assert "<td>ada</td>" in read.html_table(table, compiled.columns)
    with pytest.raises(BadRequest):
        read.render(table, compiled.columns, "xml")


def test_csv_tells_null_from_an_empty_text(memory_snapshot: Callable[..., Any]) -> None:
    rows = [{"id": n, "name": n, "city": c, "tags": []} for n, c in (("a", None), ("b", ""))]
    small = memory_snapshot(CATALOG, {"node:Person": rows})
    compiled = compile_query("query q() { match { $p: Person } return { $p.name as n, $p.city } order { n } }", CATALOG)
    table = read.execute(compiled, small, {})
    assert "".join(map(str, read.render(table, compiled.columns, "csv"))) == 'n,p.city\na,\nb,""\n'
    empty = table.slice(0, 0)
    assert "".join(map(str, read.render(empty, compiled.columns, "json"))) == "[]\n"
    assert "".join(map(str, read.render(empty, compiled.columns, "csv"))) == "n,p.city\n"


def test_explain_names_each_step(graph: Snapshot) -> None:
    match_ = 'match { $p: Person { name: "ada" } $p knows{1,2} $f not { $f worksAt $c } }'
    text = f"query q() {{ {match_} return {{ count($f) as n }} }}"
    plan = read.explain(compile_query(text, CATALOG), graph, {})
    assert [line.split()[0] for line in plan.splitlines()] == ["query", "scan", "expand", "anti", "expand", "group"]
    assert "by key" in plan


def test_threads_share_the_caches(memory_snapshot: Callable[..., Any]) -> None:
    small = memory_snapshot(CATALOG, ROWS)
    compiled = compile_query("query q() { match { $a knows{1,3} $b } return { count($b) as n } }", CATALOG)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: read.execute(compiled, small, {}).to_pylist(), range(32)))
    assert answers == [[{"n": 13}]] * 32
    scans = [(table, columns) for table, columns, _ in small.scans]
    assert len(scans) == len(set(scans))  # nothing was read twice
