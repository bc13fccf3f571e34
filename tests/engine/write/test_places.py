"""Where a mutation's rows lie is looked up once, and never believed of another version of the table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph
from omnigraph.schema.catalog import NodeType
from omnigraph.storage import Staging, WriterKind, change
from omnigraph.storage.arrow import loose_schema
from omnigraph.write.staging import MutationStaging

SCHEMA = "node P { name: String @key  age: I64?  tags: [String]? }"
PUT = "query put($a: I64, $b: I64) { insert P { name: 'ann', age: $a } insert P { name: 'bob', age: $b } }".replace(
    "'", '"'
)


def ages(graph: omnigraph.Graph) -> dict[str, int]:
    rows = graph.query("query q() { match { $p: P } return { $p.name, $p.age } }").to_pylist()
    return {row["p.name"]: row["p.age"] for row in rows}


def row_ids(graph: omnigraph.Graph) -> dict[str, int]:
    rows = graph.snapshot().scan("node:P", ["id", "_rowid"]).to_pylist()
    return {row["id"]: row["_rowid"] for row in rows}


@pytest.fixture
def graph(tmp_path: Path) -> omnigraph.Graph:
    graph = omnigraph.init(tmp_path / "g", schema=SCHEMA)
    for name in ("ann", "bob", "eve"):  # each in a file of its own
        graph.load(f'{{"type": "P", "data": {{"name": "{name}", "age": 1, "tags": ["x"]}}}}\n')
    return graph


def test_rows_are_found_once_and_unchanged_ones_stay(graph: omnigraph.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    before = row_ids(graph)
    with monkeypatch.context() as patched:
        patched.setattr(change, "_find", lambda *_: pytest.fail("looked up again"))
        graph.mutate(PUT, {"a": 1, "b": 2})
    assert ages(graph) == {"ann": 1, "bob": 2, "eve": 1}
    assert row_ids(graph) == before
    graph.mutate(PUT.replace('"bob"', '"new"'), {"a": 3, "b": 4})
    assert ages(graph) == {"ann": 3, "bob": 2, "eve": 1, "new": 4}
    assert {k: v for k, v in row_ids(graph).items() if k != "new"} == before
    assert graph.verify().ok


def test_a_compaction_between_moves_the_rows(graph: omnigraph.Graph) -> None:
    snapshot, before = graph.snapshot(), row_ids(graph)
    entity = snapshot.catalog.nodes["P"]
    assert isinstance(entity, NodeType)
    staging = MutationStaging(snapshot)
    rows = pa.table({"id": ["bob"], "name": ["bob"], "age": [9], "tags": [None]}, schema=loose_schema(entity))
    staging.put(entity, rows)
    (made,) = staging.changes([entity])
    assert made.places is not None
    assert made.places.rows.column("id").to_pylist() == ["bob"]
    assert graph.optimize().commit is not None
    graph._repository.commit(Staging("main", WriterKind.MUTATION, (made,)), snapshot)
    assert ages(graph) == {"ann": 1, "bob": 9, "eve": 1}
    assert row_ids(graph) == before
    assert graph.verify().ok
