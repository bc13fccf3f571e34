"""Settle the sidecars of dead writers: observe, decide (in `recovery`), carry out, audit, delete."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from omnigraph.errors import ExpectedVersionMismatch, Internal, OmniGraphError, RecoveryPending
from omnigraph.records import dataclass
from omnigraph.storage.drift import mark_of, neutral, neutral_upto
from omnigraph.storage.engine import Engine
from omnigraph.storage.files import LocalFiles, clear_dead_folders
from omnigraph.storage.forks import delete_fork
from omnigraph.storage.layout import MAIN, STAGING
from omnigraph.storage.manifest import ManifestState, Pin, pin_of
from omnigraph.storage.publish import ATTEMPTS, CommitDraft, publish
from omnigraph.storage.recovery import CHANGES_NO_ROW, Action, Decision, Observed, TableClass, classify, decide
from omnigraph.storage.schema_settle import drop_lock, finish, follow_schema, promotable, scrap, to_publish
from omnigraph.storage.sidecar import Held, Sidecar, SidecarTable
from omnigraph.storage.steps import Step, reach
from omnigraph.storage.translate import lance_errors
from omnigraph.storage.types import CommitInfo, TableRef, WriterKind
from omnigraph.ulids import new_ulid

__all__ = [
    "RECOVERY_ACTOR",
    "SweepReport",
    "follow_head",
    "give_up",
    "heal",
    "observe",
    "pending_error",
    "roll_back",
    "settle",
    "sweep",
    "tidy",
]

RECOVERY_ACTOR = "omnigraph:recovery"

RECOVERY_ATTEMPTS = 60
"""How often a settled write is published when other commits come first: left undone, it would block its branch."""

log = logging.getLogger(__name__)

LIVING_SECONDS = 5.0
"""On an object store, where nothing tells the dead: how long a write waits for one that is half way to go on."""


@dataclass(frozen=True, slots=True)
class SweepReport:
    """What a sweep did: plain data, one entry a sidecar.

    `outcomes`: operation_id, sidecar, writer_kind, branch, outcome (RolledForward, RolledBack, AlreadyPublished,
    OrphanedBranchDiscarded), tables. `pending`: sidecar, operation_id, branch, reason (Live, NeedsRollBack).
    """

    outcomes: tuple[dict[str, Any], ...] = ()
    pending: tuple[dict[str, Any], ...] = field(default=())


def sweep(engine: Engine, mode: str, *, branch: str | None = None) -> SweepReport:
    """Settle every sidecar (of one branch, if given), oldest first.

    Args:
        mode: `full` rolls forward and back; its caller answers that no writer lives where nothing tells (on stores).
            `forward` is for processes that live beside writers: what needs a roll-back is left as pending.

    Raises:
        RecoveryPending: a sidecar can't be read; the others have been settled before.
        Internal: a table's head lies before the manifest's pin; the file is kept.
    """
    outcomes: list[dict[str, Any]] = []
    pending: list[dict[str, Any]] = []
    unreadable: RecoveryPending | None = None
    if branch is None:
        engine.manifest.prepare(MAIN)
    if mode == "full":
        engine.sidecars.sweep_temporary()
        if isinstance(engine.store.files, LocalFiles):
            clear_dead_folders(engine.store.files.path(STAGING))
        follow_head(engine)
    for name in engine.sidecars.names():
        try:
            sidecar = engine.sidecars.read(name)
        except RecoveryPending as error:
            unreadable = unreadable or error
            continue
        if sidecar is None or (branch is not None and sidecar.branch != branch):
            continue
        held = engine.sidecars.claim(name)
        if held is None:
            if name in engine.sidecars.names():
                pending.append(_entry(sidecar, reason="Live"))
            continue
        try:
            outcome = settle(engine, held, sidecar, mode)
        finally:
            held.release()
        if outcome is None:
            pending.append(_entry(sidecar, reason="NeedsRollBack"))
        else:
            outcomes.append(outcome)
            log.info("recovered %s: %s", outcome["sidecar"], outcome["outcome"])
    if unreadable is not None:
        raise unreadable
    if mode == "full":
        drop_lock(engine)
    return SweepReport(tuple(outcomes), tuple(pending))


def follow_head(engine: Engine) -> None:
    """Complete what a creation killed after its manifest left undone: the first commit's row, the schema's copies."""
    engine.history.fill_gap(engine.manifest.current(MAIN).head, MAIN)
    follow_schema(engine)


def _entry(sidecar: Sidecar, **more: Any) -> dict[str, Any]:
    return {
        "operation_id": sidecar.operation_id,
        "sidecar": sidecar.file,
        "writer_kind": sidecar.writer_kind.value,
        "branch": sidecar.branch,
    } | more


def pending_error(uri: str, branch: str, pending: Sequence[Mapping[str, Any]]) -> RecoveryPending:
    files = [p["sidecar"] for p in pending]
    return RecoveryPending(
        f"an interrupted write on branch {branch!r} must be rolled back first ({', '.join(files)}): "
        f"run `omnigraph recover {uri}`",
        sidecars=files,
    )


def settle(engine: Engine, held: Held, sidecar: Sidecar, mode: str) -> dict[str, Any] | None:
    """Settle one sidecar that is held. None: it needs a roll-back that this mode doesn't do."""
    if not engine.manifest.exists(sidecar.branch):
        # Its branch is gone and with it everything it could have published; the name makes the audit row repeatable.
        if sidecar.writer_kind is WriterKind.SCHEMA_APPLY:
            scrap(engine, sidecar)
        _audit(engine, sidecar, sidecar.name, "OrphanedBranchDiscarded", [])
        held.remove()
        return _entry(sidecar, outcome="OrphanedBranchDiscarded", tables=[])
    state = engine.manifest.current(sidecar.branch)
    done = engine.history.find_recovery(sidecar.branch, sidecar.name, state.head)
    if done is not None:
        # A sweep got as far as its publish: what it decided stands, whatever the heads look like now.
        return _finish(engine, held, sidecar, done, done.recovery_kind or "RolledBack")
    published = engine.history.find_operation(sidecar.branch, sidecar.operation_id, state.head)
    if published is not None and not (sidecar.marked or published.recovery_kind):
        published = None
    sidecar = _completed(sidecar, state)
    seen = {t.table_key: observe(engine, state, sidecar, t) for t in sidecar.tables}
    classes = {t.table_key: classify(t, seen[t.table_key]) for t in sidecar.tables}
    decision = decide(
        sidecar.writer_kind,
        classes,
        published=published is not None,
        tellable=sidecar.marked,
        still_valid=_still_valid(state, sidecar),
        promotable=sidecar.writer_kind is not WriterKind.SCHEMA_APPLY or promotable(engine, sidecar),
    )
    reach(Step.RECOVERY_CLASSIFIED)
    if decision.action is Action.ABORT:
        bad = [key for key, c in classes.items() if c is TableClass.INVARIANT_VIOLATION]
        raise Internal(
            f"{sidecar.file}: the newest version of {', '.join(bad)} lies before the published one; it is kept. "
            "Files of the graph are missing: restore them from a copy",
            code="invariant_violation",
            details={"sidecar": sidecar.file, "tables": bad},
        )
    if decision.action is Action.NOTHING:
        if mode == "forward" and not engine.sidecars.tells_the_dead:
            return _entry(sidecar, outcome="AlreadyPublished", tables=[])  # its writer may be about to delete it
        # A write of the origin left no commit of its own: the recovery's stands for it.
        commit = published or _publish(engine, sidecar, "RolledForward", [], {})
        return _finish(engine, held, sidecar, commit, "RolledForward", "AlreadyPublished")
    if decision.action is Action.ROLL_BACK:
        if mode == "forward" and (decision.tables or not engine.sidecars.tells_the_dead):
            # Nothing moved yet: on a store its writer may live and go on; that blocks nobody.
            return None if decision.tables else _entry(sidecar, outcome="NothingMoved", tables=[])
        return roll_back(engine, held, sidecar, decision)
    return _roll_forward(engine, held, sidecar, decision)


def _completed(sidecar: Sidecar, state: ManifestState) -> Sidecar:
    """Sidecars of the origin name no inherited lineage: it is that of the pin which has the expected version."""
    if sidecar.marked:
        return sidecar
    tables = []
    for table in sidecar.tables:
        ref = state.tables.get(table.table_key)
        known = ref is not None and ref.version == table.expected_version
        tables.append(replace(table, expected_branch=ref.branch) if known and ref is not None else table)
    return replace(sidecar, tables=tuple(tables))


def observe(engine: Engine, state: ManifestState, sidecar: Sidecar, table: SidecarTable) -> Observed:
    ref = state.tables.get(table.table_key)
    if ref is None:
        return Observed(None, None)
    dataset = engine.store.latest_or_none(ref.location, table.table_branch)
    if dataset is None:
        return Observed(pin_of(ref), None)
    head = int(dataset.version)
    own = ref.branch == table.table_branch
    pinned = ref.version if own else table.expected_version
    ours: bool | None = None
    if sidecar.marked and head > pinned:
        if own and sidecar.writer_kind not in CHANGES_NO_ROW:  # what others compact beside a write isn't what it did
            pinned = neutral_upto(dataset, pinned, head)
        with lance_errors(f"reading what moved {table.table_key}"):
            mark = mark_of(dataset, pinned + 1) if head > pinned else None
        ours = mark == sidecar.name if mark else None
        expected = table.expected_version
        if ours and own and expected < pinned and neutral(dataset, expected, pinned):
            # Others joined files or built indexes below it: its own versions are counted without theirs.
            head, pinned = head - (pinned - expected), expected
    return Observed((ref.branch, pinned if own else ref.version), head, ours)


def _still_valid(state: ManifestState, sidecar: Sidecar) -> bool:
    return all(pin_of(state.tables.get(k)) == p for k, p in sidecar.reads.items()) and (
        sidecar.schema_hash is None or state.head.schema_hash in (None, sidecar.schema_hash)
    )


def _roll_forward(engine: Engine, held: Held, sidecar: Sidecar, decision: Decision) -> dict[str, Any]:
    refs: list[TableRef] = []
    state = engine.manifest.current(sidecar.branch)
    expected = _pins(sidecar, state)
    if sidecar.writer_kind is WriterKind.SCHEMA_APPLY:
        refs, registrations, gone = to_publish(engine, state, sidecar)
        commit = _publish(engine, sidecar, "RolledForward", refs, expected | dict(sidecar.reads), registrations, gone)
        return _finish(engine, held, sidecar, commit, "RolledForward", tables=[ref.table_key for ref in refs])
    for table in sidecar.tables:
        if table.table_key not in decision.tables:
            continue
        ref = state.tables[table.table_key]
        dataset = engine.store.latest(ref.location, table.table_branch)
        if sidecar.writer_kind in CHANGES_NO_ROW:
            # A write that lives may have moved the table since, and may still undo itself: that isn't published here.
            begun = ref.version if ref.branch == table.table_branch else table.expected_version
            upto = neutral_upto(dataset, begun, int(dataset.version))
            if upto < int(dataset.version):
                dataset = engine.store.version(ref.location, table.table_branch, upto)
        refs.append(
            TableRef(ref.table_key, ref.location, table.table_branch, int(dataset.version), dataset.count_rows())
        )
    commit = _publish(engine, sidecar, "RolledForward", refs, expected | dict(sidecar.reads))
    return _finish(engine, held, sidecar, commit, "RolledForward", tables=list(decision.tables))


def give_up(engine: Engine, held: Held, sidecar: Sidecar, error: BaseException, known: Collection[str] = ()) -> None:
    """Undo what a write that failed has done, and settle its sidecar; if even that fails, leave it and say so.

    Args:
        error: why it failed; a second failure is noted on it.
        known: tables that it remembers to have moved.
    """
    try:
        state = engine.manifest.current(sidecar.branch) if engine.manifest.exists(sidecar.branch) else None
        if state is not None:
            if engine.history.find_operation(sidecar.branch, sidecar.operation_id, state.head) is not None:
                return  # it was published after all: a sweep follows it up, writes the audit and deletes the file
            # A commit may have landed though its answer was lost: ask the table, not only the writer's memory.
            moved = tuple(
                t.table_key for t in sidecar.tables if t.table_key in known or observe(engine, state, sidecar, t).ours
            )
            if moved:
                roll_back(engine, held, sidecar, Decision(Action.ROLL_BACK, "RolledBack", moved))
                return
        # Nothing moved, or the branch is gone with all that could have: as if it had never been tried.
        if sidecar.writer_kind is WriterKind.SCHEMA_APPLY:
            scrap(engine, sidecar)
        held.remove()
    except OmniGraphError as second:
        error.add_note(
            f"undoing it failed too ({second.message}); {sidecar.file} is left: "
            f"run `omnigraph recover {engine.store.root.uri}`"
        )
    finally:
        held.release()


def tidy(engine: Engine, held: Held, sidecar: Sidecar, done: CommitInfo) -> None:
    """After the publish: do what follows it. A failure from here on must not be answered as a failed write."""
    try:
        if sidecar.writer_kind is WriterKind.SCHEMA_APPLY:
            finish(engine, sidecar)
        held.remove()
    except OmniGraphError as error:
        log.warning("commit %s is published; the rest is left for a sweep: %s", done.id, error.message)
    finally:
        held.release()


def roll_back(engine: Engine, held: Held, sidecar: Sidecar, decision: Decision) -> dict[str, Any]:
    """Restore what moved, publish the restored heads, audit, delete the sidecar."""
    for attempt in range(ATTEMPTS):
        try:
            commit, outcomes = _restore(engine, sidecar, decision)
            break
        except ExpectedVersionMismatch:  # a compaction below what moved has been published meanwhile
            if attempt + 1 == ATTEMPTS:
                raise
    return _finish(engine, held, sidecar, commit, "RolledBack", tables=outcomes)


def _restore(engine: Engine, sidecar: Sidecar, decision: Decision) -> tuple[CommitInfo, list[dict[str, Any]]]:
    state = engine.manifest.current(sidecar.branch)
    refs: list[TableRef] = []
    outcomes: list[dict[str, Any]] = []
    for table in sidecar.tables:
        if table.table_key not in decision.tables:
            continue
        ref = state.tables[table.table_key]
        if ref.branch != table.table_branch and (
            engine.store.latest_or_none(ref.location, table.table_branch) is None
            or delete_fork(
                engine.store,
                engine.manifest,
                engine.sidecars,
                ref.table_key,
                ref.location,
                sidecar.branch,
                sidecar.name,
            )
        ):
            outcomes.append({"table_key": ref.table_key, "fork": table.table_branch, "to": None})
            continue
        with lance_errors(f"restoring {ref.table_key} to version {ref.version}"):
            head = int(engine.store.latest(ref.location, table.table_branch).version)
            dataset = engine.store.version(ref.location, table.table_branch, ref.version)
            dataset.restore()
        reach(Step.RECOVERY_RESTORED)
        restored = int(dataset.version)
        refs.append(TableRef(ref.table_key, ref.location, table.table_branch, restored, dataset.count_rows()))
        outcomes.append({"table_key": ref.table_key, "from": head, "to": ref.version, "now": restored})
    pins = {ref.table_key: pin_of(state.tables[ref.table_key]) for ref in refs}
    return _publish(engine, sidecar, "RolledBack", refs, pins), outcomes


def _pins(sidecar: Sidecar, state: ManifestState) -> dict[str, Pin | None]:
    """The pins a roll forward publishes upon: a table's own lineage as it was classified, else what it forked from."""
    if sidecar.writer_kind in CHANGES_NO_ROW:
        return {}
    pins = {t.table_key: pin_of(state.tables.get(t.table_key)) for t in sidecar.tables}
    forked = [t for t in sidecar.tables if (pin := pins[t.table_key]) is None or pin[0] != t.table_branch]
    return pins | {t.table_key: (t.expected_branch, t.expected_version) for t in forked}


def _publish(
    engine: Engine,
    sidecar: Sidecar,
    kind: str,
    refs: Sequence[TableRef],
    expected: Mapping[str, Pin | None],
    registrations: Mapping[str, str] | None = None,
    tombstones: Sequence[TableRef] = (),
) -> CommitInfo:
    change = sidecar.schema_change if kind == "RolledForward" else None
    draft = CommitDraft(
        id=new_ulid(),
        actor=RECOVERY_ACTOR,
        operation_id=sidecar.operation_id,
        schema_hash=change.schema_hash if change else None,
        schema_ir=change.schema_ir if change else None,
        recovery_kind=kind,
        merged_parent=sidecar.merge_source if kind == "RolledForward" else None,
        extra={"recovered_sidecar": sidecar.name, "recovered_actor": sidecar.actor_id},
    )
    commit = publish(
        engine.manifest,
        engine.history,
        sidecar.branch,
        draft,
        refs,
        expected=expected,
        already=lambda state: engine.history.find_recovery(sidecar.branch, sidecar.name, state.head),
        registrations=registrations,
        tombstones=tombstones,
        attempts=RECOVERY_ATTEMPTS,
    )
    reach(Step.RECOVERY_PUBLISHED)
    return commit


def _finish(
    engine: Engine,
    held: Held,
    sidecar: Sidecar,
    commit: CommitInfo,
    kind: str,
    outcome: str | None = None,
    tables: Sequence[Any] = (),
) -> dict[str, Any]:
    # The head row may be all there is of the newest commit: its writer died before history's row.
    engine.history.fill_gap(engine.manifest.current(sidecar.branch).head, sidecar.branch)
    if sidecar.writer_kind is WriterKind.SCHEMA_APPLY:
        (finish if kind == "RolledForward" else scrap)(engine, sidecar)
    _audit(engine, sidecar, commit.id, kind, list(tables))
    reach(Step.RECOVERY_AUDITED)
    held.remove()
    return _entry(sidecar, outcome=outcome or kind, tables=list(tables))


def _audit(engine: Engine, sidecar: Sidecar, commit_id: str, kind: str, outcomes: object) -> None:
    engine.history.audit(
        commit_id=commit_id,
        kind=kind,
        actor=sidecar.actor_id,
        operation_id=sidecar.operation_id,
        writer_kind=sidecar.writer_kind.value,
        outcomes=outcomes,
    )


def heal(engine: Engine, branch: str) -> None:
    """What every write does first: roll forward the branch's dead writers; refuse beside one that needs a roll-back.

    Raises:
        RecoveryPending: naming the file and the command.
    """
    engine.manifest.prepare(branch)
    if not [n for n in engine.sidecars.names() if n not in engine.sidecars.own]:
        return
    until = time.monotonic() + (0 if engine.sidecars.tells_the_dead else LIVING_SECONDS)
    while True:
        report = sweep(engine, "forward", branch=branch)
        blocked = [p for p in report.pending if p["reason"] == "NeedsRollBack"]
        if not blocked:
            return
        if time.monotonic() >= until:
            raise pending_error(engine.store.root.uri, branch, blocked)
        time.sleep(0.2)  # a writer half way through its tables, and it may live
