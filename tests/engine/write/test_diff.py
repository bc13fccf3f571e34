"""What changed between two states."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph.errors import BadRequest, NotFound
from omnigraph.write import diffing
from omnigraph.write.diffing import SCHEMA as ENTRIES

SCHEMA = """node P { k: String @key  v: I64?  tags: [String]? }
node Q { k: String @key }
edge E: P -> P { @key(src, dst) }
"""


def load(graph: omnigraph.Graph, branch: str, *rows: tuple[str, Any], mode: str = "merge") -> None:
    lines = [{"type": "P", "data": {"k": k, "v": v}} for k, v in rows]
    graph.load("".join(json.dumps(line) + "\n" for line in lines), mode=mode, branch=branch)  # type: ignore[arg-type]


def edge(graph: omnigraph.Graph, branch: str, one: str, other: str) -> None:
    graph.load(json.dumps({"edge": "E", "from": one, "to": other}) + "\n", mode="merge", branch=branch)


def drop(graph: omnigraph.Graph, branch: str, key: str) -> None:
    graph.mutate("query q($k: String) { delete P where k = $k }", {"k": key}, branch=branch)


def short(diff: Any) -> list[tuple[str, str, str]]:
    return [(e["type"], e["id"], e["op"]) for e in diff]


@pytest.fixture
def graph(tmp_path: Path) -> omnigraph.Graph:
    made = omnigraph.init(tmp_path / "g", schema=SCHEMA)
    load(made, "main", ("a", 1), ("b", 2), ("c", 3))
    edge(made, "main", "a", "b")
    made.branches.create("dev")
    return made


def test_entries_between_branches_commits_and_snapshots(graph: omnigraph.Graph) -> None:
    start = graph.snapshot()
    load(graph, "dev", ("d", 4), ("a", 9), ("c", 3))  # c is written as it was: no change
    drop(graph, "dev", "b")
    expected = [("P", "a", "update"), ("P", "b", "delete"), ("P", "d", "insert"), ("E", '["a","b"]', "delete")]
    for one, other in (("main", "dev"), (start.head.id, "dev"), (start, graph.head("dev").id), ("dev@1", "dev")):
        found = graph.diff(one, other)
        if one != "dev@1":
            assert short(found) == expected
    entries = list(graph.diff("main", "dev"))
    assert entries[-1]["endpoints"] == {"src": "a", "dst": "b"}
    assert "endpoints" not in entries[0]
    versions = {e["id"]: e["version"] for e in entries}
    refs = graph.snapshot("dev").tables
    assert versions["a"] == versions["d"] == refs["node:P"].version - 1
    assert versions["b"] == refs["node:P"].version
    back = [(t, i, {"insert": "delete", "delete": "insert"}.get(op, op)) for t, i, op in expected]
    assert short(graph.diff("dev", "main")) == back
    assert graph.diff("main", "dev").stats() == {
        "node:P": {"insert": 1, "update": 1, "delete": 1},
        "edge:E": {"insert": 0, "update": 0, "delete": 1},
    }
    assert all(batch.schema == ENTRIES for batch in graph.diff("main", "dev").batches())
    assert short(graph.diff("dev", "dev")) == []


def test_filters(graph: omnigraph.Graph) -> None:
    load(graph, "dev", ("d", 4), ("a", 9))
    drop(graph, "dev", "b")
    assert short(graph.diff("main", "dev", ops=["insert"])) == [("P", "d", "insert")]
    assert short(graph.diff("main", "dev", kinds=["edge"])) == [("E", '["a","b"]', "delete")]
    assert short(graph.diff("main", "dev", types=["Q"])) == []
    assert graph.diff("main", "dev", ops=["update", "delete"], types=["P"]).table().num_rows == 2
    for wrong in ({"ops": ["upsert"]}, {"kinds": ["table"]}, {"types": ["Nope"]}):
        with pytest.raises(BadRequest, match="no such"):
            graph.diff("main", "dev", **wrong)
    with pytest.raises(NotFound):
        graph.diff("main", "nowhere")


def test_both_sides_changed_and_a_merge_leaves_no_difference(graph: omnigraph.Graph) -> None:
    load(graph, "dev", ("d", 4), ("a", 9))
    load(graph, "main", ("m", 1))
    drop(graph, "main", "b")
    assert short(graph.diff("main", "dev", kinds=["node"])) == [
        ("P", "a", "update"),
        ("P", "b", "insert"),
        ("P", "d", "insert"),
        ("P", "m", "delete"),
    ]
    graph.branches.merge("dev")
    graph.branches.merge("main", into="dev")
    assert short(graph.diff("main", "dev")) == []
    graph.branches.delete("dev")


def test_changed_back_is_no_change(graph: omnigraph.Graph) -> None:
    start = graph.head().id
    load(graph, "main", ("a", 5), ("x", 1))
    load(graph, "main", ("a", 1))
    drop(graph, "main", "x")
    drop(graph, "main", "c")
    load(graph, "main", ("c", 3))
    assert short(graph.diff(start, "main")) == []


def test_an_overwritten_table_is_compared_by_id(graph: omnigraph.Graph) -> None:
    start = graph.head().id
    drop(graph, "main", "b")
    load(graph, "main", ("a", 1), ("c", 4), ("z", 1), mode="overwrite")
    assert short(graph.diff(start, "main", kinds=["node"])) == [
        ("P", "b", "delete"),
        ("P", "c", "update"),
        ("P", "z", "insert"),
    ]


def test_the_feed_goes_on_where_it_ended(graph: omnigraph.Graph) -> None:
    first = graph.changes(since=graph.head().id)
    assert list(first) == []
    load(graph, "main", ("x", 1))
    second = graph.changes(since=first.to.head.id)
    assert short(second) == [("P", "x", "insert")]
    load(graph, "main", ("x", 2))
    third = graph.changes(since=second.to.head.id)
    assert short(third) == [("P", "x", "update")]
    assert short(second) == [("P", "x", "insert")]  # a feed is of the states it was asked for
    assert short(graph.changes(since=1, types=["P"], ops=["insert"]))[0] == ("P", "a", "insert")


def test_what_can_not_be_traced_is_compared_whole(graph: omnigraph.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diffing, "PORTION", 2)
    load(graph, "dev", ("d", 4), ("a", 9))
    drop(graph, "dev", "c")
    traced = list(graph.diff("main", "dev"))
    monkeypatch.setattr("omnigraph.storage.delta.common_version", lambda *_: None)
    assert list(graph.diff("main", "dev")) == traced


def test_index_builds_and_compaction_are_no_changes(graph: omnigraph.Graph) -> None:
    start = graph.head().id
    load(graph, "main", ("d", 4))
    middle = graph.head().id
    graph.ensure_indices()
    assert short(graph.diff(middle, "main")) == []
    assert short(graph.diff(start, "main")) == [("P", "d", "insert")]
    from omnigraph.storage.delta import touched_ids

    repository = graph._repository
    ref = graph.snapshot().tables["node:P"]
    dataset = repository.engine.store.latest(ref.location)
    before = dataset.version
    dataset.optimize.compact_files()
    from dataclasses import replace

    assert dataset.version > before
    compacted = replace(ref, version=int(dataset.version), stamp="compacted")
    assert touched_ids(repository.engine.store, ref, compacted).to_pylist() == []
    old = graph.snapshot(at=start).tables["node:P"]
    assert touched_ids(repository.engine.store, old, compacted).to_pylist() == ["d"]
