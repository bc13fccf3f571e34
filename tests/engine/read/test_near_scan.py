"""Approximate answers of `nearest`: whom the index names, judged exactly; conditions, and rows it doesn't cover."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import omnigraph
from omnigraph import read
from omnigraph.query import bind_params, compile_query
from omnigraph.read.settings import ReadSettings

SCHEMA = "node Doc { name: String @key  kind: I32 @index  vec: Vector(4)? @index  note: String? }"
SIZE = 1200
QUERY = [1.0, 0.2, -0.3, 0.1]


def line(name: str, kind: int, vector: list[float] | None) -> str:
    return json.dumps({"type": "Doc", "data": {"name": name, "kind": kind, "vec": vector}})


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> omnigraph.Graph:
    rng = np.random.default_rng(11)
    graph = omnigraph.init(tmp_path_factory.mktemp("near") / "g", schema=SCHEMA)
    vectors: list[Any] = [None if i % 50 == 0 else rng.normal(size=4).tolist() for i in range(SIZE)]
    vectors[7] = QUERY
    graph.load("\n".join(line(f"d{i:04}", i % 5, v) for i, v in enumerate(vectors)))
    graph.ensure_indices()
    # Behind the index's back: one nearest of all, one that is nearest no more, one that is gone.
    graph.load("\n".join([line("new", 1, [2.0, 0.4, -0.6, 0.2]), line("d0011", 1, [-1.0, 0, 0, 0])]), mode="merge")
    graph.mutate('query q() { delete Doc where name = "d0012" }')
    graph.mutate('query q() { update Doc set { note: "seen" } where name in ["d0021", "d0022", "d0023"] }')
    return graph


def ask(graph: omnigraph.Graph, match: str, *, how: str, tail: str = "limit 10", **settings: Any) -> list[Any]:
    near = f"nearest($d.vec, $v{how})"
    text = f"query q($v: Vector(4)) {{ match {{ {match} }} return {{ $d.name as n, $d.kind as k, {near} as s }} "
    snapshot = graph.snapshot()
    compiled = compile_query(text + f"order {{ s }} {tail} }}", snapshot.catalog)
    params = bind_params(compiled, {"v": QUERY})
    return read.execute(compiled, snapshot, params, settings=ReadSettings(**settings)).to_pylist()


@pytest.mark.parametrize(
    ("match", "tail"),
    [
        ("$d: Doc", "limit 10"),
        ("$d: Doc $d.kind = 2", "limit 5 skip 3"),
        ("$d: Doc length($d.name) = 5", "limit 10"),
        ('$d: Doc $d.kind > 3 or $d.name = "new"', "limit 3"),
        ("$d: Doc", "limit 0"),
        ("$d: Doc $d.kind = 77", "limit 2"),
    ],
)
@pytest.mark.parametrize("how", [", approximate=true", ""])
def test_the_index_names_who_is_near(graph: omnigraph.Graph, match: str, tail: str, how: str) -> None:
    """With few partitions, all of them searched, an approximate answer is the exact one."""
    want = ask(graph, match, how="", tail=tail)
    assert ask(graph, match, how=how, tail=tail, ann_min_rows=1) == want
    if match == "$d: Doc" and want:
        assert [row["n"] for row in want[:2]] == ["d0007", "new"]
        assert want[0]["s"] == pytest.approx(0)


def test_a_second_ranking_is_asked_of_all_rows(graph: omnigraph.Graph) -> None:
    """Who it doesn't rank isn't counted by the limit, so the nearest alone wouldn't do."""
    text = """
    query q($v: Vector(4)) {
      match { $d: Doc }
      return { $d.name as n }
      order { nearest($d.vec, $v, approximate=true), bm25($d.note, "seen") }
      limit 3
    }"""
    found = graph.query(text, {"v": QUERY}).to_pylist()
    assert {row["n"] for row in found} == {"d0021", "d0022", "d0023"}


def test_explain_says_which(graph: omnigraph.Graph) -> None:
    text = (
        "query q($v: Vector(4)) {{ match {{ {} }} return {{ $d.name }} order {{ nearest($d.vec, $v{}) {} }} limit 3 }}"
    )
    approximate = ", approximate=true"
    params = {"v": QUERY}
    said = graph.explain(text.format("$d: Doc $d.kind = 2", approximate, ""), params)
    assert "approximate (IVF_SQ vec_vector_idx) where `kind` = 2" in said
    assert "nearest exact" in graph.explain(text.format("$d: Doc", "", ""), params)
    for other in ("desc", ", $d.name desc"):
        exact = other == "desc"  # the farthest are no index's
        said = graph.explain(text.format("$d: Doc", approximate, other), params)
        assert ("approximate" in said) != exact


def test_without_an_index_the_answer_is_exact(tmp_path: Path) -> None:
    graph = omnigraph.init(tmp_path / "g", schema=SCHEMA)
    graph.load("\n".join(line(f"d{i}", 0, [1.0, float(i), 0, 0]) for i in range(30)))
    want = ask(graph, "$d: Doc", how="")
    assert ask(graph, "$d: Doc", how=", approximate=true") == want
    dataset = graph.snapshot().dataset("node:Doc")
    dataset.create_index("vec", "IVF_FLAT", name="vec_vector_idx", metric="L2", num_partitions=1)
    assert graph.snapshot().vector_index("node:Doc", "vec") is None
