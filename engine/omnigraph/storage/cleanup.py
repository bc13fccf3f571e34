"""`cleanup`: old versions go, and the files that only they held (07 §13).

Kept are the states of the newest commits of every branch, as many or as young as asked for, and whatever a living
branch, a tag, a write in flight or a snapshot of this process reads, and what branches need to be merged.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial

from omnigraph.errors import BadRequest, NotFound, OmniGraphError
from omnigraph.records import dataclass
from omnigraph.storage.ancestry import bases_and_roots
from omnigraph.storage.announce import announcing
from omnigraph.storage.engine import Engine
from omnigraph.storage.files import LocalFiles, clear_dead_folders
from omnigraph.storage.layout import (
    ACTORS,
    CLEANUP,
    COMMITS,
    MAIN,
    MANIFEST,
    RECOVERIES,
    SCHEMA_LOCK,
    STAGING,
    lance_branch,
)
from omnigraph.storage.lineage import branch_names, created_at, delete_recorded, parent_of
from omnigraph.storage.manifest import ManifestState
from omnigraph.storage.needed import Needed, locations_of, needed_now
from omnigraph.storage.optimize import workers
from omnigraph.storage.removal import Plan, Removed, failure, locked, remove_planned, survey
from omnigraph.storage.steps import Step, reach
from omnigraph.storage.translate import lance_errors
from omnigraph.storage.travel import state_of
from omnigraph.storage.types import CommitInfo, WriterKind

__all__ = ["UNFINISHED", "CleanupReport", "cleanup", "leftovers"]

SYSTEM_VERSIONS = 20
"""Newest versions of every system table that stay: readers and publishes under way stand on one of them."""

UNFINISHED = timedelta(days=7)
"""Younger files that nothing names may be a write's that is under way; Lance draws the same line."""

Notice = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CleanupReport:
    """What went, or would go (`confirmed` False).

    Args:
        commits_kept: by branch, how many commits can still be read.
        commits_lost: by branch, how many can't any more.
        tables: one entry a lineage of a table or system table.
        files: temporary files and folders of killed writes that were removed.
    """

    confirmed: bool
    commits_kept: Mapping[str, int]
    commits_lost: Mapping[str, int]
    tables: tuple[Removed, ...]
    files: tuple[str, ...] = ()

    @property
    def failed(self) -> tuple[Removed, ...]:
        return tuple(t for t in self.tables if t.action == "failed")


def cleanup(
    engine: Engine,
    *,
    keep: int | None,
    older_than: timedelta | None,
    confirm: bool,
    notice: Notice | None = None,
) -> CleanupReport:
    """Remove what nothing needs.

    Args:
        keep: the newest commits of every branch that stay readable.
        older_than: commits younger than this stay readable, and the one that was the newest then. With `keep`, a commit
            that either keeps stays.
        confirm: without it nothing is removed, and the report says what would be.
        notice: called with the name of each table that has been looked at or cleaned.

    Raises:
        BadRequest: neither `keep` nor `older_than`, or no sensible one.
        RecoveryPending: a sidecar can't be read, so nobody knows what it needs.
    """
    if keep is None and older_than is None:
        raise BadRequest("cleanup needs keep (a number of commits) or older_than (an age): say what is to stay")
    if keep is not None and (isinstance(keep, bool) or not isinstance(keep, int)):
        raise BadRequest(f"keep is a number of commits, not {keep!r}")
    if older_than is not None and not isinstance(older_than, timedelta):
        raise BadRequest(f"older_than is a timedelta or a text such as 7d, not {older_than!r}")
    if keep is not None and keep < 1:
        raise BadRequest(f"keep is {keep}: at least the newest commit of every branch stays")
    if older_than is not None and older_than < timedelta(0):
        raise BadRequest("older_than is an age: it can't be negative")
    engine.history.settle()
    reclaimed = _reclaim(engine, confirm=confirm)
    gone = {(r.location, lance_branch(r.branch)) for r in reclaimed if r.action in ("reclaimed", "planned")}
    tables = locations_of(engine)
    system = {MANIFEST: MANIFEST, COMMITS: COMMITS, ACTORS: ACTORS, RECOVERIES: RECOVERIES}
    places = [*tables, *system]
    # First of all: a commit made from here on is known to nobody below, but all it reads lies above these floors.
    begun = needed_now(engine, places)
    begun.add(_recent(engine, system))
    kept, commits = _kept(engine, keep, older_than)
    kept.add(begun)
    dropped, tables = _unused(engine, tables, kept, confirm=confirm)
    needed = needed_now(engine, places)
    needed.add(kept)
    found = survey(engine, {**tables, **system}, needed, explain=not confirm, notice=notice)
    counts, lost = _count(commits, found)
    plans = [
        plan
        for plan in found
        if isinstance(plan, Removed) or (plan.lineage not in gone and _settled(plan, begun, system))
    ]
    if not confirm:
        return CleanupReport(
            False, counts, lost, (*reclaimed, *dropped, *(_planned(p) for p in plans)), tuple(_stale(engine))
        )
    removed = remove_planned(engine, plans, places, kept, notice=notice)
    return CleanupReport(True, counts, lost, (*reclaimed, *dropped, *removed), tuple(_tidy(engine)))


def _planned(plan: Plan | Removed) -> Removed:
    if isinstance(plan, Removed):
        return plan
    action = "planned" if plan.doomed or plan.bytes else "unchanged"
    location, branch = plan.lineage
    return Removed(
        plan.table, location, branch or MAIN, action, removed=len(plan.doomed), kept=len(plan.there) - len(plan.doomed),
        bytes=plan.bytes, pinned=plan.pinned, head=plan.head,
    )  # fmt: skip


def _settled(plan: Plan, begun: Needed, system: Mapping[str, str]) -> bool:
    """Whether its branch published the lineage from the beginning: one that got its first write since is left alone."""
    location, branch = plan.lineage
    return location in system or branch is None or plan.lineage in begun.floors


# --- which commits stay ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Own:
    """The commits made on one branch: how many there are, and the states of those that are to stay."""

    total: int
    states: Sequence[ManifestState]


def _kept(engine: Engine, keep: int | None, older_than: timedelta | None) -> tuple[Needed, dict[str, _Own]]:
    """What the kept commits of all branches and the merges of living branches need; the commits by branch."""
    needed, out = Needed(), dict[str, _Own]()
    records = engine.manifest.branches()
    known: dict[str, CommitInfo] = {}
    heads: dict[str, str] = {}
    with ThreadPoolExecutor(workers(), thread_name_prefix="cleanup") as pool:
        for name in (MAIN, *sorted(engine.manifest.names())):
            try:
                head = engine.manifest.current(name).head
                if head.branch != name:  # nothing was written on it: all it has is what it reads now
                    out[name] = _Own(0, ())
                    continue
                listed = engine.history.commits(name, head)
            except NotFound:
                continue
            known |= {c.id: c for c in listed}
            heads[name] = head.id
            own = _own(listed, head, name)
            states = list(pool.map(partial(_state, engine, name), _chosen(own, keep, older_than)))
            try:
                for state in states:
                    _keep(engine, needed, state)
            except NotFound:  # deleted meanwhile
                if engine.manifest.exists(name):
                    raise
                del heads[name]
                continue
            out[name] = _Own(len(own), [state for state in states if state is not None])
    for name, head_id in heads.items():
        parent = (records.get(name) or {}).get("parent_branch") or MAIN
        for other in {parent, MAIN} - {name}:
            if other in heads:
                for commit in {
                    c.id: c for pair in bases_and_roots(known, head_id, heads[other]) for c in pair
                }.values():
                    with suppress(NotFound):  # the branch has gone meanwhile
                        _keep(engine, needed, _state(engine, name, commit))
    return needed, out


def _count(commits: Mapping[str, _Own], found: Sequence[Plan | Removed]) -> tuple[dict[str, int], dict[str, int]]:
    """By branch, how many commits can be read when all is done, and how many can't."""
    there = {plan.lineage: plan.there for plan in found if isinstance(plan, Plan)}
    kept = {
        name: sum(
            all(ref.version in there.get((ref.location, ref.branch), ()) for ref in state.tables.values())
            for state in own.states
        )
        for name, own in commits.items()
    }
    return kept, {name: own.total - kept[name] for name, own in commits.items()}


def _own(listed: Sequence[CommitInfo], head: CommitInfo, branch: str) -> list[CommitInfo]:
    """The commits made on the branch itself, newest first."""
    by_id = {c.id: c for c in listed}
    out, commit = [], by_id.get(head.id)
    while commit is not None and commit.branch == branch:
        out.append(commit)
        commit = by_id.get(commit.parents[0]) if commit.parents else None
    return out


def _chosen(own: Sequence[CommitInfo], keep: int | None, older_than: timedelta | None) -> list[CommitInfo]:
    count = keep or 0
    if older_than is not None:
        now = datetime.now(UTC)  # an age may reach beyond the first year that there is
        young = sum(1 for c in own if now - c.created_at <= older_than)
        count = max(count, young + 1)  # the newest of the older ones was the branch's state back then
    return list(own[:count])


def _state(engine: Engine, branch: str, commit: CommitInfo) -> ManifestState | None:
    try:
        return state_of(engine, branch, commit)
    except NotFound:
        return None


def _keep(engine: Engine, needed: Needed, state: ManifestState | None) -> None:
    """Raises NotFound: the branch has gone."""
    if state is not None:
        needed.state(state)
        needed.pin(MANIFEST, engine.manifest.began(state.branch, state.version), state.version)


def _recent(engine: Engine, system: Mapping[str, str]) -> Needed:
    """The newest versions of the system tables."""
    needed = Needed()
    for location in system:
        for branch in (None, *branch_names(engine.store, location)):
            dataset = engine.store.latest_or_none(location, branch)
            if dataset is not None:
                needed.floor(location, branch, max(1, int(dataset.version) - SYSTEM_VERSIONS + 1))
    return needed


# --- lineages and datasets that nobody needs ------------------------------------------------------------------------


def _reclaim(engine: Engine, *, confirm: bool) -> list[Removed]:
    """Forks and histories of dead branches, and forks that their living branch's manifest doesn't point to."""
    out = []
    locations = locations_of(engine) | {COMMITS: COMMITS}
    for location, table in sorted(locations.items(), key=lambda item: item[1]):
        # Those that grew from another come first: Lance deletes none that has children.
        for name in sorted(branch_names(engine.store, location), key=lambda n: -_depth(engine, location, n)):
            try:
                done = _reclaim_one(engine, table, location, name, confirm)
            except NotFound:
                continue  # it has gone meanwhile
            except OmniGraphError as error:
                done = failure(table, (location, name), error)
            if done is not None:
                out.append(done)
    return out


def _reclaim_one(engine: Engine, table: str, location: str, name: str, confirm: bool) -> Removed | None:
    """Raises NotFound: it has gone."""
    if not _orphan(engine, location, name):
        return None
    if not confirm:
        return Removed(table, location, name, "planned")
    began = time.perf_counter()
    with announcing(engine.store, {(location, name): ()}), locked(engine):
        if not _orphan(engine, location, name):
            return None  # somebody has made its branch, or begun to write on it, since
        if not delete_recorded(engine.store, location, name):
            return None  # on a store nothing keeps others from deleting it
    engine.store.forget(location, name)
    reach(Step.CLEANUP_FORK_RECLAIMED)
    return Removed(table, location, name, "reclaimed", seconds=round(time.perf_counter() - began, 3))


def _depth(engine: Engine, location: str, name: str) -> int:
    depth, parent = 0, _parent(engine, location, name)
    while parent is not None and depth < 100:
        depth, parent = depth + 1, _parent(engine, location, parent)
    return depth


def _parent(engine: Engine, location: str, name: str) -> str | None:
    """The branch that one of a dataset's has grown from; None of main, and where it has gone."""
    try:
        return parent_of(engine.store, location, name)[0] if lance_branch(name) is not None else None
    except NotFound:
        return None


def _orphan(engine: Engine, location: str, name: str) -> bool:
    """Whether nothing reads this lineage of a dataset and no write is about to.

    The fork of a living branch is left alone until it is so old that no load can still be writing files to it. A write
    that takes it up nevertheless looks for its files again, and for a notice, before it commits.
    """
    needed = needed_now(engine, [location])
    if (location, name) in needed.busy or (location, name) in needed.floors:
        return False
    if any(_parent(engine, location, n) == name for n in branch_names(engine.store, location)):
        return False
    if not engine.manifest.exists(name):
        return True
    if location == COMMITS:
        return False
    state = engine.manifest.current(name)
    if any(ref.location == location and ref.branch == name for ref in state.tables.values()):
        return False
    return time.time() - created_at(engine.store, location, name) > UNFINISHED.total_seconds()


def _unused(
    engine: Engine, tables: dict[str, str], kept: Needed, *, confirm: bool
) -> tuple[list[Removed], dict[str, str]]:
    """Datasets of dropped types that no kept state sees any more go as a whole. Returns those that stay, too."""
    out, left = [], dict(tables)
    needed = needed_now(engine, tables)
    for location, table in tables.items():
        if needed.names(location) or kept.names(location) or engine.store.latest_or_none(location) is None:
            continue
        del left[location]
        if not confirm:
            out.append(Removed(table, location, MAIN, "planned"))
            continue
        try:
            with announcing(engine.store, {(location, None): ()}), locked(engine):
                if needed_now(engine, [location]).names(location):
                    continue
                with lance_errors(f"removing {location}"):
                    engine.store.files.delete_folder(location)
            engine.store.forget(location, None)
            reach(Step.CLEANUP_TABLE_DROPPED)
            out.append(Removed(table, location, MAIN, "dropped"))
        except OmniGraphError as error:
            out.append(failure(table, (location, None), error))
    return out, left


def leftovers(engine: Engine) -> list[tuple[str, str]]:
    """What killed writes and deletions have left, as (kind, words with what removes it). Nothing of it is ever read."""
    out = []
    if engine.manifest.exists(SCHEMA_LOCK):
        read = (engine.sidecars.read(name) for name in engine.sidecars.names())
        if not any(sidecar is not None and sidecar.writer_kind is WriterKind.SCHEMA_APPLY for sidecar in read):
            out.append(
                ("schema_lock", "a schema change was killed and its lock is left: `omnigraph recover` removes it")
            )
    for location, table in sorted((locations_of(engine) | {COMMITS: COMMITS}).items(), key=lambda item: item[1]):
        for name in sorted(branch_names(engine.store, location)):
            if not engine.manifest.exists(name):
                words = f"{table} has files of the deleted branch {name!r}: `omnigraph cleanup` removes them"
                out.append(("leftover_fork", words))
    notices = engine.store.files.list(CLEANUP)
    if notices:
        words = f"{len(notices)} notice(s) in {CLEANUP}: of a cleanup that runs or was killed; the next one removes it"
        out.append(("cleanup_notice", words))
    stale = _stale(engine)
    if stale:
        words = f"{len(stale)} temporary file(s) of killed writes ({stale[0]}): `omnigraph cleanup` removes them"
        out.append(("temporary_file", words))
    return out


# --- files beside the datasets --------------------------------------------------------------------------------------


def _stale(engine: Engine) -> list[str]:
    """Temporary files of killed writes, by their names under the root. An object store has none: a put is whole."""
    files = engine.store.files
    if not isinstance(files, LocalFiles):
        return []
    out, oldest = [], time.time() - UNFINISHED.total_seconds()
    for folder, _, names in os.walk(files.root):
        for name in names:
            path = os.path.join(folder, name)
            if name.startswith(".") and name.endswith(".tmp"):
                try:
                    if os.stat(path).st_mtime < oldest:
                        out.append(os.path.relpath(path, files.root))
                except FileNotFoundError:
                    continue
    return sorted(out)


def _tidy(engine: Engine) -> list[str]:
    """Remove what killed writes have left beside the datasets."""
    files = engine.store.files
    if not isinstance(files, LocalFiles):
        return []
    out = []
    engine.sidecars.sweep_temporary()
    before = set(_working(files))
    clear_dead_folders(files.path(STAGING))
    out += [f"{STAGING}/{name}" for name in sorted(before - set(_working(files)))]
    for name in _stale(engine):
        files.delete(name)
        out.append(name)
    reach(Step.CLEANUP_TIDIED)
    return out


def _working(files: LocalFiles) -> list[str]:
    folder = files.path(STAGING)
    return os.listdir(folder) if os.path.isdir(folder) else []
