"""Shortest paths and the breadth-first walk from one node, on random graphs, against all walks tried one by one."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from omnigraph import read
from omnigraph.query import bind_params, compile_query
from omnigraph.read.settings import read_settings
from omnigraph.schema import compile_schema

CATALOG = compile_schema("""
node Person { name: String @key }
edge Knows: Person -> Person
""")
Path = tuple[list[str], list[str]]


def shortest(edges: list[dict[str, str]], start: str, high: int) -> dict[str, Path]:
    """The best path to each node at most so far away: the shortest, then by the ids of nodes, then of edges."""
    best: dict[str, Path] = {}
    walks: list[Path] = [([start], [])]
    loops = sorted(e["id"] for e in edges if e["src"] == e["dst"] == start)
    for _ in range(high):
        walks = [
            ([*nodes, e["dst"]], [*passed, e["id"]])
            for nodes, passed in walks
            for e in edges
            if e["src"] == nodes[-1] and e["dst"] not in nodes
        ]
        found: dict[str, Path] = {}
        for nodes, passed in sorted(walks):
            found.setdefault(nodes[-1], (nodes, passed))
        best = found | best
    return best | ({start: ([start, start], loops[:1])} if loops else {})


def layered(rng: random.Random) -> tuple[list[str], list[dict[str, str]]]:
    """Layers of few nodes, so that many paths are equally short, with parallel edges, loops and ways back."""
    names = [f"{c}{i}" for i, c in enumerate(rng.sample("abcdefghijklmnop", 11))]
    layers = [names[:1], names[1:4], names[4:7], names[7:10], names[10:]]
    ends = [(a, b) for one, two in pairwise(layers) for a in one for b in two if rng.random() < 0.7]
    ends += rng.choices(ends, k=5) if ends else []
    ends += [(rng.choice(names), rng.choice(names)) for _ in range(3)]
    ids = rng.sample(range(1000), len(ends))
    return rng.sample(names, len(names)), [
        {"id": f"e{i}", "src": a, "dst": b} for i, (a, b) in zip(ids, ends, strict=True)
    ]


@pytest.mark.parametrize("seed", range(9))
def test_paths_are_the_best_of_all(seed: int, memory_snapshot: Callable[..., Any]) -> None:
    rng = random.Random(seed)
    names, edges = layered(rng)
    rows = {"node:Person": [{"id": n, "name": n} for n in names], "edge:Knows": edges}
    snapshot = memory_snapshot(CATALOG, rows)
    high = rng.choice([2, 3, 4])
    head = "query q($k: String) { match { $p: Person { name: $k } "
    paths = compile_query(
        head
        + f"$z = shortest $p knows{{1,{high}}} $q }} return {{ $q.name as name, nodes($z) as n, edges($z) as e }} }}",
        CATALOG,
    )
    reached = {
        low: compile_query(head + f"$p knows{{{low},{high}}} $q }} return {{ $q.name as name }} }}", CATALOG)
        for low in (1, 2)
    }
    for start in names:
        best = shortest(edges, start, high)
        for mode in ("indexed", "csr", "csr", "", "scan"):  # the second time it is bound
            chosen = replace(read_settings(), traversal_mode=mode)

            def asked(compiled: Any, chosen: Any = chosen, start: str = start) -> list[dict[str, Any]]:
                given = bind_params(compiled, {"k": start})
                return read.execute(compiled, snapshot, given, settings=chosen).to_pylist()

            found = {row["name"]: (row["n"], row["e"]) for row in asked(paths)}
            assert found == best, (seed, mode, start)
            for low, compiled in reached.items():
                want = sorted(name for name, (_, passed) in best.items() if low <= len(passed))
                assert sorted(row["name"] for row in asked(compiled)) == want, (seed, mode, start, low)
