"""`cleanup` on real storage: what is asked to stay, and whatever lives, is read whole afterwards; the rest is gone."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph.cli.main import main
from omnigraph.errors import BadRequest, Forbidden, NotFound, RecoveryPending
from omnigraph.maintain.cleanup import parse_age
from omnigraph.storage import Repository, publish, removal
from omnigraph.storage import cleanup as module
from omnigraph.storage.lineage import branch_names, delete_recorded
from tests.engine.upstream.conftest import fingerprint, unpack
from tests.s3 import environment, serving

SCHEMA = "node P { slug: String @key  n: I64? @index }\nnode Q { slug: String @key }\nedge K: P -> P\n"
DAYS_AGO_8 = time.time() - 8 * 86_400
COMMITS = 2 * module.SYSTEM_VERSIONS + 5
"""So many that of the versions which cleanup leaves none touches the file that held the head row."""


def put(graph: omnigraph.Graph, *slugs: str, branch: str = "main", type: str = "P") -> None:
    graph.load("\n".join(json.dumps({"type": type, "data": {"slug": s}}) for s in slugs), mode="merge", branch=branch)


def own(graph: omnigraph.Graph, branch: str) -> list[str]:
    return [c.id for c in graph.commits(branch, limit=10_000) if c.branch == branch]


def rows(graph: omnigraph.Graph, branch: str, at: Any = None) -> list[str]:
    return sorted(graph.export(branch=branch, at=at))


def versions(graph: omnigraph.Graph, location: str, branch: str | None = None) -> list[int]:
    return [v["version"] for v in Repository.open(graph.uri).engine.store.latest(location, branch).versions()]


def gone(graph: omnigraph.Graph, branch: str, at: Any) -> bool:
    """Whether a state can't be read any more; then the error says why."""
    try:
        rows(graph, branch, at)
    except NotFound as error:
        if error.code == "version_removed" and "cleanup" in error.message:
            return True
        raise
    return False


@pytest.fixture(scope="module")
def seed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten commits on main, a compaction, a branch with own commits, one without."""
    path = tmp_path_factory.mktemp("seed") / "g"
    graph = omnigraph.init(path, schema=SCHEMA)
    for i in range(6):
        put(graph, *(f"a{i}-{j}" for j in range(5)))
    graph.branches.create("dev")
    graph.branches.create("still")
    put(graph, "d1", branch="dev")
    put(graph, "d2", branch="dev")
    graph.optimize()
    for i in range(4):
        put(graph, f"b{i}")
    graph.close()
    return path


@pytest.fixture
def graph(seed: Path, tmp_path: Path) -> omnigraph.Graph:
    shutil.copytree(seed, tmp_path / "g")
    return omnigraph.open(tmp_path / "g")


def test_the_newest_commits_of_every_branch_stay(graph: omnigraph.Graph) -> None:
    names = ("main", "dev", "still")
    before = {(b, c): rows(graph, b, c) for b in names for c in own(graph, b)}
    heads = {b: rows(graph, b) for b in names}
    held = graph.snapshot(at=own(graph, "main")[5])  # a snapshot that somebody holds
    held_rows = held.scan("node:P", ["slug"])
    looked = graph.cleanup(keep=3)
    assert not looked.confirmed
    assert {b: rows(graph, b) for b in names} == heads
    assert all(rows(graph, b, c) == found for (b, c), found in before.items())
    done = graph.cleanup(keep=3, confirm=True)
    assert done.failed == ()
    assert {(t.table, t.branch): (t.removed, t.bytes) for t in looked.tables} == {
        (t.table, t.branch): (t.removed, t.bytes) for t in done.tables
    }
    assert sum(t.removed for t in done.tables) > 5
    assert dict(done.commits_kept) == {"main": 3, "dev": 2, "still": 0}
    assert {b: rows(graph, b) for b in names} == heads
    for branch in names:
        for n, commit in enumerate(own(graph, branch)):
            if n < 3:
                assert rows(graph, branch, commit) == before[branch, commit]
    assert gone(graph, "main", own(graph, "main")[6])
    assert held.scan("node:P", ["slug"]).equals(held_rows)
    assert len(graph.commits(limit=1000)) == len(own(graph, "main"))  # the history itself stays
    assert [t.removed for t in graph.cleanup(keep=3, confirm=True).tables] == [0] * len(done.tables)
    assert graph.verify().ok
    graph.branches.merge("dev")
    put(graph, "later", branch="still")
    assert graph.verify().ok
    del held
    graph.cleanup(keep=1, confirm=True)
    assert graph.verify().ok


def test_files_go_with_their_versions(graph: omnigraph.Graph) -> None:
    ref = graph.snapshot().tables["node:P"]
    data = Path(graph.uri) / ref.location / "data"
    before = set(os.listdir(data))
    graph.branches.delete("dev")
    graph.branches.delete("still")
    for i in range(3):
        graph.mutate(f'query q() {{ update P set {{ n: {i} }} where slug = "a0-0" }}')
    graph.optimize()
    unfinished = {name: data / name for name in ("0" * 40 + ".lance", "1" * 40 + ".lance")}
    for path in unfinished.values():
        path.write_bytes(b"a killed write's")
    os.utime(unfinished["0" * 40 + ".lance"], (DAYS_AGO_8, DAYS_AGO_8))
    rows_before = rows(graph, "main")
    graph.cleanup(keep=1, confirm=True)
    after = set(os.listdir(data))
    assert not after & before
    assert "1" * 40 + ".lance" in after  # as young as a write that is under way
    assert "0" * 40 + ".lance" not in after
    assert len(after) == 2
    assert rows(graph, "main") == rows_before


def test_system_tables_lose_old_versions_but_those_of_kept_commits(graph: omnigraph.Graph) -> None:
    for i in range(30):
        put(graph, f"c{i}", type="Q")
    kept = own(graph, "main")[:12]
    before = {c: rows(graph, "main", c) for c in kept}
    report = graph.cleanup(keep=12, confirm=True)
    (manifest,) = [t for t in report.tables if (t.table, t.branch) == ("__manifest", "main")]
    assert manifest.removed > 5
    left = set(versions(graph, "__manifest"))
    assert {graph.commit(c).manifest_version for c in kept} <= left
    assert len(versions(graph, "_graph_commits.lance")) <= 21
    assert {c: rows(graph, "main", c) for c in kept} == before
    assert gone(graph, "main", graph.commit(own(graph, "main")[25]).manifest_version)
    made = graph.branches.create("again", at=kept[-1])
    assert rows(graph, "again") == before[kept[-1]]
    assert made.head.id == kept[-1]
    with pytest.raises(NotFound, match="cleanup"):
        graph.branches.create("lost", at=own(graph, "main")[25])
    assert "lost" not in {b.name for b in graph.branches.list()}


def test_by_age(graph: omnigraph.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = own(graph, "main")
    before = {c: rows(graph, "main", c) for c in ids}
    now = datetime.now(UTC)
    cut = graph.commit(ids[2]).created_at

    class Clock:
        @staticmethod
        def now(zone: Any) -> datetime:
            return now.astimezone(zone)

    monkeypatch.setattr(module, "datetime", Clock)
    report = graph.cleanup(older_than=now - cut, confirm=True)
    assert report.commits_kept["main"] == 4
    # What is as young as that, and the one before: what the branch was at any moment since.
    assert {c: rows(graph, "main", c) for c in ids[:4]} == {c: before[c] for c in ids[:4]}
    assert gone(graph, "main", ids[6])
    assert rows(graph, "main", cut - timedelta(microseconds=1)) == before[ids[3]]
    assert all(t.removed == 0 for t in graph.cleanup(older_than="7d", confirm=True).tables)
    # The state that the branches began from is there besides.
    assert graph.cleanup(keep=1, older_than="7d").commits_lost["main"] == report.commits_lost["main"] - 1


@pytest.mark.parametrize("age", ["999999999d", timedelta.max])
def test_an_age_older_than_the_calendar_keeps_everything(graph: omnigraph.Graph, age: Any) -> None:
    ids = own(graph, "main")
    report = graph.cleanup(older_than=age, confirm=True)
    assert not any(report.commits_lost.values())
    assert own(graph, "main") == ids
    assert all(rows(graph, "main", commit) for commit in ids[:-1])


@pytest.mark.parametrize("given", [{}, {"keep": 0}, {"older_than": "soon"}, {"older_than": timedelta(-1)},
                                   {"older_than": "99999999999999w"}])  # fmt: skip
def test_what_makes_no_sense_is_refused(graph: omnigraph.Graph, given: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        graph.cleanup(**given, confirm=True)


def test_ages() -> None:
    assert [parse_age(t) for t in ("90s", "30m", "12h", "7d", "2w")] == [
        timedelta(seconds=90), timedelta(minutes=30), timedelta(hours=12), timedelta(days=7), timedelta(days=14)
    ]  # fmt: skip


def test_a_look_writes_nothing(graph: omnigraph.Graph) -> None:
    graph.close()  # history's rows follow the answer
    before = fingerprint(Path(graph.uri))
    reader = omnigraph.open(graph.uri, read_only=True)
    assert sum(t.removed for t in reader.cleanup(keep=1).tables)
    assert fingerprint(Path(graph.uri)) == before
    with pytest.raises(Forbidden):
        reader.cleanup(keep=1, confirm=True)


def test_what_a_tag_names_stays(graph: omnigraph.Graph) -> None:
    commit = graph.commit(own(graph, "main")[6])
    before = rows(graph, "main", commit.id)
    repository = Repository.open(graph.uri)
    repository.engine.store.latest("__manifest").tags.create("release", commit.manifest_version)
    table = repository.snapshot("main", own(graph, "main")[8]).tables["node:P"]
    repository.engine.store.latest(table.location).tags.create("mine", table.version)
    del repository
    graph.cleanup(keep=1, confirm=True)
    assert rows(graph, "main", commit.id) == before
    assert table.version in versions(graph, table.location)
    assert gone(graph, "main", own(graph, "main")[7])


def test_what_an_interrupted_write_needs_stays(graph: omnigraph.Graph) -> None:
    """Its pin lies versions below the head; a roll-back restores it."""
    ref = graph.snapshot().tables["node:P"]
    dataset = Repository.open(graph.uri).engine.store.latest(ref.location)
    dataset.delete("slug = 'a0-0'")
    dataset.delete("slug = 'a0-1'")
    table = {"table_key": "node:P", "table_path": ref.location, "expected_version": ref.version,
             "post_commit_pin": ref.version + 1}  # fmt: skip
    body = {"schema_version": 1, "operation_id": "OPX", "started_at": "0", "writer_kind": "Load", "tables": [table]}
    file = Path(graph.uri) / "__recovery" / "OPX.json"
    file.write_text(json.dumps(body))
    before = rows(graph, "main")
    repository = Repository.open(graph.uri)
    assert repository.cleanup(keep=1, confirm=True).failed == ()
    assert {ref.version, ref.version + 1, ref.version + 2} <= set(versions(graph, ref.location))
    repository.sweep("full")
    assert rows(omnigraph.open(graph.uri), "main") == before
    file.write_text("{")
    with pytest.raises(RecoveryPending):
        repository.cleanup(keep=1, confirm=True)


def test_a_publish_that_stood_still_comes_second(graph: omnigraph.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lance tells two commits from one version apart by the versions between, which a cleanup would have taken."""
    other, write, before = omnigraph.open(graph.uri), publish.commit_rows, own(graph, "main")

    def stand_still(*given: Any) -> Any:
        monkeypatch.setattr(publish, "commit_rows", write)
        for i in range(COMMITS):
            put(other, f"q{i}", type="Q")
        assert other.cleanup(keep=1, confirm=True).failed == ()
        return write(*given)

    monkeypatch.setattr(publish, "commit_rows", stand_still)
    put(graph, "late")
    later = omnigraph.open(graph.uri)
    assert len(own(later, "main")) == len(before) + COMMITS + 1
    heads = later._repository.engine.store.latest("__manifest").count_rows("object_id = 'graph_head:main'")
    assert heads == 1
    assert later.verify().ok
    assert later.cleanup(keep=1, confirm=True).failed == ()
    assert len(versions(later, "__manifest")) <= module.SYSTEM_VERSIONS + 3


def test_a_branch_that_goes_after_its_commits_were_read_is_passed_over(
    graph: omnigraph.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, look = Repository.open(graph.uri), module._state

    def gone_then(engine: Any, branch: str, commit: Any) -> Any:
        state = look(engine, branch, commit)
        if branch == "dev" and "dev" in {b.name for b in other.branches()}:
            other.delete_branch("dev")
        return state

    monkeypatch.setattr(module, "_state", gone_then)
    report = graph.cleanup(keep=1, confirm=True)
    assert report.failed == ()
    assert set(report.commits_kept) == {"main", "still"}
    assert graph.verify().ok


def test_forks_of_dead_branches_and_unused_ones_are_reclaimed(
    graph: omnigraph.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Repository.open(graph.uri).engine.store
    put(graph, "x", branch="dev", type="Q")
    graph.branches.create("dev/child".replace("/", "-"), from_="dev")
    put(graph, "y", branch="dev-child")
    for name in ("dev-child", "dev"):
        store.latest("__manifest").branches.delete(name)  # as a killed deletion leaves it
    tables = graph.snapshot().tables
    unused = tables["node:Q"]
    store.latest(unused.location).create_branch("still", unused.version)  # of a living branch that never wrote
    looked = graph.cleanup(keep=100)
    assert {(t.table, t.branch) for t in looked.tables if t.action == "planned" and not t.kept} >= {
        ("node:P", "dev-child"), ("node:Q", "dev")
    }  # fmt: skip
    done = graph.cleanup(keep=100, confirm=True)
    assert done.failed == ()
    for location in (*(r.location for r in tables.values()), "_graph_commits.lance"):
        assert branch_names(store, location) <= {"still"}
    assert branch_names(store, unused.location) == {"still"}  # it may be a load's that is under way
    assert not list(Path(graph.uri).rglob("tree/dev*"))
    monkeypatch.setattr(module, "UNFINISHED", timedelta(seconds=-5))
    graph.cleanup(keep=100, confirm=True)
    assert branch_names(store, unused.location) == set()
    put(graph, "z", branch="still", type="Q")
    assert graph.verify().ok


def test_branches_that_go_while_it_looks_are_passed_over(graph: omnigraph.Graph) -> None:
    """Lance reads the record of every branch of a dataset that it has listed, and fails where one has gone."""
    ref, over = graph.snapshot().tables["node:P"], threading.Event()

    def churn(name: str) -> None:
        store = Repository.open(graph.uri).engine.store
        for n in itertools.takewhile(lambda _: not over.is_set(), itertools.count()):
            dataset = store.latest(ref.location)
            dataset.create_branch(f"{name}{n}", dataset.version)
            with suppress(NotFound):  # the cleanup has been first
                delete_recorded(store, ref.location, f"{name}{n}")

    repository = Repository.open(graph.uri)
    with ThreadPoolExecutor(2) as pool:
        going = [pool.submit(churn, f"going{i}-") for i in range(2)]
        try:
            until = time.monotonic() + 2
            while time.monotonic() < until:
                for confirm in (False, True):
                    assert repository.cleanup(keep=50, older_than=None, confirm=confirm).failed == ()
        finally:
            over.set()
        for one in going:
            one.result()
    assert graph.verify().ok


def test_a_fork_that_another_removes_from_a_store_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as server, environment(server):
        graph = omnigraph.init(server.uri(), schema=SCHEMA)
        put(graph, "a")
        graph.branches.create("dev")
        put(graph, "b", branch="dev")
        graph.close()  # the branch has a history of its own now, beside the fork
        Repository.open(graph.uri).engine.store.latest("__manifest").branches.delete("dev")
        raced = []

        def late(store: Any, location: str, name: str) -> bool:
            raced.append(delete_recorded(Repository.open(graph.uri).engine.store, location, name))
            return delete_recorded(store, location, name)

        monkeypatch.setattr(module, "delete_recorded", late)
        report = graph.cleanup(keep=5, confirm=True)
        assert raced == [True, True]
        assert report.failed == ()
        assert [t for t in report.tables if t.action == "reclaimed"] == []
        assert graph.verify().ok


def test_what_killed_writes_left_beside_the_tables_goes(graph: omnigraph.Graph) -> None:
    root = Path(graph.uri)
    old, young = root / "_schemas" / ".0a1b.tmp", root / "nodes" / ".0c1d.tmp"
    for path in (old, young):
        path.write_bytes(b"x")
    os.utime(old, (DAYS_AGO_8, DAYS_AGO_8))
    (root / "__staging" / "OPX").mkdir(parents=True)
    report = graph.cleanup(keep=100, confirm=True)
    assert set(report.files) == {"_schemas/.0a1b.tmp", "__staging/OPX"}
    assert young.exists()


def test_files_that_a_merge_has_just_copied_stay(graph: omnigraph.Graph) -> None:
    """However old the branch's own files are: no version names the copies until the merge commits."""
    graph.branches.create("aged")
    put(graph, *(f"old{i}" for i in range(5)), branch="aged")
    repository = Repository.open(graph.uri)
    ours, theirs = repository.snapshot(), repository.snapshot("aged")
    ((base, _),) = repository.merge_bases(ours, theirs)
    whole = repository.whole_fragments("node:P", base, theirs, ours, 5)
    assert whole
    folder = Path(graph.uri) / ours.ref("node:P").location
    for path in folder.glob("tree/aged/data/*"):
        os.utime(path, (0, 0))
    copied = repository.copy_fragments(theirs, ours, "node:P", list(whole.values()))
    graph.cleanup(keep=1, confirm=True)
    for text in copied:
        for file in json.loads(text)["files"]:
            assert (folder / "data" / file["path"]).exists()


def test_a_failure_is_reported_and_the_others_are_done(
    graph: omnigraph.Graph, capsys: pytest.CaptureFixture[str]
) -> None:
    put(graph, "q1", type="Q")
    for i in range(3):
        put(graph, f"q{i}", type="Q")
    broken = graph.snapshot().tables["node:P"].location
    manifest = sorted((Path(graph.uri) / broken / "_versions").glob("1*.manifest"))[5]
    manifest.write_bytes(b"")
    assert main(["cleanup", graph.uri, "--keep", "1", "--confirm", "--format", "json"]) == 1
    captured = capsys.readouterr()
    answer = {(t["table"], t["branch"]): t for t in json.loads(captured.out)["tables"]}
    assert (answer["node:P", "main"]["action"], answer["node:P", "main"]["reason"]) == ("failed", "Failed")
    assert answer["node:Q", "main"]["removed"] >= 2
    assert "node:P of main:" in captured.err


def test_the_command(graph: omnigraph.Graph, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cleanup", graph.uri]) == 2
    assert main(["cleanup", graph.uri, "--keep", "2"]) == 0
    captured = capsys.readouterr()
    assert "would remove" in captured.out
    assert "fewer than 3" in captured.err
    assert main(["cleanup", graph.uri, "--keep", "3", "--confirm"]) == 0
    captured = capsys.readouterr()
    assert "removed" in captured.out
    assert "fewer" not in captured.err
    assert main(["cleanup", graph.uri, "--older-than", "7 fortnights"]) == 1


def test_a_branch_made_of_what_is_being_removed_undoes_itself(
    graph: omnigraph.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made between the look and the removal it is kept; made after the removal it is refused; never half a branch."""
    ids = own(graph, "main")
    before = {c: rows(graph, "main", c) for c in ids}
    real = removal.remove_planned

    def between(*args: Any, **kwargs: Any) -> Any:
        omnigraph.open(graph.uri).branches.create("early", at=ids[7])
        return real(*args, **kwargs)

    monkeypatch.setattr(module, "remove_planned", between)
    report = omnigraph.open(graph.uri).cleanup(keep=1, confirm=True)
    assert report.failed == ()
    assert rows(graph, "early") == before[ids[7]]
    stale = omnigraph.open(graph.uri)
    state = stale.snapshot(at=ids[7]).state
    assert state.tables
    with pytest.raises(NotFound) as caught:
        omnigraph.open(graph.uri).branches.create("late", at=ids[6])
    assert caught.value.code == "version_removed"
    assert {b.name for b in graph.branches.list()} == {"main", "dev", "early", "still"}
    assert graph.verify().ok


def test_a_removal_waits_for_first_writes_and_then_says_so(
    graph: omnigraph.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    from omnigraph.storage.forks import fork_lock

    monkeypatch.setattr(removal, "LOCK_WAIT_SECONDS", 0.05)
    repository = Repository.open(graph.uri)
    with fork_lock(repository.engine.store, exclusive=False):
        report = repository.cleanup(keep=1, confirm=True)
    assert {t.reason for t in report.failed} == {"Busy"}
    assert repository.cleanup(keep=1, confirm=True).failed == ()


def test_the_table_of_a_dropped_type_goes_with_the_last_commit_that_saw_it(tmp_path: Path) -> None:
    graph = omnigraph.init(tmp_path / "g", schema=SCHEMA)
    put(graph, "a")
    put(graph, "q", type="Q")
    location, saw = graph.snapshot().tables["node:Q"].location, graph.head().id
    graph.schema.apply(SCHEMA.replace("node Q { slug: String @key }\n", ""))
    put(graph, "b")
    graph.cleanup(keep=4, confirm=True)
    assert rows(graph, "main", saw) == ['{"type":"P","data":{"slug":"a","n":null}}',
                                        '{"type":"Q","data":{"slug":"q"}}']  # fmt: skip
    (looked,) = [t for t in graph.cleanup(keep=2).tables if t.location == location]
    assert looked.action == "planned"
    (done,) = [t for t in graph.cleanup(keep=2, confirm=True).tables if t.location == location]
    assert done.action == "dropped"
    assert not (Path(graph.uri) / location).exists()
    assert gone(graph, "main", saw)
    assert graph.verify().ok
    graph.schema.apply(SCHEMA)
    put(graph, "new", type="Q")
    assert graph.verify().ok
    graph.cleanup(keep=1, confirm=True)
    assert graph.snapshot().scan("node:Q", ["slug"])["slug"].to_pylist() == ["new"]


def test_old_versions_of_one_table_alone(graph: omnigraph.Graph) -> None:
    """What a hard drop asks for: history of one table goes, the rest stays."""
    put(graph, "q1", type="Q")
    put(graph, "q2", type="Q")
    heads = {b: rows(graph, b) for b in ("main", "dev", "still")}
    ref, other = (graph.snapshot().tables[k] for k in ("node:P", "node:Q"))
    others = versions(graph, other.location)
    done = Repository.open(graph.uri).remove_versions([ref.location])
    assert {t.branch for t in done} == {"main", "dev"}
    assert all(t.action in ("cleaned", "unchanged") for t in done)
    inherited = graph.snapshot("still").tables["node:P"].version
    assert versions(graph, ref.location) == sorted({inherited, ref.version})
    assert versions(graph, other.location) == others
    assert {b: rows(graph, b) for b in ("main", "dev", "still")} == heads
    assert gone(graph, "main", own(graph, "main")[5])
    assert graph.verify().ok


@pytest.mark.parametrize("name", ["branches", "maintained", "types"])
def test_graphs_of_the_origin(tmp_path: Path, name: str) -> None:
    graph = omnigraph.open(unpack(name, tmp_path))
    branches = [b.name for b in graph.branches.list()]
    before = {b: rows(graph, b) for b in branches}
    kept = {}
    for branch in branches:
        for commit in own(graph, branch)[:3]:
            try:
                kept[branch, commit] = rows(graph, branch, commit)
            except NotFound:
                continue  # its own cleanup took it
    assert graph.cleanup(keep=3, confirm=True).failed == ()
    assert {b: rows(graph, b) for b in branches} == before
    assert {at: rows(graph, *at) for at in kept} == kept
    assert graph.verify().ok or name == "maintained"
    for branch in branches:
        graph.optimize(branch=branch)
    assert graph.cleanup(keep=1, confirm=True).failed == ()
    assert {b: rows(graph, b) for b in branches} == before
