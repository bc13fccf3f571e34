"""Kill the making and the deletion of a branch at every step: it is there whole or not at all, and its name is free."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from omnigraph.errors import Conflict, NotFound
from omnigraph.storage import Repository, Staging, TableChange, WriterKind
from omnigraph.storage.lineage import branch_names
from omnigraph.storage.steps import Step
from tests.crash import crash_scenarios as scenarios
from tests.crash.test_storage_crash import NEVER, check_whole, killed, run, steps_of


@pytest.fixture(scope="module")
def seed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    uri = tmp_path_factory.mktemp("seed") / "graph"
    assert run(uri, "build", NEVER)[0] == 0
    return uri


def write_on(repository: Repository, branch: str) -> None:
    change = TableChange("node:Person", upserts=scenarios.people(["zoe"], 1))
    repository.commit(Staging(branch, WriterKind.MUTATION, (change,)), repository.snapshot(branch))


def test_create_killed_at_every_step(seed: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    shutil.copytree(seed, whole)
    places = steps_of(whole, "create-branch")
    assert places == [f"{Step.BRANCH_CREATED}:1"]
    for place in places:
        uri = tmp_path / "killed"
        shutil.copytree(seed, uri)
        killed(uri, "create-branch", place)
        repository = Repository.open(str(uri))
        topic = scenarios.contents(repository, "topic")
        assert scenarios.contents(repository, "new/one") == topic
        with pytest.raises(Conflict, match="exists already"):
            scenarios.create_branch(repository)
        write_on(repository, "new/one")
        assert scenarios.contents(repository, "topic") == topic
        check_whole(uri, "new/one", "none", sidecar_before=False)


def test_delete_killed_at_every_step(seed: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    shutil.copytree(seed, whole)
    main = scenarios.contents(Repository.open(str(whole)), "main")
    places = steps_of(whole, "delete-branch")
    assert [p.split(":")[0] for p in places] == [Step.BRANCH_DELETED, *[Step.BRANCH_RECLAIMED] * (len(places) - 1)]
    assert len(places) >= 4  # three tables and the history
    for place in places:
        uri = tmp_path / place.replace(":", "_")
        shutil.copytree(seed, uri)
        killed(uri, "delete-branch", place)
        repository = Repository.open(str(uri))
        assert [b.name for b in repository.branches()] == ["main", "dev"], place
        with pytest.raises(NotFound):
            repository.snapshot("topic")
        with pytest.raises(NotFound):
            repository.delete_branch("topic")
        repository.create_branch("topic")
        for location in {ref.location for ref in repository.snapshot().tables.values()}:
            assert "topic" not in branch_names(repository.engine.store, location), place
        assert scenarios.contents(repository, "topic") == scenarios.contents(repository, "main") == main
        write_on(repository, "topic")
        check_whole(uri, "topic", "none", sidecar_before=False)
        repository.delete_branch("topic")
        assert not [f for f, names, _ in os.walk(uri) if f.endswith("tree") and "topic" in names]
