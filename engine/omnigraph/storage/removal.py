"""Removing old versions of datasets.

Whoever removes first says so (on a directory by the exclusive lock of all forks, on an object store by a notice), then
asks anew what is needed, then removes the rest. Whoever makes a branch first makes it, then looks whether its versions
are there and are to stay. So of a removal and a branch that needs the same version one always sees the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from omnigraph.errors import Conflict, NotFound, OmniGraphError
from omnigraph.records import dataclass
from omnigraph.storage.announce import announcing
from omnigraph.storage.engine import Engine
from omnigraph.storage.forks import fork_lock
from omnigraph.storage.lineage import branch_names, ref_file, while_branches_go
from omnigraph.storage.needed import Lineage, Needed, locations_of, needed_now
from omnigraph.storage.optimize import workers
from omnigraph.storage.steps import Step, reach
from omnigraph.storage.translate import is_missing, lance_errors, scrub

__all__ = ["Plan", "Removed", "failure", "locked", "remove_planned", "remove_versions", "survey"]

LOCK_WAIT_SECONDS = 5.0
"""How long a removal waits for first writes of branches to be published."""

_NO_VERSION = 2**62
"""Lance wants a version to be named; files that no version holds are looked for in any case."""

Notice = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Removed:
    """What was removed of one lineage of one dataset, or would be.

    Args:
        table: its table key, or the name of a system table.
        branch: the graph branch that the lineage belongs to.
        action: `cleaned`, `unchanged`, `reclaimed` (the whole lineage: a dead branch's), `dropped` (the whole dataset),
            `failed`, or `planned` in a preview.
        reason: a word for why it failed or was left: `Busy`, `Failed`.
        message: what went wrong and what to do.
        removed: how many versions; kept: how many stay.
        bytes: size of the files removed.
        pinned: the version that the branch publishes; None where it doesn't.
        head: the newest version.
    """

    table: str
    location: str
    branch: str
    action: str
    reason: str | None = None
    message: str | None = None
    removed: int = 0
    kept: int = 0
    bytes: int = 0
    pinned: int | None = None
    head: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """The versions of one lineage that nothing needed when it was looked at."""

    table: str
    lineage: Lineage
    doomed: tuple[int, ...]
    there: frozenset[int]
    head: int
    bytes: int
    pinned: int | None


def remove_versions(engine: Engine, locations: Iterable[str]) -> list[Removed]:
    """Remove every old version of some tables that no living branch, tag, write in flight or snapshot of ours reads.

    Time travel to commits that saw those versions ends with it: reading them raises NotFound, `version_removed`.

    Args:
        locations: the tables' places under the root, as `TableRef.location` says.

    Returns:
        One entry a lineage. A failure stands in it and doesn't stop the others.
    """
    chosen = sorted(set(locations))
    names = locations_of(engine)
    tables = {location: names.get(location, location) for location in chosen}
    plans = survey(engine, tables, needed_now(engine, chosen), explain=False)
    return remove_planned(engine, plans, chosen, Needed())


# --- looking --------------------------------------------------------------------------------------------------------


def survey(
    engine: Engine, tables: Mapping[str, str], needed: Needed, *, explain: bool = True, notice: Notice | None = None
) -> list[Plan | Removed]:
    """Look at every lineage of the datasets, at most `workers()` at once. A failure stands in its place.

    Args:
        tables: location → the name it is reported under.
        explain: find out how many bytes would go.
    """
    lineages: list[tuple[str, Lineage]] = []
    for location, table in sorted(tables.items(), key=lambda item: item[1]):
        lineages += [(table, (location, name)) for name in (None, *sorted(branch_names(engine.store, location)))]

    def look(one: tuple[str, Lineage]) -> Plan | Removed | None:
        table, lineage = one
        try:
            found = _look(engine, table, lineage, needed, explain)
        except OmniGraphError as error:
            if isinstance(error, NotFound) and _gone(engine, lineage):
                return None  # meanwhile, with its branch
            return failure(table, lineage, error)
        if notice is not None:
            notice(table)
        return found

    with ThreadPoolExecutor(workers(), thread_name_prefix="cleanup") as pool:
        return [found for found in pool.map(look, lineages) if found is not None]


def _look(engine: Engine, table: str, lineage: Lineage, needed: Needed, explain: bool) -> Plan | None:
    location, branch = lineage
    dataset = engine.store.latest_or_none(location, branch)
    if dataset is None:
        return None
    with lance_errors(f"looking at the versions of {table}"):
        listed = [int(v["version"]) for v in dataset.versions()]
        doomed = needed.removable(lineage, listed)
        size = 0
        if explain:
            try:
                plan = while_branches_go(lambda: dataset.explain_cleanup_old_versions(versions=doomed or [_NO_VERSION]))
                size = int(plan.stats.bytes_removed)
            except (OSError, ValueError, RuntimeError) as error:
                # A moved graph's branches are read where nothing is written by a copy, which knows no other branch.
                if not (engine.store.read_only and is_missing(error)):
                    raise
    return Plan(
        table, lineage, tuple(doomed), frozenset(listed), int(dataset.version), size, needed.floors.get(lineage)
    )


def _gone(engine: Engine, lineage: Lineage) -> bool:
    """Whether a lineage is no more: a branch's files go after its record."""
    location, branch = lineage
    if branch is None:
        return engine.store.latest_or_none(location) is None
    return not engine.store.files.exists(ref_file(location, branch))


def failure(table: str, lineage: Lineage, error: OmniGraphError) -> Removed:
    """The entry of a lineage that couldn't be dealt with."""
    reason = "Busy" if isinstance(error, Conflict) else "Failed"
    return Removed(table, lineage[0], lineage[1] or "main", "failed", reason, scrub(error.message))


# --- removing -------------------------------------------------------------------------------------------------------


def remove_planned(
    engine: Engine,
    plans: Sequence[Plan | Removed],
    locations: Sequence[str],
    kept: Needed,
    *,
    notice: Notice | None = None,
) -> list[Removed]:
    """Carry plans out, a few lineages at a time; what has come to be needed since stays.

    Args:
        locations: every dataset whose forks must be asked.
        kept: what else must stay.
    """
    out = [plan for plan in plans if isinstance(plan, Removed)]
    todo = [plan for plan in plans if isinstance(plan, Plan)]
    size = workers()
    with (
        announcing(engine.store, {p.lineage: p.doomed for p in todo if p.doomed}),
        ThreadPoolExecutor(size, thread_name_prefix="cleanup") as pool,
    ):
        for start in range(0, len(todo), size):
            batch = todo[start : start + size]
            try:
                with locked(engine):
                    needed = needed_now(engine, locations)
                    needed.add(kept)
                    out += pool.map(lambda plan, now=needed: _remove(engine, plan, now), batch)
            except Conflict as error:
                out += [failure(plan.table, plan.lineage, error) for plan in batch]
            if notice is not None:
                notice(batch[-1].table)
    return out


def _remove(engine: Engine, plan: Plan, needed: Needed) -> Removed:
    began = time.perf_counter()
    location, branch = plan.lineage
    doomed = needed.removable(plan.lineage, [*plan.doomed, plan.head]) if plan.doomed else []
    stats: Any = None
    try:
        with lance_errors(f"removing old versions of {plan.table}"):
            dataset = engine.store.latest(location, branch)
            stats = while_branches_go(
                lambda: dataset.cleanup_old_versions(
                    versions=doomed or [_NO_VERSION], error_if_tagged_old_versions=False
                )
            )
    except NotFound as error:
        if not _gone(engine, plan.lineage):
            return failure(plan.table, plan.lineage, error)
        # The lineage has gone meanwhile, with its branch.
    except OmniGraphError as error:
        return failure(plan.table, plan.lineage, error)
    engine.store.forget(location, branch, doomed)
    reach(Step.CLEANUP_VERSIONS_REMOVED)
    removed, size = (int(stats.old_versions), int(stats.bytes_removed)) if stats is not None else (0, 0)
    failed = int(getattr(stats, "failed_deletes", 0) or 0)
    return Removed(
        plan.table,
        location,
        branch or "main",
        "failed" if failed else "cleaned" if removed or size else "unchanged",
        reason="Failed" if failed else None,
        message=f"{failed} file(s) could not be deleted: run cleanup again" if failed else None,
        removed=removed,
        kept=len(plan.there) - removed,
        bytes=size,
        pinned=plan.pinned,
        head=plan.head,
        seconds=round(time.perf_counter() - began, 3),
    )


@contextmanager
def locked(engine: Engine) -> Iterator[None]:
    """On a directory: nobody makes a branch or a fork meanwhile. On a store the notice stands for that.

    Raises:
        Conflict: first writes of branches are being published.
    """
    with fork_lock(engine.store, exclusive=True, wait=LOCK_WAIT_SECONDS) as held:
        if not held and engine.sidecars.tells_the_dead:
            error = Conflict("branches are being made or get their first writes: run it again", code="cleanup_busy")
            error.retryable = True
            raise error
        yield
