"""Building indices: they change no row, so an interrupted build is rolled forward with whatever it got done (07 §7)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import lance

from omnigraph.errors import ExpectedVersionMismatch
from omnigraph.records import dataclass
from omnigraph.storage.commit import settle_drift
from omnigraph.storage.drift import neutral
from omnigraph.storage.engine import Engine
from omnigraph.storage.forks import clear_orphan, ensure_fork, fork_lock
from omnigraph.storage.index_kinds import build, index_name, lacking
from omnigraph.storage.layout import check_operation_id, lance_branch
from omnigraph.storage.manifest import ManifestState, pin_of
from omnigraph.storage.publish import CommitDraft, publish
from omnigraph.storage.sidecar import Sidecar, SidecarTable, now_text
from omnigraph.storage.sweep import heal
from omnigraph.storage.types import CommitInfo, TableRef, WriterKind
from omnigraph.ulids import new_ulid

__all__ = ["IndexReport", "build_indices", "index_name"]

UNPUBLISHED_WAIT_SECONDS = 2.0
"""How long a build waits for a write that committed below it to publish or undo itself."""

Wanted = Mapping[str, Sequence[tuple[str, str]]]


@dataclass(frozen=True, slots=True)
class IndexReport:
    """What was done.

    Args:
        built: table_key, column, index_type, action (`created` or `extended`), seconds.
        commit: None if none was needed.
        pending: table_key, column, index_type, reason: what can't be built yet.
    """

    built: tuple[dict[str, Any], ...]
    commit: CommitInfo | None
    pending: tuple[dict[str, Any], ...] = ()


def build_indices(
    engine: Engine,
    branch: str,
    columns: Wanted,
    *,
    actor: str | None,
    operation_id: str | None,
    own: bool = False,
) -> IndexReport:
    """Create the indices that are missing and extend those that don't cover every row; then publish.

    Args:
        columns: table key → (column, index type: BTREE, BITMAP, INVERTED, VECTOR).
        own: make those anew that the branch inherited with its tables, as compaction needs it.

    Raises:
        ExpectedVersionMismatch: another write kept moving a table; what was built is published by the next write.
        RecoveryPending: as for every write.
    """
    with engine.queued(branch, columns):
        heal(engine, branch)
        state = engine.manifest.current(branch)
        if operation_id:
            done = engine.history.find_operation(branch, check_operation_id(operation_id), state.head)
            if done is not None:
                return IndexReport((), done)
        name = operation_id or new_ulid()
        if engine.history.find_recovery(branch, name, state.head) is not None:
            name = new_ulid()
        refs: dict[str, TableRef] = {}
        waiting: list[dict[str, Any]] = []
        for key in columns:
            if (ref := state.tables.get(key)) is None:
                continue
            jobs, pending = lacking(engine.store.pinned(ref), columns[key], own=own)
            waiting += [
                {"table_key": key, "column": p.column, "index_type": p.kind, "reason": p.reason} for p in pending
            ]
            if jobs:
                refs[key] = settle_drift(engine, branch, ref) if ref.branch == lance_branch(branch) else ref
        if not refs:
            return IndexReport((), None, tuple(waiting))
        report = _build(engine, branch, columns, refs, state, name, operation_id or name, actor, own=own)
        return replace(report, pending=tuple(waiting))


def _build(
    engine: Engine,
    branch: str,
    columns: Wanted,
    refs: Mapping[str, TableRef],
    state: ManifestState,
    name: str,
    operation_id: str,
    actor: str | None,
    *,
    own: bool,
) -> IndexReport:
    lineage = lance_branch(branch)
    sidecar = Sidecar(
        name=name,
        operation_id=operation_id,
        started_at=now_text(),
        branch=branch,
        actor_id=actor,
        writer_kind=WriterKind.ENSURE_INDICES,
        tables=tuple(
            SidecarTable(r.table_key, r.location, r.version, r.version + 1, r.branch, lineage) for r in refs.values()
        ),
        marked=True,
    )
    built: list[dict[str, Any]] = []
    held = engine.sidecars.write(sidecar)
    try:
        forking = [r for r in refs.values() if r.branch != lineage]
        for ref in forking:
            clear_orphan(engine.store, engine.manifest, engine.sidecars, ref, branch, name)
        with ExitStack() as stack:
            if forking:
                stack.enter_context(fork_lock(engine.store, exclusive=False))
            for key, ref in refs.items():
                if ref.branch == lineage:
                    dataset = engine.store.latest(ref.location, ref.branch)
                else:
                    dataset = ensure_fork(engine.store, ref, branch)
                built += _index_table(key, dataset, columns[key], own=own)
            heads = [_settled_head(engine, branch, ref) for ref in refs.values()]
            draft = CommitDraft(new_ulid(), actor, operation_id, None)
            commit = publish(
                engine.manifest,
                engine.history,
                branch,
                draft,
                [head for head, _ in heads],
                expected={head.table_key: pin for head, pin in heads},
                already=lambda s: engine.history.find_operation(branch, operation_id, s.head),
            )
    except BaseException:
        held.release()  # nothing to undo: a sweep rolls forward what was built
        raise
    held.remove()
    return IndexReport(tuple(built), commit)


def _index_table(
    key: str, dataset: lance.LanceDataset, wanted: Sequence[tuple[str, str]], *, own: bool
) -> list[dict[str, Any]]:
    jobs, _ = lacking(dataset, wanted, own=own)
    return [
        {
            "table_key": key,
            "column": job.column,
            "index_type": job.kind,
            "action": job.action,
            "seconds": round(seconds, 3),
        }
        for job, seconds in build(dataset, jobs)
    ]


def _settled_head(engine: Engine, branch: str, ref: TableRef) -> tuple[TableRef, tuple[str | None, int] | None]:
    """The table's head and the pin it may follow: between them lie index builds alone.

    A build may be rebased over a write that isn't published yet; that one is waited for.
    """
    lineage = lance_branch(branch)
    deadline = time.monotonic() + UNPUBLISHED_WAIT_SECONDS
    while True:
        dataset = engine.store.latest(ref.location, lineage)
        pin = pin_of(engine.manifest.current(branch).tables.get(ref.table_key))
        head = int(dataset.version)
        if pin is not None:
            begun = pin[1]
            if (pin[0] == lineage or pin == (ref.branch, ref.version)) and neutral(dataset, begun, head):
                return TableRef(ref.table_key, ref.location, lineage, head, dataset.count_rows()), pin
        if time.monotonic() > deadline:
            raise ExpectedVersionMismatch(ref.table_key, [ref.branch, ref.version], list(pin or ()))
        time.sleep(0.02)
