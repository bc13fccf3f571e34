"""Undo what an interrupted write has moved: see how far it got, restore the tables, publish the restored heads."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import lance

from omnigraph.errors import ExpectedVersionMismatch, Internal
from omnigraph.storage.drift import mark_of, neutral, neutral_upto
from omnigraph.storage.engine import Engine
from omnigraph.storage.forks import delete_fork
from omnigraph.storage.manifest import ManifestState, pin_of
from omnigraph.storage.publish import ATTEMPTS
from omnigraph.storage.recovery import CHANGES_NO_ROW, Observed
from omnigraph.storage.recovery_commits import publish_decision, publish_heads
from omnigraph.storage.sidecar import Sidecar, SidecarTable
from omnigraph.storage.steps import Step, reach
from omnigraph.storage.translate import lance_errors
from omnigraph.storage.types import CommitInfo, TableRef

__all__ = ["ahead", "observe", "restore_and_publish", "roll_back"]


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


def roll_back(engine: Engine, sidecar: Sidecar, moved: Collection[str]) -> tuple[CommitInfo, list[dict[str, Any]]]:
    """Restore what moved and publish the restored heads.

    Where nothing tells the dead, a sweep beside us may be about to roll the same write forward, and writes may follow
    upon that: the decision is published first, and nothing is restored once the other one stands.

    Returns:
        The commit that decides over the write, which may be another process's, and what was restored.
    """
    if engine.sidecars.tells_the_dead:
        return restore_and_publish(engine, sidecar, moved, decided=False)
    commit = publish_decision(engine, sidecar, "RolledBack", [], {})
    reach(Step.RECOVERY_DECIDED)
    if commit.recovery_kind != "RolledBack":
        return commit, []
    return commit, restore_and_publish(engine, sidecar, moved, decided=True)[1]


def restore_and_publish(
    engine: Engine, sidecar: Sidecar, moved: Collection[str], *, decided: bool
) -> tuple[CommitInfo, list[dict[str, Any]]]:
    for attempt in range(ATTEMPTS):
        state = engine.manifest.current(sidecar.branch)
        tables = [t for t in sidecar.tables if t.table_key in moved]
        restored = [_restored(engine, state.tables[t.table_key], sidecar, t) for t in tables]
        refs = [ref for ref, _ in restored if ref is not None]
        pins = {ref.table_key: pin_of(state.tables[ref.table_key]) for ref in refs}
        try:
            if not decided:
                commit = publish_decision(engine, sidecar, "RolledBack", refs, pins)
            else:
                commit = publish_heads(engine, sidecar, refs, pins) if refs else state.head
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


def ahead(state: ManifestState, sidecar: Sidecar, seen: Mapping[str, Observed]) -> tuple[str, ...]:
    """Tables whose head has the rows of the pin, but not its number: restored already, or compacted by others."""
    out = []
    for table in sidecar.tables:
        ref, observed = state.tables.get(table.table_key), seen[table.table_key]
        if ref is None or observed.version is None or observed.pin is None or ref.branch != table.table_branch:
            continue
        if observed.version > ref.version and observed.head == observed.pin[1]:
            out.append(table.table_key)
    return tuple(out)
