"""Compaction: many small data files of a table become few. It changes no row, so a half of it is as good as published.

The work is done before anything moves: files are planned and written from the branch's own pins, and only then does the
sidecar appear, each table takes its commit, and one publish shows them all. A write that comes between makes Lance
refuse that table's commit; the table is then done anew, the others aren't kept waiting.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import lance
import pyarrow.compute as pc
from lance.optimize import Compaction

from omnigraph.errors import BadRequest, Conflict, ExpectedVersionMismatch, OmniGraphError
from omnigraph.records import dataclass
from omnigraph.storage.blobs import is_blob, marks_nulls, null_mask
from omnigraph.storage.drift import neutral, neutral_upto
from omnigraph.storage.engine import Engine
from omnigraph.storage.formats import refuse_unstable
from omnigraph.storage.history import compact_system
from omnigraph.storage.index_kinds import inherited
from omnigraph.storage.layout import (
    ACTORS,
    COMMITS,
    MANIFEST,
    RECOVERIES,
    check_operation_id,
    lance_branch,
    rows_per_file,
)
from omnigraph.storage.manifest import ManifestState, Pin, pin_of
from omnigraph.storage.publish import CommitDraft, publish
from omnigraph.storage.sidecar import Sidecar, SidecarTable, now_text
from omnigraph.storage.steps import Step, reach
from omnigraph.storage.sweep import heal
from omnigraph.storage.translate import is_commit_race, lance_errors
from omnigraph.storage.types import CommitInfo, TableRef, WriterKind
from omnigraph.ulids import new_ulid

__all__ = ["OptimizeReport", "TableOptimized", "optimize", "workers"]

ROUNDS = 3
"""How often a table whose compaction lost to another write is compacted anew."""

UNPUBLISHED_WAIT_SECONDS = 5.0
"""How long a compaction waits for a write that committed below it to publish or undo itself."""

Notice = Callable[[str], None]


def workers() -> int:
    """Tables that maintenance works on at once: `OMNIGRAPH_MAINTENANCE_CONCURRENCY`, 8 if it isn't set."""
    text = os.environ.get("OMNIGRAPH_MAINTENANCE_CONCURRENCY", "8")
    if not text.isdecimal() or len(text) > 3 or not 1 <= int(text) <= 256:
        raise BadRequest(f"OMNIGRAPH_MAINTENANCE_CONCURRENCY is {text[:40]!r}: use a whole number from 1 to 256")
    return int(text)


@dataclass(frozen=True, slots=True)
class TableOptimized:
    """What compaction did to one table.

    Args:
        action: `compacted`, `unchanged` (there was nothing to gain) or `skipped`.
        reason: why it was skipped: `Inherited` (the branch reads another branch's files; optimize that one),
            `DriftNeedsRepair`, `NoStableRowIds`, `NullBlobsOfOldFormat` or `Busy` (other writes kept moving it).
        message: the reason in words, with what to do.
        fragments_before, fragments_after: data files with their deletions, as Lance counts them.
        bytes_before, bytes_after: what a scan of the pinned version reads.
        version: the version published before.
        manifest_version: the version published now.
        head: the newest version of the lineage.
        extended: columns whose indexes were extended to rows written since.
    """

    table_key: str
    action: str
    reason: str | None = None
    message: str | None = None
    fragments_before: int = 0
    fragments_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    version: int = 0
    manifest_version: int = 0
    head: int = 0
    seconds: float = 0.0
    extended: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OptimizeReport:
    """`commit`: the newest that published a compaction, None where nothing moved. `system`: system tables compacted."""

    branch: str
    tables: tuple[TableOptimized, ...]
    system: tuple[str, ...]
    commit: CommitInfo | None


@dataclass(slots=True)
class _Job:
    """One table on its way."""

    ref: TableRef
    dataset: lance.LanceDataset
    results: list[Any]
    fragments: int
    bytes: int
    began: float
    committed: int = 0


def optimize(
    engine: Engine, branch: str, *, actor: str | None, operation_id: str | None, notice: Notice | None = None
) -> OptimizeReport:
    """Compact every table of a branch on the branch's own lineage, then the system tables.

    Args:
        operation_id: the same one again changes nothing.
        notice: called with each table's key as its files are written.

    Raises:
        RecoveryPending: an interrupted write on this branch must be settled first.
        ExpectedVersionMismatch: other writes kept moving the tables; what was compacted is published by the next write.
    """
    heal(engine, branch)
    state = engine.manifest.current(branch)
    done: dict[str, TableOptimized] = {}
    commit: CommitInfo | None = None
    lineage = lance_branch(branch)
    if operation_id:
        commit = engine.history.find_operation(branch, check_operation_id(operation_id), state.head)
    name = operation_id or new_ulid()
    if commit is None and engine.history.find_recovery(branch, name, state.head) is not None:
        name = new_ulid()  # an attempt of this name was settled without moving anything
    waiting = []
    for key, ref in sorted(state.tables.items()):
        if ref.branch == lineage:
            waiting.append(key)
        else:
            done[key] = _inherited(engine, ref, branch)
    if commit is not None:
        waiting = []
    with ThreadPoolExecutor(workers(), thread_name_prefix="optimize") as pool:
        for attempt in range(ROUNDS):
            if not waiting:
                break
            again, made = _round(engine, branch, waiting, name, operation_id or name, actor, pool, done, notice)
            commit = made or commit
            if again and made is not None:
                name = operation_id = new_ulid()
            if again and attempt + 1 < ROUNDS:
                heal(engine, branch)
            waiting = again
    for key in waiting:
        message = "other writes kept moving it: optimize again when it is quieter"
        done[key] = replace(done[key], action="skipped", reason="Busy", message=message)
    tables = tuple(done[key] for key in sorted(done))
    return OptimizeReport(branch, tables, _system(engine, branch), commit)


def _inherited(engine: Engine, ref: TableRef, branch: str) -> TableOptimized:
    owner = ref.branch or "main"
    return TableOptimized(
        ref.table_key,
        "skipped",
        "Inherited",
        f"{branch!r} has changed nothing of it yet and reads the files of {owner!r}: optimize that branch",
        version=ref.version,
        manifest_version=ref.version,
        head=ref.version,
    )


def _round(
    engine: Engine,
    branch: str,
    keys: Iterable[str],
    name: str,
    operation_id: str,
    actor: str | None,
    pool: ThreadPoolExecutor,
    done: dict[str, TableOptimized],
    notice: Notice | None,
) -> tuple[list[str], CommitInfo | None]:
    """Compact the tables once. Returns those that another write moved meanwhile, and the commit if one was made."""
    state = engine.manifest.current(branch)
    refs = [state.tables[key] for key in keys if key in state.tables]
    jobs, again = [], []
    for ref, prepared in zip(refs, pool.map(lambda r: _prepare(engine, branch, r), refs), strict=True):
        if notice is not None:
            notice(ref.table_key)
        if isinstance(prepared, TableOptimized):
            done[ref.table_key] = prepared
            if prepared.reason == "Busy":
                again.append(ref.table_key)
        else:
            jobs.append(prepared)
    if not jobs:
        return again, None
    with engine.queued(branch, [job.ref.table_key for job in jobs]):
        commit = _commit(engine, branch, jobs, name, operation_id, actor)
    after = engine.manifest.current(branch)
    for job in jobs:
        key = job.ref.table_key
        ref = after.tables.get(key, job.ref)
        now = engine.store.pinned(ref)
        kept = job.committed and ref.branch == job.ref.branch and ref.version >= job.committed
        done[key] = _result(engine, job.ref, ref, now, job, "compacted" if kept else "skipped")
        if not kept:
            again.append(key)
    return again, commit


def _prepare(engine: Engine, branch: str, ref: TableRef) -> _Job | TableOptimized:
    """Plan and write the new files of one table; nothing is visible, and a kill leaves nothing but unused files."""
    began = time.perf_counter()
    dataset = engine.store.latest(ref.location, ref.branch)
    head = int(dataset.version)
    nothing = _Job(ref, dataset, [], 0, 0, began)
    if head != ref.version:
        if _in_flight(engine, branch, ref):
            return _result(engine, ref, ref, engine.store.pinned(ref), nothing, "skipped", "Busy", "")
        if not neutral(dataset, ref.version, head):
            message = (
                f"its newest version {head} was published by no commit: run `omnigraph repair {engine.store.root.uri}`"
            )
            return _result(engine, ref, ref, engine.store.pinned(ref), nothing, "skipped", "DriftNeedsRepair", message)
    try:
        refuse_unstable(dataset, ref.table_key)
    except Conflict as error:
        return _result(engine, ref, ref, dataset, nothing, "skipped", "NoStableRowIds", error.message)
    with lance_errors(f"compacting {ref.table_key}"):
        plan = Compaction.plan(dataset, {"target_rows_per_fragment": rows_per_file(ref.table_key)})
        if plan.tasks and _unmarked_nulls(dataset):
            message = (
                "omnigraph 0.7 wrote its null blobs in a way that compaction turns into empty ones: it stays as it is; "
                "export and load it into a new graph to have it compacted"
            )
            return _result(engine, ref, ref, dataset, nothing, "skipped", "NullBlobsOfOldFormat", message)
        for index in inherited(dataset) if plan.tasks else ():  # one that nobody made anew would be lost anyway
            dataset.drop_index(index)
        results = [task.execute(dataset) for task in plan.tasks]
    if not results:
        return _result(engine, ref, ref, dataset, nothing, "unchanged")
    reach(Step.COMPACTION_WRITTEN)
    count, size = _size(dataset)
    return _Job(ref, dataset, results, count, size, began)


def _unmarked_nulls(dataset: lance.LanceDataset) -> bool:
    """Whether a Blob column of the origin holds nulls: it marks none, and compaction would make empty blobs of them."""
    fields = [field for field in dataset.schema if is_blob(field) and not marks_nulls(field)]
    for batch in dataset.scanner(columns=[f.name for f in fields]).to_batches() if fields else ():
        if any(pc.any(null_mask(f, batch.column(f.name))).as_py() for f in fields):
            return True
    return False


def _in_flight(engine: Engine, branch: str, ref: TableRef) -> bool:
    """Whether a write explains the head: one under way, or one published since the pin was read."""
    for name in engine.sidecars.names():
        sidecar = engine.sidecars.read(name)
        if sidecar is not None and any(
            t.table_key == ref.table_key and t.table_branch == ref.branch for t in sidecar.tables
        ):
            return True
    return pin_of(engine.manifest.current(branch).tables.get(ref.table_key)) != pin_of(ref)


def _size(dataset: lance.LanceDataset) -> tuple[int, int]:
    fragments = [fragment.metadata for fragment in dataset.get_fragments()]
    return len(fragments), sum(file.file_size_bytes or 0 for meta in fragments for file in meta.files)


def _result(
    engine: Engine,
    before: TableRef,
    after: TableRef,
    now: lance.LanceDataset,
    job: _Job,
    action: str,
    reason: str | None = None,
    message: str | None = None,
) -> TableOptimized:
    with lance_errors(f"looking at {before.table_key}"):
        count, size = _size(now)
        head = int(engine.store.latest(after.location, after.branch).version)
    return TableOptimized(
        before.table_key,
        action,
        reason,
        message,
        fragments_before=job.fragments or count,
        fragments_after=count,
        bytes_before=job.bytes or size,
        bytes_after=size,
        version=before.version,
        manifest_version=after.version,
        head=head,
        seconds=round(time.perf_counter() - job.began, 3),
    )


def _commit(
    engine: Engine, branch: str, jobs: list[_Job], name: str, operation_id: str, actor: str | None
) -> CommitInfo | None:
    """The sidecar, each table's commit, one publish. A table that another write moved stays as it is."""
    lineage = lance_branch(branch)
    sidecar = Sidecar(
        name=name,
        operation_id=operation_id,
        started_at=now_text(),
        branch=branch,
        actor_id=actor,
        writer_kind=WriterKind.OPTIMIZE,
        tables=tuple(
            SidecarTable(j.ref.table_key, j.ref.location, j.ref.version, j.ref.version + 1, j.ref.branch, lineage)
            for j in jobs
        ),
        marked=True,
    )
    held = engine.sidecars.write(sidecar)
    try:
        touched = [job for job in jobs if _compact(job)]
        commit = _publish(engine, branch, touched, CommitDraft(new_ulid(), actor, operation_id, None))
    except BaseException:
        held.release()  # nothing to undo: a sweep rolls forward what was compacted
        raise
    held.remove()
    return commit


def _compact(job: _Job) -> bool:
    """Commit the written files of one table. False: nothing of it moved; another write had come before."""
    before = int(job.dataset.version)
    try:
        with lance_errors(f"compacting {job.ref.table_key}"):
            Compaction.commit(job.dataset, job.results)
    except OmniGraphError as error:
        if error.__cause__ is None or not is_commit_race(error.__cause__):
            raise
        # Lance reserves fragment numbers in a version of its own first: that one may be there.
        return True
    reach(Step.TABLE_COMPACTED)
    job.committed = int(job.dataset.version)
    return job.committed > before


def _publish(engine: Engine, branch: str, jobs: list[_Job], draft: CommitDraft) -> CommitInfo | None:
    """Publish how far each table's head has come without a row changed. None: there was nothing to publish."""
    commit: CommitInfo | None = None
    deadline = time.monotonic() + UNPUBLISHED_WAIT_SECONDS
    while True:
        state = engine.manifest.current(branch)
        ahead = [found for job in jobs if (found := _ahead(engine, state, job)) is not None]
        ready = [(ref, pin) for ref, pin, whole in ahead if whole and ref.version != pin[1]]
        if ready:
            try:
                commit = publish(
                    engine.manifest,
                    engine.history,
                    branch,
                    draft,
                    [ref for ref, _ in ready],
                    expected={ref.table_key: pin for ref, pin in ready},
                    already=partial(_published, engine, branch, draft.operation_id),
                )
                # What is still ahead (a sweep of another process may have published a part) goes into another commit.
                draft = CommitDraft(new_ulid(), draft.actor, None, None)
                continue
            except ExpectedVersionMismatch:
                if time.monotonic() > deadline:
                    raise
        if all(whole for _, _, whole in ahead):
            return commit
        if time.monotonic() > deadline:
            raise ExpectedVersionMismatch(
                next(ref.table_key for ref, _, whole in ahead if not whole), "what was compacted", "a write in flight"
            )
        time.sleep(0.02)


def _published(engine: Engine, branch: str, operation_id: str | None, state: ManifestState) -> CommitInfo | None:
    return None if operation_id is None else engine.history.find_operation(branch, operation_id, state.head)


def _ahead(engine: Engine, state: ManifestState, job: _Job) -> tuple[TableRef, Pin, bool] | None:
    """How far the head can be published, over which pin, and whether that takes in all we did; None: it is published.

    Between the pin and our commit there may be a write that isn't published yet: it is waited for.
    """
    ref = state.tables.get(job.ref.table_key)
    if ref is None or (ref.branch, ref.location) != (job.ref.branch, job.ref.location):
        return None
    if job.committed and ref.version >= job.committed:
        return None
    dataset = engine.store.latest(ref.location, ref.branch)
    head = int(dataset.version)
    upto = neutral_upto(dataset, ref.version, head)
    if upto < head:
        dataset = engine.store.version(ref.location, ref.branch, upto)
    found = replace(ref, version=upto, row_count=dataset.count_rows())
    return found, (ref.branch, ref.version), upto >= job.committed


def _system(engine: Engine, branch: str) -> tuple[str, ...]:
    """Compact `__manifest` and the history of the branch: they keep themselves small, this makes each one file."""
    out = []
    engine.history.settle()
    head = engine.manifest.current(branch).head
    if head.branch == branch:  # a dead process may have left rows to write
        engine.history.complete(head, branch)
    lineages: Mapping[str, str | None] = {MANIFEST: branch, COMMITS: branch, ACTORS: None, RECOVERIES: None}
    for location, lineage in lineages.items():
        dataset = engine.store.latest_or_none(location, lineage)
        if dataset is None:
            continue  # a branch without a commit of its own; a graph without recoveries
        with lance_errors(f"compacting {location}"):
            if compact_system(dataset):
                out.append(location)
                reach(Step.SYSTEM_COMPACTED)
    return tuple(out)
