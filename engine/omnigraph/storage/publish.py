"""One write to `__manifest` makes a graph commit visible (01 §1.5)."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from datetime import UTC, datetime
from typing import Any

import lance

from omnigraph.errors import Conflict, ExpectedVersionMismatch, Internal, RowLevelCasContention
from omnigraph.records import dataclass
from omnigraph.storage.formats import migrate
from omnigraph.storage.history import History, compact, may_compact
from omnigraph.storage.manifest import (
    Manifest,
    ManifestState,
    Pin,
    Row,
    RowPlace,
    head_id,
    head_row,
    overlay,
    pin_of,
    registration_row,
    tombstone_row,
    version_row,
)
from omnigraph.storage.manifest_write import StagedRows, commit_rows, find_rows, stage_rows
from omnigraph.storage.steps import Step, reach
from omnigraph.storage.translate import is_commit_race, lance_errors, scrub
from omnigraph.storage.types import CommitInfo, TableRef

__all__ = ["ATTEMPTS", "CommitDraft", "Ready", "check_expected", "check_same", "make_ready", "publish"]

log = logging.getLogger(__name__)

ATTEMPTS = 5
"""How often a publish that lost the race for the head row reads again and re-checks."""


@dataclass(frozen=True, slots=True)
class CommitDraft:
    """A commit before its place in history is known."""

    id: str
    actor: str | None
    operation_id: str | None
    schema_hash: str | None
    recovery_kind: str | None = None
    merged_parent: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    schema_ir: str | None = None

    def after(self, head: CommitInfo, branch: str, version: int) -> CommitInfo:
        now = datetime.now(UTC)
        return CommitInfo(
            id=self.id,
            branch=branch,
            manifest_version=version,
            parents=(head.id,) if self.merged_parent is None else (head.id, self.merged_parent),
            # Clocks go back; history's times don't, or travelling by time would miss commits.
            created_at=max(now, head.created_at),
            actor=self.actor,
            operation_id=self.operation_id,
            schema_hash=self.schema_hash or head.schema_hash,
            recovery_kind=self.recovery_kind,
            extra=self.extra,
            schema_ir=self.schema_ir or head.schema_ir,
        )


def check_expected(state: ManifestState, expected: Mapping[str, Pin | None], schema_hash: str | None) -> None:
    """Every table written or relied on still stands where it was read, and so does the schema.

    Raises:
        ExpectedVersionMismatch: one has moved.
        Conflict: the schema has changed.
    """
    for table_key, pin in expected.items():
        actual = pin_of(state.tables.get(table_key))
        if actual != pin:
            raise ExpectedVersionMismatch(table_key, _show(pin), _show(actual))
    if schema_hash is not None and state.head.schema_hash not in (None, schema_hash):
        moved = Conflict(
            "the graph's schema changed while this write was prepared: open it again and retry",
            code="schema_changed",
            details={"expected": schema_hash, "actual": state.head.schema_hash},
        )
        moved.retryable = True
        raise moved


def check_same(base: ManifestState, state: ManifestState, table_keys: Iterable[str]) -> None:
    """The pins that two states share are of the same commits: a branch deleted and made anew, or a graph, counts alike.

    Raises:
        ExpectedVersionMismatch: one was published by another commit.
    """
    for table_key in table_keys:
        was, now = base.tables.get(table_key), state.tables.get(table_key)
        if was is not None and now is not None and was.stamp != now.stamp:
            raise ExpectedVersionMismatch(
                table_key, [was.branch, was.version, was.stamp], [now.branch, now.version, now.stamp]
            )


def _show(pin: Pin | None) -> list[str | int | None] | None:
    return None if pin is None else list(pin)


def publish(
    manifest: Manifest,
    history: History,
    branch: str,
    draft: CommitDraft,
    refs: Sequence[TableRef],
    *,
    expected: Mapping[str, Pin | None],
    schema_hash: str | None = None,
    already: Callable[[ManifestState], CommitInfo | None],
    check: Callable[[ManifestState], None] | None = None,
    registrations: Mapping[str, str] | None = None,
    tombstones: Sequence[TableRef] = (),
    attempts: int = ATTEMPTS,
    ready: Ready | None = None,
) -> CommitInfo:
    """Publish `refs` as one commit on the branch.

    Args:
        expected: the pins of every table written or relied on.
        already: finds this very operation in a state that another process published, or None.
        check: one more condition on the state that is published upon; raises to refuse.
        registrations: table key → location of new tables.
        tombstones: tables that go, as they were last; a key that is among `refs` too only changes its table.
        attempts: how often to try when other commits come first.
        ready: what `make_ready` has written for this publish; it counts if it is what would be written now.

    Raises:
        ExpectedVersionMismatch, Conflict: the state moved; nothing was published.
        RowLevelCasContention: other commits won `attempts` times.
    """
    registrations = registrations or {}
    published = {r.table_key for r in refs}
    gone = [ref for ref in tombstones if ref.table_key not in published]
    if len(published) != len(refs) or len({ref.table_key for ref in gone}) != len(gone):
        raise Internal("a publish names a table twice")
    refs = [replace(ref, stamp=draft.id) for ref in refs]
    reach(Step.PUBLISH_BEFORE)
    history.afterwards.settle()  # a compaction of ours beside the merge would make it fail
    for attempt in range(attempts):
        if attempt or (ready is not None and (ready.refs != refs or manifest.current(branch) is not ready.state)):
            ready = None
        if ready is None:
            dataset = manifest.handle(branch)
            migrate(manifest.store, dataset)
            state = manifest.read(branch, dataset)
        else:
            dataset, state = ready.staged.manifest, ready.state
        done = already(state)
        if done is not None:
            return done
        check_expected(state, expected, schema_hash)
        if check is not None:
            check(state)
        if ready is None:
            commit = _next(history, draft, state)
            if commit.schema_hash is None:  # the first write of ours into a graph of the origin
                from omnigraph.storage.origin import adopt_schema

                commit = replace(commit, schema_hash=adopt_schema(manifest.store, state.tables))
        else:
            commit = ready.commit
        try:
            if ready is None:
                known = manifest.head_place(state)
                if known is not None and (registrations or gone or not _all_follow(refs, state)):
                    known = None
                rows = [
                    *(registration_row(key, location) for key, location in registrations.items()),
                    *(version_row(ref, manifest.store.path(ref.location, ref.branch)) for ref in refs),
                    *(tombstone_row(ref) for ref in gone),
                    head_row(commit),
                ]
                staged = _stage(dataset, rows, known)
            else:
                staged = ready.staged
            dataset, places = commit_rows(staged)
        except (OSError, RuntimeError, ValueError) as error:
            if not is_commit_race(error):
                settled = manifest.current(branch)
                if settled.head.id == draft.id:
                    _follow_up(history, settled.head, branch, None)
                    return settled.head
                with lance_errors(f"publishing on branch {branch}"):
                    raise
            time.sleep(random.uniform(0, 0.004 * 2 ** min(attempt, 5)))
            continue
        reach(Step.PUBLISH_DONE)
        if dataset.version == state.version + 1:
            after = overlay(state, int(dataset.version), refs, registrations, {r.table_key for r in gone}, commit)
            manifest.learn(after, dataset, places.get(head_id(branch)))
        else:  # something that isn't a commit of ours (a compaction) came in between
            commit = manifest.read(branch, dataset).head
        _follow_up(history, commit, branch, dataset)
        return commit
    raise RowLevelCasContention(branch, attempts)


@dataclass(frozen=True, slots=True)
class Ready:
    """The rows of a publish, written before the tables have moved: in all likelihood they move as foreseen.

    Args:
        state: what is published upon.
        refs: the pins as they are to be, with the commit's stamp.
    """

    state: ManifestState
    commit: CommitInfo
    refs: list[TableRef]
    staged: StagedRows


def make_ready(
    manifest: Manifest,
    history: History,
    branch: str,
    draft: CommitDraft,
    refs: Sequence[TableRef],
    state: ManifestState,
) -> Ready | None:
    """Write what `publish` would write upon this state, where that is known beforehand; nothing of it is visible.

    Returns:
        None where this process hasn't published the state, or where more than versions that follow is published.
    """
    head = manifest.head_place(state)
    if head is None or state.head.schema_hash is None or not _all_follow(refs, state):
        return None
    dataset = manifest.handle(branch)
    if manifest.current(branch) is not state or int(dataset.version) != state.version:
        return None
    refs = [replace(ref, stamp=draft.id) for ref in refs]
    commit = _next(history, draft, state)
    rows = [*(version_row(ref, manifest.store.path(ref.location, ref.branch)) for ref in refs), head_row(commit)]
    return Ready(state, commit, refs, _stage(dataset, rows, head))


def _next(history: History, draft: CommitDraft, state: ManifestState) -> CommitInfo:
    """The commit that follows a state, with those that its head row must carry on."""
    commit = draft.after(state.head, state.branch, state.version + 1)
    return replace(commit, unrecorded=history.carried(state.head, state.branch))


def _stage(dataset: lance.LanceDataset, rows: Sequence[Row], head: RowPlace | None) -> StagedRows:
    """Write the rows.

    Args:
        head: where the head row lies, if no other of the rows has an older one; else they are looked for.
    """
    ids = [row["object_id"] for row in rows]
    return stage_rows(dataset, rows, find_rows(dataset, ids) if head is None else {ids[-1]: [head]})


def _all_follow(refs: Sequence[TableRef], state: ManifestState) -> bool:
    return all(_follows(ref, state.tables.get(ref.table_key)) for ref in refs)


def _follows(ref: TableRef, last: TableRef | None) -> bool:
    """Whether a pin is of a later version of the lineage that was published last: then no row has its id."""
    if last is None or (ref.location, ref.branch) != (last.location, last.branch):
        return False
    return ref.version > last.version


def _follow_up(history: History, commit: CommitInfo, branch: str, dataset: lance.LanceDataset | None) -> None:
    """The write is durable; its history rows and the manifest's upkeep follow the answer.

    A failure here must not be answered as a failed write: the next publish carries the commit, or adds its rows.
    """
    history.put_off(commit)
    if dataset is None or not may_compact(dataset):
        return

    def job() -> None:
        try:
            compact(dataset)
        except (OSError, ValueError, RuntimeError) as error:
            log.warning("commit %s is published; compacting the manifest failed: %s", commit.id, scrub(str(error)))

    history.afterwards.do(job)
