"""What must hold wherever a writer or a sweep is killed: the one place of these checks.

A scenario is killed at every durable step it reaches. Then readers see the old state or the new one, whole; a sweep
settles it; heads are what is published, history has no hole, one audit row tells of it; the same write again succeeds.
The sweep itself is killed at each of its own steps, on every way that a sweep goes and that isn't a part of a longer
one to the same end. `OMNIGRAPH_CRASH_THOROUGH=1` leaves nothing out, on S3 neither; that takes about three times as
long.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from omnigraph.errors import RecoveryPending
from omnigraph.maintain import verify
from omnigraph.storage import Repository, steps
from omnigraph.storage.layout import lance_branch
from omnigraph.storage.snapshot import Snapshot
from omnigraph.storage.steps import Step
from tests.crash.crash_scenarios import Scenario, build, contents, perform, rows_of, sweep
from tests.crash.ground import Ground
from tests.crash.nursery import NEVER, Nursery

__all__ = ["Matrix", "check_sound", "check_whole", "pending", "steps_in"]

ALL = 1_000_000
EVERYTHING = os.environ.get("OMNIGRAPH_CRASH_THOROUGH") == "1"
HARMLESS = ("index_coverage", "drift")
"""Notes of `verify`: an index lags, the next write publishes a version that changes no row."""


@dataclass(frozen=True)
class Start:
    """A scenario's graph before it, the states before and after, and the places it comes through: `step:n`.

    `rows`: the contents before and after, which a write tried again gives too, in versions of its own.
    """

    uri: str
    before: dict[str, Any]
    after: dict[str, Any]
    rows: tuple[dict[str, Any], dict[str, Any]]
    kept: Any
    places: tuple[str, ...]


@dataclass(frozen=True)
class Broken:
    """What a kill left.

    Args:
        place: where the process was killed.
        steps: how many steps a sweep of it takes.
        settled: what the sweep makes of it.
    """

    uri: str
    place: str
    steps: int
    settled: dict[str, Any]


Way = tuple[bool, frozenset[str]]
"""How a sweep goes: whether it ends in the state after the write, and the steps it takes."""


@dataclass
class Matrix:
    """Scenarios on one ground.

    Args:
        killed_at: steps at which a process was killed, of all scenarios so far.
    """

    ground: Ground
    nursery: Nursery
    killed_at: set[str] = field(default_factory=set)
    _built: dict[Callable[[str], None], str] = field(default_factory=dict)
    _ways: list[Way] = field(default_factory=list)
    _seen: set[tuple[str, ...]] = field(default_factory=set)

    @property
    def _thorough(self) -> bool:
        return EVERYTHING or self.ground.thorough

    # ---- making graphs, and killing what works on them ----

    def built(self, build: Callable[[str], None] = build) -> str:
        """The graph that a function makes; made once, to be copied."""
        if build not in self._built:
            uri = self.ground.new()
            assert self.nursery.run(build, uri, env=self.ground.env).code == 0
            self._built[build] = uri
        return self._built[build]

    def copy(self, uri: str) -> str:
        return self.ground.copy(uri)

    def run(self, uri: str, act: Callable[[Repository], Any]) -> tuple[str, ...]:
        """Do it in a child that lives; the places it came through."""
        ended = self.nursery.run(perform, uri, act.__module__, act.__qualname__, env=self.ground.env)
        assert ended.code == 0, ended
        return ended.reached

    def kill(self, uri: str, act: Callable[[Repository], Any], place: str) -> None:
        """Do it in a child that is killed at the place."""
        call = (perform, uri, act.__module__, act.__qualname__)
        ended = self.nursery.run(*call, kill_at=place, env=self.ground.env)
        assert ended.code == -signal.SIGKILL, (place, ended)
        self.killed_at.add(place.split(":")[0])

    def chosen(self, places: tuple[str, ...]) -> list[str]:
        """Where to kill: everywhere; or the last time of each step, and at the first of several tables."""
        if self._thorough:
            return list(places)
        last = {place.split(":")[0]: place for place in places}
        return [p for p in places if p in last.values() or p == f"{Step.TABLE_COMMITTED}:1"]

    def start(self, scenario: Scenario) -> Start:
        uri = self.built(scenario.build)
        whole = self.copy(uri)
        repository = Repository.open(whole)
        before, rows = scenario.look(repository, scenario.branch), contents(repository, scenario.branch)
        kept = scenario.kept(repository)
        places = self.run(whole, scenario.act)
        repository = Repository.open(whole)
        after = scenario.look(repository, scenario.branch)
        assert (before == after) == scenario.neutral
        assert scenario.kept(repository) == kept
        start = Start(uri, before, after, (rows, contents(repository, scenario.branch)), kept, places)
        self.ground.drop(whole)
        return start

    # ---- the matrix ----

    def kill_everywhere(self, scenario: Scenario) -> None:
        """Kill the write at every step, and sweeps of what that leaves at every step of theirs."""
        start = self.start(scenario)
        assert len(start.places) >= 6
        ways: dict[Way, Broken] = {}
        for place in self.chosen(start.places):
            uri = self.copy(start.uri)
            earlier = Repository.open(uri, read_only=True).snapshot(scenario.branch)
            self.kill(uri, scenario.act, place)
            # Kept, not made again by another kill: what follows the answer runs beside it, so the same step may be
            # reached with the sidecar there or gone.
            broken = self.copy(uri)
            reached, settled = self._killed(uri, earlier, scenario, start, place)
            self.ground.drop(uri)
            way: Way = (settled == start.after, frozenset(reached))
            before = ways.get(way)
            if not reached or (before is not None and before.steps >= reached.total()):
                self.ground.drop(broken)
                continue
            if before is not None:
                self.ground.drop(before.uri)
            ways[way] = Broken(broken, place, reached.total(), settled)
        if self.ground.thorough:
            self._ways.clear()  # each scenario's for themselves
        for way, left in sorted(ways.items(), key=lambda item: -len(item[0][1])):
            if EVERYTHING or not any(end == way[0] and way[1] <= longer for end, longer in self._ways):
                self._ways.append(way)
                self._sweeps_killed(scenario, start, left)
            self.ground.drop(left.uri)

    def _killed(
        self, uri: str, earlier: Snapshot, scenario: Scenario, start: Start, place: str
    ) -> tuple[Counter[str], dict[str, Any]]:
        """After a kill: what readers see, what a sweep makes of it, and the write again. The steps of the sweep."""
        reader = Repository.open(uri, read_only=True)
        seen = scenario.look(reader, scenario.branch)
        head = reader.head(scenario.branch)
        published = reader.engine.history.find_operation(scenario.branch, scenario.operation_id, head) is not None
        assert seen == (start.after if published else start.before), place
        if not scenario.purges:
            assert rows_of(earlier) == start.rows[0], f"{place}: a reader that began before sees something else now"
        left = pending(reader)
        with steps_in() as reached:
            repository = Repository.open(uri)
            if not self.ground.tells_the_dead:
                self._beside(repository, scenario)
            repository = Repository.open(uri)
            report = repository.sweep("full")
        if self.ground.tells_the_dead:
            assert len(report.outcomes) == len(left), (place, report)
        settled = scenario.look(repository, scenario.branch)
        assert settled in (start.before, start.after), place
        assert settled == start.after or not published, f"{place}: what was published is gone"
        check_whole(repository, scenario.branch, recovered=left, where=place, joined=scenario.joins)
        assert scenario.kept(repository) == start.kept, place
        scenario.settled(repository)
        repository.close()
        again = tuple(sorted(reached))
        self._check_retry(uri, scenario, start, place, sound=self._thorough or again not in self._seen)
        self._seen.add(again)
        return reached if left else Counter(), settled

    def _beside(self, repository: Repository, scenario: Scenario) -> None:
        """Where nobody tells the dead, a process that may have living ones beside it only finishes their writes."""
        beside = repository.sweep("forward")
        if any(p["reason"] == "NeedsRollBack" for p in beside.pending):
            with pytest.raises(RecoveryPending, match="omnigraph recover"):
                scenario.act(repository)

    def _check_retry(self, uri: str, scenario: Scenario, start: Start, where: str, *, sound: bool = True) -> None:
        """The write again, and once more; `sound`: walk the whole graph afterwards."""
        repository = Repository.open(uri)
        scenario.act(repository)
        head = repository.head(scenario.branch).id
        scenario.act(repository)
        assert repository.head(scenario.branch).id == head, f"{where}: the same operation again is another commit"
        assert contents(repository, scenario.branch) == start.rows[1], where
        assert scenario.kept(repository) == start.kept, where
        commits = repository.commits(scenario.branch, limit=ALL)
        mine = [c for c in commits if c.operation_id == scenario.operation_id]
        done = [c for c in mine if c.recovery_kind in (None, "RolledForward")]
        assert len(done) == 1, (where, mine)
        if scenario.merges is not None:
            assert done[0].parents[1:] == (repository.head(scenario.merges).id,), where
        repository.close()  # history follows the answer
        # The rows of the history table itself, not the walk that also looks at the head row; what that one names may be
        # missing until the next publish.
        named = {head, *(c.id for c in repository.head(scenario.branch).unrecorded)}
        table = repository.engine.store.latest("_graph_commits.lance", lance_branch(scenario.branch))
        assert {c.id for c in commits} - named <= set(table.to_table()["graph_commit_id"].to_pylist()), where
        scenario.settled(repository)
        scenario.ended(repository)
        assert contents(repository, scenario.branch) == start.rows[1], where
        if sound:
            check_sound(repository, where)
        repository.close()

    def _sweeps_killed(self, scenario: Scenario, start: Start, broken: Broken) -> None:
        left = pending(Repository.open(broken.uri, read_only=True))
        once = self.copy(broken.uri)
        places = self.run(once, sweep)
        assert len(places) >= 2
        self.ground.drop(once)
        for at in self.chosen(places):
            uri, where = self.copy(broken.uri), f"{broken.place}, then {at}"
            self.kill(uri, sweep, at)
            repository = Repository.open(uri)
            repository.sweep("full")
            assert scenario.look(repository, scenario.branch) == broken.settled, where
            check_whole(repository, scenario.branch, recovered=left, where=where, joined=scenario.joins)
            assert scenario.kept(repository) == start.kept, where
            scenario.settled(repository)
            repository.close()
            if self._thorough:
                self._check_retry(uri, scenario, start, where)
            self.ground.drop(uri)


def pending(repository: Repository) -> list[str]:
    """The operations of the sidecars that lie there."""
    read = [repository.engine.sidecars.read(name) for name in repository.pending()]
    return [sidecar.operation_id for sidecar in read if sidecar is not None]


def check_whole(
    repository: Repository, branch: str, *, recovered: list[str], where: str = "", joined: bool = False
) -> None:
    """After a sweep: nothing in flight, heads are what is published, history has no hole.

    Args:
        recovered: the operations that left a sidecar, since the graph was made: one audit row tells of each.
        joined: a head may be ahead of what is published by versions that change no row.
    """
    assert repository.pending() == [], where
    assert not [n for n in repository.engine.store.files.list("__recovery") if n.endswith(".tmp")], where
    store = repository.engine.store
    for info in repository.branches():
        for ref in repository.snapshot(info.name).tables.values():
            if ref.branch == lance_branch(info.name):  # else it is inherited, and main's head may have gone on
                head = int(store.latest(ref.location, ref.branch).version)
                drift = repository.drift(repository.snapshot(info.name), ref.table_key) if joined else None
                same = head == ref.version or (drift is not None and drift.kind == "NoRowChanged")
                assert same, f"{where}: {ref.table_key} on {info.name}: {head} is not {ref.version}"
    chain = repository.commits(branch, limit=ALL)
    ids = {c.id for c in chain}
    assert all(parent in ids for c in chain for parent in c.parents), where
    assert chain[-1].parents == (), where
    audits = repository.engine.history.recoveries()
    assert sorted(r["operation_id"] for r in audits) == sorted(recovered), (where, audits)
    elsewhere = {r["graph_commit_id"] for r in audits} - ids
    assert not elsewhere or elsewhere <= {
        c.id for info in repository.branches() for c in repository.commits(info.name, limit=ALL)
    }, where


def check_sound(repository: Repository, where: str = "") -> None:
    """`verify` finds nothing but indexes that lag, and files that were joined."""
    bad = [f for f in verify(repository).findings if f["severity"] != "note" or f["kind"] not in HARMLESS]
    assert not bad, (where, bad)


@contextmanager
def steps_in() -> Iterator[Counter[str]]:
    """Counts the steps that this process reaches."""
    reached: Counter[str] = Counter()
    steps._reached.clear()
    steps._KILL_AT = NEVER
    try:
        yield reached
    finally:
        steps._KILL_AT = ""
        reached.update(steps._reached)
        steps._reached.clear()


def unkilled(matrix: Matrix, impossible: set[Step]) -> set[str]:
    """Steps of the code at which no scenario was killed, but for those that this ground has not."""
    return {str(step) for step in Step} - matrix.killed_at - {str(step) for step in impossible}
