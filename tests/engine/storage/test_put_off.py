"""History rows that are put off: each commit is in the tables or in the head row, whoever writes next, and ends there
once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.errors import Conflict, Internal
from omnigraph.schema import compile_schema
from omnigraph.storage import CommitInfo, Repository, Staging, TableChange, WriterKind, history
from omnigraph.storage.history import History
from omnigraph.storage.layout import ACTORS, COMMITS, MANIFEST, lance_branch
from omnigraph.storage.lineage import branch_names
from omnigraph.storage.manifest import head_row, state_from_rows
from omnigraph.storage.unrecorded import Unrecorded

SCHEMA = "node P {\n    name: String @key\n}\nnode Q {\n    name: String @key\n}\n"
NEVER = 3600.0


@pytest.fixture(autouse=True)
def long_linger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "LINGER_SECONDS", NEVER)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository.create(str(tmp_path / "g"), compile_schema(SCHEMA), actor="maker")


def put(repository: Repository, name: str, branch: str = "main", table: str = "node:P") -> CommitInfo:
    change = TableChange(table, upserts=pa.table({"id": [name], "name": [name]}))
    staging = Staging(branch, WriterKind.MUTATION, (change,), actor=f"by-{name}")
    while True:
        try:
            return repository.commit(staging, repository.snapshot(branch))
        except Conflict as error:
            if not error.retryable:
                raise


def die(repository: Repository) -> None:
    """As if its process were killed: nothing follows."""
    repository.engine.history._unrecorded = Unrecorded()


def rows(repository: Repository, branch: str = "main") -> Counter[str]:
    """How often each commit stands in the branch's table."""
    table = repository.engine.store.latest(COMMITS, lance_branch(branch)).to_table()
    return Counter(table["graph_commit_id"].to_pylist())


def actors(repository: Repository) -> dict[str, str]:
    table = repository.engine.store.latest(ACTORS).to_table(columns=["graph_commit_id", "actor_id"])
    assert table.num_rows == len(set(table["graph_commit_id"].to_pylist()))
    return dict(zip(*table.to_pydict().values(), strict=True))


def check_all(uri: str, commits: list[CommitInfo], branch: str = "main", *, tables: bool = False) -> None:
    """A new process finds every one of them, with its actor; `tables`: each once in the tables too."""
    reader = Repository.open(uri, read_only=True)
    found = {c.id: c for c in reader.commits(branch, limit=1000)}
    assert {c.id: (c.actor, c.parents, c.branch) for c in commits}.items() <= {
        c.id: (c.actor, c.parents, c.branch) for c in found.values()
    }.items()
    assert all(parent in found for c in found.values() for parent in c.parents)
    for commit in commits:
        assert reader.commit_info(commit.id).manifest_version == commit.manifest_version
        assert reader.snapshot(branch, at=commit.id).head.id == commit.id
        assert commit.operation_id is not None
        done = reader.done_before(branch, commit.operation_id)
        assert done is not None
        assert done.id == commit.id
    if tables:
        there = rows(reader, branch)
        assert [there[c.id] for c in commits] == [1] * len(commits)
        assert {c.id: c.actor for c in commits}.items() <= actors(reader).items()


def soon(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_rows_come_together_when_enough_wait(repository: Repository) -> None:
    versions = [repository.engine.store.latest(name).version for name in (COMMITS, ACTORS)]
    made = [put(repository, f"p{i}") for i in range(history.FLUSH_AT - 1)]
    assert rows(repository).keys().isdisjoint(c.id for c in made)
    assert [c.id for c in repository.head().unrecorded] == [c.id for c in made[:-1]]
    check_all(repository.uri, made)
    made.append(put(repository, "last"))
    soon(lambda: repository.engine.history._unrecorded.waiting("main") == ())
    check_all(repository.uri, made, tables=True)
    assert [repository.engine.store.latest(name).version for name in (COMMITS, ACTORS)] == [v + 1 for v in versions]
    put(repository, "more")
    assert repository.head().unrecorded == ()


def test_they_come_after_a_moment_of_quiet(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "LINGER_SECONDS", 0.1)
    other = Repository.open(repository.uri)
    made = [put(other, "a"), put(other, "b")]
    soon(lambda: all(rows(repository)[c.id] for c in made) and made[-1].id in actors(repository))
    check_all(repository.uri, made, tables=True)
    soon(lambda: other.engine.history._later._thread is None)
    made.append(put(other, "c"))
    soon(lambda: rows(repository)[made[-1].id] == 1)


@pytest.mark.parametrize("closed", [True, False])
def test_they_come_at_once_at_the_end(repository: Repository, closed: bool) -> None:
    put(repository, "a")
    repository.close()
    program = (
        "import sys\n"
        "from omnigraph.storage import Repository, history\n"
        "from tests.engine.storage.test_put_off import put\n"
        f"history.LINGER_SECONDS = {NEVER}\n"
        "repository = Repository.open(sys.argv[1])\n"
        "made = [put(repository, name) for name in 'bcd']\n"
        "assert len(repository.head().unrecorded) == 2\n"
        f"if {closed}: repository.close()\n"
    )
    path = os.pathsep.join(p for p in sys.path if p)
    subprocess.run(
        [sys.executable, "-c", program, repository.uri], env=os.environ | {"PYTHONPATH": path}, check=True, timeout=120
    )
    made = [c for c in repository.commits() if c.actor in ("by-b", "by-c", "by-d")]
    assert len(made) == 3
    check_all(repository.uri, made, tables=True)


def test_the_head_row_names_them_whole(repository: Repository) -> None:
    put(repository, "a")
    put(repository, "b")
    head = repository.head()
    (carried,) = head.unrecorded
    read = as_read(head)
    assert read == head
    assert read.unrecorded == (carried,)
    assert read.unrecorded[0].schema_ir == carried.schema_ir
    assert "unrecorded" not in repr(head)
    assert not read.extra
    assert "unrecorded" not in head_row(carried)["metadata"]  # as in older graphs
    assert as_read(carried).unrecorded == ()


def as_read(head: CommitInfo) -> CommitInfo:
    row = head_row(head) | {"table_version": None, "_row_last_updated_at_version": head.manifest_version}
    return state_from_rows("main", head.manifest_version, pa.Table.from_pylist([row])).head


@pytest.mark.parametrize("dies", [True, False])
def test_two_processes_in_turn(repository: Repository, dies: bool) -> None:
    other = Repository.open(repository.uri)
    made = []
    for i in range(4):
        made += [put(repository, f"a{i}"), put(repository, f"b{i}"), put(other, f"c{i}"), put(other, f"d{i}")]
        check_all(repository.uri, made)
        assert len(repository.head().unrecorded) == 1
    for one in (repository, other):
        if dies:
            die(one)
        one.close()
    made.append(put(Repository.open(repository.uri), "last"))
    check_all(repository.uri, made)
    check_all(repository.uri, made[:-1], tables=True)


def test_who_finds_his_commits_recorded_by_others_appends_nothing(repository: Repository) -> None:
    made = [put(repository, "a"), put(repository, "b")]
    other = Repository.open(repository.uri)
    put(other, "c")
    check_all(repository.uri, made, tables=True)
    version = other.engine.store.latest(COMMITS).version
    repository.close()
    assert other.engine.store.latest(COMMITS).version == version
    assert repository.engine.history._unrecorded.branches() == ()


def test_a_branch_made_from_a_head_that_carries(repository: Repository) -> None:
    made = [put(repository, name) for name in "abc"]
    die(repository)
    other = Repository.open(repository.uri)
    other.create_branch("dev")
    other.create_branch("old", at=made[1].id)
    for branch, inherited in (("dev", made), ("old", made[:2])):
        check_all(repository.uri, inherited, branch)
        mine = [put(other, "x", branch), put(other, "y", branch)]
        check_all(repository.uri, [*inherited, *mine], branch)
        assert [rows(other, branch)[c.id] for c in inherited] == [1] * len(inherited)
        assert [c.id for c in other.head(branch).unrecorded] == [mine[0].id]
    # The rows stand in the branches' tables, and main's own has none of them yet.
    assert rows(other).keys().isdisjoint(c.id for c in made)
    put(other, "more")
    check_all(repository.uri, made, tables=True)
    other.close()
    check_all(repository.uri, other.commits("dev")[:-1], "dev", tables=False)
    assert set(rows(other, "dev").values()) == {1}


@pytest.mark.parametrize("again", ["deleted here", "deleted elsewhere"])
def test_a_branch_made_again_from_a_head_that_has_no_row(repository: Repository, again: str) -> None:
    """What its namesake's table had is nothing that its own has."""
    made = [put(repository, "a"), put(repository, "b")]
    die(repository)
    other = Repository.open(repository.uri)
    other.create_branch("dev")
    put(other, "x", "dev")
    one = other if again == "deleted here" else Repository.open(repository.uri)
    one.delete_branch("dev")
    one.create_branch("dev")
    late = put(other, "y", "dev")
    check_all(repository.uri, [*made, late], "dev")
    assert [rows(other, "dev")[c.id] for c in made] == [1, 1]


@pytest.mark.parametrize("first", ["rows", "a write"])
def test_rows_of_a_branch_that_was_made_anew_go_nowhere(repository: Repository, first: str) -> None:
    repository.create_branch("dev")
    lost = {put(repository, "a", "dev").id, put(repository, "b", "dev").id}
    other = Repository.open(repository.uri)
    other.delete_branch("dev")
    other.create_branch("dev")
    if first == "rows":
        repository.close()
        assert "dev" not in branch_names(other.engine.store, COMMITS)
    made = [put(repository, "c", "dev"), put(repository, "d", "dev")]
    check_all(repository.uri, made, "dev")
    assert [c.id for c in repository.head("dev").unrecorded] == [made[0].id]
    repository.close()
    check_all(repository.uri, made, "dev", tables=True)
    assert lost.isdisjoint(rows(other, "dev") | rows(other))
    assert lost.isdisjoint(c.id for c in repository.commits("dev"))


def test_rows_of_a_branch_that_is_gone_go_nowhere(repository: Repository) -> None:
    repository.create_branch("dev")
    put(repository, "a", "dev")
    Repository.open(repository.uri).delete_branch("dev")
    repository.close()
    assert "dev" not in branch_names(repository.engine.store, COMMITS)
    assert repository.engine.history._unrecorded.branches() == ()


def test_a_table_that_was_made_and_not_filled_is_filled_later(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Main's rows come between: they are no rows of the branch's own table."""
    put(repository, "a")
    die(repository)
    other = Repository.open(repository.uri)
    other.create_branch("dev")

    def fail(*_: Any) -> None:
        raise OSError("no more")

    with monkeypatch.context() as patch:
        patch.setattr(History, "_merge", fail)
        with pytest.raises(Internal, match="no more"):
            put(other, "x", "dev")
    assert "dev" in branch_names(other.engine.store, COMMITS)
    put(other, "b")
    other.close()
    put(other, "x", "dev")
    commits = other.commits("dev")
    assert all(parent in {c.id for c in commits} for c in commits for parent in c.parents)
    other.close()
    assert [rows(other, "dev")[c.id] for c in commits] == [1] * len(commits)


def test_threads_that_publish_to_different_tables(repository: Repository) -> None:
    made: dict[str, list[CommitInfo]] = {"node:P": [], "node:Q": []}
    failed = []

    def write(table: str) -> None:
        try:
            made[table] += [put(repository, f"{table[-1]}{i}", table=table) for i in range(15)]
        except Exception as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=write, args=(table,)) for table in made]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        check_all(repository.uri, [c for commits in made.values() for c in commits[:]])
    for thread in threads:
        thread.join()
    assert not failed
    repository.close()
    check_all(repository.uri, made["node:P"] + made["node:Q"], tables=True)
    assert set(rows(repository).values()) == {1}


def test_a_head_that_another_thread_has_just_published(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    put_off, made = History.put_off, [put(repository, "a")]

    def meet(self: History, commit: CommitInfo) -> None:
        monkeypatch.setattr(History, "put_off", put_off)
        made.append(put(repository, "between", table="node:Q"))
        check_all(repository.uri, made)
        put_off(self, commit)

    monkeypatch.setattr(History, "put_off", meet)
    made.append(put(repository, "b"))
    made.append(put(repository, "c"))
    check_all(repository.uri, made)
    repository.close()
    check_all(repository.uri, made, tables=True)


@pytest.mark.parametrize("broken", [COMMITS, ACTORS])
def test_where_they_cannot_be_appended_writes_end_before_the_head_row_is_too_long(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    monkeypatch.setattr(history, "MOST_CARRIED", 4)
    append = History._append

    def fail(self: History, location: str, *args: Any) -> None:
        if location == broken:
            raise OSError("no more")
        append(self, location, *args)

    with monkeypatch.context() as patch:
        patch.setattr(History, "_append", fail)
        made = [put(repository, f"p{i}") for i in range(4)]
        assert len(repository.head().unrecorded) == 3
        with pytest.raises(Internal, match="no more"):
            put(repository, "more")
        repository.close()  # says so in the log
        check_all(repository.uri, made)
    assert repository.snapshot().count_rows("node:P") == 4
    made.append(put(repository, "more"))
    repository.close()
    check_all(repository.uri, made, tables=True)


def test_a_graph_that_is_gone_is_not_written_to(repository: Repository, tmp_path: Path) -> None:
    put(repository, "a")
    (tmp_path / "g").rename(tmp_path / "elsewhere")
    repository.close()
    assert not (tmp_path / "g").exists()
    assert Repository.open(str(tmp_path / "elsewhere")).head().actor == "by-a"


def test_what_goes_through_the_tables_finds_them(repository: Repository) -> None:
    made = [put(repository, "a"), put(repository, "b")]
    repository.create_branch("dev")
    check_all(repository.uri, made, tables=True)
    made.append(put(repository, "c"))
    repository.optimize("main")
    check_all(repository.uri, made, tables=True)
    made += [put(repository, "d"), put(repository, "e")]
    repository.cleanup(keep=100, confirm=True)
    check_all(repository.uri, made, tables=True)
    assert repository.engine.store.latest(MANIFEST).version > 1


def test_optimize_adds_what_a_dead_process_left(repository: Repository) -> None:
    """Though it has nothing to compact, and so publishes nothing."""
    made = [put(repository, "a"), put(repository, "b", table="node:Q")]
    die(repository)
    other = Repository.open(repository.uri)
    other.create_branch("dev")
    for branch in ("dev", "main"):
        assert rows(other).keys().isdisjoint(c.id for c in made)
        assert other.optimize(branch).commit is None
    assert "dev" not in branch_names(other.engine.store, COMMITS)
    check_all(repository.uri, made, tables=True)
