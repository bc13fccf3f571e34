"""Heads that lie ahead of what is published, with no interrupted write to explain them: shown, and published on demand.

Drift made of index builds, compactions, settings and empty deletes changes no row. Everything else may be half of a
write that was never finished: it is published only where someone insists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from omnigraph.errors import NotFound
from omnigraph.records import dataclass
from omnigraph.storage.drift import neutral, operation_of
from omnigraph.storage.engine import Engine
from omnigraph.storage.layout import MAIN, lance_branch
from omnigraph.storage.lineage import LISTINGS
from omnigraph.storage.manifest import pin_of
from omnigraph.storage.publish import CommitDraft, publish
from omnigraph.storage.translate import lance_errors
from omnigraph.storage.types import CommitInfo, TableRef
from omnigraph.ulids import new_ulid

__all__ = ["Drift", "RepairReport", "drift_of", "repair"]

OPERATIONS_SHOWN = 50


@dataclass(frozen=True, slots=True)
class Drift:
    """A table whose head isn't what its branch publishes.

    Args:
        kind: `NoRowChanged`, `MayChangeRows`, `PendingRecovery` (a write is running, or was interrupted) or
            `VersionsMissing` (the head lies before the pin).
        operations: what Lance recorded for the versions in between, oldest first.
        action: `none` (only looked at), `published` or `refused`.
    """

    branch: str
    table_key: str
    pinned: int
    head: int
    kind: str
    operations: tuple[str, ...] = ()
    action: str = "none"


@dataclass(frozen=True, slots=True)
class RepairReport:
    """`tables`: every drift there was. `commits`: what published them, one a branch."""

    tables: tuple[Drift, ...]
    commits: tuple[CommitInfo, ...] = ()

    @property
    def refused(self) -> tuple[Drift, ...]:
        return tuple(t for t in self.tables if t.action == "refused")


def drift_of(engine: Engine, branch: str, ref: TableRef) -> Drift | None:
    """The drift of one table that the branch writes itself; None where there is none."""
    try:
        dataset = engine.store.latest(ref.location, ref.branch)
    except NotFound:
        return Drift(branch, ref.table_key, ref.version, 0, "VersionsMissing")
    head = int(dataset.version)
    if head == ref.version:
        return None
    if head < ref.version:
        return Drift(branch, ref.table_key, ref.version, head, "VersionsMissing")
    shown = range(ref.version + 1, min(head, ref.version + OPERATIONS_SHOWN) + 1)
    with lance_errors(f"reading the transactions of {ref.table_key}"):
        operations = [operation_of(dataset, version)[0] for version in shown]
    if _named(engine, branch, ref):
        kind = "PendingRecovery"
    else:
        kind = "NoRowChanged" if neutral(dataset, ref.version, head) else "MayChangeRows"
    return Drift(branch, ref.table_key, ref.version, head, kind, tuple(operations))


def _named(engine: Engine, branch: str, ref: TableRef) -> bool:
    """Whether a sidecar explains the head, or a publish since the table was looked at."""
    for name in engine.sidecars.names():
        sidecar = engine.sidecars.read(name)
        if sidecar is not None and any(
            t.table_key == ref.table_key and t.table_branch == ref.branch for t in sidecar.tables
        ):
            return True
    return pin_of(engine.manifest.current(branch).tables.get(ref.table_key)) != pin_of(ref)


def repair(engine: Engine, branch: str | None, *, confirm: bool, force: bool, actor: str | None) -> RepairReport:
    """Look for drift, and publish what may be.

    Args:
        branch: None: all of them.
        confirm: publish drift that changes no row; without it nothing is written.
        force: with `confirm`, publish the rest too.

    Raises:
        Conflict: a table moved meanwhile; what other branches published stays.
    """
    if branch is not None:
        return _repair(engine, branch, confirm, force, actor)
    listed = (MAIN, *sorted(n for n in engine.manifest.names() if not n.startswith("__")))
    done = [report for name in listed if (report := _unless_gone(engine, name, confirm, force, actor)) is not None]
    return RepairReport(tuple(t for r in done for t in r.tables), tuple(c for r in done for c in r.commits))


def _unless_gone(engine: Engine, branch: str, confirm: bool, force: bool, actor: str | None) -> RepairReport | None:
    """As `_repair`; None for a branch deleted since it was listed. One that was made again meanwhile is looked at."""
    for attempt in range(LISTINGS):
        try:
            return _repair(engine, branch, confirm, force, actor)
        except NotFound:
            if not engine.manifest.exists(branch):
                return None
            if attempt + 1 == LISTINGS:
                raise
    return None


def _repair(engine: Engine, branch: str, confirm: bool, force: bool, actor: str | None) -> RepairReport:
    with engine.queued(branch, engine.manifest.current(branch).tables):
        state = engine.manifest.current(branch)
        own = [ref for ref in state.tables.values() if ref.branch == lance_branch(branch)]
        found = [d for ref in own if (d := drift_of(engine, branch, ref)) is not None]
        chosen = {d.table_key for d in found if d.kind == "NoRowChanged" or (force and d.kind == "MayChangeRows")}
        commits: tuple[CommitInfo, ...] = ()
        if confirm and chosen:
            refs = [ref for ref in own if ref.table_key in chosen]
            commits = (_publish(engine, branch, refs, {d.table_key: d.head for d in found}, actor),)
    actions = ["none" if not confirm else "published" if d.table_key in chosen else "refused" for d in found]
    return RepairReport(tuple(replace(d, action=a) for d, a in zip(found, actions, strict=True)), commits)


def _publish(
    engine: Engine, branch: str, refs: Sequence[TableRef], heads: dict[str, int], actor: str | None
) -> CommitInfo:
    engine.manifest.prepare(branch)
    settled = []
    for ref in refs:
        dataset = engine.store.version(ref.location, ref.branch, heads[ref.table_key])
        settled.append(replace(ref, version=heads[ref.table_key], row_count=dataset.count_rows()))
    draft = CommitDraft(
        new_ulid(), actor, None, None, extra={"drift_published": ", ".join(sorted(ref.table_key for ref in refs))}
    )
    return publish(
        engine.manifest,
        engine.history,
        branch,
        draft,
        settled,
        expected={ref.table_key: pin_of(ref) for ref in refs},
        already=lambda _: None,
    )
