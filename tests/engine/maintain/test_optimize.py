"""Compaction on real storage: no row and no row id differs, whoever reads or writes beside it; twice moves nothing."""

from __future__ import annotations

import json
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance.blob import blob_array, blob_field
from lance.optimize import Compaction

import omnigraph
from omnigraph.cli.main import main
from omnigraph.errors import BadRequest, Conflict, NotFound, RecoveryPending
from omnigraph.maintain import verify
from omnigraph.storage import Repository
from omnigraph.storage import optimize as module
from omnigraph.storage.drift import neutral, operation_of
from tests.engine.upstream.conftest import NAMES, unpack

SCHEMA = "node P { slug: String @key  n: I64? @index }\nnode Q { slug: String @key }\nedge K: P -> P\n"


def rows(prefix: str, count: int = 20) -> str:
    return "\n".join(json.dumps({"type": "P", "data": {"slug": f"{prefix}-{i}", "n": i}}) for i in range(count))


@pytest.fixture(scope="module")
def seed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("seed") / "g"
    graph = omnigraph.init(path, schema=SCHEMA)
    for k in range(3):
        graph.load(rows(f"a{k}"))
    graph.ensure_indices()
    for k in range(3):
        graph.load(rows(f"b{k}"))
    graph.mutate('query q() { delete P where slug = "a0-3" }')
    graph.close()
    return path


@pytest.fixture
def graph(seed: Path, tmp_path: Path) -> omnigraph.Graph:
    shutil.copytree(seed, tmp_path / "g")
    return omnigraph.open(tmp_path / "g")


def numbered(graph: omnigraph.Graph, branch: str = "main") -> dict[str, Any]:
    snapshot = graph.snapshot(branch)
    lineage = ["_rowid", "_row_created_at_version", "_row_last_updated_at_version"]
    return {
        k: sorted(map(str, snapshot.scan(k, [*lineage, *snapshot.schema(k).names]).to_pylist()))
        for k in snapshot.tables
    }


def heads(graph: omnigraph.Graph, branch: str = "main") -> dict[str, tuple[int, int]]:
    store = Repository.open(graph.uri).engine.store
    tables = graph.snapshot(branch).tables.items()
    return {k: (r.version, int(store.latest(r.location, r.branch).version)) for k, r in tables}


def test_it_compacts_once_and_changes_no_row(graph: omnigraph.Graph) -> None:
    before, old = numbered(graph), graph.snapshot()
    answered = old.scan("node:P", ["slug"]).num_rows
    report = graph.optimize(actor="ada")
    done = {t.table_key: t for t in report.tables}
    person = done["node:P"]
    assert (person.action, person.fragments_before, person.fragments_after) == ("compacted", 6, 1)
    assert person.extended == ("id", "slug", "n")
    assert person.bytes_after < person.bytes_before
    assert person.version < person.manifest_version == person.head
    assert (done["node:Q"].action, done["edge:K"].action) == ("unchanged", "unchanged")
    assert report.commit is not None
    assert graph.head() == report.commit
    assert graph.head().actor == "ada"
    assert numbered(graph) == before
    assert all(pin == head for pin, head in heads(graph).values())
    assert old.scan("node:P", ["slug"]).num_rows == answered  # the pin still answers
    assert graph.snapshot(at=old.manifest_version).scan("node:P", ["slug"]).num_rows == answered
    (coverage,) = [
        i.num_rows_indexed for i in graph.snapshot().dataset("node:P").describe_indices() if i.name == "n_idx"
    ]
    assert coverage == 119
    assert graph.snapshot().scan("node:P", ["slug"], filter="n = 3").num_rows == 5
    head = graph.head().id
    again = graph.optimize()
    assert ({t.action for t in again.tables}, again.commit, again.system) == ({"unchanged"}, None, ())
    assert graph.head().id == head
    assert graph.verify().ok


def test_the_same_operation_changes_nothing(graph: omnigraph.Graph) -> None:
    name = "01J9ZC4T5E8QK3W7R2N6M1XV00"
    first = graph.optimize(operation_id=name)
    graph.load(rows("c"))
    assert graph.optimize(operation_id=name).commit == first.commit


def test_a_branch_compacts_its_own_files_alone(graph: omnigraph.Graph) -> None:
    graph.branches.create("dev")
    for k in range(2):
        graph.load(rows(f"d{k}"), branch="dev")
    main_before, dev_before, main_heads = numbered(graph), numbered(graph, "dev"), heads(graph)
    report = graph.optimize(branch="dev")
    done = {t.table_key: t for t in report.tables}
    assert (done["node:P"].action, done["node:P"].fragments_after) == ("compacted", 1)
    assert (done["node:Q"].action, done["node:Q"].reason) == ("skipped", "Inherited")
    assert "'main'" in str(done["node:Q"].message)
    assert graph.snapshot("dev").tables["node:Q"].branch is None  # not forked for it
    assert (numbered(graph), numbered(graph, "dev"), heads(graph)) == (main_before, dev_before, main_heads)
    graph.branches.merge("dev")
    assert graph.snapshot().tables["node:P"].row_count == 159
    with pytest.raises(NotFound):
        graph.optimize(branch="gone")


@pytest.mark.parametrize("foreign", [False, True])
def test_indexes_a_branch_inherited_still_answer(graph: omnigraph.Graph, foreign: bool) -> None:
    """Lance's compaction leaves such an index looking for its new files where the old ones were."""
    if foreign:
        snapshot = graph.snapshot()
        dataset = snapshot._engine.store.latest(snapshot.tables["node:P"].location)
        dataset.create_scalar_index("n", "BITMAP", name="another")
    graph.branches.create("draft", from_="main")
    graph.mutate('query q() { delete P where slug = "a0-5" }', branch="draft")
    graph.optimize(branch="draft")
    snapshot = omnigraph.open(graph.uri).snapshot("draft")
    assert snapshot.scan("node:P", ["slug"], filter="id = 'a1-4'").num_rows == 1
    assert snapshot.scan("node:P", ["slug"], filter="n = 5").num_rows == 5
    covered = {i.name: i.num_rows_indexed for i in snapshot.dataset("node:P").describe_indices()}
    assert covered == {name: snapshot.count_rows("node:P") for name in ("id_idx", "slug_idx", "n_idx")}
    graph.mutate('query q() { delete P where slug = "a0-6" }', branch="draft")
    assert graph.snapshot("main").count_rows("node:P") == 119


def test_drift_that_may_change_rows_is_skipped_and_other_tables_are_done(graph: omnigraph.Graph) -> None:
    for _ in range(2):
        graph.mutate("query q($s: String) { insert Q { slug: $s } }", {"s": str(time.monotonic())})
    dataset = Repository.open(graph.uri).engine.store.latest(graph.snapshot().tables["node:P"].location)
    dataset.delete("slug = 'b1-1'")
    before = numbered(graph)
    done = {t.table_key: t for t in graph.optimize().tables}
    assert (done["node:P"].action, done["node:P"].reason) == ("skipped", "DriftNeedsRepair")
    assert "omnigraph repair" in str(done["node:P"].message)
    assert done["node:Q"].action == "compacted"
    assert numbered(graph) == before


def test_drift_that_changes_no_row_is_published_with_it(graph: omnigraph.Graph) -> None:
    dataset = Repository.open(graph.uri).engine.store.latest(graph.snapshot().tables["node:P"].location)
    dataset.optimize.compact_files()
    kinds = [operation_of(dataset, v)[0] for v in range(int(dataset.version) - 1, int(dataset.version) + 1)]
    assert kinds == ["BaseOperation", "Rewrite"]  # with indices carried over, which Lance's Python can't show
    assert neutral(dataset, int(dataset.version) - 2, int(dataset.version))
    graph.mutate('query q() { insert P { slug: "after" } }')
    assert graph.repair().tables == ()
    graph.optimize()
    assert graph.verify().ok


def test_a_pending_roll_back_refuses_it(graph: omnigraph.Graph) -> None:
    ref = graph.snapshot().tables["node:P"]
    other = graph.snapshot().tables["node:Q"]
    Repository.open(graph.uri).engine.store.latest(ref.location).delete("slug = 'b1-1'")
    tables = [
        {
            "table_key": r.table_key,
            "table_path": r.location,
            "expected_version": r.version,
            "post_commit_pin": r.version + 1,
        }
        for r in (ref, other)
    ]
    body = {"schema_version": 1, "operation_id": "OPX", "started_at": "0", "writer_kind": "Load", "tables": tables}
    (Path(graph.uri) / "__recovery" / "OPX.json").write_text(json.dumps(body))
    with pytest.raises(RecoveryPending, match="omnigraph recover"):
        graph.optimize()
    graph.recover()
    assert {t.action for t in graph.optimize().tables} == {"compacted", "unchanged"}


@pytest.mark.parametrize("query", ['insert P { slug: "z" }', 'update P set { n: 7 } where slug = "b1-1"',
                                   'delete P where slug = "a0-5"'])  # fmt: skip
def test_a_write_that_comes_between_wins_and_the_table_is_done_anew(
    graph: omnigraph.Graph, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    """Between the writing of the compacted files and their commit, another opener's write moves the table."""
    real, left = module._commit, [1]

    def late(*args: Any) -> Any:
        if left:
            left.pop()
            omnigraph.open(graph.uri).mutate(f"query q() {{ {query} }}")
        return real(*args)

    monkeypatch.setattr(module, "_commit", late)
    done = {t.table_key: t for t in graph.optimize().tables}
    assert not left
    # What the write added isn't indexed yet, and Lance compacts that apart.
    assert (done["node:P"].action, done["node:P"].fragments_after) == ("compacted", 1 if query[0] == "d" else 2)
    count = 119 + {"i": 1, "u": 0, "d": -1}[query[0]]
    assert graph.snapshot().tables["node:P"].row_count == graph.snapshot().scan("node:P").num_rows == count
    assert graph.snapshot().count_rows("node:P", "n = 7") == (7 if query[0] == "u" else 6)
    assert all(pin == head for pin, head in heads(graph).values())
    assert graph.verify().ok


def test_a_table_that_keeps_moving_is_left(graph: omnigraph.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    real = module._commit
    numbers: list[int] = []

    def late(*args: Any) -> Any:
        numbers.append(len(numbers))
        change = 'query q($n: I64) { update P set { n: $n } where slug = "b1-1" }'
        omnigraph.open(graph.uri).mutate(change, {"n": 1000 + len(numbers)})
        return real(*args)

    monkeypatch.setattr(module, "_commit", late)
    done = {t.table_key: t for t in graph.optimize().tables}
    assert (done["node:P"].action, done["node:P"].reason) == ("skipped", "Busy")
    assert graph.verify().ok
    graph.mutate('query q() { insert P { slug: "z" } }')
    assert graph.repair().tables == ()


def test_writers_of_one_process_beside_it(graph: omnigraph.Graph) -> None:
    """Every acknowledged row is there afterwards; a refusal says that it may be tried again."""
    kept: list[str] = []
    refused: list[Conflict] = []
    stop = threading.Event()

    def write(tag: str) -> None:
        i = 0
        while not stop.is_set():
            try:
                graph.mutate("query q($s: String) { insert P { slug: $s } }", {"s": f"{tag}{i}"})
                kept.append(f"{tag}{i}")
            except Conflict as error:
                refused.append(error)
            i += 1

    threads = [threading.Thread(target=write, args=(t,)) for t in "xy"]
    for thread in threads:
        thread.start()
    for _ in range(3):
        time.sleep(0.2)
        graph.optimize()
    stop.set()
    for thread in threads:
        thread.join()
    found = graph.snapshot().scan("node:P", ["slug"])["slug"].to_pylist()
    assert len(found) == len(set(found)) == 119 + len(kept)
    assert set(kept) <= set(found)
    assert kept
    assert all(error.retryable for error in refused), refused
    assert verify(Repository.open(graph.uri)).ok


def test_lance_compacts_blobs(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.string(), False), blob_field("b")])
    values: list[bytes | None] = [b"small", None, b"", b"x" * 3_000_000]

    def table(tag: str) -> pa.Table:
        return pa.table({"id": [f"{tag}{i}" for i in range(4)], "b": blob_array(values)}, schema=schema)

    path = str(tmp_path / "t")
    dataset = lance.write_dataset(table("a"), path, enable_stable_row_ids=True, data_storage_version="2.2")
    for tag in "bc":
        dataset = lance.write_dataset(table(tag), dataset, mode="append")
    ids = dataset.to_table(columns=["id"], with_row_id=True)["_rowid"].to_pylist()
    plan = Compaction.plan(dataset, {})
    Compaction.commit(dataset, [task.execute(dataset) for task in plan.tasks])
    after = lance.dataset(path)
    assert len(after.get_fragments()) == 1
    assert after.to_table(columns=["id"], with_row_id=True)["_rowid"].to_pylist() == ids
    assert [data for _, data in after.read_blobs("b", ids=ids, preserve_order=True)] == values * 3
    after.cleanup_old_versions(versions=[1, 2, 3, 4])
    assert [data for _, data in lance.dataset(path).read_blobs("b", ids=ids, preserve_order=True)] == values * 3


def test_blobs_of_ours_are_compacted(tmp_path: Path) -> None:
    """Null and empty stay apart, also for an empty one that is the first of its file."""
    graph = omnigraph.init(tmp_path / "g", schema="node F { slug: String @key  data: Blob? }\n")
    values: list[bytes | None] = [b"", None, b"some", b"x" * 200_000]
    for k in range(3):
        table = pa.table({"slug": [f"{k}{i}" for i in range(4)], "data": pa.array(values, pa.large_binary())})
        graph.load({"F": table})
    before = sorted(graph.export())
    (done,) = graph.optimize().tables
    assert (done.action, done.fragments_before, done.fragments_after) == ("compacted", 3, 1)
    assert sorted(graph.export()) == before
    graph.cleanup(keep=1, confirm=True)
    assert sorted(graph.export()) == before
    assert graph.verify().ok


@pytest.mark.parametrize("name", ["types", "branches", "maintained"])
def test_graphs_of_the_origin(tmp_path: Path, name: str) -> None:
    assert name in NAMES
    graph = omnigraph.open(unpack(name, tmp_path))
    branches = [b.name for b in graph.branches.list()]
    before = {b: sorted(graph.export(branch=b)) for b in branches}
    for branch in branches:
        skipped = {t.reason for t in graph.optimize(branch=branch).tables if t.action == "skipped"}
        assert skipped <= {"Inherited", "NullBlobsOfOldFormat"}
        assert ("NullBlobsOfOldFormat" in skipped) == (name == "maintained")
        assert {t.action for t in graph.optimize(branch=branch).tables} <= {"unchanged", "skipped"}
    assert {b: sorted(graph.export(branch=b)) for b in branches} == before


def test_the_command(graph: omnigraph.Graph, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimize", graph.uri, "--as", "ada"]) == 0
    out = capsys.readouterr().out
    assert "6 → 1" in out
    assert f"commit {graph.head().id}" in out
    assert main(["optimize", graph.uri, "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["commit"] is None
    assert {t["action"] for t in answer["tables"]} == {"unchanged"}
    assert main(["optimize", graph.uri, "--branch", "none"]) == 1


def test_how_many_tables_at_once(graph: omnigraph.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_MAINTENANCE_CONCURRENCY", "none")
    with pytest.raises(BadRequest, match="OMNIGRAPH_MAINTENANCE_CONCURRENCY"):
        graph.optimize()
    monkeypatch.setenv("OMNIGRAPH_MAINTENANCE_CONCURRENCY", "1")
    assert graph.optimize().commit is not None
