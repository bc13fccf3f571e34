"""Branches, merges and differences on an S3 server, and of graphs that the origin wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph
from omnigraph.errors import Conflict, MergeConflicts, NotFound
from omnigraph.schema import compile_schema
from omnigraph.storage import Repository, Staging, TableChange, WriterKind, cleanup
from omnigraph.storage.announce import announcing
from omnigraph.storage.lineage import branch_names
from omnigraph.write import merging
from tests.engine.upstream.conftest import unpack
from tests.s3 import S3, environment, serving

SCHEMA = "node P { slug: String @key  n: I64? }\nedge K: P -> P { @key(src, dst) }\n"


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with serving() as server, environment(server):
        yield server


def load(graph: omnigraph.Graph, branch: str, *slugs: str, n: int = 0) -> None:
    lines = [json.dumps({"type": "P", "data": {"slug": s, "n": n}}) for s in slugs]
    graph.load("\n".join(lines) + "\n", mode="merge", branch=branch)


def slugs(graph: omnigraph.Graph, branch: str = "main") -> list[str]:
    rows = graph.query("query q() { match { $p: P } return { $p.slug as s } order { s } }", branch=branch)
    return [r["s"] for r in rows]


def test_branches_on_a_store(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "COPIED_FROM_ROWS", 3)
    graph = omnigraph.init(s3.uri(), schema=SCHEMA, actor="ada")
    load(graph, "main", "a", "b")
    graph.branches.create("dev/one")
    load(graph, "dev/one", "c", "d", "e", "f")
    load(graph, "dev/one", "a", n=5)
    load(graph, "main", "m")
    assert graph.diff("main", "dev/one").stats() == {"node:P": {"insert": 4, "update": 1, "delete": 1}}
    with pytest.raises(Conflict, match="can't both live"):
        graph.branches.create("dev")
    done = graph.branches.merge("dev/one", delete_source=True)
    assert [(t.inserted, t.updated, t.copied) for t in done.tables] == [(4, 1, 4)]
    assert slugs(graph) == list("abcdefm")
    assert [b.name for b in graph.branches.list()] == ["main"]
    other = omnigraph.open(graph.uri)
    with pytest.raises(NotFound):
        slugs(other, "dev/one")
    other.branches.create("dev/one", from_="main@1")
    load(other, "dev/one", "z")
    assert slugs(other, "dev/one") == ["z"]
    load(other, "dev/one", "a", n=1)
    with pytest.raises(MergeConflicts, match="divergent_insert"):
        other.branches.merge("dev/one")
    other.branches.delete("dev/one")
    assert other.verify().ok
    assert slugs(omnigraph.open(graph.uri)) == list("abcdefm")


def test_nested_branches_of_the_origin_are_deleted_one_by_one(tmp_path: Path) -> None:
    graph = omnigraph.open(unpack("branches", tmp_path))
    inner = sorted(graph.export(branch="team/three-way"))
    assert graph.diff("main", "team/three-way").stats()["node:City"] == {"insert": 0, "update": 2, "delete": 1}
    graph.branches.delete("team")
    assert sorted(graph.export(branch="team/three-way")) == inner
    assert graph.branches.merge("team/three-way").outcome == "already_up_to_date"
    with pytest.raises(Conflict, match="deep began from it"):
        graph.branches.delete("open")
    with pytest.raises(MergeConflicts, match="divergent_update: node:City 'bb'"):
        graph.branches.merge("open")
    assert graph.branches.merge("main", into="team/three-way").outcome == "fast_forward"
    assert sorted(graph.export(branch="team/three-way")) == sorted(graph.export())
    graph.branches.delete("team/three-way")
    graph.branches.create("team")
    assert graph.verify().ok


def test_cleanup_on_a_store_removes_unused_forks_and_says_so_before(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = Repository.create(s3.uri(), compile_schema("node A {\n    name: String @key\n}\n"))
    for name in ("a", "b", "c"):
        change = TableChange("node:A", upserts=pa.table({"id": [name], "name": [name]}))
        repository.commit(Staging("main", WriterKind.MUTATION, (change,)), repository.snapshot())
    repository.create_branch("dev")
    ref = repository.snapshot("dev").tables["node:A"]
    store = repository.engine.store
    repository.write_fragments(repository.snapshot("dev"), "node:A", pa.table({"id": ["x"], "name": ["x"]}))
    assert branch_names(store, ref.location) == {"dev"}  # a load's that was killed: no sidecar names it
    assert repository.cleanup(keep=1, confirm=True).failed == ()
    assert branch_names(store, ref.location) == {"dev"}  # it may be under way
    monkeypatch.setattr(cleanup, "UNFINISHED", timedelta(seconds=-5))
    with announcing(store, {(ref.location, "dev"): ()}), pytest.raises(Conflict) as caught:
        repository.write_target(repository.snapshot("dev"), "node:A")
    assert caught.value.retryable
    report = repository.cleanup(keep=1, confirm=True)
    assert [(t.table, t.branch) for t in report.tables if t.action == "reclaimed"] == [("node:A", "dev")]
    assert branch_names(store, ref.location) == set()
    assert store.files.list("__cleanup") == []
    change = TableChange("node:A", upserts=pa.table({"id": ["d"], "name": ["d"]}))
    repository.commit(Staging("dev", WriterKind.MUTATION, (change,)), repository.snapshot("dev"))
    version = repository.snapshot().tables["node:A"].version
    with announcing(store, {(ref.location, None): [version]}), pytest.raises(NotFound, match="a cleanup is removing"):
        repository.create_branch("late")
    assert {b.name for b in repository.branches()} == {"main", "dev"}
    assert repository.snapshot("dev").count_rows("node:A") == 4
