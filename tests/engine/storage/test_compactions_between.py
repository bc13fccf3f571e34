"""Versions that change no row, made by others between a write's staging and its end: whose they are is always told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from ulid import ULID

import omnigraph
from omnigraph.errors import Conflict, ExpectedVersionMismatch, Internal
from omnigraph.schema import compile_schema
from omnigraph.storage import Repository, Staging, TableChange, WriterKind, commit, optimize, own_write, sweep, undo
from omnigraph.storage.manifest import pin_of
from omnigraph.storage.publish import CommitDraft, publish
from omnigraph.storage.steps import Step
from omnigraph.storage.translate import lance_errors

SCHEMA = "node P {\n    name: String @key\n}\n"


class Other:
    """Another process that compacts: the version it makes has the same rows."""

    def __init__(self, uri: str) -> None:
        self.repository = Repository.open(uri)

    def move(self) -> None:
        ref = self.repository.snapshot().ref("node:P")
        lance.dataset(f"{self.repository.uri}/{ref.location}").update_config({"moved": str(ULID())})

    def publish_next(self) -> None:
        """As `optimize` does: the version after the pin."""
        engine, ref = self.repository.engine, self.repository.snapshot().ref("node:P")
        moved = type(ref)(ref.table_key, ref.location, ref.branch, ref.version + 1, ref.row_count)
        draft = CommitDraft(str(ULID()), None, None, None)
        expected = {ref.table_key: pin_of(ref)}
        publish(engine.manifest, engine.history, "main", draft, [moved], expected=expected, already=lambda _: None)
        self.repository.close()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository.create(str(tmp_path / "g"), compile_schema(SCHEMA))
    put(made, "a")
    return made


def put(repository: Repository, name: str, operation_id: str = "") -> None:
    change = TableChange("node:P", upserts=pa.table({"id": [name], "name": [name]}))
    staging = Staging("main", WriterKind.MUTATION, (change,), operation_id=operation_id)
    repository.commit(staging, repository.snapshot())


def settled(repository: Repository, *expected: str) -> None:
    """Nothing is left of what was interrupted, the rows are these, and the next write works."""
    other = Repository.open(repository.uri)
    assert other.pending() == []
    assert other.drift(other.snapshot(), "node:P") is None
    assert sorted(other.snapshot().scan("node:P", ["id"])["id"].to_pylist()) == sorted(expected)
    put(other, "z")
    assert other.snapshot().count_rows("node:P") == len(expected) + 1


@pytest.mark.parametrize("published", [True, False])
def test_a_write_that_met_one_goes_on(repository: Repository, monkeypatch: pytest.MonkeyPatch, published: bool) -> None:
    other, apply = Other(repository.uri), commit.apply

    def meet(dataset: Any, operation: Any, mark: str) -> Any:
        other.move()
        made = apply(dataset, operation, mark)  # Lance puts it on top of what came between
        if published:
            other.publish_next()
        return made

    with monkeypatch.context() as patch:
        patch.setattr(commit, "apply", meet)
        put(repository, "b")
    settled(repository, "a", "b")
    assert not [c for c in repository.commits() if c.recovery_kind]


def test_one_published_while_a_write_above_it_is_undone(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, apply, reach = Other(repository.uri), commit.apply, undo.reach
    left = [True]

    def meet(dataset: Any, operation: Any, mark: str) -> Any:
        other.move()
        return apply(dataset, operation, mark)

    def lose(*_: Any, **__: Any) -> None:
        raise Conflict("lost")

    def reached(step: Step) -> None:
        reach(step)
        if step is Step.RECOVERY_RESTORED and left.pop():
            left.append(False)
            other.publish_next()

    with monkeypatch.context() as patch:
        patch.setattr(commit, "apply", meet)
        patch.setattr(commit, "publish", lose)
        patch.setattr(undo, "reach", reached)
        with pytest.raises(Conflict, match="lost") as caught:
            put(repository, "b")
    assert not getattr(caught.value, "__notes__", [])
    assert left == []  # restored twice, upon what was published between
    settled(repository, "a")


@pytest.mark.parametrize("published", [True, False])
def test_a_dead_write_above_one_is_rolled_forward(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, published: bool
) -> None:
    other, apply = Other(repository.uri), commit.apply

    def meet(dataset: Any, operation: Any, mark: str) -> Any:
        other.move()
        made = apply(dataset, operation, mark)
        if published:
            other.publish_next()
        return made

    def die(*_: Any, **__: Any) -> None:
        raise Internal("died")

    with monkeypatch.context() as patch:
        patch.setattr(commit, "apply", meet)
        patch.setattr(commit, "publish", die)
        patch.setattr(own_write, "roll_back", die)
        with pytest.raises(Internal):
            put(repository, "b")
    later = Repository.open(repository.uri)
    assert [o["outcome"] for o in later.sweep("forward").outcomes] == ["RolledForward"]
    settled(repository, "a", "b")


def test_a_write_that_moved_nothing_is_not_taken_for_done(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, operation_id = Other(repository.uri), str(ULID())

    def die(*_: Any) -> None:
        raise Internal("died")

    with monkeypatch.context() as patch:
        patch.setattr(commit, "apply", die)
        patch.setattr(own_write, "observe", die)
        with pytest.raises(Internal):
            put(repository, "b", operation_id)
    other.move()  # the version the dead write would have made, but not its rows
    later = Repository.open(repository.uri)
    assert [o["outcome"] for o in later.sweep("forward").outcomes] == ["RolledBack"]
    assert later.done_before("main", operation_id) is None
    put(later, "b", operation_id)
    settled(later, "a", "b")


def test_a_compaction_that_lost_to_an_undone_write_is_a_conflict_to_retry(repository: Repository) -> None:
    for name in "bcd":
        put(repository, name)
    ref = repository.snapshot().ref("node:P")
    stale, other = (lance.dataset(f"{repository.uri}/{ref.location}") for _ in range(2))
    other.restore()
    with pytest.raises(Conflict) as caught, lance_errors("compacting node:P"):
        stale.optimize.compact_files()  # Lance calls it incompatible
    assert caught.value.retryable


def fragmented(repository: Repository) -> None:
    for name in "bcd":
        put(repository, name)


def test_a_compaction_published_since_the_rows_were_read_is_no_conflict(repository: Repository) -> None:
    fragmented(repository)
    base = repository.snapshot()
    assert Repository.open(repository.uri).optimize().commit is not None
    rows = pa.table({"id": ["a", "e"], "name": ["a", "e"]})
    change = TableChange("node:P", upserts=rows, delete_ids=pa.array(["b"]))
    repository.commit(Staging("main", WriterKind.MUTATION, (change,)), base)
    settled(repository, "a", "c", "d", "e")


def test_rows_that_changed_beside_a_compaction_are_a_conflict(repository: Repository) -> None:
    fragmented(repository)
    base = repository.snapshot()
    other = Repository.open(repository.uri)
    other.optimize()
    put(other, "x")
    change = TableChange("node:P", upserts=pa.table({"id": ["e"], "name": ["e"]}))
    with pytest.raises(ExpectedVersionMismatch):
        repository.commit(Staging("main", WriterKind.MUTATION, (change,)), base)
    settled(repository, "a", "b", "c", "d", "x")


def test_a_table_made_anew_that_counts_alike_is_a_conflict(repository: Repository) -> None:
    """The versions after the pin change no row, but the pin is another branch's of the same name."""
    for name in ("one", "two"):
        repository.create_branch("dev")
        change = TableChange("node:P", upserts=pa.table({"id": [name], "name": [name]}))
        repository.commit(Staging("dev", WriterKind.MUTATION, (change,)), repository.snapshot("dev"))
        if name == "one":
            base = repository.snapshot("dev")
            repository.delete_branch("dev")
    Repository.open(repository.uri).optimize("dev")
    assert repository.snapshot("dev").ref("node:P").version > base.ref("node:P").version
    change = TableChange("node:P", upserts=pa.table({"id": ["e"], "name": ["e"]}))
    with pytest.raises(ExpectedVersionMismatch):
        repository.commit(Staging("dev", WriterKind.MUTATION, (change,)), base)


@pytest.mark.parametrize("published", ["before", "between", "after"])
def test_a_write_goes_on_beside_a_living_compaction(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, published: str
) -> None:
    """Its files are joined and committed; it publishes before the write begins, while it is under way, or after it."""
    fragmented(repository)
    other, wrote, publish_own, apply = Repository.open(repository.uri), [], optimize._publish, commit.apply

    def write() -> None:
        put(repository, "e")
        wrote.append("e")

    def paused(*args: Any) -> Any:
        if published == "after":
            write()
        elif published == "between":

            def meet(dataset: Any, operation: Any, mark: str) -> Any:
                made = apply(dataset, operation, mark)
                monkeypatch.setattr(commit, "apply", apply)
                found.append(publish_own(*args))
                return made

            found: list[Any] = []
            monkeypatch.setattr(commit, "apply", meet)
            write()
            return found[0]
        return publish_own(*args)

    monkeypatch.setattr(optimize, "_publish", paused)
    report = other.optimize()
    assert [t.action for t in report.tables] == ["compacted"]
    if published == "before":
        write()
    assert wrote == ["e"]
    settled(repository, "a", "b", "c", "d", "e")
    assert not [c for c in repository.commits() if c.recovery_kind]


@pytest.mark.parametrize("moved", ["before the sweep publishes", "before it looks again"])
def test_a_sweep_undoes_no_other_write(repository: Repository, monkeypatch: pytest.MonkeyPatch, moved: str) -> None:
    """A write dies before it has moved the table; one that lives moves it while a sweep looks after the dead."""
    other, apply, reach = Other(repository.uri), commit.apply, commit.reach
    dead, sweeper = Repository.open(repository.uri), Repository.open(repository.uri)
    swept: list[str] = []

    def die(*_: Any) -> None:
        raise Internal("died")

    def staged(step: Step) -> None:
        if step is Step.TABLE_STAGED:
            monkeypatch.setattr(commit, "reach", reach)
            with monkeypatch.context() as patch:
                patch.setattr(commit, "apply", die)
                patch.setattr(own_write, "observe", die)
                with pytest.raises(Internal):
                    put(dead, "x")

    def meet(dataset: Any, operation: Any, mark: str) -> Any:
        made: list[Any] = []

        def move() -> None:
            made.append(apply(dataset, operation, mark))

        with monkeypatch.context() as patch:
            if moved == "before the sweep publishes":
                at(patch, Step.RECOVERY_CLASSIFIED, move)
            swept.extend(o["outcome"] for o in sweeper.sweep("forward").outcomes)
        return made[0] if made else apply(dataset, operation, mark)

    other.move()  # nobody has published that yet
    with monkeypatch.context() as patch:
        patch.setattr(commit, "reach", staged)
        patch.setattr(commit, "apply", meet)
        put(repository, "b")
    assert swept == ["RolledBack"]
    settled(repository, "a", "b")


def test_a_dead_write_isnt_rolled_forward_upon_another_schema(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The schema changes between the sweep's look and its publish; the write was never checked against the new one."""

    def die(*_: Any, **__: Any) -> None:
        raise Internal("died")

    with monkeypatch.context() as patch:
        patch.setattr(commit, "publish", die)
        patch.setattr(own_write, "roll_back", die)
        with pytest.raises(Internal):
            put(repository, "b")
    later = Repository.open(repository.uri)
    with monkeypatch.context() as patch:
        at(
            patch,
            Step.RECOVERY_CLASSIFIED,
            lambda: omnigraph.open(repository.uri).schema.apply(f"{SCHEMA}node Q {{\n    name: String @key\n}}\n"),
        )
        assert [p["reason"] for p in later.sweep("forward").pending] == ["NeedsRollBack"]
    assert [o["outcome"] for o in later.sweep("full").outcomes] == ["RolledBack"]
    settled(later, "a")


def at(patch: pytest.MonkeyPatch, wanted: Step, action: Callable[[], Any]) -> None:
    """Do something once, when a sweep reaches a step."""
    reach, left = sweep.reach, [action]

    def reached(step: Step) -> None:
        reach(step)
        if step is wanted and left:
            left.pop()()

    patch.setattr(sweep, "reach", reached)
