"""Who is first and who has which rank, chosen by likely values and judged by true ones, against sorting everything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from omnigraph import read
from omnigraph.query import bind_params, compile_query
from omnigraph.read.nearness import Vectors, nearness
from omnigraph.read.standing import Standing
from omnigraph.read.tables import Rows
from omnigraph.schema import compile_schema


@pytest.mark.parametrize("seed", range(60))
def test_first_and_ranks_are_those_of_a_sort(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 120))
    slack = float(rng.choice([0.0, 0.05]))
    truth = rng.integers(0, max(2, n // 3), n) / 10.0  # many ties
    known = rng.random(n) > 0.2
    less = bool(rng.integers(2))
    likely = (-truth if less else truth) + rng.uniform(-slack, slack, n)
    ids = [f"{i:03}" for i in rng.permutation(n)]
    rows = Rows("node:T", n, {"id": pa.array(ids)})
    at = np.arange(n)
    standing = Standing(rows, at, None, likely, slack, known, lambda some: truth[some], less)
    order = sorted(np.flatnonzero(known).tolist(), key=lambda i: (truth[i] if less else -truth[i], ids[i]))
    rank = {row: place for place, row in enumerate(order, 1)}
    assert standing.ranks(at).tolist() == [rank.get(i, 0) for i in range(n)]
    few = rng.choice(n, size=min(n, 3), replace=False)
    assert standing.ranks(few).tolist() == [rank.get(i, 0) for i in few.tolist()]
    for count in (0, 1, 3, n):
        first = set(standing.first(count).tolist())
        assert set(order[:count]) <= first <= set(order)
        last = set(standing.first(count, worst=True).tolist())
        assert set(order[len(order) - min(count, len(order)) :]) <= last <= set(order)


@pytest.mark.parametrize("scale", [1.0, 1e-18, 1e18, 1e-38])
def test_single_precision_is_trusted_within_its_bounds_only(scale: float) -> None:
    rng = np.random.default_rng(5)
    plain = (rng.normal(size=(500, 7)) * scale).astype(np.float32)
    vectors: list[Any] = [*plain.tolist(), None, [0.0] * 7]
    column = pa.array(vectors, pa.list_(pa.float32(), 7))
    rows = Rows("node:T", 502, {"vec": column, "id": pa.array([str(i) for i in range(502)])})
    query = rng.normal(size=7)
    standing = nearness(rows, "vec", np.arange(502), None, query)
    matrix = plain.astype(np.float64)
    want = 1 - matrix @ query / np.linalg.norm(matrix, axis=1) / np.linalg.norm(query)
    assert standing.known.tolist() == [True] * 500 + [False, False]
    assert np.allclose(standing.value(np.arange(500)), want, atol=1e-12)
    assert np.abs(1 - standing.likely[:500].astype(np.float64) - want).max() <= standing.slack + 1e-15
    assert set(np.argsort(want)[:10].tolist()) <= set(standing.first(10).tolist())
    assert len(standing.first(10)) < 30
    sliced = Vectors.of(column.slice(3, 4))
    assert np.allclose(sliced.distances(query, np.arange(4)), want[3:7], atol=1e-12)


CATALOG = compile_schema("""
node Doc { name: String @key  kind: I32  text: String?  vec: Vector(3)? }
edge Cites: Doc -> Doc
""")


@pytest.mark.parametrize("seed", range(12))
def test_rrf_of_many_is_the_sum_over_both_ranks(memory_snapshot: Callable[..., Any], seed: int) -> None:
    """Few words and few directions: ties everywhere."""
    rng = np.random.default_rng(seed)
    n = 300
    docs = [
        {
            "id": f"d{i:03}",
            "name": f"d{i:03}",
            "kind": int(rng.integers(2)),
            "text": None if rng.random() < 0.2 else " ".join(rng.choice(["fox", "dog", "cat"], rng.integers(0, 4))),
            "vec": None if rng.random() < 0.2 else rng.integers(-2, 3, 3).astype(float).tolist(),
        }
        for i in range(n)
    ]
    edges = [
        {"id": str(i), "src": f"d{a:03}", "dst": f"d{b:03}"} for i, (a, b) in enumerate(rng.integers(0, n, (200, 2)))
    ]
    snapshot = memory_snapshot(CATALOG, {"node:Doc": docs, "edge:Cites": edges})

    def ask(body: str) -> list[tuple[Any, ...]]:
        compiled = compile_query(f"query q($v: Vector(3)) {{ {body} }}", CATALOG)
        table = read.execute(compiled, snapshot, bind_params(compiled, {"v": [1.0, 0.5, -0.2]}))
        return list(zip(*(c.to_pylist() for c in table.columns), strict=True))

    near, text = "nearest($d.vec, $v)", 'bm25($d.text, "fox dog")'
    for match, skip in (("$d: Doc", 0), ("$d: Doc $d.kind = 1", 3), ("$d: Doc $p cites $d $p.kind = 1", 1)):
        rows = ask(f"match {{ {match} }} return {{ $d.name as n, {near} as d, {text} as s }} order {{ n }}")
        best = {name: (d, s) for name, d, s in rows}
        by_near = sorted((d, name) for name, (d, _) in best.items() if d is not None)
        by_text = sorted((-s, name) for name, (_, s) in best.items() if s is not None)
        score: dict[str, float] = {}
        for ranked in (by_near, by_text):
            for rank, (_, name) in enumerate(ranked, 1):
                score[name] = score.get(name, 0.0) + 1 / (4 + rank)
        want = sorted(((-score[name], name) for name, _, _ in rows if name in score))[skip : skip + 7]
        fused = f"rrf({near}, {text}, k=4)"
        tail = f"order {{ {fused} }} limit 7 skip {skip}"
        got = ask(f"match {{ {match} }} return {{ $d.name as n, {fused} as s }} {tail}")
        assert got == [(name, pytest.approx(-s)) for s, name in want]
        for ranking, order in ((near, by_near), (text, by_text)):
            names = [name for _, name in order for other, _, _ in rows if other == name]
            tail = f"order {{ {ranking} }} limit 7 skip {skip}"
            assert ask(f"match {{ {match} }} return {{ $d.name }} {tail}") == [(n,) for n in names[skip : skip + 7]]
