"""Kill a schema change at every durable step: the old schema or the new one, whole; nothing of the other is left."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from omnigraph.maintain import verify
from omnigraph.storage import Repository
from omnigraph.storage.layout import MANIFEST, SCHEMA_LOCK
from omnigraph.storage.lineage import branch_names
from omnigraph.storage.steps import Step
from tests.crash import crash_scenarios as scenarios
from tests.crash.test_storage_crash import NEVER, PROCESSES, _child, check_whole
from tests.s3 import S3, environment, serving

OPERATION = "OPSCHEMA"


@dataclass
class Place:
    """Where graphs lie: a folder. An object store needs the same few things."""

    folder: Path

    def uri(self, name: str) -> str:
        return str(self.folder / name)

    def copy(self, source: str, target: str) -> None:
        shutil.copytree(source, target)

    def remove(self, uri: str) -> None:
        shutil.rmtree(uri)

    def env(self) -> dict[str, str]:
        return {}


@dataclass
class Store:
    """An object store."""

    s3: S3

    def uri(self, name: str) -> str:
        return self.s3.uri(name)

    def copy(self, source: str, target: str) -> None:
        self.s3.copy(source, target)

    def remove(self, uri: str) -> None:
        pass

    def env(self) -> dict[str, str]:
        return self.s3.env()


ON_A_STORE = ("schema.table-created:1", "table.committed:1", "publish.before:1", "publish.done:1", "schema.unlocked:1")
"""Where a change of a graph on a store is killed; in a folder, everywhere."""


@pytest.fixture(scope="module", params=["folder", "s3"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place | Store]:
    if request.param == "folder":
        yield Place(tmp_path_factory.mktemp("graphs"))
        return
    with serving() as server, environment(server):
        yield Store(server)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("report") / "steps.json"


@pytest.fixture(scope="module")
def seed(place: Place | Store, report: Path) -> str:
    uri = place.uri("seed")
    for scenario in ("build", "alone"):
        assert run(place, uri, scenario, NEVER, report)[0] == 0
    return uri


def run(place: Place | Store, uri: str, scenario: str, kill_at: str, report: Path) -> tuple[int | None, list[str]]:
    """The exit code, and `step:n` of everything reached by a process that came to its end."""
    report.unlink(missing_ok=True)
    process = PROCESSES.Process(target=_child, args=(uri, scenario, kill_at, str(report), place.env()))
    process.start()
    process.join(120)
    reached = json.loads(report.read_text()) if report.exists() else {}
    return process.exitcode, [f"{step}:{n}" for step, count in reached.items() for n in range(1, count + 1)]


def state(repository: Repository) -> dict[str, Any]:
    """The schema and every row, with their ids, from one snapshot."""
    snapshot = repository.snapshot()
    rows = {}
    for key in snapshot.tables:
        table = snapshot.scan(key, [*snapshot.schema(key).names, "_rowid", "_row_created_at_version"])
        rows[key] = sorted(map(repr, table.to_pylist()))
    return {"schema": snapshot.schema_hash, "ids": snapshot.schema_ir.identity, "rows": rows}


def check_settled(repository: Repository, uri: str, *, sidecar_before: bool, local: bool) -> None:
    check_whole(Path(uri) if local else uri, "main", OPERATION, sidecar_before=sidecar_before)
    store, snapshot = repository.engine.store, repository.snapshot()
    assert SCHEMA_LOCK not in branch_names(store, MANIFEST)
    assert not any(store.files.exists(f"{n}.staging") for n in ("_schema.pg", "_schema.ir.json", "__schema_state.json"))
    assert store.files.read("_schema.pg").decode() == snapshot.catalog.source
    assert store.files.read("_schema.ir.json").decode() == snapshot.schema_ir.to_json()
    assert json.loads(store.files.read("__schema_state.json"))["schema_hash"] == snapshot.schema_hash
    assert [f for f in verify(repository).findings if f["severity"] == "error"] == []
    if local:
        kept = {ref.location for ref in snapshot.tables.values()}
        there = {f"{kind}/{p.name}" for kind in ("nodes", "edges") for p in Path(uri, kind).iterdir()}
        assert there == kept, "tables of a change that wasn't made, or of one that removed them, are left"


def check_retry(repository: Repository, after: dict[str, Any]) -> None:
    scenarios.schema(repository)
    head = repository.head().id
    scenarios.schema(repository)  # once more changes nothing
    assert repository.head().id == head
    again = state(repository)
    assert again["schema"] == after["schema"]
    assert again["ids"] == after["ids"]
    assert {k: len(v) for k, v in again["rows"].items()} == {k: len(v) for k, v in after["rows"].items()}
    done = [
        c
        for c in repository.commits(limit=1000)
        if c.operation_id == OPERATION and c.recovery_kind in (None, "RolledForward")
    ]
    assert len(done) == 1


def test_killed_at_every_step(place: Place | Store, seed: str, report: Path) -> None:
    whole = place.uri("whole")
    place.copy(seed, whole)
    before = state(Repository.open(whole))
    code, places = run(place, whole, "schema", NEVER, report)
    assert code == 0
    after = state(Repository.open(whole))
    assert before["schema"] != after["schema"]
    assert {p.split(":")[0] for p in places} >= {
        Step.SCHEMA_KEPT, Step.SIDECAR_WRITTEN, Step.SCHEMA_LOCKED, Step.SCHEMA_STAGED, Step.SCHEMA_TABLE_CREATED,
        Step.TABLE_COMMITTED, Step.PUBLISH_BEFORE, Step.PUBLISH_DONE, Step.SCHEMA_PROMOTED, Step.SCHEMA_PURGED,
        Step.SCHEMA_UNLOCKED, Step.SIDECAR_REMOVED,
    }  # fmt: skip
    for at in places if isinstance(place, Place) else ON_A_STORE:
        uri = place.uri(at.replace(":", "_"))
        place.copy(seed, uri)
        assert run(place, uri, "schema", at, report) == (-signal.SIGKILL, []), at
        reader = Repository.open(uri, read_only=True)
        published = reader.engine.history.find_operation("main", OPERATION, reader.head()) is not None
        assert state(reader) == (after if published else before), at
        assert [b.name for b in reader.branches()] == ["main"]
        left = bool(reader.pending())
        repository = Repository.open(uri)
        swept = repository.sweep("full")
        assert len(swept.outcomes) == int(left), (at, swept)
        settled = state(repository)
        # A roll forward gives the same; a roll back the same rows, in versions of their own.
        assert settled["schema"] in (before["schema"], after["schema"])
        assert settled == (after if settled["schema"] == after["schema"] else before), at
        assert settled == after or not published, f"{at}: what was published is gone"
        check_settled(Repository.open(uri), uri, sidecar_before=left, local=isinstance(place, Place))
        check_retry(Repository.open(uri), after)
        place.remove(uri)


@pytest.mark.parametrize(
    "at",
    [
        "table.committed:1",  # roll back the first of several commits, remove new tables
        "publish.before:1",  # roll forward
        "publish.done:1",  # published already
    ],
)
def test_sweep_killed_at_every_step(place: Place | Store, seed: str, report: Path, at: str) -> None:
    if isinstance(place, Store) and at != "table.committed:1":
        pytest.skip("in a folder alone: on a store each step takes seconds")
    broken, whole, once = (place.uri(f"{at.replace(':', '_')}-{n}") for n in ("broken", "whole", "once"))
    place.copy(seed, broken)
    assert run(place, broken, "schema", at, report)[0] == -signal.SIGKILL
    place.copy(broken, once)
    code, places = run(place, once, "sweep", NEVER, report)
    assert code == 0
    expected = state(Repository.open(once))
    place.copy(seed, whole)
    assert run(place, whole, "schema", NEVER, report)[0] == 0
    after = state(Repository.open(whole))
    assert len(places) >= 5
    for step in places if isinstance(place, Place) else places[1::3]:
        uri = place.uri(f"{at}-{step}".replace(":", "_"))
        place.copy(broken, uri)
        assert run(place, uri, "sweep", step, report)[0] == -signal.SIGKILL
        Repository.open(uri).sweep("full")
        assert state(Repository.open(uri)) == expected, step
        check_settled(Repository.open(uri), uri, sidecar_before=True, local=isinstance(place, Place))
        check_retry(Repository.open(uri), after)
        place.remove(uri)
