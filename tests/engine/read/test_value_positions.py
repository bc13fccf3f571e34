"""Filters answered by positions grouped by value, against the same filters on every row."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from omnigraph import read
from omnigraph.graph import Graph
from omnigraph.query import bind_params, compile_query
from omnigraph.read import value_positions
from omnigraph.read.tables import TABLES, TableData
from omnigraph.read.value_positions import ValuePositions
from omnigraph.schema import compile_schema

SCHEMA = """
node T {
  key: String @key
  city: String?
  kind: enum(a, b, c)?
  age: I32
  big: U64?
  on: Bool?
  day: Date?
  share: F64
}
"""
_DAY = dt.date(2024, 1, 1)
_VALUES: dict[str, list[Any]] = {
    "city": ["", "x", "é", "xx", "X"],
    "kind": ["a", "b", "c"],
    "age": [-3, 0, 1, 7],
    "big": [0, 1, 2**64 - 1],
    "on": [True, False],
    "day": [_DAY + dt.timedelta(n) for n in range(3)],
    "share": [0.0, -0.0, 1.0],
}
_TYPES = {"city": "String", "kind": "String", "age": "I64", "big": "U64", "on": "Bool", "day": "Date", "share": "F64"}
_NULLABLE = {"city", "kind", "big", "on", "day"}


def _rows(rng: random.Random, count: int) -> list[dict[str, Any]]:
    rows = []
    for i in range(count):
        row: dict[str, Any] = {"id": f"k{i}", "key": f"k{i}"}
        for name, values in _VALUES.items():
            row[name] = None if name in _NULLABLE and rng.random() < 0.2 else rng.choice(values)
        rows.append(row)
    return rows


def _table(snapshot: Any) -> TableData:
    return TABLES.get(snapshot, "node:T")


@pytest.mark.parametrize("seed", range(12))
def test_the_rows_are_those_of_a_plain_filter(
    seed: int, memory_snapshot: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(value_positions, "_BEGIN", rng.choice([1, 20, 1 << 18]))
    catalog = compile_schema(SCHEMA)
    rows = _rows(rng, rng.choice([30, 200, 999]))
    snapshot = memory_snapshot(catalog, {"node:T": rows})
    for _ in range(12):
        conditions, params, wanted = [], {}, list(rows)
        for name in rng.sample(sorted(_VALUES), rng.choice([1, 1, 2, 3])):
            param = f"p_{name}"
            if rng.random() < 0.5:
                value: Any = rng.choice([*_VALUES[name], *([None] if name in _NULLABLE else [])])
                sides = [f"$t.{name}", f"${param}"]
                conditions.append(" = ".join(sides if rng.random() < 0.7 else sides[::-1]))
                params[param] = (f"{_TYPES[name]}?", value)
                wanted = [r for r in wanted if value is not None and r[name] is not None and r[name] == value]
            else:
                many = rng.choices(_VALUES[name], k=rng.randrange(4))
                conditions.append(f"$t.{name} in ${param}")
                params[param] = (f"[{_TYPES[name]}]", many)
                wanted = [r for r in wanted if r[name] is not None and r[name] in many]
        declared = ", ".join(f"${name}: {kind}" for name, (kind, _) in params.items())
        text = f"query q({declared}) {{ match {{ $t: T {' '.join(conditions)} }} return {{ $t.key }} }}"
        compiled = compile_query(text, catalog)
        bound = bind_params(compiled, {name: value for name, (_, value) in params.items()})
        for turn in range(3):  # the second one makes the positions
            found = read.execute(compiled, snapshot, bound).column(0).to_pylist()
            assert found == [r["key"] for r in wanted], (seed, turn, text, params)


def test_they_are_made_at_the_second_use_for_columns_of_few_values(memory_snapshot: Callable[..., Any]) -> None:
    catalog = compile_schema(SCHEMA)
    rows = _rows(random.Random(1), 400)
    snapshot = memory_snapshot(catalog, {"node:T": rows})
    for turn in range(3):
        for where in ('$t.city = "x"', "$t.share = 1.0", '$t.age = 7 $t.kind = "a"'):
            compiled = compile_query(f"query q() {{ match {{ $t: T {where} }} return {{ $t.key }} }}", catalog)
            read.execute(compiled, snapshot, {})
        made = {name for name in _VALUES if _table(snapshot).kept("positions", name) is not None}
        assert made == (set() if turn == 0 else {"city", "age", "kind"})
    known = _table(snapshot).kept("positions", "city")
    assert isinstance(known, ValuePositions)
    assert known.count(["x"]) == sum(r["city"] == "x" for r in rows)
    before = _table(snapshot).nbytes
    assert before > known.nbytes
    with pytest.raises(ValueError, match="read-only"):
        known.positions(["x"])[0] = 1
    several = ValuePositions.of(_table(snapshot), "key")
    assert not several.usable


def test_a_commit_is_seen_by_the_next_filter(tmp_path: Any) -> None:
    graph = Graph.init(tmp_path / "g", schema=SCHEMA)
    insert = "query put($k: String, $c: String) { insert T { key: $k, city: $c, age: 1, share: 0.5 } }"
    for i in range(16):
        graph.mutate(insert, {"k": f"k{i}", "c": "x" if i % 2 else "y"})
    count = 'query q() { match { $t: T $t.city = "x" } return { count($t) as n } }'
    expected = 8
    for i in range(2):
        for _ in range(3):
            assert graph.query(count).to_pylist() == [{"n": expected}]
        graph.mutate(insert, {"k": f"k{i * 2}", "c": "x"})  # moves from y to x
        expected += 1
    assert graph.query(count).to_pylist() == [{"n": expected}]


def test_all_rows_are_the_same_array_each_time(memory_snapshot: Callable[..., Any]) -> None:
    catalog = compile_schema(SCHEMA)
    snapshot = memory_snapshot(catalog, {"node:T": _rows(random.Random(2), 50)})
    text = "query q() { match { $t: T } return { $t.key } order { $t.age desc, $t.key } limit 5 }"
    wanted = read.execute(compile_query(text, catalog), snapshot, {})
    assert read.execute(compile_query(text, catalog), snapshot, {}).equals(wanted)
    every = _table(snapshot).all_rows()
    assert every is _table(snapshot).all_rows()
    assert np.array_equal(every, np.arange(50))
