"""Repository and Snapshot on real datasets."""

from __future__ import annotations

import errno
import json
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from omnigraph.errors import (
    BadRequest,
    Conflict,
    ExpectedVersionMismatch,
    Forbidden,
    NotFound,
    RecoveryPending,
    RowLevelCasContention,
    Unavailable,
)
from omnigraph.schema import compile_schema
from omnigraph.storage import Repository, Snapshot, Staging, TableChange, WriterKind, publish, write_fragments
from omnigraph.storage.files import working_folder
from omnigraph.storage.layout import fnv1a64
from omnigraph.storage.uri import parse_root

SCHEMA = """node P {
    name: String @key
    age: I64?
}
node Q {
    name: String @key
}
edge K: P -> P
"""


def people(*ids: str, age: int = 0) -> pa.Table:
    return pa.table({"age": pa.array([age] * len(ids), pa.int64()), "id": list(ids), "name": list(ids)})


def edges(*pairs: tuple[str, str]) -> pa.Table:
    return pa.table({"id": [a + b for a, b in pairs], "src": [p[0] for p in pairs], "dst": [p[1] for p in pairs]})


def put(repository: Repository, *changes: TableChange, base: Snapshot | None = None, **more: object) -> str:
    branch = str(more.pop("branch", "main"))
    staging = Staging(branch, WriterKind.MUTATION, changes, **more)  # type: ignore[arg-type]
    return repository.commit(staging, base or repository.snapshot(branch)).id


def ids(snapshot: Snapshot, table: str = "node:P") -> list[str]:
    return sorted(snapshot.scan(table, ["id"])["id"].to_pylist())


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository.create(str(tmp_path / "g"), compile_schema(SCHEMA), actor="ann")
    put(made, TableChange("node:P", appends=people("a", "b", "c")))
    return made


def test_create_and_open(tmp_path: Path, repository: Repository) -> None:
    assert fnv1a64("") == "cbf29ce484222325"
    assert fnv1a64("a") == "af63dc4c8601ec8c"
    root = tmp_path / "g"
    for name in ("_schema.pg", "_schema.ir.json", "__schema_state.json", "__manifest", "_graph_commits.lance"):
        assert (root / name).exists()
    assert (root / "nodes" / fnv1a64("P")).is_dir()
    opened = Repository.open(f"file://{root}")
    assert opened.snapshot().catalog.source == SCHEMA
    assert [c.actor for c in opened.commits()] == [None, "ann"]
    with pytest.raises(Conflict, match=str(root)):
        Repository.create(str(root), compile_schema(SCHEMA))
    with pytest.raises(NotFound, match="omnigraph init"):
        Repository.open(str(tmp_path / "nothing"))


def test_reading(repository: Repository) -> None:
    put(repository, TableChange("node:P", appends=people("d", age=7), delete_ids=pa.array(["a"])))
    snapshot = repository.snapshot()
    assert ids(snapshot) == ["b", "c", "d"]
    assert snapshot.count_rows("node:P") == 3
    assert snapshot.count_rows("node:P", "age = 7") == snapshot.count_rows("node:P", pc.field("age") == 7) == 1
    rows = snapshot.scan("node:P", ["name", "_rowid", "_row_created_at_version"], filter="age = 7")
    assert rows["name"].to_pylist() == ["d"]
    assert snapshot.scan("node:P", limit=1).num_rows == 1
    everything = snapshot.scan("node:P", ["_rowid", "id"]).to_pydict()
    backwards = everything["_rowid"][::-1]
    assert snapshot.take("node:P", backwards, ["id"])["id"].to_pylist() == everything["id"][::-1]
    assert snapshot.take("node:P", [], ["id"]).num_rows == 0
    with pytest.raises(NotFound):
        snapshot.take("node:P", [999], ["id"])
    places = snapshot.scan("node:P", ["id", "_rowaddr"], filter="id IN ('c', 'd')").to_pydict()
    assert snapshot.rows_at("node:P", pa.array(places["_rowaddr"]), ["id"])["id"].to_pylist() == places["id"]
    assert snapshot.rows_at("node:P", pa.array([], pa.uint64()), ["id"]).num_rows == 0
    for gone in (0, 999):  # `a` was there, and nothing is there
        with pytest.raises(NotFound):
            snapshot.rows_at("node:P", pa.array([*places["_rowaddr"], gone], pa.uint64()), ["id"])
    with pytest.raises(NotFound):
        snapshot.scan("node:Nope")
    with pytest.raises(BadRequest):
        snapshot.scan("node:P", ["nope"])
    assert snapshot.scan_batches("edge:K").read_all().num_rows == 0


def test_a_snapshot_stays_and_history_is_read(repository: Repository) -> None:
    old = repository.snapshot()
    when = datetime.now(UTC)
    time.sleep(0.01)
    second = put(repository, TableChange("node:P", delete_ids=pa.array(["a", "b", "c"])))
    assert ids(old) == ["a", "b", "c"]
    assert ids(repository.snapshot()) == []
    put(repository, TableChange("node:P", upserts=people("z")))  # no fragment left: overwritten strictly
    assert ids(repository.snapshot()) == ["z"]
    assert ids(repository.snapshot(at=old.manifest_version)) == ["a", "b", "c"]
    assert ids(repository.snapshot(at=old.head.id)) == ["a", "b", "c"]
    assert ids(repository.snapshot(at=when)) == ["a", "b", "c"]
    assert ids(repository.snapshot(at=second)) == []
    assert ids(repository.snapshot(at=old)) == ["a", "b", "c"]
    assert [len(repository.commits(limit=2)), len(repository.commits(before=second))] == [2, 2]
    for wrong in (999, "01NOPE", when - timedelta(days=1)):
        with pytest.raises(NotFound):
            repository.snapshot(at=wrong)


def test_many_commits_and_compactions_keep_every_version(repository: Repository) -> None:
    versions = {}
    for i in range(80):
        put(repository, TableChange("node:P", upserts=people("a", age=i)))
        versions[repository.snapshot().manifest_version] = i
    assert len(repository.engine.manifest.handle("main").get_fragments()) < 80
    fresh = Repository.open(repository.uri)
    assert fresh.snapshot().tables == repository.snapshot().tables
    for version, i in list(versions.items())[::9]:
        assert fresh.snapshot(at=version).count_rows("node:P", f"id = 'a' and age = {i}") == 1
    commits = fresh.commits(limit=1000)
    assert len(commits) == 82
    for commit in commits[:-1:11]:
        assert fresh.snapshot(at=commit.id).head.id == commit.id


def test_stale_writes_are_refused_and_undone(repository: Repository) -> None:
    base = repository.snapshot()
    put(repository, TableChange("node:P", upserts=people("a", age=1)))
    with pytest.raises(ExpectedVersionMismatch):
        put(repository, TableChange("node:P", upserts=people("a", age=2)), base=base)
    with pytest.raises(ExpectedVersionMismatch):
        put(repository, TableChange("edge:K", appends=edges(("a", "b"))), base=base, reads=frozenset({"node:P"}))
    put(repository, TableChange("edge:K", appends=edges(("a", "b"))), base=base)  # disjoint: no conflict
    with pytest.raises(Conflict, match="read again"):
        put(repository, TableChange("edge:K", appends=edges(("b", "b"))), expect_head=base.head.id)
    assert repository.snapshot().count_rows("node:P", "age = 1") == 1
    assert repository.pending() == []


def test_the_loser_of_the_publish_undoes_itself(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table it relied on moves between its table commit and its publish."""
    from omnigraph.storage import commit as module

    other = Repository.open(repository.uri)
    real, calls = module.publish, []

    def late(*args: object, **kwargs: object) -> object:
        if not calls:
            calls.append(1)
            put(other, TableChange("node:P", delete_ids=pa.array(["a"])))
        return real(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "publish", late)
    change = TableChange("edge:K", appends=edges(("a", "b")))
    with pytest.raises(ExpectedVersionMismatch):
        put(repository, change, reads=frozenset({"node:P"}), operation_id="LOSER")
    snapshot = repository.snapshot()
    ref = snapshot.tables["edge:K"]
    assert repository.engine.store.latest(ref.location, ref.branch).version == ref.version
    assert (ids(snapshot, "edge:K"), repository.pending()) == ([], [])
    assert [r["recovery_kind"] for r in repository.engine.history.recoveries()] == ["RolledBack"]
    put(repository, change, operation_id="LOSER")  # the same operation again isn't taken for the undone one
    assert ids(repository.snapshot(), "edge:K") == ["ab"]


def test_the_same_operation_changes_nothing(repository: Repository) -> None:
    base = repository.snapshot()
    change = TableChange("node:P", appends=people("x"))
    first = put(repository, change, base=base, operation_id="OP")
    assert put(repository, change, base=base, operation_id="OP") == first
    assert put(Repository.open(repository.uri), change, operation_id="OP") == first
    assert ids(repository.snapshot()) == ["a", "b", "c", "x"]
    with pytest.raises(BadRequest):
        put(repository, change, operation_id="a'; drop")


def test_bad_rows_move_nothing(repository: Repository) -> None:
    head = repository.head().id
    for rows in (
        people("x").drop_columns(["age"]),
        people("x").append_column("more", pa.array([1])),
        people("x", "x"),
        people("x").set_column(1, "id", pa.array([None], pa.string())),
        people("x").set_column(0, "age", pa.array(["old"])),
    ):
        with pytest.raises(BadRequest):
            put(repository, TableChange("node:P", upserts=rows))
    assert (repository.head().id, repository.pending()) == (head, [])


def test_branches(repository: Repository) -> None:
    repository.create_branch("feat/x")
    put(repository, TableChange("node:P", appends=people("main-only")))
    put(repository, TableChange("node:P", appends=people("x-only"), delete_ids=pa.array(["a"])), branch="feat/x")
    assert ids(repository.snapshot()) == ["a", "b", "c", "main-only"]
    assert ids(repository.snapshot("feat/x")) == ["b", "c", "x-only"]
    refs = repository.snapshot("feat/x").tables
    assert (refs["node:P"].branch, refs["node:Q"].branch) == ("feat/x", None)  # forked lazily
    repository.create_branch("child", from_="feat/x")
    put(repository, TableChange("node:P", appends=people("child-only")), branch="child")
    assert ids(repository.snapshot("child")) == ["b", "c", "child-only", "x-only"]
    assert ids(repository.snapshot("feat/x")) == ["b", "c", "x-only"]
    old = repository.commits()[1]
    repository.create_branch("past", at=old.id)
    assert ids(repository.snapshot("past")) == ["a", "b", "c"]
    begin = repository.snapshot("past").manifest_version
    assert ids(repository.snapshot("child", at=begin)) == ["a", "b", "c"]  # a version of an ancestor
    assert [b.name for b in repository.branches()] == ["main", "child", "feat/x", "past"]
    assert {b.name: b.parent for b in repository.branches()}["child"] == "feat/x"
    assert len(repository.commits("child")) == 4
    assert len(repository.commits()) == 3
    for taken in ("child", "child/deeper", "feat"):
        with pytest.raises(Conflict):
            repository.create_branch(taken)
    for bad in ("main", "", "__x", "a b", "a//b", "/a", "a..b", "a.lock", "a@b"):
        with pytest.raises(BadRequest):
            repository.create_branch(bad)
    with pytest.raises(NotFound, match="nope"):
        repository.snapshot("nope")


def test_an_orphan_fork_is_taken_or_made_anew(repository: Repository) -> None:
    repository.create_branch("dev")
    base = repository.snapshot("dev")
    files = repository.write_fragments(base, "node:P", people("f"))
    target = repository.write_target(base, "node:P")
    more = write_fragments(repository.uri, target, people("g").to_reader())  # as an executor does
    assert ids(repository.snapshot("dev")) == ["a", "b", "c"]
    put(repository, TableChange("node:P", fragments=files + more), branch="dev")
    assert ids(repository.snapshot("dev")) == ["a", "b", "c", "f", "g"]

    # A fork that moved and that nothing names: deleted and made again.
    ref = repository.snapshot("dev").tables["edge:K"]
    dataset = repository.engine.store.latest(ref.location)
    dataset.create_branch("dev", dataset.version)
    fork = repository.engine.store.latest(ref.location, "dev")
    import lance

    lance.write_dataset(edges(("q", "q")), fork, mode="append")
    put(repository, TableChange("edge:K", appends=edges(("a", "b"))), branch="dev")
    assert ids(repository.snapshot("dev"), "edge:K") == ["ab"]


def _half_made(repository: Repository, location: str, branch: str) -> None:
    """As a kill between Lance's two steps leaves it: the branch's files, and no record of it."""
    (Path(repository.uri) / location / "_refs" / "branches" / f"{branch}.json").unlink()


def test_a_branch_that_a_kill_left_half_made_is_none_and_is_made_anew(repository: Repository) -> None:
    repository.create_branch("dev")
    _half_made(repository, "__manifest", "dev")
    again = Repository.open(repository.uri)
    with pytest.raises(NotFound, match="no branch"):
        again.snapshot("dev")
    put(again, TableChange("node:P", appends=people("d")))
    assert again.create_branch("dev").head == again.head()
    put(again, TableChange("node:P", appends=people("e")), branch="dev")
    assert ids(again.snapshot("dev")) == ["a", "b", "c", "d", "e"]


def test_a_fork_that_a_kill_left_half_made_is_made_anew(repository: Repository) -> None:
    repository.create_branch("dev")
    table = repository.write_target(repository.snapshot("dev"), "node:P")
    _half_made(repository, table.location, "dev")
    put(repository, TableChange("node:P", appends=people("e")), branch="dev")
    assert ids(repository.snapshot("dev")) == ["a", "b", "c", "e"]


def test_a_history_that_a_kill_left_half_made_does_not_block_a_new_branch(repository: Repository) -> None:
    repository.create_branch("dev")
    put(repository, TableChange("node:P", appends=people("e")), branch="dev")
    repository.close()
    repository.engine.store.latest("__manifest").branches.delete("dev")
    _half_made(repository, "_graph_commits.lance", "dev")
    again = Repository.open(repository.uri)
    again.create_branch("dev")
    put(again, TableChange("node:P", appends=people("f")), branch="dev")
    assert ids(again.snapshot("dev")) == ["a", "b", "c", "f"]
    assert len(again.commits("dev")) == 3


def test_files_that_vanished_are_noticed(repository: Repository) -> None:
    files = repository.write_fragments(repository.snapshot(), "node:P", people("f"))
    ref = repository.snapshot().tables["node:P"]
    for path in (Path(repository.uri) / ref.location / "data").glob("*.lance"):
        if path.name in files[0]:
            path.unlink()
    with pytest.raises(Conflict, match="write them again"):
        put(repository, TableChange("node:P", fragments=files))
    assert ids(repository.snapshot()) == ["a", "b", "c"]


def test_indices(repository: Repository) -> None:
    wanted = {"node:P": [("id", "BTREE"), ("age", "BTREE")], "node:Q": [("id", "BTREE")]}
    report = repository.build_indices("main", wanted, actor="bob")
    assert [(b["table_key"], b["column"], b["action"]) for b in report.built] == [
        ("node:P", "id", "created"),
        ("node:P", "age", "created"),
    ]
    assert report.commit is not None
    assert repository.build_indices("main", wanted).commit is None
    put(repository, TableChange("node:P", upserts=people("a", "n", age=3)))
    assert ids(repository.snapshot()) == ["a", "b", "c", "n"]
    assert {b["action"] for b in repository.build_indices("main", wanted).built} == {"extended"}
    assert repository.snapshot().scan("node:P", filter="id = 'n'").num_rows == 1


def test_drift_by_an_index_is_published_and_other_drift_is_not(repository: Repository) -> None:
    import lance

    ref = repository.snapshot().tables["node:P"]
    repository.engine.store.latest(ref.location).create_scalar_index("id", "BTREE")
    put(repository, TableChange("node:P", appends=people("d")))
    assert ids(repository.snapshot()) == ["a", "b", "c", "d"]
    dataset = repository.engine.store.latest(ref.location)
    lance.write_dataset(people("stray").select(dataset.schema.names), dataset, mode="append")
    with pytest.raises(Conflict, match="omnigraph repair"):
        put(repository, TableChange("node:P", appends=people("e")))
    assert ids(repository.snapshot()) == ["a", "b", "c", "d"]
    put(repository, TableChange("node:Q", appends=pa.table({"id": ["q"], "name": ["q"]})))


def test_an_unreadable_sidecar_blocks_writes_not_reads(repository: Repository) -> None:
    path = Path(repository.uri) / "__recovery" / "weird.json"
    path.write_text("{")
    for action in (lambda: put(repository, TableChange("node:P", appends=people("d"))), repository.sweep):
        with pytest.raises(RecoveryPending, match=r"weird\.json"):
            action()
    assert path.read_text() == "{"
    assert ids(Repository.open(repository.uri, read_only=True).snapshot()) == ["a", "b", "c"]


@pytest.mark.parametrize("name", ["..", "../..", "a/../..", ".", "a/.", "ok\n", "a\0b", "", "../../__manifest", "x'y"])
def test_a_crafted_name_is_no_branch(repository: Repository, name: str) -> None:
    with pytest.raises(NotFound, match="no branch"):
        repository.snapshot(name)
    with pytest.raises(BadRequest, match="can't be a branch's name"):
        repository.create_branch(name)


@pytest.mark.parametrize("at", [-1, 2**63, 2**70])
def test_a_version_that_cannot_be_is_not_found(repository: Repository, at: int) -> None:
    with pytest.raises(NotFound, match="no version"):
        repository.snapshot(at=at)


@pytest.mark.parametrize("operation_id", ["x'y", "../nodes", "ok\n", "a" * 65, "é"])
def test_a_crafted_operation_id_is_refused(repository: Repository, operation_id: str) -> None:
    change = TableChange("node:P", appends=people("zoe"))
    staging = Staging("main", WriterKind.LOAD, (change,), operation_id=operation_id)
    with pytest.raises(BadRequest, match="use a ULID"):
        repository.commit(staging, repository.snapshot())


def test_an_operation_done_on_the_parent_after_the_fork_is_not_done_on_the_branch(repository: Repository) -> None:
    def write(branch: str) -> str:
        return put(repository, TableChange("node:P", appends=people("z")), branch=branch, operation_id="one")

    repository.create_branch("dev")
    on_main = write("main")
    repository.create_branch("late")
    on_dev = write("dev")
    assert on_dev != on_main
    assert ids(repository.snapshot("dev")) == ["a", "b", "c", "z"]
    assert write("dev") == on_dev
    assert write("late") == write("main") == on_main  # what a branch inherits is done there


def test_a_sidecar_file_of_any_name_is_settled(repository: Repository) -> None:
    folder = Path(repository.uri) / "__recovery"
    body = {"schema_version": 1, "operation_id": "it's", "started_at": "", "writer_kind": "Load", "tables": []}
    for name, branch in (("it's.json", None), ("gone's.json", "gone")):
        (folder / name).write_text(json.dumps(body | {"branch": branch}))
    assert {o["outcome"] for o in repository.sweep().outcomes} == {"RolledBack", "OrphanedBranchDiscarded"}
    assert repository.pending() == []


def test_files_are_open_to_whom_the_umask_lets(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        made = Repository.create(str(tmp_path / "shared"), compile_schema(SCHEMA))
    finally:
        os.umask(before)
    root = Path(made.uri)
    files = [
        root / "_schema.pg",
        root / f"_schemas/{made.snapshot().schema_hash}.pg",
        *root.glob("__manifest/_versions/*"),
    ]
    assert {oct(f.stat().st_mode & 0o777) for f in files} == {"0o640"}


def test_a_disk_that_takes_half_a_sidecar_leaves_none(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    write, calls = os.write, []

    def filling(handle: int, data: bytes) -> int:
        calls.append(len(data))
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(handle, bytes(data[:20]))

    monkeypatch.setattr(os, "write", filling)
    with pytest.raises(Unavailable, match="No space left"):
        put(repository, TableChange("node:P", appends=people("d")))
    monkeypatch.undo()
    assert [n for n in os.listdir(Path(repository.uri) / "__recovery") if "json" in n or "tmp" in n] == []
    put(repository, TableChange("node:P", appends=people("d")))


def test_a_full_sweep_removes_the_working_folders_of_dead_loads_alone(repository: Repository) -> None:
    root = Path(repository.uri) / "__staging"
    (root / "dead" / "keys").mkdir(parents=True)
    with working_folder(str(root / "alive")):
        (root / "alive" / "rows").mkdir()
        with pytest.raises(Conflict, match="in flight"), working_folder(str(root / "alive")):
            pass
        repository.sweep("forward")
        assert (root / "dead").exists()
        repository.sweep("full")
        assert [p.name for p in root.iterdir()] == ["alive"]
        assert (root / "alive" / "rows").exists()
    assert list(root.iterdir()) == []
    (root / "again" / "rows").mkdir(parents=True)
    with working_folder(str(root / "again")):
        assert os.listdir(root / "again") == [".lock"]


def test_read_only(repository: Repository) -> None:
    opened = Repository.open(repository.uri, read_only=True)
    for action in (
        lambda: opened.create_branch("x"),
        opened.sweep,
        lambda: put(opened, TableChange("node:P", appends=people("d"))),
    ):
        with pytest.raises(Forbidden):
            action()


def test_repeated_ids_survive(repository: Repository) -> None:
    put(repository, TableChange("node:P", appends=people("a", "a")))
    assert ids(repository.snapshot()) == ["a", "a", "a", "b", "c"]
    put(repository, TableChange("node:P", delete_ids=pa.array(["a"])))
    assert ids(repository.snapshot()) == ["b", "c"]


def test_uris() -> None:
    env = {"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": "hush", "AWS_ENDPOINT_URL": "http://localhost:1"}
    root = parse_root("s3://bucket/some/prefix/", env)
    assert (root.uri, root.is_local) == ("s3://bucket/some/prefix", False)
    assert root.options["allow_http"] == "true"
    assert "hush" not in repr(root)
    assert parse_root("/a/./b/../c").uri == "/a/c"
    assert parse_root("file:///a/b%20c").uri == "/a/b c"
    unreadable = ("s3://k:hush@[b/p", "s3://k:hush@b\u2100/p", "/a\0b", "file:///a%00b", "/caf\udce9")
    for bad in ("", "http://x", "https://x/y", "ftp://x", "s3://k:hush@b/p", "s3:///p", "s3://b/../c", *unreadable):
        with pytest.raises(BadRequest) as caught:
            parse_root(bad, env)
        assert "hush" not in str(caught.value)


def test_threads_of_one_process(repository: Repository) -> None:
    """Writers of one table queue up; those of disjoint tables both get through."""
    from concurrent.futures import ThreadPoolExecutor

    def write(n: int) -> None:
        table, rows = ("node:P", people(f"t{n}")) if n % 2 else ("node:Q", people(f"t{n}").drop_columns(["age"]))
        while True:
            try:
                put(repository, TableChange(table, appends=rows))
            except Conflict as error:
                if not error.retryable:
                    raise
            else:
                return

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(12)))
    snapshot = repository.snapshot()
    assert ids(snapshot) == ["a", "b", "c", *sorted(f"t{n}" for n in range(1, 12, 2))]
    assert ids(snapshot, "node:Q") == sorted(f"t{n}" for n in range(0, 12, 2))
    assert repository.pending() == []


def test_a_store_that_refuses_gives_a_typed_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from omnigraph.errors import OmniGraphError

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-hush")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(OmniGraphError) as caught:
        Repository.open("s3://bucket/graph")
    assert "very-hush" not in str(caught.value)
    assert not isinstance(caught.value, NotFound)


def test_a_write_that_lost_to_many_others_undoes_itself_however_busy_the_branch_is(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Repository.open(repository.uri)
    busy = iter(range(12))  # five attempts of the write, and some of its undoing
    commit_rows, others = publish.commit_rows, list[str]()

    def beaten(staged: Any) -> Any:
        if not others and next(busy, None) is not None:
            others.append("writes")
            put(other, TableChange("node:Q", upserts=people("x").drop_columns(["age"])))
            others.clear()
        return commit_rows(staged)

    base = repository.snapshot()
    monkeypatch.setattr(publish, "commit_rows", beaten)
    staging = Staging("main", WriterKind.MUTATION, (TableChange("node:P", appends=people("z")),))
    with pytest.raises(RowLevelCasContention):
        repository.commit(staging, base)
    assert next(busy, None) is None
    assert other.pending() == []
    assert ids(other.snapshot()) == ["a", "b", "c"]
    put(other, TableChange("node:P", appends=people("z")))
