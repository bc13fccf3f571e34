"""Branches: made anywhere, deleted at once, their names used again."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.errors import BadRequest, Conflict, ExpectedVersionMismatch, NotFound
from omnigraph.schema import compile_schema
from omnigraph.storage import Repository, Snapshot, Staging, TableChange, WriterKind
from omnigraph.storage.commit import _Write
from omnigraph.storage.forks import fork_lock
from omnigraph.storage.lineage import branch_names, parent_of, ref_file
from omnigraph.write import merge

SCHEMA = "node P {\n    name: String @key\n    age: I64?\n}\nnode Q {\n    name: String @key\n}\n"


def people(*ids: str, age: int = 0) -> pa.Table:
    return pa.table({"id": list(ids), "name": list(ids), "age": pa.array([age] * len(ids), pa.int64())})


def put(repository: Repository, branch: str, *ids: str, age: int = 0) -> str:
    change = TableChange("node:P", upserts=people(*ids, age=age))
    return repository.commit(Staging(branch, WriterKind.MUTATION, (change,)), repository.snapshot(branch)).id


def ids(snapshot: Snapshot) -> list[str]:
    return sorted(snapshot.scan("node:P", ["id"])["id"].to_pylist())


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository.create(str(tmp_path / "g"), compile_schema(SCHEMA))
    put(made, "main", "a")
    return made


def forks(repository: Repository) -> set[str]:
    """Every trace of a branch anywhere under the root."""
    out = set()
    for folder, names, _ in os.walk(repository.uri):
        if os.path.basename(folder) == "tree":
            out |= set(names)
    return out


def test_a_branch_begins_at_any_point(repository: Repository) -> None:
    first = repository.head()
    when = datetime.now(UTC)
    put(repository, "main", "b")
    repository.create_branch("by/commit", from_=first.id)
    repository.create_branch("by/version", from_=f"main@{first.manifest_version}")
    repository.create_branch("by/time", from_=f"main@{when.isoformat()}")
    repository.create_branch("by/moment", at=first.id)
    for name in ("by/commit", "by/version", "by/time", "by/moment"):
        assert ids(repository.snapshot(name)) == ["a"], name
    mine = put(repository, "by/commit", "mine")
    repository.create_branch("child", from_=mine)
    put(repository, "by/commit", "more")
    assert ids(repository.snapshot("child")) == ["a", "mine"]
    assert parent_of(repository.engine.store, "__manifest", "child")[0] == "by/commit"
    assert ids(repository.snapshot("child", first.id)) == ["a"]  # what it inherited
    assert repository.point(mine).branch == "by/commit"
    assert repository.commit_info(mine).id == mine
    with pytest.raises(NotFound, match="no branch and no commit"):
        repository.create_branch("x", from_="nowhere")


def test_a_deleted_branch_leaves_nothing_and_its_name_is_free(repository: Repository) -> None:
    repository.create_branch("dev/one")
    put(repository, "dev/one", "b")
    other = Repository.open(repository.uri)
    assert ids(other.snapshot("dev/one")) == ["a", "b"]
    held = other.snapshot("dev/one")
    gone = repository.delete_branch("dev/one")
    assert gone.name == "dev/one"
    assert forks(repository) <= {"dev"}
    for reader in (repository, other):
        with pytest.raises(NotFound, match="dev/one"):
            reader.snapshot("dev/one")
        assert [b.name for b in reader.branches()] == ["main"]
    # A writer that read the branch before, and a branch of this name anew, with the same version numbers.
    repository.create_branch("dev/one")
    put(repository, "dev/one", "c")
    refs = {"node:P": held.state.tables["node:P"]}
    assert refs["node:P"].version == repository.snapshot("dev/one").tables["node:P"].version
    staging = Staging("dev/one", WriterKind.MUTATION, (TableChange("node:P", upserts=people("late")),))
    late = _Write(other.engine, staging, held.state, refs, {}, held.schema_hash, "OPLATE", "OPLATE")
    with pytest.raises(ExpectedVersionMismatch):
        late.run()
    assert ids(other.snapshot("dev/one")) == ["a", "c"]
    assert repository.pending() == []


def test_what_may_not_be_deleted(repository: Repository) -> None:
    repository.create_branch("dev")
    put(repository, "dev", "b")
    repository.create_branch("child", from_="dev")
    with pytest.raises(BadRequest):
        repository.delete_branch("main")
    with pytest.raises(BadRequest):
        repository.delete_branch("__schema_apply_lock__")
    with pytest.raises(NotFound):
        repository.delete_branch("nowhere")
    with pytest.raises(Conflict, match="child began from it"):
        repository.delete_branch("dev")
    assert ids(repository.snapshot("child")) == ["a", "b"]
    repository.delete_branch("child")
    repository.delete_branch("dev")
    assert forks(repository) == set()


def test_a_nested_name_clears_what_stood_there(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """The forks of `a/b` are still there when `a` is made, and the other way round."""
    monkeypatch.setattr("omnigraph.storage.branch._reclaim", lambda *_: None)
    for first, second in (("a/b", "a"), ("a", "a/b"), ("a/b", "a/b")):
        repository.create_branch(first)
        put(repository, first, f"on {first}")
        repository.delete_branch(first)
        location = repository.snapshot().tables["node:P"].location
        assert first in branch_names(repository.engine.store, location)
        repository.create_branch(second)
        put(repository, second, "new")
        assert ids(repository.snapshot(second)) == ["a", "new"]
        repository.delete_branch(second)


def test_leftovers_of_a_child_go_with_its_parents(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lance keeps a fork while another grew from it; the child's was left, so the parent's would stay for ever."""
    repository.create_branch("dev")
    put(repository, "dev", "b")
    repository.create_branch("child", from_="dev")
    put(repository, "child", "c")
    with monkeypatch.context() as patch:
        patch.setattr("omnigraph.storage.branch._reclaim", lambda *_: None)
        repository.delete_branch("child")
    repository.delete_branch("dev")
    assert forks(repository) == set()


def test_a_deletion_waits_for_first_writes_and_then_gives_up(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omnigraph.storage.branch.WAIT_SECONDS", 0.05)
    repository.create_branch("dev")
    with fork_lock(repository.engine.store, exclusive=False), pytest.raises(Conflict, match="retry") as caught:
        repository.delete_branch("dev")
    assert caught.value.retryable
    repository.delete_branch("dev")


def test_a_branch_in_use_is_not_deleted_and_a_dead_write_on_it_goes_with_it(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.create_branch("dev")
    put(repository, "dev", "b")

    def busy(*_: object, **__: object) -> None:
        with pytest.raises(Conflict, match="write on it runs"):
            Repository.open(repository.uri).delete_branch("dev")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("omnigraph.storage.commit.publish", busy)
        patch.setattr("omnigraph.storage.commit.give_up", lambda engine, held, *_: held.release())
        with pytest.raises(KeyboardInterrupt):
            put(repository, "dev", "c")
    assert len(repository.pending()) == 1
    Repository.open(repository.uri).delete_branch("dev")
    assert repository.pending() == []
    assert [r["recovery_kind"] for r in repository.engine.history.recoveries()] == ["OrphanedBranchDiscarded"]
    assert forks(repository) == set()


def test_an_orphan_fork_of_a_living_branch_is_made_anew(repository: Repository) -> None:
    """A fork that no manifest names, ahead of what the branch inherited."""
    repository.create_branch("dev")
    ref = repository.snapshot("dev").tables["node:P"]
    fork = repository.engine.store.latest(ref.location).create_branch("dev", ref.version)
    import lance

    lance.write_dataset(people("stray"), fork, mode="append")
    put(repository, "dev", "b")
    assert ids(repository.snapshot("dev")) == ["a", "b"]
    assert repository.snapshot("dev").tables["node:P"].version == ref.version + 1


def test_an_operation_of_a_deleted_branch_is_not_done_on_its_namesake(repository: Repository) -> None:
    """A merge adopts the source's history before it publishes; one that was given up leaves it behind."""
    change = TableChange("node:P", upserts=people("b"))

    def write() -> str:
        staging = Staging("dev", WriterKind.MUTATION, (change,), operation_id="OPONE")
        return repository.commit(staging, repository.snapshot("dev")).id

    repository.create_branch("dev")
    first = write()
    assert write() == first
    repository.adopt_history(repository.snapshot("dev"), "main")
    repository.delete_branch("dev")
    assert first not in {c.id for c in repository.commits()}
    repository.create_branch("dev")
    assert write() != first
    assert ids(repository.snapshot("dev")) == ["a", "b"]


def test_a_namesake_with_the_same_versions_is_told_apart(repository: Repository) -> None:
    """By a process that has read the first and hears of nothing."""
    repository.create_branch("dev")
    put(repository, "dev", "b")
    other = Repository.open(repository.uri)
    first = other.snapshot("dev")
    assert ids(first) == ["a", "b"]
    repository.delete_branch("dev")
    repository.create_branch("dev")
    put(repository, "dev", "c")
    second = other.snapshot("dev")
    assert second.manifest_version == first.manifest_version
    assert second.tables["node:P"].version == first.tables["node:P"].version
    assert ids(second) == ["a", "c"]
    assert ids(other.snapshot("dev", first.manifest_version)) == ["a", "c"]
    with pytest.raises(NotFound):
        other.snapshot("dev", first.head.id)
    put(other, "dev", "d")
    assert ids(repository.snapshot("dev")) == ["a", "c", "d"]


def test_what_was_made_on_a_deleted_branch_is_not_looked_for_on_its_namesake(repository: Repository) -> None:
    repository.create_branch("dev")
    put(repository, "dev", "b")
    put(repository, "dev", "c")
    made = repository.head("dev")
    merge(repository, "dev", "main")
    repository.delete_branch("dev")
    repository.create_branch("dev", at=repository.commits()[-1].id)
    with pytest.raises(NotFound, match="read the commit that merged it") as caught:
        repository.snapshot("main", made.id)
    assert caught.value.code == "commit_state_gone"


def test_a_lock_does_not_live_on_in_a_child_forked_while_it_was_held(repository: Repository) -> None:
    waiting, parent = os.pipe()
    with fork_lock(repository.engine.store, exclusive=False):
        child = os.fork()
        if not child:
            os.close(parent)
            os.read(waiting, 1)
            os._exit(0)
    try:
        with fork_lock(repository.engine.store, exclusive=True) as held:
            assert held
    finally:
        os.close(parent)
        os.waitpid(child, 0)
        os.close(waiting)


def test_branches_are_listed_made_and_deleted_while_others_come_and_go(repository: Repository) -> None:
    stop = threading.Event()

    def churn(name: str) -> None:
        dataset = Repository.open(repository.uri).engine.store.latest("__manifest")
        while not stop.is_set():
            with suppress(OSError, ValueError):  # Lance lists them here too, and may miss the other's
                dataset.create_branch(name)
            with suppress(OSError, ValueError):
                dataset.branches.delete(name)

    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(churn, name) for name in ("one", "two")]
        try:
            for _ in range(400):
                assert repository.engine.manifest.branches().keys() <= {"one", "two"}
            for _ in range(20):
                repository.create_branch("three")
                repository.delete_branch("three")
                assert not Path(repository.uri, "__manifest/tree/three").exists()
                assert repository.repair().tables == ()
        finally:
            stop.set()
        for each in running:
            each.result()


@pytest.mark.parametrize("lost", ["before", "between"])
def test_a_deletion_during_which_another_branch_goes_is_whole(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """Lance reads the records of all branches before it removes this one's, and again before it removes its files."""
    repository.create_branch("dev")
    put(repository, "dev", "b")
    kind = type(repository.engine.store.latest("__manifest").branches)
    delete, failed = kind.delete, []

    def fail_once(branches: Any, name: str) -> None:
        if failed:
            delete(branches, name)
            return
        failed.append(name)
        if lost == "between":
            Path(repository.uri, ref_file("__manifest", name)).unlink()
        raise OSError("Not found: g/__manifest/_refs/branches/other.json")

    with monkeypatch.context() as patch:
        patch.setattr(kind, "delete", fail_once)
        repository.delete_branch("dev")
    assert failed == ["dev"]
    assert forks(repository) == set()
    repository.create_branch("dev")
    put(repository, "dev", "c")
    assert ids(repository.snapshot("dev")) == ["a", "c"]
