"""Settle the sidecars of dead writers: observe, decide (in `recovery`), carry out, audit, delete."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import lance

from omnigraph.errors import Conflict, ExpectedVersionMismatch, Internal, OmniGraphError, RecoveryPending
from omnigraph.storage.drift import mark_of, neutral, neutral_upto
from omnigraph.storage.engine import Engine
from omnigraph.storage.files import LocalFiles, clear_dead_folders
from omnigraph.storage.forks import delete_fork
from omnigraph.storage.layout import MAIN, STAGING
from omnigraph.storage.manifest import ManifestState, Pin, pin_of
from omnigraph.storage.recovery import CHANGES_NO_ROW, Action, Decision, Observed, TableClass, classify, decide
from omnigraph.storage.schema_settle import drop_lock, finish, follow_schema, promotable, scrap, to_publish
from omnigraph.storage.sidecar import Held, Sidecar, SidecarTable
from omnigraph.storage.steps import Step, reach
from omnigraph.storage.translate import lance_errors
from omnigraph.storage.types import CommitInfo, SweepReport, TableRef, WriterKind
from omnigraph.ulids import new_ulid

# What publishes is imported where something is: most openings find nothing to settle.

__all__ = [
    "RECOVERY_ACTOR",
    "follow_head",
    "give_up",
    "heal",
    "observe",
    "pending_error",
    "published_before",
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
            outcome = _settle_still(engine, held, sidecar, mode)
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


def _settle_still(engine: Engine, held: Held, sidecar: Sidecar, mode: str) -> dict[str, Any] | None:
    """Settle a sidecar, anew where another process moved what had been looked at."""
    from omnigraph.storage.publish import ATTEMPTS

    for _ in range(ATTEMPTS):
        with suppress(ExpectedVersionMismatch):
            return settle(engine, held, sidecar, mode)
    return settle(engine, held, sidecar, mode)


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
        # A sweep got as far as its publish: what it decided stands.
        kind = done.recovery_kind or "RolledBack"
        if kind != "RolledBack" or engine.sidecars.tells_the_dead:
            return _finish(engine, held, sidecar, done, kind)
        seen = {t.table_key: observe(engine, state, sidecar, t) for t in sidecar.tables}
        moved = {*_ahead(state, sidecar, seen), *(key for key, observed in seen.items() if observed.ours)}
        if moved and mode == "forward":
            return None
        tables = _restore_and_publish(engine, sidecar, moved, decided=True)[1] if moved else ()
        return _finish(engine, held, sidecar, done, kind, tables=tables)
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
        commit, restored = roll_back(engine, sidecar, {*decision.tables, *_ahead(state, sidecar, seen)})
        if commit.recovery_kind != "RolledBack":
            return settle(engine, held, sidecar, mode)
        return _finish(engine, held, sidecar, commit, "RolledBack", tables=restored)
    commit, published_keys = _roll_forward(engine, state, sidecar, decision, seen)
    if commit.recovery_kind != "RolledForward":  # its writer was alive, and has published or given up meanwhile
        return settle(engine, held, sidecar, mode)
    return _finish(engine, held, sidecar, commit, "RolledForward", tables=published_keys)


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
    return Observed((ref.branch, pinned if own else ref.version), head, ours, int(dataset.version))


def _still_valid(state: ManifestState, sidecar: Sidecar) -> bool:
    return (
        all(pin_of(state.tables.get(k)) == p for k, p in sidecar.reads.items())
        and (sidecar.schema_hash is None or state.head.schema_hash in (None, sidecar.schema_hash))
        and sidecar.expected_head in (None, state.head.id)
    )


def _roll_forward(
    engine: Engine, state: ManifestState, sidecar: Sidecar, decision: Decision, seen: Mapping[str, Observed]
) -> tuple[CommitInfo, list[str]]:
    """Publish the versions that were looked at, upon the state they were looked at in.

    Returns:
        The commit that decides over the write, another process's too, and the tables it was to publish.
    """
    expected = _pins(sidecar, state) | dict(sidecar.reads)
    refs: list[TableRef] = []
    if sidecar.writer_kind is WriterKind.SCHEMA_APPLY:
        versions = {key: observed.version for key, observed in seen.items()}
        refs, registrations, gone = to_publish(engine, state, sidecar, versions)
        commit = _publish(engine, sidecar, "RolledForward", refs, expected, registrations, gone)
        return commit, [ref.table_key for ref in refs]
    for table in sidecar.tables:
        if table.table_key not in decision.tables:
            continue
        ref, version = state.tables[table.table_key], seen[table.table_key].version
        assert version is not None
        dataset = engine.store.version(ref.location, table.table_branch, version)
        if sidecar.writer_kind in CHANGES_NO_ROW:
            # A write that lives may have moved the table since, and may still undo itself: that isn't published here.
            begun = ref.version if ref.branch == table.table_branch else table.expected_version
            upto = neutral_upto(dataset, begun, version)
            if upto < version:
                dataset = engine.store.version(ref.location, table.table_branch, upto)
        refs.append(
            TableRef(ref.table_key, ref.location, table.table_branch, int(dataset.version), dataset.count_rows())
        )
    return _publish(engine, sidecar, "RolledForward", refs, expected), list(decision.tables)


def give_up(
    engine: Engine, held: Held, sidecar: Sidecar, error: BaseException, known: Collection[str] = ()
) -> CommitInfo | None:
    """Undo what a write that failed has done, and settle its sidecar; if even that fails, leave it and say so.

    Args:
        error: why it failed; a second failure is noted on it.
        known: tables that it remembers to have moved.

    Returns:
        The commit, if the write was published after all: its answer was lost, or a sweep took it for dead.
    """
    try:
        state = engine.manifest.current(sidecar.branch) if engine.manifest.exists(sidecar.branch) else None
        if state is not None:
            done = _decided(engine, sidecar, state)
            # A commit may have landed though its answer was lost: ask the table, not only the writer's memory.
            moved = tuple(
                t.table_key
                for t in sidecar.tables
                if done is None and (t.table_key in known or observe(engine, state, sidecar, t).ours)
            )
            if moved:
                done, restored = roll_back(engine, sidecar, moved)
                if done.recovery_kind == "RolledBack":
                    _finish(engine, held, sidecar, done, "RolledBack", tables=restored)
                    return None
            if done is not None:
                if done.recovery_kind == "RolledBack":
                    return None  # what a sweep decided, a sweep finishes
                tidy(engine, held, sidecar, done)
                return done
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
    return None


def _decided(engine: Engine, sidecar: Sidecar, state: ManifestState) -> CommitInfo | None:
    """The commit that has decided over a write: a sweep's either way, or, of a writer of ours, its own publish."""
    done = engine.history.find_recovery(sidecar.branch, sidecar.name, state.head)
    if done is None and sidecar.marked:
        done = engine.history.find_operation(sidecar.branch, sidecar.operation_id, state.head)
    return done


def published_before(engine: Engine, sidecar: Sidecar, begun: CommitInfo, state: ManifestState) -> CommitInfo | None:
    """For the writer's own publish, where nothing tells others that it lives: the commit, if a sweep made it instead.

    Args:
        begun: the head before the sidecar was written: while it stands nobody has decided.

    Raises:
        Conflict: a sweep has decided to undo the write.
    """
    if engine.sidecars.tells_the_dead or state.head.id == begun.id:
        return None
    done = _decided(engine, sidecar, state)
    if done is not None and done.recovery_kind == "RolledBack":
        undone = Conflict(
            f"a recovery took this write for dead and has undone it ({sidecar.file}): try again",
            code="write_undone",
            details={"operation_id": sidecar.operation_id, "commit": done.id},
        )
        undone.retryable = True
        raise undone
    return done


def tidy(engine: Engine, held: Held, sidecar: Sidecar, done: CommitInfo) -> None:
    """After the publish: do what follows it. A failure from here on must not be answered as a failed write."""
    try:
        if sidecar.writer_kind is WriterKind.SCHEMA_APPLY:
            finish(engine, sidecar)
        if done.recovery_kind is None:  # what a sweep published, a sweep writes the audit of
            held.remove()
    except OmniGraphError as error:
        log.warning("commit %s is published; the rest is left for a sweep: %s", done.id, error.message)
    finally:
        held.release()


def roll_back(engine: Engine, sidecar: Sidecar, moved: Collection[str]) -> tuple[CommitInfo, list[dict[str, Any]]]:
    """Restore what moved and publish the restored heads.

    Where nothing tells the dead, a sweep beside us may be about to roll the same write forward, and writes may follow
    upon that: the decision is published first, and nothing is restored once the other one stands.

    Returns:
        The commit that decides over the write, which may be another process's, and what was restored.
    """
    if engine.sidecars.tells_the_dead:
        return _restore_and_publish(engine, sidecar, moved, decided=False)
    commit = _publish(engine, sidecar, "RolledBack", [], {})
    reach(Step.RECOVERY_DECIDED)
    if commit.recovery_kind != "RolledBack":
        return commit, []
    return commit, _restore_and_publish(engine, sidecar, moved, decided=True)[1]


def _restore_and_publish(
    engine: Engine, sidecar: Sidecar, moved: Collection[str], *, decided: bool
) -> tuple[CommitInfo, list[dict[str, Any]]]:
    from omnigraph.storage.publish import ATTEMPTS

    for attempt in range(ATTEMPTS):
        state = engine.manifest.current(sidecar.branch)
        tables = [t for t in sidecar.tables if t.table_key in moved]
        restored = [_restored(engine, state.tables[t.table_key], sidecar, t) for t in tables]
        refs = [ref for ref, _ in restored if ref is not None]
        pins = {ref.table_key: pin_of(state.tables[ref.table_key]) for ref in refs}
        try:
            if not decided:
                commit = _publish(engine, sidecar, "RolledBack", refs, pins)
            else:
                commit = _publish_heads(engine, sidecar, refs, pins) if refs else state.head
        except ExpectedVersionMismatch:  # a compaction below what moved has been published meanwhile
            if attempt + 1 == ATTEMPTS:
                raise
            continue
        return commit, [outcome for _, outcome in restored]
    raise Internal("a restored head was never published")


def _restored(
    engine: Engine, ref: TableRef, sidecar: Sidecar, table: SidecarTable
) -> tuple[TableRef | None, dict[str, Any]]:
    """A table with the rows of its pin at its head, and what was done for it. None: there is no head to publish."""
    key, own = ref.table_key, ref.branch == table.table_branch
    dataset = engine.store.latest_or_none(ref.location, table.table_branch)
    if not own and (dataset is None or _fork_deleted(engine, sidecar, ref)):
        return None, {"table_key": key, "fork": table.table_branch, "to": None}
    if dataset is None:
        dataset = engine.store.latest(ref.location, table.table_branch)  # to fail in words
    head = int(dataset.version)
    same = neutral_upto(dataset, ref.version, head)
    if same != head and _anothers(dataset, same + 1, sidecar):
        head, dataset = same, engine.store.version(ref.location, table.table_branch, same)
    if own and head == ref.version:
        return None, {"table_key": key, "from": head, "to": head, "now": head}
    if same != head:
        with lance_errors(f"restoring {key} to version {ref.version}"):
            dataset = engine.store.version(ref.location, table.table_branch, ref.version)
            dataset.restore()
        reach(Step.RECOVERY_RESTORED)
    now = int(dataset.version)
    restored = TableRef(key, ref.location, table.table_branch, now, dataset.count_rows())
    return restored, {"table_key": key, "from": head, "to": ref.version, "now": now}


def _anothers(dataset: lance.LanceDataset, version: int, sidecar: Sidecar) -> bool:
    """Whether a version is of another write, which may live: it has come since we looked, and isn't ours to undo."""
    with lance_errors("reading whose a version is"):
        return sidecar.marked and mark_of(dataset, version) not in (None, sidecar.name)


def _fork_deleted(engine: Engine, sidecar: Sidecar, ref: TableRef) -> bool:
    parts = (engine.store, engine.manifest, engine.sidecars)
    return delete_fork(*parts, ref.table_key, ref.location, sidecar.branch, sidecar.name)


def _ahead(state: ManifestState, sidecar: Sidecar, seen: Mapping[str, Observed]) -> tuple[str, ...]:
    """Tables whose head has the rows of the pin, but not its number: restored already, or compacted by others."""
    out = []
    for table in sidecar.tables:
        ref, observed = state.tables.get(table.table_key), seen[table.table_key]
        if ref is None or observed.version is None or observed.pin is None or ref.branch != table.table_branch:
            continue
        if observed.version > ref.version and observed.head == observed.pin[1]:
            out.append(table.table_key)
    return tuple(out)


def _pins(sidecar: Sidecar, state: ManifestState) -> dict[str, Pin | None]:
    """The pins a roll forward publishes upon: a table's own lineage as it was classified, else what it forked from."""
    pins = {t.table_key: pin_of(state.tables.get(t.table_key)) for t in sidecar.tables}
    if sidecar.writer_kind in CHANGES_NO_ROW:
        return pins
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
    from omnigraph.storage.publish import CommitDraft, publish

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
        already=lambda state: _decided(engine, sidecar, state),
        check=lambda state: _check_valid(sidecar, state) if kind == "RolledForward" else None,
        registrations=registrations,
        tombstones=tombstones,
        attempts=RECOVERY_ATTEMPTS,
    )
    reach(Step.RECOVERY_PUBLISHED)
    return commit


def _check_valid(sidecar: Sidecar, state: ManifestState) -> None:
    """Right before a roll forward: what the write relied on hasn't moved since it was looked at."""
    if not _still_valid(state, sidecar):
        raise ExpectedVersionMismatch("the branch's head or schema", sidecar.file, state.head.id)


def _publish_heads(
    engine: Engine, sidecar: Sidecar, refs: Sequence[TableRef], pins: Mapping[str, Pin | None]
) -> CommitInfo:
    """Publish restored heads: the rows are those of the pins, so the operation isn't named again."""
    from omnigraph.storage.publish import CommitDraft, publish

    draft = CommitDraft(new_ulid(), RECOVERY_ACTOR, None, None, extra={"heads_of_sidecar": sidecar.name})
    return publish(
        engine.manifest,
        engine.history,
        sidecar.branch,
        draft,
        refs,
        expected=pins,
        already=lambda _: None,
        attempts=RECOVERY_ATTEMPTS,
    )


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
