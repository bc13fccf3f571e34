"""Kill a compaction at every durable step: no row differs, what it did is published, the next one does the rest."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from omnigraph.maintain import verify
from omnigraph.storage import Repository
from omnigraph.storage.steps import Step
from tests.crash import crash_scenarios as scenarios
from tests.crash.test_cleanup_crash import ends
from tests.crash.test_storage_crash import NEVER, check_retry, check_whole, killed, run, steps_of

OPERATION = "OPOPTIMIZE"


@pytest.fixture(scope="module")
def seed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    uri = tmp_path_factory.mktemp("seed") / "graph"
    assert run(uri, "build", NEVER)[0] == 0
    assert run(uri, "fragment", NEVER)[0] == 0
    return uri


def numbered(repository: Repository) -> dict[str, Any]:
    """Every row of main with its row id."""
    snapshot = repository.snapshot()
    return {k: sorted(map(str, snapshot.scan(k, ["_rowid", "id"]).to_pylist())) for k in snapshot.tables}


def fragments(repository: Repository) -> int:
    snapshot = repository.snapshot()
    return sum(len(snapshot.dataset(key).get_fragments()) for key in snapshot.tables)


def test_killed_at_every_step(seed: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    shutil.copytree(seed, whole)
    before, rows = (f(Repository.open(str(whole))) for f in (lambda r: scenarios.contents(r, "main"), numbered))
    places = steps_of(whole, "optimize")
    assert {p.split(":")[0] for p in places} >= {
        Step.COMPACTION_WRITTEN, Step.TABLE_COMPACTED, Step.SYSTEM_COMPACTED, Step.INDEX_BUILT, Step.PUBLISH_BEFORE,
        Step.PUBLISH_DONE, Step.SIDECAR_WRITTEN, Step.SIDECAR_REMOVED,
    }  # fmt: skip
    assert sum(p.startswith(Step.TABLE_COMPACTED) for p in places) == 2
    least = fragments(Repository.open(str(whole)))
    assert least == 2
    for place in dict.fromkeys(ends(places)):
        uri = tmp_path / place.replace(":", "_")
        shutil.copytree(seed, uri)
        killed(uri, "optimize", place)
        reader = Repository.open(str(uri), read_only=True)
        assert scenarios.contents(reader, "main") == before, place
        left = reader.pending()
        mine = left == [OPERATION]
        repository = Repository.open(str(uri))
        report = repository.sweep("full")
        assert len(report.outcomes) == len(left) <= 1, (place, report)
        assert numbered(repository) == rows, place
        check_whole(uri, "main", OPERATION, sidecar_before=mine)
        found = verify(repository)
        assert found.ok, (place, found.findings)
        check_retry(uri, "optimize", before)
        repository = Repository.open(str(uri))
        repository.optimize("main")  # a sweep may have published one of the two tables under the operation's name
        assert fragments(repository) == least, place
        assert numbered(repository) == rows, place
        check_whole(uri, "main", OPERATION, sidecar_before=mine)
        shutil.rmtree(uri)


def test_sweep_killed_at_every_step(seed: Path, tmp_path: Path) -> None:
    broken, once = tmp_path / "broken", tmp_path / "once"
    shutil.copytree(seed, broken)
    killed(broken, "optimize", f"{Step.TABLE_COMPACTED}:1")
    expected = scenarios.contents(Repository.open(str(broken)), "main")
    shutil.copytree(broken, once)
    places = steps_of(once, "sweep")
    assert len(places) >= 4
    for at in places:
        uri = tmp_path / at.replace(":", "_")
        shutil.copytree(broken, uri)
        killed(uri, "sweep", at)
        Repository.open(str(uri)).sweep("full")
        assert scenarios.contents(Repository.open(str(uri)), "main") == expected, at
        check_whole(uri, "main", OPERATION, sidecar_before=True)
        check_retry(uri, "optimize", expected)
        shutil.rmtree(uri)
