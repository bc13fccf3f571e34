"""A copy of a graph of the origin is swept, written, exported and checked like one of ours."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph
from omnigraph.errors import BadRequest, Conflict
from omnigraph.storage import Repository, Staging, TableChange, WriterKind
from omnigraph.storage.layout import lance_branch
from tests.engine.upstream.conftest import NAMES, expected, query_text

Unpack = Callable[[str], Path]
CRASHES = {
    "crash-none-moved": "RolledBack",
    "crash-some-moved": "RolledBack",
    "crash-all-moved": "RolledForward",
    "crash-published": "AlreadyPublished",
}


@pytest.mark.parametrize("name", sorted(CRASHES))
def test_a_crash_of_the_origin_is_settled_as_it_settles_it(fresh: Unpack, name: str) -> None:
    root, theirs = fresh(name), expected(name)
    reader = omnigraph.open(root, read_only=True)
    published = {k: ref.version for k, ref in reader.snapshot().tables.items()}
    for key, seen in theirs["before"].items():
        head = Repository.open(str(root), read_only=True).engine.store.latest(reader.snapshot().tables[key].location)
        assert (published[key], head.version) == (seen["pin"], seen["head"])
    graph = omnigraph.open(root)
    assert graph.recovered is not None
    assert [o["outcome"] for o in graph.recovered.outcomes] == [CRASHES[name]]
    engine = Repository.open(str(root)).engine
    for key, seen in theirs["after_recovery"].items():
        ref = graph.snapshot().tables[key]
        assert (ref.version, engine.store.latest(ref.location).version) == (seen["pin"], seen["head"])
    (audit,) = engine.history.recoveries()
    (other,) = theirs["recoveries"]
    for column in ("recovery_kind", "recovery_for_actor", "operation_id", "sidecar_writer_kind"):
        assert audit[column] == other[column]
    assert audit["graph_commit_id"] == graph.head().id
    for q in theirs["queries"]:
        rows = graph.query(query_text(name, q["query"]), q["params"]).to_pylist()
        assert sorted(map(repr, rows)) == sorted(map(repr, q["rows"]))
    assert graph.pending() == []
    assert graph.verify().ok
    again = omnigraph.open(root)
    assert again.recovered is not None
    assert again.recovered.outcomes == ()
    assert len(again.commits()) == len(graph.commits())


def test_the_first_write_adds_head_and_schema(fresh: Unpack) -> None:
    root = fresh("branches")
    graph = omnigraph.open(root)
    before = graph.commits()
    assert before[0].schema_hash is None
    done = graph.mutate(
        'query q() { insert City { slug: "zz", name: "Zug" } }', operation_id="01J9ZC4T5E8QK3W7R2N6M1XVYZ"
    )
    source = (root / "_schema.pg").read_text()
    assert done.commit is not None
    assert done.commit.schema_hash == graph.schema.catalog.hash
    assert (root / "_schemas" / f"{done.commit.schema_hash}.pg").read_text() == source
    rows = (
        omnigraph.open(root)._repository.engine.store.latest("__manifest").to_table(filter="object_type = 'graph_head'")
    )
    assert rows["object_id"].to_pylist() == ["graph_head:main"]
    assert [c.id for c in graph.commits()[1:]] == [c.id for c in before]
    # The same operation again is known, also once it isn't the head any more.
    graph.mutate('query q() { insert City { slug: "yy", name: "Ypern" } }')
    again = graph.mutate(
        'query q() { insert City { slug: "no", name: "No" } }', operation_id="01J9ZC4T5E8QK3W7R2N6M1XVYZ"
    )
    assert again.commit is not None
    assert again.commit.id == done.commit.id
    assert len(graph.commits()) == len(before) + 2


def test_insert_update_and_delete_on_every_branch(fresh: Unpack) -> None:
    graph = omnigraph.open(fresh("branches"))
    for branch in sorted(b.name for b in graph.branches.list()):
        cities = graph.snapshot(branch).tables["node:City"].row_count
        others = {b.name: export(graph, b.name) for b in graph.branches.list() if b.name != branch}
        graph.mutate(
            """query q() { insert City { slug: "zz", name: "Zug", pop: 1 }
                           insert Road { from: "zz", to: "aa", km: 1.5 } }""",
            branch=branch,
        )
        graph.mutate('query q() { update City set { pop: 2 } where slug = "zz" }', branch=branch)
        assert graph.snapshot(branch).scan("node:City", ["pop"], filter="id = 'zz'").to_pylist() == [{"pop": 2}]
        graph.mutate('query q() { delete City where slug = "bb" }', branch=branch)
        assert graph.snapshot(branch).tables["node:City"].row_count == cities
        assert "bb" not in graph.snapshot(branch).scan("edge:Road", ["dst"])["dst"].to_pylist()
        assert others == {name: export(graph, name) for name in others}
    report = graph.verify()
    assert [f for f in report.findings if f["severity"] == "error"] == []


def export(graph: omnigraph.Graph, branch: str = "main") -> list[str]:
    return sorted(graph.export(branch=branch))


@pytest.mark.parametrize("name", [n for n in NAMES if n != "maintained"])
def test_export_and_reload_give_an_equal_graph(fresh: Unpack, tmp_path: Path, name: str) -> None:
    graph = omnigraph.open(fresh(name))
    for branch in graph.branches.list():
        lines = export(graph, branch.name)
        made = omnigraph.init(tmp_path / branch.name.replace("/", "_"), schema=graph.schema.source)
        made.load("\n".join(lines))
        assert export(made) == lines


def test_drift_that_changes_no_row_is_published_by_the_write_that_meets_it(fresh: Unpack) -> None:
    """0.7 commits an empty delete to every edge table when it deletes a node, and publishes none of them."""
    graph = omnigraph.open(fresh("types"))
    store = graph._repository.engine.store
    for key in ("edge:Measures", "edge:Belongs"):
        ref = graph.snapshot().tables[key]
        assert store.latest(ref.location).version == ref.version + 1
    graph.mutate('query q() { delete Gauge where code = "g-0" }')
    graph.mutate('query q() { insert Numbered { no: "n9", title: "nine" } insert Belongs { from: "g-1", to: "n9" } }')
    for ref in graph.snapshot().tables.values():
        if ref.table_key in ("edge:Belongs", "node:Gauge", "node:Numbered"):
            assert store.latest(ref.location, lance_branch(ref.branch)).version == ref.version


def test_drift_that_may_change_rows_is_refused(fresh: Unpack) -> None:
    graph = omnigraph.open(fresh("drift"))
    with pytest.raises(Conflict, match="omnigraph repair") as caught:
        graph.mutate('query q() { insert Host { name: "new", cpu: 1 } }')
    assert caught.value.code == "drift_needs_repair"
    graph.mutate('query q() { insert Tag { name: "fine" } }')


def test_keyed_writes_to_ids_of_another_rendering_are_refused(fresh: Unpack) -> None:
    graph = omnigraph.open(fresh("types"))
    head = graph.head().id
    for write in (
        lambda: graph.mutate('query q() { insert Pair { left: "a", right: "y" } }'),
        lambda: graph.load('{"type": "Pair", "data": {"left": "a", "right": "y"}}', mode="append"),
        lambda: graph.load('{"type": "Pair", "data": {"left": "a", "right": "y"}}', mode="merge"),
    ):
        with pytest.raises(Conflict, match="export the graph and load it into a new one") as caught:
            write()
        assert caught.value.code == "foreign_ids"
    assert graph.head().id == head
    graph.load('{"type": "Pair", "data": {"left": "a", "right": "y"}}', mode="overwrite")
    graph.mutate('query q() { insert Pair { left: "a", right: "z" } }')
    assert sorted(graph.snapshot().scan("node:Pair", ["id"])["id"].to_pylist()) == ['["a","y"]', '["a","z"]']


def test_repeated_ids_are_listed_read_whole_and_never_changed_by_halves(fresh: Unpack) -> None:
    graph = omnigraph.open(fresh("branches"))
    repository = Repository.open(graph.uri)
    stored = repository.snapshot().scan("node:City", filter="id = 'aa'")
    at = stored.schema.get_field_index("name")
    twin = stored.set_column(at, stored.schema.field(at), pa.array(["Twin"]))
    change = TableChange("node:City", appends=twin)
    repository.commit(Staging("main", WriterKind.LOAD, (change,)), repository.snapshot())
    found = [f for f in graph.verify().findings if f["kind"] == "duplicate_id"]
    assert [f["id"] for f in found] == ["aa", "aa"]
    assert sum('"slug":"aa"' in line for line in graph.export(types=["City"])) == 2
    names = graph.query('query q() { match { $c: City { slug: "aa" } } return { $c.name } }').to_pylist()
    assert sorted(r["c.name"] for r in names) == ["Aalen", "Twin"]
    roads = graph.query('query q() { match { $c: City { slug: "aa" } $c road $d } return { $c.name, $d.slug } }')
    assert {r["c.name"] for r in roads.to_pylist()} == {"Aalen", "Twin"}
    into = graph.query("query q() { match { $b: City $b road $a } return { $b.slug as b, $a.name as a } }").to_pylist()
    assert {"Aalen", "Twin"} <= {r["a"] for r in into}
    for write in (
        lambda: graph.mutate('query q() { update City set { pop: 9 } where name = "Twin" }'),
        lambda: graph.mutate('query q() { delete City where name = "Twin" }'),
        lambda: graph.load('{"type": "City", "data": {"slug": "aa", "name": "No"}}', mode="merge"),
    ):
        with pytest.raises(Conflict, match="stored several times") as caught:
            write()
        assert caught.value.code == "repeated_id"
    graph.mutate('query q() { delete City where slug = "aa" }')  # all of them: nothing is picked
    assert graph.verify().ok


def test_a_blob_is_exported_as_it_is_loaded(fresh: Unpack) -> None:
    graph = omnigraph.open(fresh("maintained"))
    mine = {r["data"]["slug"]: r["data"]["bytes"] for r in map(json.loads, graph.export(types=["File"]))}
    lines = [json.loads(line) for line in expected("maintained")["branches"]["main"]["export"]]
    assert mine == {r["data"]["slug"]: r["data"]["bytes"] for r in lines if r.get("type") == "File"}


def test_types_with_blobs_are_written(fresh: Unpack) -> None:
    """Nulls, which the origin doesn't mark, stay null whatever moves their row; an empty Blob is refused."""
    graph = omnigraph.open(fresh("maintained"))

    def values(branch: str = "main") -> dict[str, tuple[bytes | None, bytes | None]]:
        snapshot = graph.snapshot(branch)
        rows = snapshot.scan("node:File", ["id", "_rowid"])
        ids = rows["_rowid"].combine_chunks()
        columns = [snapshot.blobs("node:File", name, ids).to_pylist() for name in ("bytes", "thumb")]
        return dict(zip(rows["id"].to_pylist(), zip(*columns, strict=True), strict=True))

    before = values()
    assert before["f-null"][0] is None
    graph.mutate('query q() { update File set { name: "n" } where slug = "f-big" }')
    graph.mutate('query q() { update File set { name: "n" } where slug = "f-null" }')
    graph.load('{"type": "File", "data": {"slug": "f-mid", "name": "m"}}', mode="merge")
    graph.load('{"type": "File", "data": {"slug": "new", "name": "n", "bytes": "base64:YWJj"}}')
    assert values() == before | {"new": (b"abc", None)}
    assert before["f-empty"][0] == b""
    head = graph.head().id
    for write in (
        lambda: graph.mutate('query q() { update File set { name: "n" } where slug = "f-empty" }'),
        lambda: graph.load('{"type": "File", "data": {"slug": "more", "name": "n", "bytes": "base64:"}}'),
    ):
        with pytest.raises(BadRequest, match="can't be told from null") as caught:
            write()
        assert caught.value.code == "empty_blob"
    assert (graph.head().id, graph.pending()) == (head, [])
    graph.branches.create("draft")
    graph.mutate('query q() { update File set { thumb: "base64:AA==" } where slug = "f-null" }', branch="draft")
    graph.branches.merge("draft")
    assert values() == before | {"new": (b"abc", None), "f-null": (None, b"\x00")}
    graph.mutate('query q() { delete File where slug = "f-mid" }')
    assert "f-mid" not in values()
    assert graph.verify().ok


def test_a_graph_with_forks_that_no_commit_names_is_written(fresh: Unpack) -> None:
    """A write of the origin that failed left a fork of node:Page on `after`."""
    graph = omnigraph.open(fresh("maintained"))
    for branch in ("after", "main"):
        graph.mutate('query q() { insert Page { slug: "new", title: "t", rank: 1, state: "live" } }', branch=branch)
        graph.mutate('query q() { update Page set { rank: 77 } where slug = "pg007" }', branch=branch)
        graph.mutate('query q() { delete Page where slug = "pg008" }', branch=branch)
        rows = graph.snapshot(branch).scan("node:Page", ["id", "rank"], filter="id in ('new', 'pg007', 'pg008')")
        assert sorted(r["rank"] for r in rows.to_pylist()) == [1, 77]
    graph.ensure_indices()
    assert graph.verify().ok
