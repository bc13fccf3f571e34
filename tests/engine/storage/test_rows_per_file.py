"""How long a table's files get, whoever writes them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph
from omnigraph.storage import layout

SCHEMA = "node P { name: String @key }\nedge E: P -> P\n"


def lengths(graph: omnigraph.Graph, table_key: str) -> list[int]:
    return [fragment.physical_rows for fragment in graph.snapshot().dataset(table_key).get_fragments()]


def test_files_of_nodes_are_shorter_than_those_of_edges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "NODES_PER_FILE", 100)
    graph = omnigraph.init(tmp_path / "g", schema=SCHEMA)
    nodes = "".join(f'{{"type": "P", "data": {{"name": "k{n}"}}}}\n' for n in range(250))
    edges = "".join(f'{{"edge": "E", "from": "k{n}", "to": "k0", "data": {{}}}}\n' for n in range(250))
    graph.load(nodes + edges)
    assert lengths(graph, "node:P") == [100, 100, 50]
    assert lengths(graph, "edge:E") == [250]
    rows = pa.table({"id": [f"w{n}" for n in range(250)], "name": [f"w{n}" for n in range(250)]})
    ahead = graph._repository.write_fragments(graph.snapshot(), "node:P", rows)
    assert [json.loads(text)["physical_rows"] for text in ahead] == [100, 100, 50]
    for first in range(0, 150, 30):
        more = (f'{{"type": "P", "data": {{"name": "m{n}"}}}}\n' for n in range(first, first + 30))
        graph.load("".join(more), mode="merge")
    assert lengths(graph, "node:P") == [100, 100, 50, 30, 30, 30, 30, 30]
    graph.optimize()
    assert max(lengths(graph, "node:P")) == 100
    assert sum(lengths(graph, "node:P")) == 400
    assert len(lengths(graph, "node:P")) < 8
