"""The writer that changes a branch's schema (02 "Apply", 07 §8).

Sidecar, lock, staged copies of the new schema, tables, one publish of tables, registrations, tombstones and the hash
of the schema together; then the copies are promoted, the lock goes, and the sidecar. A kill anywhere leaves the old
schema or the new one; see `schema_settle` for what a sweep does with the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from functools import partial

import pyarrow as pa

from omnigraph.errors import Conflict, ExpectedVersionMismatch, NotFound
from omnigraph.records import dataclass
from omnigraph.schema.catalog import Catalog
from omnigraph.schema.ir import SchemaIR
from omnigraph.storage.branch import list_branches
from omnigraph.storage.commit import settle_drift
from omnigraph.storage.engine import Engine
from omnigraph.storage.evolution import TableEvolution, commits_of, evolve
from omnigraph.storage.forks import fork_lock
from omnigraph.storage.layout import MAIN, check_operation_id, free_location, lance_branch
from omnigraph.storage.manifest import ManifestState, Pin, pin_of
from omnigraph.storage.own_write import give_up, published_before, tidy
from omnigraph.storage.publish import CommitDraft, check_expected, check_same, publish
from omnigraph.storage.schema_settle import applies, take_lock, to_publish
from omnigraph.storage.schemas import remember, stage_copies, write_schema
from omnigraph.storage.sidecar import SchemaChangeNote, Sidecar, SidecarTable, now_text
from omnigraph.storage.snapshot import Snapshot
from omnigraph.storage.steps import Step, reach
from omnigraph.storage.store import create_dataset
from omnigraph.storage.sweep import heal
from omnigraph.storage.translate import lance_errors
from omnigraph.storage.types import CommitInfo, TableRef, WriterKind
from omnigraph.ulids import new_ulid

__all__ = ["SchemaChange", "apply_schema"]

log = logging.getLogger(__name__)

WAIT_SECONDS = 5.0
"""How long a change waits for branches that are being made or get their first write."""


@dataclass(frozen=True)
class SchemaChange:
    """Everything one schema apply wants to become visible at once.

    Args:
        branch: the graph branch.
        catalog, ir: the desired schema.
        tables: what happens to tables that are there; at most one entry a table.
        new: columns of the tables to make, by key.
        reads: table keys whose rows a new constraint was checked on; pinned by the publisher.
        operation_id: ULID of the change; the same id submitted again changes nothing.
        actor: who asked, or None.
    """

    branch: str
    catalog: Catalog
    ir: SchemaIR
    tables: tuple[TableEvolution, ...] = ()
    new: Mapping[str, pa.Schema] | None = None
    reads: frozenset[str] = frozenset()
    operation_id: str = ""
    actor: str | None = None


def apply_schema(engine: Engine, change: SchemaChange, base: ManifestState) -> CommitInfo:
    """Make the change visible as one commit, or nothing of it.

    Args:
        base: the snapshot the change was prepared on.

    Raises:
        Conflict: other branches have another schema, the branch reads a table to be changed from another one, another
            change is under way, or the state moved.
        RecoveryPending: an interrupted write on this branch needs `omnigraph recover` first.
    """
    branch = change.branch
    operation_id = check_operation_id(change.operation_id) if change.operation_id else ""
    keys = {*base.tables, *(change.new or {}), *(t.key_after for t in change.tables)}
    with engine.queued(branch, keys):
        heal(engine, branch)
        state = engine.manifest.current(branch)
        name = operation_id or new_ulid()
        if operation_id:
            done = engine.history.find_operation(branch, operation_id, state.head)
            if done is not None:
                engine.history.complete(state.head, branch)
                return done
            if engine.history.find_recovery(branch, name, state.head) is not None:
                name = new_ulid()  # an attempt of this name was rolled back: a sweep must not take ours for it
        pins = {key: pin_of(base.tables.get(key)) for key in (*(t.table_key for t in change.tables), *change.reads)}
        _check_still(change, base, state)
        check_expected(state, pins, base.head.schema_hash)
        check_same(base, state, pins)
        check_branches(engine, branch, change.ir.identity)
        refs = {}
        for table in change.tables:
            ref = state.tables[table.table_key]
            if ref.branch != lance_branch(branch):
                owner = ref.branch or MAIN
                raise Conflict(
                    f"branch {branch!r} reads {table.table_key} from {owner!r}, so it can't be changed there: make a "
                    f"branch of {owner!r} as it is now, and load the export of {branch!r} into that with mode merge",
                    code="inherited_table",
                    details={"branch": branch, "table_key": table.table_key, "owner": owner},
                )
            refs[table.table_key] = settle_drift(engine, branch, ref)
        return _Apply(engine, change, base, refs, pins, name, operation_id or name).run()


def _check_still(change: SchemaChange, base: ManifestState, state: ManifestState) -> None:
    """The branch has the schema the change was planned on."""
    if state.head.schema_hash != base.head.schema_hash or state.head.schema_ir != base.head.schema_ir:
        error = Conflict(
            f"the schema of branch {change.branch!r} changed while this change was prepared: plan again",
            code="schema_changed",
            details={"expected": base.head.schema_hash, "actual": state.head.schema_hash},
        )
        error.retryable = True
        raise error


def check_branches(engine: Engine, branch: str, identity: str) -> None:
    """Refuse a change that would leave other branches with another schema: they couldn't be merged any more.

    Raises:
        Conflict: naming them.
    """
    others = []
    for info in list_branches(engine):
        with suppress(NotFound):  # deleted since it was listed
            state = engine.manifest.current(info.name)
            if info.name != branch and Snapshot(engine, state).schema_ir.identity != identity:
                others.append(info.name)
    if others:
        shown = ", ".join(others[:5]) + (f" and {len(others) - 5} more" if len(others) > 5 else "")
        raise Conflict(
            f"the schema of {branch!r} can't change while other branches live that would keep theirs ({shown}): "
            "merge and delete them first, then apply again",
            code="branches_exist",
            details={"branch": branch, "others": others},
        )


class _Apply:
    """One schema change under way."""

    def __init__(
        self,
        engine: Engine,
        change: SchemaChange,
        base: ManifestState,
        refs: Mapping[str, TableRef],
        pins: dict[str, Pin | None],
        name: str,
        operation_id: str,
    ) -> None:
        self.engine, self.change, self.base, self.refs, self.pins = engine, change, base, refs, pins
        self.branch, self.lineage = change.branch, lance_branch(change.branch)
        self.accepted = base.head.schema_hash or self._adopt()
        write_schema(engine.store.files, change.catalog, change.ir)
        reach(Step.SCHEMA_KEPT)
        new = self._locations()
        self.new = new
        renamed = {t.renamed_to: refs[t.table_key].location for t in change.tables if t.renamed_to}
        moves, ends = [], {}
        for table in change.tables:
            ref = refs[table.table_key]
            with lance_errors(f"reading {table.table_key}"):
                count = len(commits_of(engine.store.pinned(ref), table))
            pin = ref.version + count
            moves.append(SidecarTable(ref.table_key, ref.location, ref.version, pin, ref.branch, self.lineage))
            if table.gone or table.renamed_to:
                ends[table.table_key] = pin
        purged = {refs[t.table_key].location: None for t in change.tables if t.purge}
        self.sidecar = Sidecar(
            name=name,
            operation_id=operation_id,
            started_at=now_text(),
            branch=change.branch,
            actor_id=change.actor,
            writer_kind=WriterKind.SCHEMA_APPLY,
            tables=tuple(moves),
            reads={k: pins[k] for k in change.reads if k not in refs},
            schema_hash=base.head.schema_hash,
            marked=True,
            schema_change=SchemaChangeNote(
                change.catalog.hash, change.ir.identity, {**renamed, **new}, ends, tuple(purged)
            ),
        )

    def _adopt(self) -> str:
        """The first write into a graph of the origin: its schema is kept too, or its history couldn't be read."""
        from omnigraph.storage.origin import adopt_schema

        return adopt_schema(self.engine.store, self.base.tables)

    def _locations(self) -> dict[str, str]:
        """Where new tables go: no place that was ever registered, or that a dataset stands at."""
        taken = set(self.base.locations.values())
        out: dict[str, str] = {}
        for key in self.change.new or {}:
            location = free_location(key, taken)
            while self.engine.store.latest_or_none(location) is not None:
                taken.add(location)
                location = free_location(key, taken)
            taken.add(location)
            out[key] = location
        return out

    def run(self) -> CommitInfo:
        engine = self.engine
        held = engine.sidecars.write(self.sidecar)
        try:
            if not take_lock(engine, self.sidecar.name):
                raise self._busy()
            with ExitStack() as stack:
                if self.sidecar.tables or self.new:
                    # While it is held no branch is made: a branch of the old schema would block the next change.
                    lock = fork_lock(engine.store, exclusive=True, wait=WAIT_SECONDS)
                    if not stack.enter_context(lock) and engine.sidecars.tells_the_dead:
                        raise self._waiting()
                _check_still(self.change, self.base, engine.manifest.current(self.branch))
                check_branches(engine, self.branch, self.change.ir.identity)
                if self.branch == MAIN:
                    stage_copies(engine.store.files, self.change.catalog, self.change.ir)
                    reach(Step.SCHEMA_STAGED)
                for key, location in self.new.items():
                    self._create(key, location)
                for table in self.change.tables:
                    self._move(table)
                done = self._publish()
        except BaseException as error:
            published = give_up(engine, held, self.sidecar, error)
            if published is None or not isinstance(error, Exception):
                raise
            done = published
        else:
            tidy(engine, held, self.sidecar, done)
        remember(self.change.catalog)
        return done

    def _busy(self) -> Conflict:
        others = applies(self.engine, self.sidecar.name)
        error = Conflict(
            f"another schema change is under way ({', '.join(others)}): wait for it; if its process is gone, run "
            f"`omnigraph recover {self.engine.store.root.uri}`",
            code="schema_apply_running",
            details={"sidecars": others},
        )
        error.retryable = True
        return error

    def _waiting(self) -> Conflict:
        error = Conflict("branches are being made or get their first write: try again", code="branch_busy", details={})
        error.retryable = True
        return error

    def _create(self, key: str, location: str) -> None:
        with lance_errors(f"creating the table of {key}"):
            assert self.change.new is not None
            schema = self.change.new[key]
            create_dataset(self.engine.store, location, schema.empty_table(), mark=self.sidecar.name)
        reach(Step.SCHEMA_TABLE_CREATED)

    def _move(self, table: TableEvolution) -> None:
        ref = self.refs[table.table_key]
        dataset = self.engine.store.version(ref.location, ref.branch, ref.version)
        dataset = evolve(dataset, ref, table, self.sidecar.name)
        expected = next(t.post_commit_pin for t in self.sidecar.tables if t.table_key == table.table_key)
        if int(dataset.version) != expected:
            raise ExpectedVersionMismatch(table.table_key, [ref.branch, expected], [ref.branch, int(dataset.version)])

    def _publish(self) -> CommitInfo:
        engine, note = self.engine, self.sidecar.schema_change
        assert note is not None
        versions = {t.table_key: t.post_commit_pin for t in self.sidecar.tables}
        state = engine.manifest.current(self.branch)
        refs, registrations, gone = to_publish(engine, state, self.sidecar, versions)
        draft = CommitDraft(
            new_ulid(),
            self.change.actor,
            self.sidecar.operation_id,
            note.schema_hash,
            schema_ir=note.schema_ir,
        )
        return publish(
            engine.manifest,
            engine.history,
            self.branch,
            draft,
            refs,
            expected=self.pins,
            schema_hash=self.accepted,
            already=partial(published_before, engine, self.sidecar, self.base.head),
            check=lambda state: _check_still(self.change, self.base, state),
            registrations=registrations,
            tombstones=gone,
        )
