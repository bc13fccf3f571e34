"""Paths that are counted and paths that are made give the same numbers.

A sum beside the count makes the rows be made: `_rows_are_counted` is false then.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from omnigraph import read
from omnigraph.errors import BadRequest
from omnigraph.query import compile_query
from omnigraph.read.adjacency import Links, starts
from omnigraph.read.distinct import once
from omnigraph.read.expand import ExpandStep
from omnigraph.read.multiset import count_by_group, merged, times
from omnigraph.read.plan import make_plan
from omnigraph.read.settings import read_settings
from omnigraph.schema import compile_schema

CATALOG = compile_schema("""
node P { key: I64 @key  age: I32? }
node F { key: String @key }
edge Knows: P -> P
edge Works: P -> F
""")
MATCHES = [
    "$a: P $a knows $b",
    "$a: P $a knows $b $b knows $c",
    "$a: P $a knows $b $b knows $c $c knows $d $d.age > 1",
    "$a: P $a.age > 2 $a knows $b $b.age < 3 $b knows $c $c works $f",
    "$b: P $a knows $b $b knows $c $b works $f",
    "$a: P $a knows $b $b knows $c not { $b works $f }",
    "$a: P $a knows $b optional { $b works $f } $b knows $c",
    "$a: P $a knows $b $b knows $c exists { $b works $g }",
    "$a: P $a knows $b $a knows $c $b knows $c",
    "$a: P $b: P $a.age = $b.age $b knows $c",
    "$a: P $b: P $b works $f $a knows $a",
    "$a: P $a knows $b $b knows{1,2} $c $c knows $d",
    "$a: P $b knows $a $b knows $c",
]
KEYS = ["", "$b.key, ", "$b.age, ", "$c.key, $c.age, ", "$b, "]


def graph(rng: random.Random) -> dict[str, list[dict[str, Any]]]:
    people = [{"id": str(i), "key": i, "age": rng.choice([None, 0, 1, 2, 3])} for i in range(rng.choice([0, 1, 7]))]
    firms = [{"id": n, "key": n} for n in ("x", "y")]

    def edges(count: int, far: list[dict[str, Any]]) -> list[dict[str, Any]]:
        pairs = [(rng.choice(people)["id"], rng.choice(far)["id"]) for _ in range(count if people else 0)]
        return [{"id": str(i), "src": src, "dst": dst} for i, (src, dst) in enumerate(pairs)]  # parallel, loops

    return {"node:P": people, "node:F": firms, "edge:Knows": edges(14, people), "edge:Works": edges(5, firms)}


def rows(snapshot: Any, text: str, mode: str) -> list[tuple[Any, ...]]:
    table = read.execute(
        compile_query(text, CATALOG),
        snapshot,
        {},
        settings=replace(read_settings(), traversal_mode=mode, small_table_rows=0),
    )
    return sorted(zip(*(c.to_pylist() for c in table.columns), strict=True), key=str)


@pytest.mark.parametrize("mode", ["csr", "indexed"])
def test_counted_paths_are_as_many_as_made_ones(memory_snapshot: Any, mode: str) -> None:
    seed = random.randrange(10**6)
    print("seed", seed)
    rng = random.Random(seed)
    for match in MATCHES:
        for _ in range(3):
            snapshot = memory_snapshot(CATALOG, graph(rng))
            for keys in KEYS:
                if any(var in keys and var not in match for var in ("$b", "$c")):
                    continue
                aggregates = "count($a) as n, max($a.age) as m, count($b.age) as k, count(distinct $b) as d"
                counted = rows(snapshot, f"query q() {{ match {{ {match} }} return {{ {keys}{aggregates} }} }}", mode)
                made = rows(
                    snapshot,
                    f"query q() {{ match {{ {match} }} return {{ {keys}{aggregates}, sum($a.age) as s }} }}",
                    mode,
                )
                assert counted == [row[:-1] for row in made], (match, keys)
                only = rows(snapshot, f"query q() {{ match {{ {match} }} return {{ {keys}count($a) as n }} }}", mode)
                at = len(keys.split(", ")) - 1
                assert only == sorted((row[: at + 1] for row in made), key=str), (match, keys)
            for var in ("$b", "$c", "$d"):
                if var in match:  # walked as a set: nothing else is read in the end
                    one = f"query q() {{ match {{ {match} }} return {{ count(distinct {var}) as n"
                    made = rows(snapshot, one + ", sum($a.age) as s } }", mode)
                    assert rows(snapshot, one + " } }", mode) == [row[:1] for row in made], (match, var)


def test_hops_to_what_is_counted_once_are_walked_as_one_set(memory_snapshot: Any) -> None:
    snapshot = memory_snapshot(CATALOG, graph(random.Random(1)))
    text = "query q() { match { $a: P { key: 1 } $a knows $b $b knows $c $c knows $d } return { count(distinct $d) as n"
    hops = [
        step
        for step in make_plan(compile_query(text + " } }", CATALOG), CATALOG, snapshot).steps
        if isinstance(step, ExpandStep)
    ]
    assert [(hop.target, hop.set_only) for hop in hops] == [("b", True), ("c", True), ("d", True)]


def test_few_nodes_are_merged_as_many_are() -> None:
    seed = random.randrange(10**6)
    print("seed", seed)
    rng = np.random.default_rng(seed)
    for edges in (0, 1, 400):
        src = np.sort(rng.integers(0, 30, edges))
        found = Links(starts(np.bincount(src, minlength=30)), rng.integers(0, 25, edges), src, 25, parallel=True)
        spread = replace(found, far=10_000)  # the same edges, to few of many nodes
        for weight in (None, rng.integers(1, 5, 3)):
            at = rng.integers(0, 30, 3)
            for many, few in zip(merged(found, at, weight), merged(spread, at, weight), strict=True):
                assert many.dtype == few.dtype == np.int64
                assert many.tolist() == few.tolist()


def test_each_number_once() -> None:
    for numbers in ([], [3], [3, 3], [2, 1, 2, 0, 1]):
        assert once(np.array(numbers, dtype=np.int32)).tolist() == sorted(set(numbers))


def test_the_first_groups_in_order_are_the_first_of_all(memory_snapshot: Any) -> None:
    seed = random.randrange(10**6)
    print("seed", seed)
    rng = random.Random(seed)
    people = [{"id": str(i), "key": i, "age": rng.choice([None, 0, 1, 2, 3])} for i in range(60)]
    knows = [{"id": str(i), "src": str(rng.randrange(60)), "dst": str(rng.randrange(60))} for i in range(200)]
    snapshot = memory_snapshot(CATALOG, {"node:P": people, "node:F": [], "edge:Knows": knows, "edge:Works": []})
    for order in ("n desc", "n, $p.age desc", "$p.age desc, n", "$p.key"):
        match = "match { $f: P $f knows $p } return { $p.key, $p.age, count($f) as n }"
        text = f"query q() {{ {match} order {{ {order} }}"
        whole = read.execute(compile_query(text + " }", CATALOG), snapshot, {}).to_pylist()
        for skip, limit in ((0, 3), (2, 4), (0, 0), (50, 20)):
            part = compile_query(f"{text} limit {limit} skip {skip} }}", CATALOG)
            assert read.execute(part, snapshot, {}).to_pylist() == whole[skip : skip + limit], order


def test_counts_past_64_bits_are_an_error() -> None:
    with pytest.raises(BadRequest):
        times(np.array([2**40]), np.array([2**30]))
    with pytest.raises(BadRequest):
        count_by_group(np.array([0, 0]), 1, np.array([2**62, 2**62]))
    assert count_by_group(np.array([0, 1, 0]), 2, np.array([2**60, 1, 1])).tolist() == [2**60 + 1, 1]
