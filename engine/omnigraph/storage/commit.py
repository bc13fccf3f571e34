"""The one function every writer ends in: sidecar, table commits, publish, sidecar away (01 §1.6)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import lance

from omnigraph.errors import Conflict, ExpectedVersionMismatch, Internal, NotFound, OmniGraphError
from omnigraph.storage.change import apply, rows_foreseen, stage
from omnigraph.storage.drift import neutral
from omnigraph.storage.engine import Engine
from omnigraph.storage.forks import clear_orphan, ensure_fork, fork_lock
from omnigraph.storage.layout import check_operation_id, data_paths, lance_branch
from omnigraph.storage.manifest import ManifestState, Pin, pin_of
from omnigraph.storage.own_write import give_up, published_before, tidy
from omnigraph.storage.publish import CommitDraft, Ready, check_expected, check_same, make_ready, publish
from omnigraph.storage.recovery import CHANGES_NO_ROW
from omnigraph.storage.sidecar import Sidecar, SidecarTable, now_text
from omnigraph.storage.snapshot import Snapshot
from omnigraph.storage.steps import Step, reach
from omnigraph.storage.sweep import heal
from omnigraph.storage.tail import join_tail
from omnigraph.storage.translate import is_commit_race, lance_errors
from omnigraph.storage.types import CommitInfo, Staging, TableChange, TableRef, WriterKind
from omnigraph.ulids import new_ulid

if TYPE_CHECKING:
    from concurrent.futures import Future

__all__ = ["check_head", "commit", "settle_drift"]

LEARNT_ROWS = 100
"""Of a write of at most so many rows the ids are kept, so that the next one needn't read its files."""


def commit(engine: Engine, staging: Staging, base: ManifestState) -> CommitInfo:
    """Make every change of `staging` visible at once on its branch, or none.

    Args:
        base: the snapshot the changes were prepared on; the tables changed and read must still stand there.

    Raises:
        ExpectedVersionMismatch, Conflict, RowLevelCasContention: the state moved; the write has undone itself.
        RecoveryPending: an interrupted write on this branch needs `omnigraph recover` first.
        BadRequest: rows that don't fit their table.
    """
    branch = staging.branch
    keys = [c.table_key for c in staging.changes]
    if len(set(keys)) != len(keys) or not (keys or staging.merged_parent):
        raise Internal("a commit needs at least one change, and at most one per table")
    operation_id = check_operation_id(staging.operation_id) if staging.operation_id else ""
    with engine.queued(branch, keys):
        heal(engine, branch)
        state = engine.manifest.current(branch)
        name = operation_id or new_ulid()
        if operation_id and not staging.fresh:
            done = engine.history.find_operation(branch, operation_id, state.head)
            if done is not None:
                engine.history.complete(state.head, branch)
                return done
            if engine.history.find_recovery(branch, name, state.head) is not None:
                name = new_ulid()  # an attempt of this name was rolled back: a sweep must not take ours for it
        schema_hash = Snapshot(engine, base).schema_hash
        base = _carried(engine, base, state, (*keys, *staging.reads))
        pins = {key: pin_of(base.tables.get(key)) for key in (*keys, *staging.reads)}
        check_expected(state, pins, schema_hash)
        check_same(base, state, pins)
        check_head(state, staging.expect_head)
        refs = {key: _known(state, key) for key in keys}
        for key, ref in refs.items():
            if ref.branch == lance_branch(branch):
                refs[key] = settle_drift(engine, branch, ref, beside=CHANGES_NO_ROW)
                if join_tail(engine, refs[key]):
                    refs[key] = settle_drift(engine, branch, ref, beside=CHANGES_NO_ROW)
        if not keys:
            return _publish_merge(engine, staging, pins, schema_hash, operation_id or name)
        write = _Write(engine, staging, state, refs, pins, schema_hash, name, operation_id or name)
        return write.run()


def _known(state: ManifestState, table_key: str) -> TableRef:
    ref = state.tables.get(table_key)
    if ref is None:
        raise Internal(f"the graph has no table {table_key}")
    return ref


def _carried(engine: Engine, base: ManifestState, state: ManifestState, keys: Iterable[str]) -> ManifestState:
    """`base`, but with those tables as they now stand that nothing has happened to but index builds and compactions."""
    moved: dict[str, TableRef] = {}
    for key in keys:
        was, now = base.tables.get(key), state.tables.get(key)
        if was is None or now is None or was.stamp == now.stamp or was.location != now.location:
            continue
        if _same_rows(engine, pin_of(was), now):
            moved[key] = now
    if moved:  # a branch made anew, or a graph, might only count alike
        known = {c.id for c in engine.history.commits(state.branch, state.head)}
        moved = {key: now for key, now in moved.items() if base.tables[key].stamp in known}
    return replace(base, tables=dict(base.tables) | moved) if moved else base


def _same_rows(engine: Engine, pin: Pin | None, now: TableRef) -> bool:
    """Whether a table has come from a pin to where it stands by versions alone that change no row."""
    if pin is None or pin[0] != now.branch or pin[1] > now.version:
        return False
    with suppress(NotFound):  # cleanup took a version between the two
        return neutral(engine.store.pinned(now), pin[1], now.version)
    return False


def check_head(state: ManifestState, expected: str | None) -> None:
    """Raise Conflict, `head_moved`, unless the branch's newest commit is the expected one; None is any."""
    if expected is not None and state.head.id != expected:
        raise Conflict(
            f"branch {state.branch!r} is at commit {state.head.id}, not at {expected}: read again and retry",
            code="head_moved",
            details={"branch": state.branch, "expected": expected, "actual": state.head.id},
        )


def _publish_merge(
    engine: Engine, staging: Staging, pins: dict[str, Pin | None], schema_hash: str | None, operation_id: str
) -> CommitInfo:
    """A merge that changes no row: its commit only says that the other side is in. No table moves, so no sidecar."""
    draft = CommitDraft(new_ulid(), staging.actor, operation_id, None, merged_parent=staging.merged_parent)
    return publish(
        engine.manifest,
        engine.history,
        staging.branch,
        draft,
        [],
        expected=pins,
        schema_hash=schema_hash,
        already=lambda _: None,
        check=lambda state: check_head(state, staging.expect_head),
    )


class _Write:
    """One commit under way.

    Args:
        state: what it publishes upon.
        refs: where each table is staged: its pin in `state`, or a later version with the same rows.
    """

    def __init__(
        self,
        engine: Engine,
        staging: Staging,
        state: ManifestState,
        refs: dict[str, TableRef],
        pins: dict[str, Pin | None],
        schema_hash: str | None,
        name: str,
        operation_id: str,
    ) -> None:
        self.engine, self.staging, self.state, self.refs, self.pins = engine, staging, state, refs, pins
        self.schema_hash = schema_hash
        self.branch = staging.branch
        self.lineage = lance_branch(staging.branch)
        self.draft = CommitDraft(new_ulid(), staging.actor, operation_id, None, merged_parent=staging.merged_parent)
        self.moved: list[str] = []
        self.handles: dict[str, lance.LanceDataset] = {}
        self.sidecar = Sidecar(
            name=name,
            operation_id=operation_id,
            started_at=now_text(),
            branch=staging.branch,
            actor_id=staging.actor,
            writer_kind=staging.kind,
            tables=tuple(
                SidecarTable(r.table_key, r.location, r.version, r.version + 1, r.branch, self.lineage)
                for r in refs.values()
            ),
            reads={k: pins[k] for k in staging.reads if k not in refs},
            schema_hash=schema_hash,
            marked=True,
            merge_source=staging.merged_parent,
            expected_head=staging.expect_head,
        )

    def run(self) -> CommitInfo:
        forking = [r for r in self.refs.values() if r.branch != self.lineage]
        ready = None if forking else self._begin_ready()
        staged = {c.table_key: self._stage(c) for c in self.staging.changes if self.refs[c.table_key] not in forking}
        reach(Step.TABLE_STAGED)
        held = self.engine.sidecars.write(self.sidecar)  # A
        try:
            if self.lineage is not None:
                self._check_branch()
            for ref in forking:
                parts = (self.engine.store, self.engine.manifest, self.engine.sidecars)
                clear_orphan(*parts, ref, self.branch, self.sidecar.name)
            with ExitStack() as stack:
                if forking:
                    stack.enter_context(fork_lock(self.engine.store, exclusive=False))
                for change in self.staging.changes:  # B
                    key = change.table_key
                    if key not in staged:
                        staged[key] = self._fork(change)
                    self._commit_table(key, staged[key])
                done = self._publish(ready)  # C
        except BaseException as error:
            published = give_up(self.engine, held, self.sidecar, error, self.moved)
            if published is None or not isinstance(error, Exception):
                raise
            return published
        tidy(self.engine, held, self.sidecar, done)  # D
        return done

    def _check_branch(self) -> None:
        """The branch may have been deleted, and even made anew, before the sidecar could say that it is in use."""
        state = self.engine.manifest.current(self.branch)
        for key in self.refs:
            now, ref = state.tables.get(key), self.state.tables[key]
            if now is None or (now.branch, now.version, now.stamp) != (ref.branch, ref.version, ref.stamp):
                raise ExpectedVersionMismatch(key, [ref.branch, ref.version], list(pin_of(now) or ()))

    def _stage(self, change: TableChange) -> Any:
        ref = self.refs[change.table_key]
        dataset = self.engine.store.pinned(ref)
        self.handles[change.table_key] = dataset
        self._check_files(change, ref)
        known = change.places is None or change.places.ref == ref  # elsewhere once the table was compacted meanwhile
        change = change if known else replace(change, places=None)
        operation = stage(dataset, change, self.engine.store.schema(dataset))
        self._learn(change, operation)
        return operation

    def _learn(self, change: TableChange, operation: Any) -> None:
        """The next write needn't read what stands in this one's files."""
        written = [rows["id"] for rows in (change.appends, change.upserts) if rows is not None]
        if change.fragments or sum(map(len, written)) > LEARNT_ROWS:
            return
        ids = [one for column in written for one in column.to_pylist() if one is not None]
        for fragment in getattr(operation, "new_fragments", ()):
            self.engine.store.short_files.learn(data_paths(fragment.files), ids)

    def _check_files(self, change: TableChange, ref: TableRef) -> None:
        from omnigraph.storage.fragments import missing_files

        forked = ref.branch != self.lineage
        missing = missing_files(self.engine.store, ref.location, self.lineage, change.fragments, forked=forked)
        if missing:
            error = Conflict(
                f"{len(missing)} data file(s) written for {ref.table_key} are gone ({missing[0]}, …): write them again",
                code="fragments_gone",
                details={"table_key": ref.table_key},
            )
            error.retryable = True
            raise error

    def _fork(self, change: TableChange) -> Any:
        ref = self.refs[change.table_key]
        engine = self.engine
        fork = ensure_fork(engine.store, ref, self.branch)
        self.handles[change.table_key] = fork
        self._check_files(change, ref)
        return stage(fork, replace(change, places=None))

    def _commit_table(self, key: str, operation: Any) -> None:
        ref = self.refs[key]
        try:
            with lance_errors(f"committing {key}"):
                dataset = apply(self.handles[key], operation, self.sidecar.name)
        except OmniGraphError as error:
            if error.__cause__ is not None and is_commit_race(error.__cause__):
                raise ExpectedVersionMismatch(key, [ref.branch, ref.version], "another write in flight") from error
            raise
        self.moved.append(key)
        reach(Step.TABLE_COMMITTED)
        below = int(dataset.version) - 1
        if below != ref.version:  # Lance has put it on top of another's commit
            if not neutral(dataset, ref.version, below):
                raise ExpectedVersionMismatch(key, [ref.branch, ref.version], [self.lineage, below])
            self.refs[key] = replace(ref, version=below)
        self.engine.store.keep_schema(dataset, self.handles[key])
        self.handles[key] = dataset

    def _begin_ready(self) -> Future[Ready | None] | None:
        """Write what is to be published while the tables are written: they move as foreseen, or it isn't used."""
        engine, state = self.engine, self.state
        refs: list[TableRef] = []
        for change in self.staging.changes:
            ref = self.refs[change.table_key]
            rows = rows_foreseen(engine.store.pinned(ref), change)
            if rows is None:
                return None
            refs.append(replace(ref, version=ref.version + 1, row_count=rows))
        return engine.beside.begin(
            lambda: make_ready(engine.manifest, engine.history, self.branch, self.draft, refs, state)
        )

    def _publish(self, begun: Future[Ready | None] | None) -> CommitInfo:
        refs = [
            replace(ref, branch=self.lineage, version=ref.version + 1, row_count=self.handles[key].count_rows())
            for key, ref in self.refs.items()
        ]
        ready = None
        if begun is not None:
            with suppress(OmniGraphError, OSError, RuntimeError, ValueError):  # the publish meets it too, and says so
                ready = begun.result()
        while True:
            try:
                done = publish(
                    self.engine.manifest,
                    self.engine.history,
                    self.branch,
                    self.draft,
                    refs,
                    expected=self.pins,
                    schema_hash=self.schema_hash,
                    already=partial(published_before, self.engine, self.sidecar, self.state.head),
                    check=lambda state: check_head(state, self.staging.expect_head),
                    ready=ready,
                )
                break
            except ExpectedVersionMismatch:
                if not self._carry():
                    raise
        for ref in refs:
            self.engine.store.remember(replace(ref, stamp=done.id), self.handles[ref.table_key])
        return done

    def _carry(self) -> bool:
        """Take over the pins that another process has published meanwhile without a row changed. False: none was.

        What was published of a table we changed lies below our commit. Above it lies only what has undone it.
        """
        state = self.engine.manifest.current(self.branch)
        moved = {
            key: pin_of(now)
            for key, pin in self.pins.items()
            if (now := state.tables.get(key)) is not None
            and pin_of(now) != pin
            and (key not in self.refs or now.version <= self.refs[key].version)
            and _same_rows(self.engine, pin, now)
        }
        self.pins |= moved
        return bool(moved)


def settle_drift(
    engine: Engine, branch: str, ref: TableRef, *, beside: Collection[WriterKind] = frozenset()
) -> TableRef:
    """Where a write may stage: the pin, or the head where index builds and compactions alone lie between.

    The write's own publish covers what lies between.

    Args:
        beside: writers that aren't waited for: whatever they have moved the table by so far, they may publish it too.

    Raises:
        ExpectedVersionMismatch: another write has moved the table and is about to publish.
        Conflict: the head moved in a way that isn't explained; `omnigraph repair` looks into it.
    """
    if engine.store.stands(ref.location, ref.branch, ref.version):
        return ref
    dataset = engine.store.latest(ref.location, ref.branch)
    head = int(dataset.version)
    if head == ref.version:
        return ref
    actual = pin_of(engine.manifest.current(branch).tables.get(ref.table_key))
    if actual != pin_of(ref):
        raise ExpectedVersionMismatch(ref.table_key, [ref.branch, ref.version], list(actual or ()))
    for name in engine.sidecars.names():
        sidecar = engine.sidecars.read(name)
        if (
            sidecar is not None
            and sidecar.writer_kind not in beside
            and any(t.table_key == ref.table_key and t.table_branch == ref.branch for t in sidecar.tables)
        ):
            raise ExpectedVersionMismatch(ref.table_key, [ref.branch, ref.version], "another write in flight")
    actual = pin_of(engine.manifest.current(branch).tables.get(ref.table_key))
    if actual != pin_of(ref):  # published between the two looks
        raise ExpectedVersionMismatch(ref.table_key, [ref.branch, ref.version], list(actual or ()))
    if not neutral(dataset, ref.version, head):
        raise Conflict(
            f"{ref.table_key} has versions {ref.version + 1}–{head} that no commit published and no interrupted write "
            f"explains: run `omnigraph repair {engine.store.root.uri}`",
            code="drift_needs_repair",
            details={"table_key": ref.table_key, "pinned": ref.version, "head": head},
        )
    return replace(ref, version=head)
