"""As in a folder, so on S3: a mutation and a load are killed at every durable step, with SIGKILL.

Nothing tells a dead writer from a living one there, so an opening by itself only finishes writes; `full` undoes them.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph.errors import RecoveryPending
from omnigraph.storage import Repository
from tests.crash import crash_scenarios as scenarios
from tests.crash.test_storage_crash import NEVER, PROCESSES, _child, check_retry, check_whole
from tests.s3 import S3, environment, serving


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with serving() as server, environment(server):
        yield server


@pytest.fixture(scope="module")
def seed(s3: S3, tmp_path_factory: pytest.TempPathFactory) -> str:
    uri = s3.uri("seed")
    assert run(s3, uri, "build", NEVER, tmp_path_factory.mktemp("seed") / "report")[0] == 0
    return uri


def run(s3: S3, uri: str, scenario: str, kill_at: str, report: Path) -> tuple[int | None, list[str]]:
    """The exit code, and `step:n` of everything reached by a process that came to its end."""
    report.unlink(missing_ok=True)
    process = PROCESSES.Process(target=_child, args=(uri, scenario, kill_at, str(report), s3.env()))
    process.start()
    process.join(120)
    reached = json.loads(report.read_text()) if report.exists() else {}
    return process.exitcode, [f"{step}:{n}" for step, count in reached.items() for n in range(1, count + 1)]


@pytest.mark.parametrize("scenario", ["load", "mutation"])
def test_killed_at_every_step(s3: S3, seed: str, tmp_path: Path, scenario: str) -> None:
    _, branch, operation_id = scenarios.SCENARIOS[scenario]
    whole, report = s3.uri(), tmp_path / "report"
    s3.copy(seed, whole)
    before = scenarios.contents(Repository.open(whole), branch)
    code, places = run(s3, whole, scenario, NEVER, report)
    assert code == 0
    assert {p.split(":")[0] for p in places} >= {
        "table.staged", "sidecar.written", "table.committed", "publish.before", "publish.done", "history.commit",
        "history.actor", "sidecar.removed",
    }  # fmt: skip
    after = scenarios.contents(Repository.open(whole), branch)
    for place in places:
        uri = s3.uri()
        s3.copy(seed, uri)
        assert run(s3, uri, scenario, place, report) == (-signal.SIGKILL, []), place
        reader = Repository.open(uri, read_only=True)
        seen = scenarios.contents(reader, branch)
        published = reader.engine.history.find_operation(branch, operation_id, reader.head(branch)) is not None
        assert seen == (after if published else before), place
        left = bool(reader.pending())
        repository = Repository.open(uri)
        moved = not published and any(
            repository.engine.store.latest(ref.location).version != ref.version
            for ref in repository.snapshot(branch).tables.values()
        )
        beside = repository.sweep("forward")
        blocked = [p for p in beside.pending if p["reason"] == "NeedsRollBack"]
        if blocked:
            assert moved, place
            with pytest.raises(RecoveryPending, match="omnigraph recover"):
                scenarios.SCENARIOS[scenario][0](repository)
        settled = Repository.open(uri)
        settled.sweep("full")
        assert settled.pending() == []
        contents = scenarios.contents(settled, branch)
        assert contents == (after if published else contents), place
        assert contents in (before, after), place
        check_whole(uri, branch, operation_id, sidecar_before=left)
        check_retry(uri, scenario, after)


@pytest.mark.parametrize(("scenario", "place"), [("load", "table.committed:1"), ("mutation", "publish.before:1")])
def test_sweep_killed_at_every_step(s3: S3, seed: str, tmp_path: Path, scenario: str, place: str) -> None:
    _, branch, operation_id = scenarios.SCENARIOS[scenario]
    broken, once, whole, report = s3.uri(), s3.uri(), s3.uri(), tmp_path / "report"
    s3.copy(seed, broken)
    assert run(s3, broken, scenario, place, report)[0] == -signal.SIGKILL
    s3.copy(broken, once)
    code, places = run(s3, once, "sweep", NEVER, report)
    assert code == 0
    assert len(places) >= 3
    expected = scenarios.contents(Repository.open(once), branch)
    s3.copy(seed, whole)
    assert run(s3, whole, scenario, NEVER, report)[0] == 0
    after = scenarios.contents(Repository.open(whole), branch)
    for at in places:
        uri = s3.uri()
        s3.copy(broken, uri)
        assert run(s3, uri, "sweep", at, report) == (-signal.SIGKILL, []), at
        Repository.open(uri).sweep("full")
        assert scenarios.contents(Repository.open(uri), branch) == expected, at
        check_whole(uri, branch, operation_id, sidecar_before=True)
        check_retry(uri, scenario, after)
