"""On a store nothing tells the living: a sweep beside a write that goes on or gives up. One of both decides, once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from ulid import ULID

from omnigraph.errors import Internal, OmniGraphError, RecoveryPending, RowLevelCasContention
from omnigraph.schema import compile_schema
from omnigraph.storage import (
    Repository,
    Staging,
    TableChange,
    WriterKind,
    commit,
    own_write,
    recovery_commits,
    sweep,
    undo,
)
from omnigraph.storage.layout import RECOVERIES
from omnigraph.storage.publish import CommitDraft, publish
from omnigraph.storage.steps import Step
from tests.s3 import S3, environment, serving

SCHEMA = "node P {\n    name: String @key\n}\n"
WRITE = "01J00000000000000000000001"


@pytest.fixture(scope="module")
def server() -> Iterator[S3]:
    with serving() as running, environment(running):
        yield running


@pytest.fixture(params=["main", "side"])
def branch(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def repository(server: S3, branch: str) -> Iterator[Repository]:
    """A row on main; on the other branch the next write is its first, which forks the table."""
    made = Repository.create(server.uri(), compile_schema(SCHEMA))
    put(made, "main", "a")
    if branch != "main":
        made.create_branch(branch)
    monkey = sweep.LIVING_SECONDS
    sweep.LIVING_SECONDS = 0.0
    yield made
    sweep.LIVING_SECONDS = monkey
    made.close()
    server.drop(made.uri)


def put(repository: Repository, branch: str, name: str, operation_id: str = "", head: str | None = None) -> str:
    change = TableChange("node:P", upserts=pa.table({"id": [name], "name": [name]}))
    staging = Staging(branch, WriterKind.MUTATION, (change,), operation_id=operation_id, expect_head=head)
    return repository.commit(staging, repository.snapshot(branch)).id


def settled(repository: Repository, branch: str, *expected: str) -> None:
    """The rows are these, the operation stands in history as often as its row does, and writes go on."""
    other = Repository.open(repository.uri)
    rows = other.snapshot(branch).scan("node:P", ["id"])["id"].to_pylist()
    assert sorted(rows) == sorted(expected)
    done = [c for c in other.commits(branch) if c.operation_id == WRITE and c.recovery_kind != "RolledBack"]
    assert len(done) == expected.count("b")
    put(other, branch, "z")
    assert other.sweep("full").pending == ()
    assert other.pending() == []
    assert other.drift(other.snapshot(branch), "node:P") is None
    assert other.snapshot(branch).count_rows("node:P") == len(expected) + 1
    audits = other.engine.store.latest_or_none(RECOVERIES)
    operations = audits.to_table().column("operation_id").to_pylist() if audits else []
    assert len(set(operations)) == len(operations)
    other.close()


def losing(repository: Repository) -> Callable[..., Any]:
    """A publish that comes second five times, for one process alone."""

    def contended(manifest: Any, *given: Any, **named: Any) -> Any:
        if manifest is repository.engine.manifest:
            raise RowLevelCasContention("main", 5)
        return publish(manifest, *given, **named)

    return contended


class At:
    """Something happens once when a step of the sweep is reached."""

    def __init__(self, patch: pytest.MonkeyPatch, step: Step, action: Callable[[], Any]) -> None:
        self.step, self.action, self.reach, self.done = step, action, sweep.reach, False
        for module in (sweep, undo, recovery_commits):
            patch.setattr(module, "reach", self)

    def __call__(self, step: Step) -> None:
        self.reach(step)
        if step is self.step and not self.done:
            self.done = True
            self.action()


def test_a_write_that_was_rolled_forward_is_done(
    repository: Repository, branch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Repository.open(repository.uri)

    def rolled(*_: Any, **__: Any) -> Any:
        assert [o["outcome"] for o in other.sweep("forward").outcomes] == ["RolledForward"]
        raise RowLevelCasContention(branch, 5)

    with monkeypatch.context() as patch:
        patch.setattr(commit, "publish", rolled)
        done = put(repository, branch, "b", WRITE)
    assert done in {c.id for c in repository.commits(branch)}
    settled(repository, branch, "a", "b")


@pytest.mark.parametrize("step", [Step.RECOVERY_DECIDED, Step.RECOVERY_RESTORED])
def test_a_write_that_gives_up_isnt_rolled_forward(
    repository: Repository, branch: str, monkeypatch: pytest.MonkeyPatch, step: Step
) -> None:
    other = Repository.open(repository.uri)
    with monkeypatch.context() as patch:
        patch.setattr(commit, "publish", losing(repository))
        at = At(patch, step, lambda: other.sweep("forward"))
        with pytest.raises(RowLevelCasContention) as caught:
            put(repository, branch, "b", WRITE)
    assert at.done
    assert not getattr(caught.value, "__notes__", [])
    settled(repository, branch, "a")


@pytest.mark.parametrize("writes", [False, True])
def test_a_write_rolled_forward_while_it_gives_up_is_done(
    repository: Repository, branch: str, monkeypatch: pytest.MonkeyPatch, writes: bool
) -> None:
    """The sweep publishes between the writer's look at history and its decision; others write upon that at once."""
    other = Repository.open(repository.uri)

    beside: list[bool] = []
    decided = recovery_commits.decided

    def look(engine: Any, *given: Any) -> Any:
        found = decided(engine, *given)
        if engine is repository.engine and not beside:
            beside.append(True)
            other.sweep("forward")
            if writes:
                put(other, branch, "c")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(commit, "publish", losing(repository))
        for module in (own_write, recovery_commits):
            patch.setattr(module, "decided", look)
        put(repository, branch, "b", WRITE)
    assert beside
    settled(repository, branch, "a", "b", *(["c"] if writes else []))


@pytest.mark.parametrize("ends", ["published", "given up", "given up, others write"])
def test_what_a_sweep_found_is_over_when_it_publishes(
    repository: Repository, branch: str, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """The writer lives, and comes to its end between a sweep's look and its publish."""
    other, third = Repository.open(repository.uri), Repository.open(repository.uri)
    failed: list[OmniGraphError] = []

    def swept(manifest: Any, *given: Any, **named: Any) -> Any:
        if manifest is not repository.engine.manifest:
            return publish(manifest, *given, **named)
        with monkeypatch.context() as inner:
            at = At(inner, Step.RECOVERY_CLASSIFIED, lambda: end(manifest, *given, **named))
            other.sweep("forward")
        assert at.done
        if failed:
            raise failed[0]
        return done[0]

    done: list[Any] = []

    def end(*given: Any, **named: Any) -> None:
        if ends == "published":
            done.append(publish(*given, **named))
            return
        write, held, sidecar = under_way[0]
        failed.append(RowLevelCasContention(branch, 5))
        assert own_write.give_up(repository.engine, held, sidecar, failed[0], write) is None
        if "others" in ends:
            put(third, branch, "c")

    under_way: list[Any] = []
    write_sidecar = repository.engine.sidecars.write

    def written(sidecar: Any) -> Any:
        held = write_sidecar(sidecar)
        under_way.append((["node:P"], held, sidecar))
        return held

    with monkeypatch.context() as patch:
        patch.setattr(repository.engine.sidecars, "write", written)
        patch.setattr(commit, "publish", swept)
        if ends == "published":
            put(repository, branch, "b", WRITE)
        else:
            patch.setattr(commit, "give_up", lambda *_: None)
            with pytest.raises(RowLevelCasContention):
                put(repository, branch, "b", WRITE)
    settled(repository, branch, "a", *{"published": ["b"], "given up": []}.get(ends, ["c"]))


@pytest.mark.parametrize("step", [Step.RECOVERY_DECIDED, Step.RECOVERY_RESTORED])
def test_one_that_died_while_it_gave_up_blocks_until_it_is_restored(
    repository: Repository, branch: str, monkeypatch: pytest.MonkeyPatch, step: Step
) -> None:
    def die() -> None:
        raise Internal("died")

    with monkeypatch.context() as patch:
        patch.setattr(commit, "publish", losing(repository))
        At(patch, step, die)
        with pytest.raises(RowLevelCasContention):
            put(repository, branch, "b", WRITE)
    later = Repository.open(repository.uri)
    with pytest.raises(RecoveryPending, match="omnigraph recover"):
        put(later, branch, "c")
    assert [o["outcome"] for o in later.sweep("full").outcomes] == ["RolledBack"]
    assert later.drift(later.snapshot(branch), "node:P") is None
    settled(later, branch, "a")
    put(later, branch, "b", WRITE)
    assert later.done_before(branch, WRITE) is not None


def test_a_write_for_one_head_alone_isnt_rolled_forward_upon_another(
    repository: Repository, branch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: Any, **__: Any) -> None:
        raise Internal("died")

    head = repository.head(branch).id
    with monkeypatch.context() as patch:
        patch.setattr(commit, "publish", die)
        patch.setattr(commit, "give_up", lambda *_: None)
        with pytest.raises(Internal):
            put(repository, branch, "b", WRITE, head)
    later = Repository.open(repository.uri)
    draft = CommitDraft(str(ULID()), None, None, None)
    engine = later.engine
    publish(engine.manifest, engine.history, branch, draft, [], expected={}, already=lambda _: None)
    assert later.sweep("forward").pending
    assert [o["outcome"] for o in later.sweep("full").outcomes] == ["RolledBack"]
    settled(later, branch, "a")


def test_a_directory_restores_before_it_publishes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a lock tells the dead, one commit says that a write was rolled back."""
    made = Repository.create(str(tmp_path / "g"), compile_schema(SCHEMA))
    put(made, "main", "a")
    with monkeypatch.context() as patch:
        patch.setattr(commit, "publish", losing(made))
        with pytest.raises(RowLevelCasContention):
            put(made, "main", "b", WRITE)
    assert [c.recovery_kind for c in made.commits("main")][:2] == ["RolledBack", None]
    settled(made, "main", "a")
    assert len(str(ULID())) == len(WRITE)


@pytest.mark.parametrize("step", [Step.RECOVERY_DECIDED, Step.RECOVERY_RESTORED, None])
def test_a_write_that_a_sweep_undoes_isnt_published_upon_that(
    repository: Repository, branch: str, monkeypatch: pytest.MonkeyPatch, step: Step | None
) -> None:
    """Somebody recovers in full, though the writer lives: it comes to its publish when the sweep has decided."""
    other = Repository.open(repository.uri)
    swept: list[str] = []

    def undone(*_: Any) -> None:
        """As a full sweep that finds a table of the write not moved yet."""
        engine = other.engine
        (name,) = engine.sidecars.names()
        sidecar, held = engine.sidecars.read(name), engine.sidecars.claim(name)
        assert sidecar is not None
        assert held is not None
        done, restored = undo.roll_back(engine, sidecar, ["node:P"])
        recovery_commits.conclude(engine, held, sidecar, done, "RolledBack", tables=restored)
        swept.append(name)

    def late(manifest: Any, *given: Any, **named: Any) -> Any:
        if manifest is not repository.engine.manifest or swept:
            return publish(manifest, *given, **named)
        made: list[Any] = []

        def go_on() -> None:
            try:
                made.append(publish(manifest, *given, **named))
            except OmniGraphError as error:
                made.append(error)

        if step is None:
            undone()
            go_on()
        else:
            with monkeypatch.context() as inner:
                At(inner, step, go_on)
                undone()
        if isinstance(made[0], OmniGraphError):
            raise made[0]
        return made[0]

    with monkeypatch.context() as patch:
        patch.setattr(commit, "publish", late)
        with pytest.raises(OmniGraphError) as caught:
            put(repository, branch, "b", WRITE)
    assert caught.value.retryable
    settled(repository, branch, "a")


def test_a_roll_forward_is_audited_though_its_sweep_died(
    repository: Repository, branch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer finds its write published, and leaves the rest to the next sweep."""
    other = Repository.open(repository.uri)

    def die() -> None:
        raise Internal("died")

    def late(manifest: Any, *given: Any, **named: Any) -> Any:
        if manifest is repository.engine.manifest:
            with monkeypatch.context() as inner:
                At(inner, Step.RECOVERY_PUBLISHED, die)
                with pytest.raises(Internal):
                    other.sweep("forward")
        return publish(manifest, *given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(commit, "publish", late)
        put(repository, branch, "b", WRITE)
    assert [o["outcome"] for o in other.sweep("forward").outcomes] == ["RolledForward"]
    audits = other.engine.store.latest(RECOVERIES).to_table().to_pylist()
    assert [(a["operation_id"], a["recovery_kind"]) for a in audits] == [(WRITE, "RolledForward")]
    settled(repository, branch, "a", "b")
