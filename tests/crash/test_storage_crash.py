"""Dead writers beside living ones: what a process that isn't alone may settle, and how the dead are told apart."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import RecoveryPending
from omnigraph.storage import CommitInfo, Repository, Staging, TableChange, WriterKind
from tests.crash import crash_scenarios as scenarios
from tests.crash.matrix import Matrix, check_sound, check_whole, pending


@pytest.fixture
def uri(folders: Matrix) -> str:
    return folders.copy(folders.built())


def test_a_live_process_only_rolls_forward(folders: Matrix, uri: str) -> None:
    folders.kill(uri, scenarios.load, "table.committed:1")
    repository = Repository.open(uri)
    before = scenarios.contents(repository, "main")
    report = repository.sweep("forward")
    assert [p["reason"] for p in report.pending] == ["NeedsRollBack"]
    with pytest.raises(RecoveryPending, match="omnigraph recover") as caught:
        scenarios.mutation(repository)
    assert "__recovery/OPLOAD.json" in str(caught.value)
    scenarios.branch_write(repository)  # another branch isn't blocked
    assert scenarios.contents(repository, "main") == before
    assert [o["outcome"] for o in repository.sweep("full").outcomes] == ["RolledBack"]
    scenarios.mutation(repository)


def test_any_write_rolls_forward_first(folders: Matrix, uri: str) -> None:
    folders.kill(uri, scenarios.load, "publish.before:1")
    repository = Repository.open(uri)
    scenarios.indices(repository)
    assert repository.snapshot().count_rows("node:City") == 2
    assert repository.pending() == []


def test_a_write_over_joined_files_is_rolled_forward(folders: Matrix, uri: str) -> None:
    folders.kill(uri, scenarios.long_tail, "publish.before:1")
    repository = Repository.open(uri)
    assert [o["outcome"] for o in repository.sweep("forward").outcomes] == ["RolledForward"]
    assert "dee-bob" in repository.snapshot().scan("edge:Knows", ["id"])["id"].to_pylist()


@pytest.mark.parametrize("again", [scenarios.merge_into_branch, scenarios.branch_write])
def test_what_blocks_a_write_that_makes_a_fork_is_named(folders: Matrix, uri: str, again: Any) -> None:
    """The fork of a dead writer isn't one that another write is making at this moment."""
    folders.kill(uri, again, "table.committed:1")
    repository = Repository.open(uri)
    with pytest.raises(RecoveryPending, match="omnigraph recover"):
        again(repository)
    assert [o["outcome"] for o in repository.sweep("full").outcomes] == ["RolledBack"]
    again(repository)
    check_whole(repository, "dev", recovered=["OPMERGEDEV" if again is scenarios.merge_into_branch else "OPBRANCH"])


def test_a_living_writer_is_left_alone(uri: str) -> None:
    repository = Repository.open(uri)
    program = (
        "import sys, time\n"
        "from omnigraph.storage import Repository, commit\n"
        "from tests.crash import crash_scenarios\n"
        "commit.publish = lambda *a, **k: (print('there', flush=True), time.sleep(60))\n"
        "crash_scenarios.load(Repository.open(sys.argv[1]))\n"
    )
    path = os.pathsep.join(p for p in sys.path if p)
    with subprocess.Popen(
        [sys.executable, "-c", program, uri],
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "there\n"
        report = repository.sweep("full")
        assert report.outcomes == ()
        assert [p["reason"] for p in report.pending] == ["Live"]
        writer.kill()
    assert [o["outcome"] for o in repository.sweep("full").outcomes] == ["RolledForward"]
    check_whole(repository, "main", recovered=["OPLOAD"])


def test_two_dead_writers_of_one_table_are_told_apart(folders: Matrix, uri: str) -> None:
    """By numbers alone the first sidecar's table looks moved by its own writer; it was the second's."""
    for name, operation_id, place in (("moved", "OPB", "publish.before:1"), ("stuck", "OPA", "sidecar.written:1")):
        ended = folders.nursery.run(scenarios.append_unhealed, uri, name, operation_id, [], kill_at=place)
        assert ended.code == -signal.SIGKILL
    repository = Repository.open(uri)
    outcomes = {o["operation_id"]: o["outcome"] for o in repository.sweep("full").outcomes}
    assert outcomes == {"OPA": "RolledBack", "OPB": "RolledForward"}
    scenarios.append_person(repository, "stuck", "OPA")
    scenarios.append_person(repository, "moved", "OPB")
    names = repository.snapshot().scan("node:Person", ["id"])["id"].to_pylist()
    assert [names.count(n) for n in ("stuck", "moved")] == [1, 1]


def test_what_lost_its_ground_is_rolled_back(folders: Matrix, uri: str) -> None:
    """A write that relied on a table is not rolled forward once that table has moved."""
    call = (scenarios.append_unhealed, uri, "late", "OPC", ["edge:Knows"])
    assert folders.nursery.run(*call, kill_at="publish.before:1").code == -signal.SIGKILL
    repository = Repository.open(uri)
    sidecar = Path(uri) / "__recovery" / "OPC.json"
    hidden = sidecar.read_bytes()
    sidecar.unlink()
    change = TableChange("edge:Knows", delete_ids=scenarios.knows([("ann", "bob")])["id"])
    repository.commit(Staging("main", WriterKind.MUTATION, (change,)), repository.snapshot())
    sidecar.write_bytes(hidden)
    assert [p["reason"] for p in repository.sweep("forward").pending] == ["NeedsRollBack"]
    assert [o["outcome"] for o in repository.sweep("full").outcomes] == ["RolledBack"]
    assert "late" not in repository.snapshot().scan("node:Person", ["id"])["id"].to_pylist()
    check_whole(repository, "main", recovered=["OPC"])


@pytest.mark.parametrize(
    ("build", "act", "branch"),
    [
        (scenarios.album, scenarios.merge_into_branch, "dev"),  # a fork, and files that are copied with their Blobs
        (scenarios.album_alone, scenarios.captioned, "main"),
    ],
)
def test_blobs_are_whole_wherever_a_writer_is_killed(folders: Matrix, build: Any, act: Any, branch: str) -> None:
    start = folders.built(build)
    before = scenarios.digests(Repository.open(start), branch)
    once = folders.copy(start)
    places = folders.run(once, act)
    after = scenarios.digests(Repository.open(once), branch)
    assert before != after
    assert all(after.values())
    for place in {p.split(":")[0]: p for p in places}.values():
        uri = folders.copy(start)
        folders.kill(uri, act, place)
        assert scenarios.digests(Repository.open(uri, read_only=True), branch) in (before, after), place
        repository = Repository.open(uri)
        repository.sweep("full")
        assert scenarios.digests(repository, branch) in (before, after), place
        act(repository)
        assert scenarios.digests(repository, branch) == after, place
        repository.close()
        check_sound(repository, place)
        folders.ground.drop(uri)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("sidecar.temporary:1", "table.forked:2"),
        ("table.committed:1", "table.committed:1"),
        ("table.committed:2", "publish.before:1"),
        ("publish.done:1", "table.committed:2"),
        ("sidecar.removed:1", "publish.done:1"),
    ],
)
def test_two_writers_die_at_once(folders: Matrix, uri: str, one: str, other: str) -> None:
    """One sweep settles both, and where it dies too the next does."""
    folders.kill(uri, scenarios.load, one)
    folders.kill(uri, scenarios.branch_write, other)
    left = pending(Repository.open(uri, read_only=True))
    folders.kill(uri, scenarios.sweep, "recovery.audited:1")
    repository = Repository.open(uri)
    repository.sweep("full")
    for branch in ("main", "dev"):
        check_whole(repository, branch, recovered=left)
    for act in (scenarios.load, scenarios.branch_write):
        act(repository)
    main, dev = (scenarios.contents(repository, branch) for branch in ("main", "dev"))
    assert [len(main[key]) for key in ("node:Person", "node:City")] == [6, 2]
    assert [len(dev[key]) for key in ("node:Person", "node:City")] == [3, 0]
    repository.close()
    check_sound(repository)


@pytest.mark.parametrize(
    "place", ["publish.done:3", "sidecar.removed:3", "history.commit:1", "history.actor:1", "then history.gap-filled:1"]
)
def test_commits_that_waited_for_their_rows_are_not_lost(folders: Matrix, uri: str, place: str) -> None:
    """On the branch they were made on, and on one that began from them."""
    Repository.open(uri).sweep("full")
    later = place.removeprefix("then ")
    at = later if later == place else "sidecar.removed:3"
    ended = folders.nursery.run(scenarios.put_off, uri, kill_at=at)
    assert ended.code == -signal.SIGKILL
    if later != place:
        folders.kill(uri, scenarios.mutation, later)
    reader = Repository.open(uri, read_only=True)
    made = _waited(reader, "main")
    assert [c.id for c in reader.head().unrecorded] == [c.id for c in made[:-1]]
    repository = Repository.open(uri)
    left = pending(repository)
    if later != place:
        repository.sweep("full")
    repository.create_branch("late")
    assert _waited(reader, "late") == made
    for branch in ("late", "main"):
        change = TableChange("node:Person", appends=scenarios.people(["end"], 1))
        repository.commit(Staging(branch, WriterKind.MUTATION, (change,)), repository.snapshot(branch))
        assert _waited(Repository.open(uri, read_only=True), branch) == made
        table = repository.engine.history._lineage(branch).to_table()  # the branch's own may come a moment later
        ids = table["graph_commit_id"].to_pylist()
        assert [ids.count(c.id) for c in made] == [1, 1, 1], branch
        actors = repository.engine.store.latest("_graph_commit_actors.lance").to_table().to_pylist()
        assert [a["actor_id"] for a in actors if a["graph_commit_id"] in {c.id for c in made}] == [
            c.actor for c in made
        ], branch
    repository.close()
    check_whole(repository, "main", recovered=left)
    check_sound(repository)


def _waited(repository: Repository, branch: str) -> list[CommitInfo]:
    """The commits of `put_off`, oldest first, read as one commit and as an operation too."""
    found = [c for c in repository.commits(branch, limit=1000) if (c.operation_id or "").startswith("OPWAIT")]
    assert [c.operation_id for c in found] == ["OPWAIT2", "OPWAIT1", "OPWAIT0"]
    assert [c.actor for c in found] == ["actor-2", "actor-1", "actor-0"]
    for commit in found:
        done = repository.done_before(branch, str(commit.operation_id))
        assert done is not None
        assert done.id == commit.id == repository.snapshot(branch, at=commit.id).head.id
    return found[::-1]
