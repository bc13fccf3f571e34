"""Kill a cleanup at every durable step, in a folder and on S3: what is needed is whole, the next one does the rest."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import NotFound
from omnigraph.maintain import verify
from omnigraph.storage import Repository, announce
from omnigraph.storage.lineage import branch_names
from omnigraph.storage.steps import Step
from tests.crash import crash_scenarios as scenarios
from tests.crash.test_storage_crash import NEVER, PROCESSES, _child
from tests.s3 import S3, environment, serving


@dataclass
class Roots:
    """Where graphs of this test live: a folder, or a bucket."""

    folder: Path
    s3: S3 | None
    count: int = 0

    def new(self) -> str:
        self.count += 1
        return str(self.folder / str(self.count)) if self.s3 is None else self.s3.uri(f"cleanup{self.count}")

    def copy(self, uri: str) -> str:
        to = self.new()
        if self.s3 is None:
            shutil.copytree(uri, to)
        else:
            self.s3.copy(uri, to)
        return to

    def run(self, uri: str, scenario: str, kill_at: str) -> tuple[int | None, list[str]]:
        report = self.folder / "report"
        report.unlink(missing_ok=True)
        env = {} if self.s3 is None else self.s3.env()
        process = PROCESSES.Process(target=_child, args=(uri, scenario, kill_at, str(report), env))
        process.start()
        process.join(120)
        reached = json.loads(report.read_text()) if report.exists() else {}
        return process.exitcode, [f"{step}:{n}" for step, count in reached.items() for n in range(1, count + 1)]


@pytest.fixture(params=["folder", "s3"])
def roots(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Roots]:
    if request.param == "folder":
        yield Roots(tmp_path, None)
    else:
        with serving() as server, environment(server):
            yield Roots(tmp_path, server)


def versions(repository: Repository) -> dict[tuple[str, str | None], list[int]]:
    """Of every lineage of every table."""
    store = repository.engine.store
    out = {}
    for ref in repository.snapshot().tables.values():
        for branch in (None, *sorted(branch_names(store, ref.location))):
            out[ref.location, branch] = [v["version"] for v in store.latest(ref.location, branch).versions()]
    return out


def kept(repository: Repository) -> dict[Any, Any]:
    """Every row of the two newest commits of the living branches."""
    out = {}
    for branch in ("main", "dev"):
        own = [c for c in repository.commits(branch, limit=1000) if c.branch == branch]
        for commit in own[:2]:
            snapshot = repository.snapshot(branch, commit.id)
            out[branch, commit.id] = {k: sorted(map(repr, snapshot.scan(k).to_pylist())) for k in snapshot.tables}
    return out


def ends(places: list[str]) -> list[str]:
    """Of a step that comes several times, the first and the last; of one that comes once, that one twice."""
    found: dict[str, list[str]] = {}
    for place in places:
        found.setdefault(place.split(":")[0], []).append(place)
    return [place for all_of_it in found.values() for place in (all_of_it[0], all_of_it[-1])]


def test_killed_at_every_step(roots: Roots, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = roots.new()
    assert roots.run(seed, "build", NEVER)[0] == 0
    assert roots.run(seed, "untidy", NEVER)[0] == 0
    whole = roots.copy(seed)
    before = kept(Repository.open(whole))
    oldest = Repository.open(whole).commits(limit=1000)[-2]
    code, places = roots.run(whole, "cleanup", NEVER)
    assert code == 0
    steps = {p.split(":")[0] for p in places}
    assert steps >= {Step.CLEANUP_FORK_RECLAIMED, Step.CLEANUP_VERSIONS_REMOVED}
    assert (Step.CLEANUP_ANNOUNCED in steps) == (roots.s3 is not None)
    clean = Repository.open(whole)
    left = versions(clean)
    last_notice = [p for p in places if p.startswith(Step.CLEANUP_ANNOUNCED)][-1:]
    assert "topic" not in {branch for _, branch in left}
    assert kept(clean) == before
    chosen = list(dict.fromkeys(ends(places)))
    if roots.s3 is not None:  # what differs there
        chosen = [*last_notice, f"{Step.CLEANUP_VERSIONS_REMOVED}:2"]
    for place in chosen:
        uri = roots.copy(seed)
        assert roots.run(uri, "cleanup", place) == (-signal.SIGKILL, []), place
        repository = Repository.open(uri)
        assert kept(repository) == before, place
        if [place] == last_notice:
            # What was said to go may be gone: no branch begins there until it has been settled.
            with pytest.raises(NotFound, match="cleanup"):
                repository.create_branch("late", at=oldest.id)
            assert "late" not in {b.name for b in repository.branches()}
        monkeypatch.setattr(announce, "NOTICE_SECONDS", 0.0)
        assert repository.cleanup(keep=2, confirm=True).failed == (), place
        monkeypatch.undo()
        repository = Repository.open(uri)
        assert versions(repository) == left, place
        assert kept(repository) == before, place
        assert repository.engine.store.files.list("__cleanup") == [], place
        scenarios.branch_write(repository)
        assert verify(repository).ok, place
        repository.close()
