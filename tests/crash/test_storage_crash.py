"""Kill a writer at every durable step, with SIGKILL; then nothing is lost, nothing half-visible, the next try works."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import Conflict, NotFound, RecoveryPending
from omnigraph.schema import compile_schema
from omnigraph.storage import Repository, Staging, TableChange, WriterKind, steps
from omnigraph.storage.layout import lance_branch
from omnigraph.storage.steps import Step
from tests.crash import crash_scenarios as scenarios

NEVER = "never:0"


def _child(uri: str, scenario: str, kill_at: str, report: str, env: dict[str, str] | None = None) -> None:
    """In a process of its own: do the scenario, and write down the steps it reached."""
    os.environ.update(env or {})
    steps._KILL_AT = kill_at
    if scenario == "build":
        scenarios.build(uri)
    else:
        repository = Repository.open(uri)
        scenarios.ACTIONS[scenario](repository)
        repository.close()  # the steps that follow the answer
    Path(report).write_text(json.dumps(steps._reached))


# Forked from a server that has only imported the modules: a second saved per process.
os.environ["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.crash.crash_scenarios"])


def run(uri: Path, scenario: str, kill_at: str) -> tuple[int | None, Path]:
    report = uri.parent / f"{uri.name}.json"
    report.unlink(missing_ok=True)
    process = PROCESSES.Process(target=_child, args=(str(uri), scenario, kill_at, str(report)))
    process.start()
    process.join(120)
    return process.exitcode, report


def steps_of(uri: Path, scenario: str) -> list[str]:
    """`step:n` of everything the scenario reaches on this graph; does it."""
    code, report = run(uri, scenario, NEVER)
    assert code == 0
    reached: dict[str, int] = json.loads(report.read_text())
    return [f"{step}:{n}" for step, count in reached.items() for n in range(1, count + 1)]


def killed(uri: Path, scenario: str, kill_at: str) -> None:
    code, report = run(uri, scenario, kill_at)
    assert (code, report.exists()) == (-signal.SIGKILL, False), kill_at


@pytest.fixture(scope="module")
def seed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    uri = tmp_path_factory.mktemp("seed") / "graph"
    assert run(uri, "build", NEVER)[0] == 0
    return uri


def check_whole(uri: Path | str, branch: str, operation_id: str, *, sidecar_before: bool) -> None:
    """After a sweep: heads are what is published, history has no hole, one audit row, nothing in flight."""
    repository = Repository.open(str(uri))
    assert repository.pending() == []
    if isinstance(uri, Path):
        assert [n for n in os.listdir(uri / "__recovery") if n.endswith(".tmp")] == []
    store, history = repository.engine.store, repository.engine.history
    for info in repository.branches():
        for ref in repository.snapshot(info.name).tables.values():
            if ref.branch != lance_branch(info.name):
                continue  # inherited: main's head has gone on
            head = store.latest(ref.location, ref.branch).version
            drift = repository.drift(repository.snapshot(info.name), ref.table_key)
            joined = drift is not None and drift.kind == "NoRowChanged" and operation_id == "OPTAIL"
            assert joined or head == ref.version, f"{ref.table_key} on {info.name}: {head}, published {ref.version}"
    chain = repository.commits(branch, limit=1000)
    ids = {c.id for c in chain}
    assert all(p in ids for c in chain for p in c.parents)
    assert chain[-1].parents == ()
    mine = [r for r in history.recoveries() if r["operation_id"] == operation_id]
    assert len(mine) == (1 if sidecar_before else 0), mine
    assert all(r["graph_commit_id"] in ids for r in mine)


def check_retry(uri: Path | str, scenario: str, after: dict[str, Any]) -> None:
    action, branch, operation_id = scenarios.SCENARIOS[scenario]
    repository = Repository.open(str(uri))
    action(repository)
    head = repository.head(branch).id
    action(repository)  # once more changes nothing
    repository.close()
    assert repository.head(branch).id == head
    assert scenarios.contents(repository, branch) == after
    done = [
        c
        for c in repository.commits(branch, limit=1000)
        if c.operation_id == operation_id and c.recovery_kind in (None, "RolledForward")
    ]
    assert len(done) == 1
    if scenario.startswith("merge"):
        assert done[0].parents[1:] == (repository.head("topic").id,)
    # The rows of the history table itself, not the walk that also looks at the head row.
    rows = repository.engine.store.latest("_graph_commits.lance", branch).to_table()["graph_commit_id"].to_pylist()
    assert {c.id for c in repository.commits(branch, limit=1000)} <= set(rows)


@pytest.mark.parametrize("scenario", sorted(scenarios.SCENARIOS.keys() - {"optimize"}))  # has a file of its own
def test_killed_at_every_step(seed: Path, tmp_path: Path, scenario: str) -> None:
    _, branch, operation_id = scenarios.SCENARIOS[scenario]
    whole = tmp_path / "whole"
    shutil.copytree(seed, whole)
    before = scenarios.contents(Repository.open(str(whole)), branch)
    places = steps_of(whole, scenario)
    after = scenarios.contents(Repository.open(str(whole)), branch)
    assert (before != after) or scenario == "indices"
    assert len(places) >= 6
    for place in places:
        uri = tmp_path / place.replace(":", "_")
        shutil.copytree(seed, uri)
        killed(uri, scenario, place)
        reader = Repository.open(str(uri), read_only=True)
        seen = scenarios.contents(reader, branch)
        assert seen in (before, after), place
        published = reader.engine.history.find_operation(branch, operation_id, reader.head(branch)) is not None
        assert seen == (after if published else before), place
        left = bool(reader.pending())
        report = Repository.open(str(uri)).sweep("full")
        assert len(report.outcomes) == int(left), (place, report)
        settled = scenarios.contents(Repository.open(str(uri)), branch)
        assert settled in (before, after), place
        if published:
            assert settled == after, f"{place}: what was published is gone"
        check_whole(uri, branch, operation_id, sidecar_before=left)
        check_retry(uri, scenario, after)
        shutil.rmtree(uri)


@pytest.mark.parametrize(
    ("scenario", "place"),
    [
        ("load", "sidecar.written:1"),  # nothing moved
        ("load", "table.committed:1"),  # roll back one of two
        ("mutation", "publish.before:1"),  # roll forward
        ("mutation", "publish.done:1"),  # published already
        ("branch", "table.committed:1"),  # roll back a fork
        ("branch", "table.committed:2"),  # roll two forks forward
        ("indices", "index.built:1"),
        ("tail", "table.committed:1"),  # roll forward over the joined files
        ("merge", "table.committed:2"),  # roll back two of three
        ("merge", "publish.before:1"),  # roll forward, with both parents
        ("merge-fork", "table.committed:1"),
    ],
)
def test_sweep_killed_at_every_step(seed: Path, tmp_path: Path, scenario: str, place: str) -> None:
    _, branch, operation_id = scenarios.SCENARIOS[scenario]
    broken = tmp_path / "broken"
    shutil.copytree(seed, broken)
    killed(broken, scenario, place)
    once, whole = tmp_path / "once", tmp_path / "whole"
    shutil.copytree(broken, once)
    places = steps_of(once, "sweep")
    expected = scenarios.contents(Repository.open(str(once)), branch)
    shutil.copytree(seed, whole)
    steps_of(whole, scenario)
    after = scenarios.contents(Repository.open(str(whole)), branch)
    assert len(places) >= 3
    for at in places:
        uri = tmp_path / at.replace(":", "_")
        shutil.copytree(broken, uri)
        killed(uri, "sweep", at)
        Repository.open(str(uri)).sweep("full")
        assert scenarios.contents(Repository.open(str(uri)), branch) == expected, at
        check_whole(uri, branch, operation_id, sidecar_before=True)
        check_retry(uri, scenario, after)
        shutil.rmtree(uri)


def test_create_killed_at_every_step(tmp_path: Path) -> None:
    places = steps_of(tmp_path / "whole", "build")
    creating = [p for p in places if p.startswith("create.")]
    assert len(creating) >= 5
    for place in creating:
        uri = tmp_path / place.replace(":", "_")
        killed(uri, "build", place)
        catalog = compile_schema(scenarios.SCHEMA)
        if place.startswith((Step.CREATE_MANIFEST_WRITTEN, Step.CREATE_COMMIT_RECORDED)):
            with pytest.raises(Conflict, match="already"):
                Repository.create(str(uri), catalog)
        else:
            with pytest.raises(NotFound, match="omnigraph init"):
                Repository.open(str(uri))
            Repository.create(str(uri), catalog)
        repository = Repository.open(str(uri))
        assert set(repository.snapshot().tables) == set(catalog.by_table_key)
        assert repository.snapshot().catalog.hash == catalog.hash
        assert len(repository.commits()) == 1


def test_a_creation_killed_after_the_graph_exists_is_known_again_by_its_operation(tmp_path: Path) -> None:
    catalog = compile_schema(scenarios.SCHEMA)
    for place in (Step.CREATE_MANIFEST_WRITTEN, Step.CREATE_COMMIT_RECORDED):
        uri = tmp_path / place
        killed(uri, "build", f"{place}:1")
        with pytest.raises(Conflict, match="already"):
            Repository.create(str(uri), catalog, operation_id="01J9ZC4T5E8QK3W7R2N6M1XVYZ")
        repository = Repository.create(str(uri), catalog, operation_id=scenarios.CREATION)
        assert repository.made_by(scenarios.CREATION)
        assert [c.operation_id for c in repository.commits()] == [scenarios.CREATION]
        assert (uri / "_schema.pg").exists()


def test_a_live_process_only_rolls_forward(seed: Path, tmp_path: Path) -> None:
    uri = tmp_path / "graph"
    shutil.copytree(seed, uri)
    killed(uri, "load", "table.committed:1")
    repository = Repository.open(str(uri))
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

    forward = tmp_path / "forward"
    shutil.copytree(seed, forward)
    killed(forward, "load", "publish.before:1")
    repository = Repository.open(str(forward))
    scenarios.indices(repository)  # any write rolls forward first
    assert repository.snapshot().count_rows("node:City") == 2
    assert repository.pending() == []


def test_a_living_writer_is_left_alone(seed: Path, tmp_path: Path) -> None:
    uri = tmp_path / "graph"
    shutil.copytree(seed, uri)
    repository = Repository.open(str(uri))
    program = (
        "import sys, time\n"
        "from omnigraph.storage import Repository, commit\n"
        "from tests.crash import crash_scenarios\n"
        "commit.publish = lambda *a, **k: (print('there', flush=True), time.sleep(60))\n"
        "crash_scenarios.load(Repository.open(sys.argv[1]))\n"
    )
    path = os.pathsep.join(p for p in sys.path if p)
    with subprocess.Popen(
        [sys.executable, "-c", program, str(uri)],
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
    check_whole(uri, "main", "OPLOAD", sidecar_before=True)


def append_person(repository: Repository, name: str, operation_id: str, *, reads: frozenset[str] = frozenset()) -> None:
    change = TableChange("node:Person", appends=scenarios.people([name], 3))
    staging = Staging("main", WriterKind.MUTATION, (change,), reads, operation_id)
    repository.commit(staging, repository.snapshot())


def _unhealed(uri: str, name: str, operation_id: str, kill_at: str, reads: frozenset[str]) -> None:
    """A writer that looked for dead ones before the other died."""
    from omnigraph.storage import commit

    steps._KILL_AT = kill_at
    commit.heal = lambda *_: None
    commit.settle_drift = lambda _engine, _branch, ref: ref
    append_person(Repository.open(uri), name, operation_id, reads=reads)


def unhealed(uri: Path, name: str, operation_id: str, kill_at: str, reads: frozenset[str] = frozenset()) -> int | None:
    process = PROCESSES.Process(target=_unhealed, args=(str(uri), name, operation_id, kill_at, reads))
    process.start()
    process.join(120)
    return process.exitcode


def test_two_dead_writers_of_one_table_are_told_apart(seed: Path, tmp_path: Path) -> None:
    """By numbers alone the first sidecar's table looks moved by its own writer; it was the second's."""
    uri = tmp_path / "graph"
    shutil.copytree(seed, uri)
    assert unhealed(uri, "moved", "OPB", "publish.before:1") == -signal.SIGKILL
    assert unhealed(uri, "stuck", "OPA", "sidecar.written:1") == -signal.SIGKILL
    repository = Repository.open(str(uri))
    outcomes = {o["operation_id"]: o["outcome"] for o in repository.sweep("full").outcomes}
    assert outcomes == {"OPA": "RolledBack", "OPB": "RolledForward"}
    append_person(repository, "stuck", "OPA")
    append_person(repository, "moved", "OPB")
    names = repository.snapshot().scan("node:Person", ["id"])["id"].to_pylist()
    assert [names.count(n) for n in ("stuck", "moved")] == [1, 1]


def test_what_lost_its_ground_is_rolled_back(seed: Path, tmp_path: Path) -> None:
    """A write that relied on a table is not rolled forward once that table has moved."""
    uri = tmp_path / "graph"
    shutil.copytree(seed, uri)
    assert unhealed(uri, "late", "OPC", "publish.before:1", frozenset({"edge:Knows"})) == -signal.SIGKILL
    repository = Repository.open(str(uri))
    sidecar = uri / "__recovery" / "OPC.json"
    hidden = sidecar.read_bytes()
    sidecar.unlink()
    change = TableChange("edge:Knows", delete_ids=scenarios.knows([("ann", "bob")])["id"])
    repository.commit(Staging("main", WriterKind.MUTATION, (change,)), repository.snapshot())
    sidecar.write_bytes(hidden)
    assert [p["reason"] for p in repository.sweep("forward").pending] == ["NeedsRollBack"]
    assert [o["outcome"] for o in repository.sweep("full").outcomes] == ["RolledBack"]
    assert "late" not in repository.snapshot().scan("node:Person", ["id"])["id"].to_pylist()
    check_whole(uri, "main", "OPC", sidecar_before=True)


def test_a_write_over_joined_files_is_rolled_forward(seed: Path, tmp_path: Path) -> None:
    uri = tmp_path / "graph"
    shutil.copytree(seed, uri)
    killed(uri, "tail", "publish.before:1")
    repository = Repository.open(str(uri))
    assert [o["outcome"] for o in repository.sweep("forward").outcomes] == ["RolledForward"]
    assert "dee-bob" in repository.snapshot().scan("edge:Knows", ["id"])["id"].to_pylist()
