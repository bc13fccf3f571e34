"""Rows counted by value while they are found, against the groups of every row."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from omnigraph import read
from omnigraph.errors import BadRequest
from omnigraph.graph import Graph
from omnigraph.query import bind_params, compile_query
from omnigraph.read import value_counts
from omnigraph.read.settings import read_settings
from omnigraph.read.tables import TABLES
from omnigraph.schema import compile_schema

SCHEMA = """
node T {
  key: String @key
  city: String?
  on: Bool?
  level: I32
  share: F64
  age: I64?
}
"""
_KEYS = {"city": ["", "x", "é"], "on": [True, False], "level": [-1, 0, 5]}
_WHERE: dict[str, Callable[[dict[str, Any]], bool]] = {
    "": lambda r: True,
    "$t.age > 40": lambda r: r["age"] is not None and r["age"] > 40,
    "$t.age > 40 or $t.level < 0": lambda r: (r["age"] is not None and r["age"] > 40) or r["level"] < 0,
    '$t.city != "x" $t.share < 1.0': lambda r: r["city"] is not None and r["city"] != "x" and r["share"] < 1,
    "$t.age < 9": lambda r: r["age"] is not None and r["age"] < 9,
    "$t.age > 1000": lambda r: False,
}


def _rows(rng: random.Random, count: int) -> list[dict[str, Any]]:
    rows = []
    for i in range(count):
        row: dict[str, Any] = {name: rng.choice(values) for name, values in _KEYS.items()}
        row |= {"id": f"k{i}", "key": f"k{i}", "share": rng.choice([0.0, 0.5, 1.0]), "age": rng.randrange(90)}
        for name in ("city", "on", "age"):
            row[name] = None if rng.random() < 0.2 else row[name]
        rows.append(row)
    return rows


def _made(snapshot: Any, *names: str) -> Any:
    return TABLES.get(snapshot, "node:T").kept("numbers", "\0".join(names))


@pytest.mark.parametrize("seed", range(12))
def test_the_groups_are_those_of_the_rows_one_by_one(
    seed: int, memory_snapshot: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(value_counts, "_BLOCK", rng.choice([7, 1 << 16]))
    catalog = compile_schema(SCHEMA)
    rows = _rows(rng, rng.choice([200, 999]))
    snapshot = memory_snapshot(catalog, {"node:T": rows})
    for where, holds in _WHERE.items():
        names = rng.sample(sorted(_KEYS), rng.choice([1, 1, 2, 3]))
        keys = ", ".join(f"$t.{name}" for name in names)
        text = f"query q() {{ match {{ $t: T {where} }} return {{ {keys}, count($t) as n, count($t) * 2 as m }} }}"
        compiled = compile_query(text, catalog)
        wanted = Counter(tuple(r[name] for name in names) for r in rows if holds(r))
        before: list[dict[str, Any]] | None = None
        for turn in range(4):  # the first one brings the columns, the third one makes the numbers
            found = read.execute(compiled, snapshot, {}).to_pylist()
            before = found if before is None else before
            assert found == before, "in another order"
            assert {tuple(r.values())[:-2]: r["n"] for r in found} == wanted, (seed, turn, text)
            assert len(found) == len(wanted)
            assert all(r["m"] == 2 * r["n"] for r in found)
        assert _made(snapshot, *names) is not None
        distinct = compile_query(f"query q() {{ match {{ $t: T {where} }} return distinct {{ {keys} }} }}", catalog)
        for _ in range(3):
            found = read.execute(distinct, snapshot, {}).to_pylist()
            assert len(found) == len(wanted)
            assert {tuple(r.values()) for r in found} == set(wanted)


def test_order_and_limit_hold(memory_snapshot: Callable[..., Any]) -> None:
    catalog = compile_schema(SCHEMA)
    snapshot = memory_snapshot(catalog, {"node:T": _rows(random.Random(5), 400)})
    text = (
        "query q($a: I64, $l: I64) { match { $t: T $t.age > $a } return { $t.level, $t.city, count($t) as n } "
        "order { n desc, $t.level } limit $l skip 1 }"
    )
    compiled = compile_query(text, catalog)
    scan = replace(read_settings(), traversal_mode="scan")
    for age in (10, 50, 89):
        params = bind_params(compiled, {"a": age, "l": 4})
        wanted = read.execute(compiled, snapshot, params, settings=scan)
        for _ in range(3):
            assert read.execute(compiled, snapshot, params).equals(wanted)
    assert _made(snapshot, "level", "city") is not None


def test_columns_of_many_values_are_grouped_the_ordinary_way(memory_snapshot: Callable[..., Any]) -> None:
    catalog = compile_schema(SCHEMA)
    rows = _rows(random.Random(6), 400)
    snapshot = memory_snapshot(catalog, {"node:T": rows})
    for key in ("$t.key", "$t.key, $t.city", "$t.share"):
        compiled = compile_query(
            f"query q() {{ match {{ $t: T $t.age > 3 }} return {{ {key}, count($t) as n }} }}", catalog
        )
        names = [name.removeprefix("$t.") for name in key.split(", ")]
        wanted = Counter(tuple(r[name] for name in names) for r in rows if r["age"] is not None and r["age"] > 3)
        for _ in range(4):
            found = read.execute(compiled, snapshot, {}).to_pylist()
            assert {tuple(r.values())[:-1]: r["n"] for r in found} == wanted
    assert not len(_made(snapshot, "key").of_row)
    assert not len(_made(snapshot, "key", "city").of_row)
    assert _made(snapshot, "share") is None  # 0.0 and −0.0 have two codes


def test_an_empty_table_has_no_groups(memory_snapshot: Callable[..., Any]) -> None:
    catalog = compile_schema(SCHEMA)
    snapshot = memory_snapshot(catalog, {"node:T": []})
    compiled = compile_query("query q() { match { $t: T $t.age > 3 } return { $t.city, count($t) as n } }", catalog)
    for _ in range(4):
        assert read.execute(compiled, snapshot, {}).to_pylist() == []


def test_a_query_is_given_up_between_two_blocks(
    memory_snapshot: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = compile_schema(SCHEMA)
    snapshot = memory_snapshot(catalog, {"node:T": _rows(random.Random(7), 400)})
    compiled = compile_query("query q() { match { $t: T $t.age > 1 } return { $t.city, count($t) as n } }", catalog)
    for _ in range(4):
        read.execute(compiled, snapshot, {})
    assert _made(snapshot, "city") is not None
    monkeypatch.setattr(value_counts, "_BLOCK", 50)
    asked: list[int] = []

    def cancelled() -> bool:
        asked.append(1)
        return len(asked) > 5

    with pytest.raises(BadRequest) as caught:
        read.execute(compiled, snapshot, {}, cancelled=cancelled)
    assert caught.value.code == "query_cancelled"
    assert len(asked) == 6


def test_a_commit_is_seen_by_the_next_question(tmp_path: Any) -> None:
    graph = Graph.init(tmp_path / "g", schema=SCHEMA)
    put = "query put($k: String, $c: String) { insert T { key: $k, city: $c, level: 1, share: 0.5, age: 1 } }"
    for i in range(16):
        graph.mutate(put, {"k": f"k{i}", "c": "x" if i % 2 else "y"})
    count = "query q() { match { $t: T $t.age > 0 } return { $t.city, count($t) as n } order { $t.city } }"
    x, y = 8, 8
    for i in range(3):
        for _ in range(4):
            assert [r["n"] for r in graph.query(count).to_pylist()] == [x, y]
        graph.mutate(put, {"k": f"k{i * 2}", "c": "x"})  # moves from y to x
        x, y = x + 1, y - 1
    assert [r["n"] for r in graph.query(count).to_pylist()] == [x, y]
