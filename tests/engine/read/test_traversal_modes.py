"""Edges looked up in their table or followed through adjacency: the same rows, and only the rows that are needed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from ulid import ULID

from omnigraph import read
from omnigraph.errors import BadRequest
from omnigraph.query import bind_params, compile_query
from omnigraph.read.adjacency import adjacency
from omnigraph.read.settings import read_settings
from omnigraph.read.tables import TABLES
from omnigraph.schema import compile_schema
from omnigraph.storage import Repository, Staging, TableChange, WriterKind

CATALOG = compile_schema("""
node Person { name: String @key  age: I32?  bio: String? }
node Firm { name: String @key }
edge Knows: Person -> Person { since: I32?  note: String? }
edge Likes: Person -> Person { note: String? }
edge WorksAt: Person -> Firm
""")


def person(id: str, age: int | None = None) -> dict[str, Any]:
    return {"id": id, "name": id, "age": age, "bio": f"about {id}"}


def edge(id: str, src: str, dst: str, **values: Any) -> dict[str, Any]:
    return {"id": id, "src": src, "dst": dst, **values}


ODD = {
    # `b` stands twice, and edges lead to and from `gone`, which isn't there: a damaged graph, read the same both ways.
    "node:Person": [person("a", 1), person("b", 2), person("b", 3), person("c", 4), person("o'x", None)],
    "node:Firm": [{"id": "b", "name": "b"}],
    "edge:Knows": [
        edge("1", "a", "b", since=1), edge("2", "b", "c", since=2), edge("3", "a", "gone", since=3),
        edge("4", "gone", "c", since=4), edge("5", "a", "a", since=5), edge("6", "a", "b", since=6),
        edge("7", "c", "o'x", since=None),
    ],
    "edge:Likes": [edge("1", "a", "c"), edge("2", "c", "b")],
    "edge:WorksAt": [edge("1", "b", "b"), edge("2", "o'x", "b")],
}  # fmt: skip

QUESTIONS = [
    "match { $a knows $b } return { $a.age as a, $b.age as b }",
    "match { $a <knows> $b } return { $a.age as a, $b.age as b }",
    "match { $a $e:knows $b } return { $e.id as e, $a.age as a, $b.age as b }",
    "match { $a: Person $a $e:<knows> $b } return { $e.id as e, $a.age as a, $b.age as b }",
    "match { $a <knows>{1,3} $b } return { $a.age as a, $b.age as b }",
    "match { $a knows{2,2} $b } return { $a.age as a, $b.age as b }",
    "match { $a (knows|likes) $b } return { $a.age as a, $b.age as b }",
    "match { $a $e:(knows|likes) $b } return { count(distinct $e) as n, $b.age as b }",
    "match { $a knows{1,2}[since < 3] $b } return { $a.age as a, $b.age as b }",
    "match { $a knows $b $b knows $c $a (knows|likes) $c } return { $a.age as a, $b.age as b, $c.age as c }",
    "match { $p: Person { name: \"a\" } $z = shortest $p <knows>{1,3} $q } return { nodes($z) as n, edges($z) as e }",
    "match { $a worksAt $f not { $a knows $b } } return { $a.name as a, $f.name as f }",
    "match { $a: Person optional { $a knows $b $b.age > 2 } } return { $a.age as a, $b.age as b }",
    "match { $a: Person count { $a knows $b } > 1 } return { $a.age as a }",
    "match { $a knows $b } return { count(distinct $b) as n }",
    "match { $a: Person { name: \"o'x\" } $b knows $a } return { $b.name as b }",
    "match { $a: Person { age: 2 } $b knows $a } return { $b.name as b }",
    "match { $a: Person { age: 2 } $a knows $b $c: Person { name: \"b\" } $c knows $b } return { $c.age as c }",
    "match { $a: Person { name: \"z\" } $a $e:(knows|likes) $b } return { $e.id as e, $b.age as b }",
]  # fmt: skip


def ask(snapshot: Any, text: str, mode: str = "", **settings: Any) -> list[tuple[Any, ...]]:
    compiled = compile_query(f"query q() {{ {text} }}", snapshot.catalog)
    chosen = replace(read_settings(), traversal_mode=mode, small_table_rows=0, **settings)
    table = read.execute(compiled, snapshot, bind_params(compiled, {}), settings=chosen)
    return sorted(zip(*(c.to_pylist() for c in table.columns), strict=True), key=repr)


@pytest.mark.parametrize("text", QUESTIONS)
def test_every_mode_reads_a_damaged_graph_alike(memory_snapshot: Callable[..., Any], text: str) -> None:
    want = ask(memory_snapshot(CATALOG, ODD), text, "csr")
    assert want or '"z"' in text
    assert ask(memory_snapshot(CATALOG, ODD), text, "indexed") == want
    assert ask(memory_snapshot(CATALOG, ODD), text, "scan") == want
    warm = memory_snapshot(CATALOG, ODD)
    ask(warm, "match { $p: Person } return { $p.age, $p.bio }")  # sources stand in a cached table
    assert ask(warm, text, "indexed") == want


def chain(length: int) -> dict[str, list[dict[str, Any]]]:
    people = [person(f"p{i:04}", i) for i in range(length)]
    knows = [edge(f"k{i:04}", f"p{i:04}", f"p{i + 1:04}", since=i) for i in range(length - 1)]
    return {"node:Person": people, "edge:Knows": knows}


START = 'match { $p: Person { name: "p0003" } '


def test_a_cold_question_reads_the_rows_it_needs(stored_snapshot: Callable[..., Any]) -> None:
    snapshot = stored_snapshot(CATALOG, chain(20_000))
    text = f"query q() {{ {START} $p knows{{1,2}} $f }} return {{ $f.age as a }} order {{ a }} }}"
    compiled = compile_query(text, CATALOG)
    assert "indexed" in read.explain(compiled, snapshot, {})
    assert read.execute(compiled, snapshot, {}).column("a").to_pylist() == [4, 5]
    assert not adjacency().has(snapshot, "edge:Knows", "node:Person", "node:Person")
    for _ in range(20):  # who asks again and again gets adjacency
        assert read.execute(compiled, snapshot, {}).column("a").to_pylist() == [4, 5]
    assert adjacency().has(snapshot, "edge:Knows", "node:Person", "node:Person")
    assert "csr" in read.explain(compiled, snapshot, {})


def test_many_nodes_or_hops_build_adjacency_at_once(stored_snapshot: Callable[..., Any]) -> None:
    cases: list[tuple[str, dict[str, Any]]] = [
        ("match { $a knows $b } return { count($b) as n }", {}),
        (START + "$p knows{1,7} $f } return { count($f) as n }", {}),
        (START + "$p knows $f } return { count($f) as n }", {"expand_indexed_max_frontier": 0}),
        (START + "$p knows{1,2} $f } return { count($f) as n }", {"csr_build_factor": 0.0}),
    ]
    for text, settings in cases:
        snapshot = stored_snapshot(CATALOG, chain(20_000))
        ask(snapshot, text, **settings)
        assert adjacency().has(snapshot, "edge:Knows", "node:Person", "node:Person")


def test_a_frontier_that_outgrows_looking_up_begins_anew_with_adjacency(stored_snapshot: Callable[..., Any]) -> None:
    graph = chain(20_000)
    graph["edge:Knows"] += [edge(f"s{i:04}", "p0003", f"p{i:04}") for i in range(100, 200)]  # one node with many
    snapshot = stored_snapshot(CATALOG, graph)
    found = ask(snapshot, START + "$p knows{1,2} $f } return { $f.age as a }", expand_indexed_max_frontier=50)
    assert adjacency().has(snapshot, "edge:Knows", "node:Person", "node:Person")
    assert found == ask(snapshot, START + "$p knows{1,2} $f } return { $f.age as a }", "indexed")


def test_rows_past_the_index_are_found_too(tmp_path: Any, table_maker: Callable[..., Any]) -> None:
    from omnigraph.maintain import ensure_indices

    repository = Repository.create(str(tmp_path / "graph"), CATALOG)

    def commit(**rows: list[dict[str, Any]]) -> None:
        keys = {name: name.replace("_", ":") for name in rows}
        changes = tuple(TableChange(keys[n], appends=table_maker(CATALOG, keys[n], r)) for n, r in rows.items())
        repository.commit(Staging("main", WriterKind.LOAD, changes, operation_id=str(ULID())), repository.snapshot())

    first = chain(300)
    commit(node_Person=first["node:Person"], edge_Knows=first["edge:Knows"])
    ensure_indices(repository)
    commit(node_Person=[person("new", 999)], edge_Knows=[edge("n1", "p0003", "new"), edge("n2", "new", "p0001")])
    snapshot = repository.snapshot()
    assert snapshot.indexed_rows("edge:Knows", "src") == 299
    assert ask(snapshot, START + "$p knows{1,2} $f } return { $f.age as a }", "indexed") == [(1,), (4,), (5,), (999,)]
    assert ask(snapshot, START + "$f knows $p } return { $f.age as a }", "indexed") == [(2,)]


def test_a_scan_asks_no_index_and_uses_and_leaves_nothing_kept(
    memory_snapshot: Callable[..., Any], stored_snapshot: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = memory_snapshot(CATALOG, ODD)
    text = 'match { $a: Person { name: "a" } $a knows{1,2} $b $b.age > 1 } return { $a.bio, $b.age } order { $b.age }'
    ask(snapshot, text, "csr")
    kept = set(TABLES.kept.items())

    def refuse(*args: Any, **named: Any) -> Any:
        raise AssertionError("something other than a scan was asked for")

    for name in ("take", "find_words", "near", "words_index", "vector_index", "row_changes", "scan_batches"):
        monkeypatch.setattr(type(snapshot), name, refuse, raising=False)
    snapshot.scans.clear()
    assert ask(snapshot, text, "scan") == [("about a", 2), ("about a", 3), ("about a", 4)]
    assert {filter for _, _, filter in snapshot.scans} == {None}
    assert {key for key, _, _ in snapshot.scans} == {"node:Person", "edge:Knows"}
    assert set(TABLES.kept.items()) == kept
    compiled = compile_query(f"query q() {{ {text} }}", CATALOG)
    chosen = replace(read_settings(), traversal_mode="scan")
    for analyze in (False, True):
        scan, expand = read.explain(compiled, snapshot, {}, analyze=analyze, settings=chosen).splitlines()[1:3]
        assert "whole table" in scan
        assert ", scan " in expand


def test_a_mode_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("OMNIGRAPH_TRAVERSAL_MODE", "fast"), ("OMNIGRAPH_READ_MAX_ROWS", "many")):
        monkeypatch.setenv(name, value)
        read_settings.cache_clear()
        with pytest.raises(BadRequest, match=name):
            read_settings()
        monkeypatch.delenv(name)
    read_settings.cache_clear()


@pytest.fixture(autouse=True)
def _cold() -> None:
    TABLES.clear()
    adjacency().clear()


def test_sums_of_floats_are_equal_to_the_last_bit(stored_snapshot: Callable[..., Any]) -> None:
    catalog = compile_schema("node P { name: String @key  mass: F64? }  edge Knows: P -> P { weight: F64? }")
    chance = random.Random(5)
    masses = [0.1, 0.2, 0.3, -0.7, 1e-9, 12345.678]
    people = [{"id": f"p{i}", "name": f"p{i}", "mass": chance.choice(masses)} for i in range(60)]
    knows = [
        edge(f"{chance.random()}", f"p{chance.randrange(60)}", f"p{chance.randrange(60)}", weight=chance.choice(masses))
        for _ in range(600)
    ]
    snapshot = stored_snapshot(catalog, {"node:P": people, "edge:Knows": knows})
    for text in (
        "match { $a $e:knows $b } return { sum($b.mass) as s, avg($e.weight) as w }",
        "match { $a $e:knows $b } return { $a.name as a, sum($b.mass) as s, avg($e.weight) as w }",
        "match { $a knows $b $b knows $c } return { $c.name as c, sum($a.mass) as s, avg($b.mass * 3) as w }",
    ):
        answers = [ask(snapshot, text, mode) for mode in ("indexed", "csr", "scan", "csr")]
        assert all(answer == answers[0] for answer in answers)
