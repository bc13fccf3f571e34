"""Settle the sidecars of dead writers: observe, decide (in `recovery`), carry out, audit, delete."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from omnigraph.errors import ExpectedVersionMismatch, Internal, RecoveryPending
from omnigraph.storage.drift import neutral_upto
from omnigraph.storage.engine import Engine
from omnigraph.storage.files import LocalFiles, clear_dead_folders
from omnigraph.storage.layout import MAIN, STAGING
from omnigraph.storage.manifest import ManifestState, Pin, pin_of
from omnigraph.storage.publish import ATTEMPTS
from omnigraph.storage.recovery import CHANGES_NO_ROW, Action, Decision, Observed, TableClass, classify, decide
from omnigraph.storage.recovery_commits import audit, conclude, entry, publish_decision, still_valid
from omnigraph.storage.schema_settle import drop_lock, follow_schema, promotable, scrap, to_publish
from omnigraph.storage.sidecar import Held, Sidecar
from omnigraph.storage.steps import Step, reach
from omnigraph.storage.types import CommitInfo, SweepReport, TableRef, WriterKind
from omnigraph.storage.undo import ahead, observe, restore_and_publish, roll_back

__all__ = ["follow_head", "heal", "pending_error", "settle", "sweep"]

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
                pending.append(entry(sidecar, reason="Live"))
            continue
        try:
            outcome = _settle_still(engine, held, sidecar, mode)
        finally:
            held.release()
        if outcome is None:
            pending.append(entry(sidecar, reason="NeedsRollBack"))
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
    engine.history.complete(engine.manifest.current(MAIN).head, MAIN)
    follow_schema(engine)


def pending_error(uri: str, branch: str, pending: Sequence[Mapping[str, Any]]) -> RecoveryPending:
    files = [p["sidecar"] for p in pending]
    return RecoveryPending(
        f"an interrupted write on branch {branch!r} must be rolled back first ({', '.join(files)}): "
        f"run `omnigraph recover {uri}`",
        sidecars=files,
    )


def _settle_still(engine: Engine, held: Held, sidecar: Sidecar, mode: str) -> dict[str, Any] | None:
    """Settle a sidecar, anew where another process moved what had been looked at."""
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
        audit(engine, sidecar, sidecar.name, "OrphanedBranchDiscarded", [])
        held.remove()
        return entry(sidecar, outcome="OrphanedBranchDiscarded", tables=[])
    state = engine.manifest.current(sidecar.branch)
    done = engine.history.find_recovery(sidecar.branch, sidecar.name, state.head)
    if done is not None:
        # A sweep got as far as its publish: what it decided stands.
        kind = done.recovery_kind or "RolledBack"
        if kind != "RolledBack" or engine.sidecars.tells_the_dead:
            return conclude(engine, held, sidecar, done, kind)
        seen = {t.table_key: observe(engine, state, sidecar, t) for t in sidecar.tables}
        moved = {*ahead(state, sidecar, seen), *(key for key, observed in seen.items() if observed.ours)}
        if moved and mode == "forward":
            return None
        tables = restore_and_publish(engine, sidecar, moved, decided=True)[1] if moved else ()
        return conclude(engine, held, sidecar, done, kind, tables=tables)
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
        still_valid=still_valid(state, sidecar),
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
            return entry(sidecar, outcome="AlreadyPublished", tables=[])  # its writer may be about to delete it
        # A write of the origin left no commit of its own: the recovery's stands for it.
        commit = published or publish_decision(engine, sidecar, "RolledForward", [], {})
        return conclude(engine, held, sidecar, commit, "RolledForward", "AlreadyPublished")
    if decision.action is Action.ROLL_BACK:
        if mode == "forward" and (decision.tables or not engine.sidecars.tells_the_dead):
            # Nothing moved yet: on a store its writer may live and go on; that blocks nobody.
            return None if decision.tables else entry(sidecar, outcome="NothingMoved", tables=[])
        commit, restored = roll_back(engine, sidecar, {*decision.tables, *ahead(state, sidecar, seen)})
        if commit.recovery_kind != "RolledBack":
            return settle(engine, held, sidecar, mode)
        return conclude(engine, held, sidecar, commit, "RolledBack", tables=restored)
    commit, published_keys = _roll_forward(engine, state, sidecar, decision, seen)
    if commit.recovery_kind != "RolledForward":  # its writer was alive, and has published or given up meanwhile
        return settle(engine, held, sidecar, mode)
    return conclude(engine, held, sidecar, commit, "RolledForward", tables=published_keys)


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
        commit = publish_decision(engine, sidecar, "RolledForward", refs, expected, registrations, gone)
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
    return publish_decision(engine, sidecar, "RolledForward", refs, expected), list(decision.tables)


def _pins(sidecar: Sidecar, state: ManifestState) -> dict[str, Pin | None]:
    """The pins a roll forward publishes upon: a table's own lineage as it was classified, else what it forked from."""
    pins = {t.table_key: pin_of(state.tables.get(t.table_key)) for t in sidecar.tables}
    if sidecar.writer_kind in CHANGES_NO_ROW:
        return pins
    forked = [t for t in sidecar.tables if (pin := pins[t.table_key]) is None or pin[0] != t.table_branch]
    return pins | {t.table_key: (t.expected_branch, t.expected_version) for t in forked}


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
