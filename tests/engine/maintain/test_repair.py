"""Heads ahead of what is published: shown, published where no row differs, the rest only by force."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import omnigraph
from omnigraph.cli.main import main
from omnigraph.errors import Conflict, Forbidden
from omnigraph.storage import Repository
from tests.engine.upstream.conftest import expected, fingerprint, unpack

SCHEMA = "node P { slug: String @key  n: I64? @index }\nedge K: P -> P\n"
DATA = '{"type":"P","data":{"slug":"a"}}\n{"type":"P","data":{"slug":"b","n":2}}\n{"edge":"K","from":"a","to":"b"}'


@pytest.fixture
def graph(tmp_path: Path) -> omnigraph.Graph:
    made = omnigraph.init(tmp_path / "g", schema=SCHEMA)
    made.load(DATA)
    return made


def head(graph: omnigraph.Graph, key: str, branch: str = "main") -> int:
    ref = graph.snapshot(branch).tables[key]
    return int(Repository.open(graph.uri).engine.store.latest(ref.location, ref.branch).version)


def dataset(graph: omnigraph.Graph, key: str, branch: str = "main"):  # type: ignore[no-untyped-def]
    ref = graph.snapshot(branch).tables[key]
    return Repository.open(graph.uri).engine.store.latest(ref.location, ref.branch)


def test_nothing_to_repair(graph: omnigraph.Graph) -> None:
    assert graph.repair().tables == ()
    assert graph.repair(confirm=True, force=True).commits == ()


def test_what_changes_no_row_is_published_on_confirmation(graph: omnigraph.Graph) -> None:
    graph.branches.create("dev")
    graph.mutate('query q() { insert P { slug: "c" } }', branch="dev")
    dataset(graph, "node:P").create_scalar_index("slug", "BTREE")
    dataset(graph, "edge:K").delete("id = 'nothing like it'")
    dataset(graph, "node:P", "dev").optimize.compact_files()
    graph.close()  # history's rows follow the answer
    before = fingerprint(Path(graph.uri))
    rows = {b: sorted(graph.export(branch=b)) for b in ("main", "dev")}
    seen = {(d.branch, d.table_key): (d.kind, d.action, d.operations) for d in graph.repair().tables}
    assert seen == {
        ("main", "node:P"): ("NoRowChanged", "none", ("CreateIndex",)),
        ("main", "edge:K"): ("NoRowChanged", "none", ("Delete",)),
        ("dev", "node:P"): ("NoRowChanged", "none", ("BaseOperation", "Rewrite")),
    }
    assert fingerprint(Path(graph.uri)) == before
    report = graph.verify()
    assert report.ok
    assert [f["severity"] for f in report.findings if f["kind"] == "drift"] == ["note"] * 3
    one = graph.repair(branch="dev", confirm=True)
    assert [d.branch for d in one.tables] == ["dev"]
    done = graph.repair(confirm=True, actor="ada")
    assert [d.action for d in done.tables] == ["published"] * 2
    assert [c.actor for c in done.commits] == ["ada"]
    assert graph.repair().tables == ()
    for branch in ("main", "dev"):
        for ref in graph.snapshot(branch).tables.values():
            assert ref.branch != branch or head(graph, ref.table_key, branch) == ref.version
        assert sorted(graph.export(branch=branch)) == rows[branch]
    assert not [f for f in graph.verify().findings if f["kind"] == "drift"]


def test_a_write_that_meets_harmless_drift_publishes_it(graph: omnigraph.Graph) -> None:
    dataset(graph, "node:P").update_config({"some": "setting"})
    graph.mutate('query q() { insert P { slug: "c" } }')
    assert graph.repair().tables == ()


def test_what_may_change_rows_needs_force(graph: omnigraph.Graph, capsys: pytest.CaptureFixture[str]) -> None:
    dataset(graph, "node:P").delete("slug = 'b'")
    dataset(graph, "edge:K").update_config({"some": "setting"})
    before = graph.snapshot().tables["node:P"].version
    with pytest.raises(Conflict, match="omnigraph repair"):
        graph.mutate('query q() { insert P { slug: "c" } }')
    assert not graph.verify().ok
    assert [
        f["message"] for f in graph.verify().findings if f["kind"] == "drift" and "omnigraph repair" in f["message"]
    ]
    assert main(["repair", graph.uri, "--confirm", "--format", "json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert {t["table_key"]: (t["kind"], t["action"]) for t in answer["tables"]} == {
        "node:P": ("MayChangeRows", "refused"),
        "edge:K": ("NoRowChanged", "published"),
    }
    assert graph.snapshot().tables["node:P"].version == before
    assert main(["repair", graph.uri, "--force"]) == 0  # without --confirm nothing is written
    assert graph.snapshot().tables["node:P"].version == before
    assert main(["repair", graph.uri, "--force", "--confirm"]) == 0
    assert "published" in capsys.readouterr().out
    assert graph.snapshot().tables["node:P"].row_count == 1
    assert {f["kind"] for f in graph.verify().findings if f["severity"] == "error"} == {"orphan_edge"}
    graph.mutate('query q() { insert P { slug: "b" } }')
    assert graph.verify().ok


def test_an_interrupted_write_is_left_to_recover(graph: omnigraph.Graph) -> None:
    ref = graph.snapshot().tables["node:P"]
    dataset(graph, "node:P").delete("slug = 'b'")
    table = {
        "table_key": "node:P", "table_path": ref.location, "expected_version": ref.version,
        "post_commit_pin": ref.version + 5,
    }  # fmt: skip
    body = {"schema_version": 1, "operation_id": "OPX", "started_at": "0", "writer_kind": "Load", "tables": [table]}
    (Path(graph.uri) / "__recovery" / "OPX.json").write_text(json.dumps(body))
    report = graph.repair(confirm=True, force=True)
    assert [(d.kind, d.action) for d in report.tables] == [("PendingRecovery", "refused")]
    graph.recover()
    assert graph.repair().tables == ()
    assert graph.snapshot().tables["node:P"].row_count == 2


def test_the_drift_of_the_origin(tmp_path: Path) -> None:
    """Its own repair, too, refuses what its half-done delete left, and publishes it by force."""
    graph = omnigraph.open(unpack("drift", tmp_path))
    theirs = expected("drift")
    seen = {t: (d["pin"], d["head"]) for t, d in theirs["drift"].items() if d["pin"] != d["head"]}
    assert {d.table_key: (d.pinned, d.head) for d in graph.repair().tables} == seen
    actions = {d.table_key: (d.kind, d.action) for d in graph.repair(confirm=True).tables}
    assert actions["node:Host"] == ("MayChangeRows", "refused")
    graph.repair(confirm=True, force=True)
    state = theirs["on_a_copy: state"]
    assert {k: (ref.version, head(graph, k)) for k, ref in graph.snapshot().tables.items()} == {
        k: (v["pin"], v["head"]) for k, v in state.items()
    }
    graph.mutate('query q() { insert Host { name: "new", cpu: 1 } }')


def test_reading_only_never_repairs(graph: omnigraph.Graph) -> None:
    reader = omnigraph.open(graph.uri, read_only=True)
    assert reader.repair().tables == ()
    with pytest.raises(Forbidden):
        reader.repair(confirm=True)


def test_verify_mentions_what_killed_loads_left_in_staging(graph: omnigraph.Graph) -> None:
    (Path(graph.uri) / "__staging" / "OPX").mkdir(parents=True)
    (found,) = [f for f in graph.verify().findings if f["kind"] == "staging"]
    assert found["severity"] == "note"
    assert "__staging" in found["message"]
    graph.recover()
    assert not [f for f in graph.verify().findings if f["kind"] == "staging"]
