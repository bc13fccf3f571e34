"""Graphs and branches that are killed while they come into being or go, and graphs of older formats."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph.errors import Conflict, NotFound
from omnigraph.schema import compile_schema
from omnigraph.storage import Repository, Staging, TableChange, WriterKind, announce
from omnigraph.storage.formats import CURRENT, stamp_of
from omnigraph.storage.layout import MANIFEST
from omnigraph.storage.lineage import branch_names
from omnigraph.storage.steps import Step
from tests.crash import crash_scenarios as scenarios
from tests.crash.matrix import Matrix, check_sound, check_whole
from tests.engine.storage.older import SHAPES, older
from tests.engine.upstream.conftest import unpack

__all__ = ["clean_up", "create_branch", "create_graph", "delete_branch", "open_older"]


def _write_on(repository: Repository, branch: str) -> None:
    change = TableChange("node:Person", upserts=scenarios.people(["zoe"], 1))
    repository.commit(Staging(branch, WriterKind.MUTATION, (change,)), repository.snapshot(branch))


def create_branch(matrix: Matrix) -> None:
    """A branch is there whole from its one step on, and its base isn't touched by what is written there."""
    once = matrix.copy(matrix.built())
    places = matrix.run(once, scenarios.create_branch)
    assert places == (f"{Step.BRANCH_CREATED}:1",)
    for place in places:
        uri = matrix.copy(matrix.built())
        matrix.kill(uri, scenarios.create_branch, place)
        repository = Repository.open(uri)
        topic = scenarios.contents(repository, "topic")
        assert scenarios.contents(repository, "new/one") == topic
        with pytest.raises(Conflict, match="exists already"):
            scenarios.create_branch(repository)
        _write_on(repository, "new/one")
        assert scenarios.contents(repository, "topic") == topic
        repository.close()
        check_whole(repository, "new/one", recovered=[])
        check_sound(repository)


def delete_branch(matrix: Matrix) -> None:
    """A branch is gone whole from the first step on, its name is free, and what it leaves goes with the next use."""
    once = matrix.copy(matrix.built())
    main = scenarios.contents(Repository.open(once), "main")
    places = matrix.run(once, scenarios.delete_branch)
    assert [p.split(":")[0] for p in places] == [Step.BRANCH_DELETED, *[Step.BRANCH_RECLAIMED] * (len(places) - 1)]
    assert len(places) >= 4  # three tables and the history
    for place in matrix.chosen(places):
        uri = matrix.copy(matrix.built())
        matrix.kill(uri, scenarios.delete_branch, place)
        repository = Repository.open(uri)
        assert [b.name for b in repository.branches()] == ["main", "dev"], place
        with pytest.raises(NotFound):
            repository.snapshot("topic")
        with pytest.raises(NotFound):
            repository.delete_branch("topic")
        repository.create_branch("topic")
        for location in {ref.location for ref in repository.snapshot().tables.values()}:
            assert "topic" not in branch_names(repository.engine.store, location), place
        assert scenarios.contents(repository, "topic") == scenarios.contents(repository, "main") == main
        _write_on(repository, "topic")
        check_whole(repository, "topic", recovered=[])
        check_sound(repository)
        repository.close()
        repository.delete_branch("topic")
        assert not [name for name in matrix.ground.names(uri) if "/tree/topic/" in name]
        matrix.ground.drop(uri)


def create_graph(matrix: Matrix) -> None:
    """A graph is there whole or not at all; what a killed creation left is in nobody's way."""
    places = [p for p in matrix.run(matrix.ground.new(), scenarios.create) if p.startswith("create.")]
    assert len(places) >= 5
    catalog = compile_schema(scenarios.SCHEMA)
    for place in places:
        uri = matrix.ground.new()
        matrix.kill(uri, scenarios.create, place)
        if place.startswith((Step.CREATE_MANIFEST_WRITTEN, Step.CREATE_COMMIT_RECORDED)):
            with pytest.raises(Conflict, match="already"):
                Repository.create(uri, catalog)
            with pytest.raises(Conflict, match="already"):
                Repository.create(uri, catalog, operation_id="01J9ZC4T5E8QK3W7R2N6M1XVYZ")
        else:
            with pytest.raises(NotFound, match="omnigraph init"):
                Repository.open(uri)
        repository = Repository.create(uri, catalog, operation_id=scenarios.CREATION)
        assert repository.made_by(scenarios.CREATION)
        assert [c.operation_id for c in repository.commits()] == [scenarios.CREATION]
        assert repository.engine.store.files.exists("_schema.pg")
        assert set(repository.snapshot().tables) == set(catalog.by_table_key)
        assert repository.snapshot().catalog.hash == catalog.hash
        check_sound(repository)
        matrix.ground.drop(uri)


def open_older(matrix: Matrix) -> None:
    """A graph of an older format, killed while it is brought to ours: it is read before and after, and opened again."""
    with tempfile.TemporaryDirectory() as folder:
        root = unpack("drift", Path(folder))
        older(root, **SHAPES["none"])  # type: ignore[arg-type]
        start = matrix.ground.put(root)
    hosts = "query q() { match { $h: Host } return { $h.name } }"
    places = [p for p in matrix.run(matrix.copy(start), scenarios.open_graph) if p.startswith("format.")]
    assert {p.split(":")[0] for p in places} == {
        Step.FORMAT_KEY_MARKED, Step.FORMAT_RUN_DELETED, Step.FORMAT_STAMPED,
    }  # fmt: skip
    for place in places:
        uri = matrix.copy(start)
        matrix.kill(uri, scenarios.open_graph, place)
        assert len(omnigraph.open(uri, read_only=True).query(hosts)) == 7, place
        graph = omnigraph.open(uri)
        manifest = Repository.open(uri).engine.store.latest(MANIFEST)
        assert stamp_of(manifest) == CURRENT
        assert manifest.schema.field("object_id").metadata
        assert not [name for name in manifest.branches.list() if name.startswith("__run__")]
        graph.mutate('query q() { insert Tag { name: "new" } }')
        assert len(graph.query(hosts)) == 7
        matrix.ground.drop(uri)


def _versions(repository: Repository) -> dict[tuple[str, str | None], list[int]]:
    """Of every lineage of every table that stands there."""
    store = repository.engine.store
    out = {}
    for location in sorted(set(repository.snapshot().state.locations.values())):
        if store.latest_or_none(location) is not None:
            for branch in (None, *sorted(branch_names(store, location))):
                out[location, branch] = [v["version"] for v in store.latest(location, branch).versions()]
    return out


def _kept(repository: Repository) -> dict[Any, Any]:
    """Every row of the two newest commits of the living branches."""
    out = {}
    for branch in (b.name for b in repository.branches()):
        own = [c for c in repository.commits(branch, limit=1000) if c.branch == branch]
        for commit in own[:2]:
            out[branch, commit.id] = scenarios.rows_of(repository.snapshot(branch, commit.id))
    return out


def clean_up(matrix: Matrix) -> None:
    """What is needed stays whole; what goes may be gone in part, and the next cleanup does the rest."""
    _clean_up(matrix, scenarios.untidied, Step.CLEANUP_FORK_RECLAIMED, "dev")
    _clean_up(matrix, scenarios.dropped, Step.CLEANUP_TABLE_DROPPED, "main")


def _clean_up(matrix: Matrix, build: Callable[[str], None], typical: Step, written: str) -> None:
    start = matrix.built(build)
    once = matrix.copy(start)
    repository = Repository.open(once)
    before, oldest = _kept(repository), repository.commits(limit=1000)[-2]
    places = matrix.run(once, scenarios.cleanup)
    steps = {p.split(":")[0] for p in places}
    assert steps >= {typical, Step.CLEANUP_VERSIONS_REMOVED}
    assert (Step.CLEANUP_ANNOUNCED in steps) != matrix.ground.tells_the_dead
    left = _versions(Repository.open(once))
    assert _kept(Repository.open(once)) == before
    notices = [p for p in places if p.startswith(Step.CLEANUP_ANNOUNCED)]
    for place in matrix.chosen(places):
        uri = matrix.copy(start)
        matrix.kill(uri, scenarios.cleanup, place)
        repository = Repository.open(uri)
        assert _kept(repository) == before, place
        if place in notices[-1:]:
            # What was said to go may be gone: no branch begins there until it has been settled.
            with pytest.raises(NotFound, match="cleanup"):
                repository.create_branch("late", at=oldest.id)
            assert "late" not in {b.name for b in repository.branches()}
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(announce, "NOTICE_SECONDS", 0.0)
            assert repository.cleanup(keep=2, confirm=True).failed == (), place
        repository = Repository.open(uri)
        assert _versions(repository) == left, place
        assert _kept(repository) == before, place
        assert repository.engine.store.files.list("__cleanup") == [], place
        _write_on(repository, written)
        check_sound(repository, place)
        repository.close()
        matrix.ground.drop(uri)
