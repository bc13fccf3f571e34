"""An order by the column that returns a ranking leaves out the rows it doesn't rank, after `distinct` too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from omnigraph import read
from omnigraph.query import compile_query
from omnigraph.schema import compile_schema

CATALOG = compile_schema("""
node Doc { name: String @key  text: String?  vec: Vector(2)? }
edge Cites: Doc -> Doc
""")
ROWS = {
    "node:Doc": [
        {"id": "a", "name": "a", "text": "engine", "vec": [1.0, 0.0]},
        {"id": "b", "name": "b", "text": "clock", "vec": [0.0, 1.0]},
        {"id": "c", "name": "c"},
    ],
    "edge:Cites": [
        {"id": f"e{i}", "src": s, "dst": d} for i, (s, d) in enumerate([("a", "b"), ("b", "a"), ("c", "a"), ("a", "c")])
    ],
}


@pytest.mark.parametrize(
    ("tail", "names"),
    [
        ("distinct { $q.name as n, nearest($q.vec, [1.0, 0.0]) as s } order { s } limit 9", ["a", "b"]),
        ("distinct { $q.name as n, nearest($q.vec, [1.0, 0.0]) as s } order { s desc } limit 1", ["b"]),
        ('distinct { $q.name as n, bm25($q.text, "engine") as s } order { s }', ["a"]),
        ('{ $q.name as n, bm25($q.text, "engine") as s } order { s }', ["a", "a"]),
    ],
)
def test_unranked_rows_go(memory_snapshot: Callable[..., Any], tail: str, names: list[str]) -> None:
    query = compile_query(f"query a() {{ match {{ $p cites $q }} return {tail} }}", CATALOG)
    result = read.execute(query, memory_snapshot(CATALOG, ROWS), {})
    assert result["n"].to_pylist() == names


@pytest.mark.parametrize(
    ("order", "names"),
    [
        ('nearest($q.vec, [1.0, 0.0]), bm25($q.text, "clock")', ["b"]),
        ('bm25($q.text, "engine clock"), nearest($q.vec, [1.0, 0.0]) desc', ["b"]),
        ('bm25($q.text, "engine"), bm25($q.text, "clock")', []),
        ('rrf(bm25($q.text, "engine"), nearest($q.vec, [1.0, 0.0])), bm25($q.text, "clock")', ["b"]),
    ],
)
def test_a_limit_counts_the_rows_that_every_ranking_ranks(
    memory_snapshot: Callable[..., Any], order: str, names: list[str]
) -> None:
    """However far behind they stand in the first ranking."""
    query = compile_query(
        f"query a() {{ match {{ $q: Doc }} return {{ $q.name as n }} order {{ {order} }} limit 1 }}", CATALOG
    )
    assert read.execute(query, memory_snapshot(CATALOG, ROWS), {})["n"].to_pylist() == names
