"""`Repository`: one opened root. Each method is one verb and hands over to one module."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from omnigraph.actors import check_actor
from omnigraph.errors import BadRequest, Conflict, Forbidden, NotFound
from omnigraph.points import split_point
from omnigraph.storage.engine import Engine
from omnigraph.storage.files import LocalFiles
from omnigraph.storage.layout import MAIN, STAGING, check_operation_id, lance_branch
from omnigraph.storage.manifest import ManifestState
from omnigraph.storage.schemas import compiling_beside
from omnigraph.storage.settled import settled
from omnigraph.storage.snapshot import Snapshot
from omnigraph.storage.travel import commit_at, find_commit, state_of
from omnigraph.storage.types import BranchInfo, CommitInfo, Staging, SweepReport, TableRef
from omnigraph.storage.uri import parse_root

# What only some verbs need is imported where they begin: most processes read, and begin sooner.
if TYPE_CHECKING:
    import pyarrow as pa

    from omnigraph.schema.catalog import Catalog
    from omnigraph.storage.blobs import BlobSource
    from omnigraph.storage.cleanup import CleanupReport
    from omnigraph.storage.indices import IndexReport
    from omnigraph.storage.optimize import Notice, OptimizeReport
    from omnigraph.storage.removal import Removed
    from omnigraph.storage.repair import Drift, RepairReport
    from omnigraph.storage.schema_apply import SchemaChange

__all__ = ["At", "Repository"]

At = int | str | datetime | Snapshot | CommitInfo | None
"""A point in a branch's history: manifest version, commit id, time (UTC if it has no zone), a snapshot; None: now."""


class Repository:
    """An opened graph root. Thread-safe. Opening sweeps nothing: see `sweep`."""

    def __init__(self, engine: Engine, *, read_only: bool = False) -> None:
        self.engine = engine
        self.read_only = read_only

    @property
    def uri(self) -> str:
        return self.engine.store.root.uri

    def __repr__(self) -> str:
        return f"Repository({self.uri!r}{', read_only=True' if self.read_only else ''})"

    @classmethod
    def create(
        cls, uri: str, catalog: Catalog, *, actor: str | None = None, operation_id: str | None = None
    ) -> Repository:
        """Create an empty graph. A creation that was interrupted is done anew by calling this again.

        Args:
            operation_id: ULID of the creation; the same one again opens the graph it made.

        Raises:
            Conflict: there is a graph already, made by another operation, or a file.
        """
        from omnigraph.storage.create import create_graph

        check_actor(actor)
        engine = Engine.of(parse_root(uri))
        root = Path(engine.store.root.uri)
        file = next((place for place in (root, *root.parents) if os.path.isfile(place)), None)
        if file is not None:
            raise Conflict(f"{file} is a file, and a graph is a folder", code="already_exists")
        create_graph(engine, catalog, actor, operation_id)
        return cls(engine)

    @classmethod
    def open(cls, uri: str, *, read_only: bool = False) -> Repository:
        """Open a graph.

        Raises:
            NotFound: no graph there.
        """
        engine = Engine.of(parse_root(uri), read_only=read_only)
        if os.path.isfile(engine.store.root.uri):
            raise NotFound(f"{engine.store.root.uri} is a file, and a graph is a folder", code="graph_not_found")
        with compiling_beside(engine.store.files):
            found = engine.manifest.open()
        if not found:
            raise NotFound(
                f"there is no graph at {engine.store.root.uri}: create one with `omnigraph init --schema FILE "
                f"{engine.store.root.uri}`",
                code="graph_not_found",
                details={"uri": engine.store.root.uri},
            )
        return cls(engine, read_only=read_only)

    def made_by(self, operation_id: str) -> bool:
        """Whether this operation created the graph."""
        from omnigraph.storage.create import made_by

        return made_by(self.engine, operation_id) is not None

    def close(self) -> None:
        """Wait for what follows the acknowledged writes: their rows in the history."""
        self.engine.history.settle()

    # --- reading ---

    def snapshot(self, branch: str = MAIN, at: At = None) -> Snapshot:
        """A pinned view of a branch, now or at a point of its history. Raises NotFound."""
        return Snapshot(self.engine, self._state(branch, at))

    def _state(self, branch: str, at: At) -> ManifestState:
        self.engine.store.check_process()
        manifest = self.engine.manifest
        _check_name(branch)
        if at is None:
            return manifest.current(branch)
        if isinstance(at, Snapshot):
            return self._own(at).state
        if isinstance(at, CommitInfo):
            at = at.id
        if isinstance(at, bool) or not isinstance(at, int | str | datetime):
            raise BadRequest(
                f"a moment is a commit id, a version, a datetime, a commit or a snapshot, not a {type(at).__name__}"
            )
        if isinstance(at, int):
            return manifest.at(branch, at)
        return state_of(self.engine, branch, commit_at(self.engine, branch, at))

    def point(self, point: str | Snapshot | CommitInfo) -> Snapshot:
        """The state that a text names: a branch, `branch@moment`, or the id of a commit of any branch.

        Raises:
            NotFound: there is none, or its state went with a deleted branch.
        """
        if isinstance(point, Snapshot):
            return self._own(point)
        if isinstance(point, CommitInfo):
            point = point.id
        if not isinstance(point, str):
            raise BadRequest(f"a point is a branch, branch@moment or a commit, not a {type(point).__name__}")
        name, moment = split_point(point)
        if moment is not None or self.engine.manifest.exists(name):
            return self.snapshot(name, moment)
        commit = self.commit_info(name)
        return Snapshot(self.engine, state_of(self.engine, commit.branch, commit))

    def _own(self, snapshot: Snapshot) -> Snapshot:
        if snapshot.uri != self.uri:
            raise BadRequest(f"the snapshot is one of {snapshot.uri}, not of {self.uri}", code="foreign_snapshot")
        return snapshot

    def commit_info(self, commit_id: str) -> CommitInfo:
        """A commit of any branch. Raises NotFound."""
        return find_commit(self.engine, commit_id)

    def head(self, branch: str = MAIN) -> CommitInfo:
        _check_name(branch)
        return self.engine.manifest.current(branch).head

    def commits(self, branch: str = MAIN, limit: int = 50, before: str | None = None) -> list[CommitInfo]:
        """Commits of the branch, newest first.

        Args:
            before: a commit id; only older ones are listed.
        """
        listed = self.engine.history.commits(branch, self.head(branch))
        if before is not None:
            at = next((i for i, c in enumerate(listed) if c.id == before), None)
            if at is None:
                raise NotFound(f"branch {branch!r} has no commit {before!r}", details={"commit": before})
            listed = listed[at + 1 :]
        return listed[:limit]

    def branches(self) -> list[BranchInfo]:
        from omnigraph.storage import branch as branches

        return branches.list_branches(self.engine)

    # --- writing ---

    def create_branch(self, name: str, *, from_: str = MAIN, at: At = None, actor: str | None = None) -> BranchInfo:
        """Create a branch from a branch, from a point of its history, or from any commit (`from_` is its id then).

        `actor` is who asked; it makes no commit.
        """
        from omnigraph.storage import branch as branches

        self._writable(actor)
        _check_name(name)
        base = self.point(from_).state if at is None else self._state(from_, at)
        return branches.create_branch(self.engine, name, base, self.engine.manifest.began(base.branch, base.version))

    def delete_branch(self, name: str) -> BranchInfo:
        """Delete a branch and all that no other branch reads; see `branch.delete_branch`."""
        from omnigraph.storage import branch as branches

        self._writable()
        _check_name(name)
        return branches.delete_branch(self.engine, name)

    def undo_branch(self, made: BranchInfo) -> bool:
        """Take back a branch just created, unless something was written on it; see `branch.undo_branch`."""
        from omnigraph.storage import branch as branches

        self._writable()
        return branches.undo_branch(self.engine, made)

    def commit(self, staging: Staging, base: Snapshot) -> CommitInfo:
        """The one function every writer ends in; see `omnigraph.storage.commit.commit`."""
        from omnigraph.storage.commit import commit as commit_staging

        self._writable(staging.actor)
        return commit_staging(self.engine, staging, base.state)

    def done_before(self, branch: str, operation_id: str) -> CommitInfo | None:
        """The branch's commit of this operation, if it has one already. Raises BadRequest for an unusable id."""
        return self.engine.history.find_operation(branch, check_operation_id(operation_id), self.head(branch))

    def apply_schema(self, change: SchemaChange, base: Snapshot) -> CommitInfo:
        """Change a branch's schema; see `omnigraph.storage.schema_apply.apply_schema`."""
        from omnigraph.storage.schema_apply import apply_schema

        self._writable(change.actor)
        return apply_schema(self.engine, change, base.state)

    def adopt_history(self, source: Snapshot, branch: str) -> None:
        """Before a merge: the source's commits become part of the branch's own history table."""
        self._writable()
        history = self.engine.history
        history.adopt(history.commits(source.branch, source.head), branch)

    def touched_ids(
        self, one: TableRef | None, other: TableRef | None, *, without: Collection[int] = frozenset()
    ) -> pa.Array[Any]:
        """Ids of the rows that may differ between two pins of a table; see `delta.touched_ids`."""
        from omnigraph.storage.delta import touched_ids

        return touched_ids(self.engine.store, one, other, without=without)

    def merge_bases(self, ours: Snapshot, theirs: Snapshot) -> list[tuple[Snapshot, Snapshot]]:
        """The nearest common ancestors of two states, through both kinds of parents, the newest first.

        There are several where the two were merged into each other crosswise. Each comes with its own common ancestor
        with the first.

        Raises:
            Conflict: there is none, or its state went with a deleted branch.
        """
        from omnigraph.storage.ancestry import bases_and_roots

        history = self.engine.history
        known = {c.id: c for s in (ours, theirs) for c in history.commits(s.branch, s.head)}
        found = bases_and_roots(known, ours.head.id, theirs.head.id)
        if not found:
            raise Conflict("the two branches have no common ancestor: they can't be merged", code="no_common_ancestor")
        return [(self._ancestor(ours, base), self._ancestor(ours, root)) for base, root in found]

    def _ancestor(self, ours: Snapshot, commit: CommitInfo) -> Snapshot:
        try:
            return Snapshot(self.engine, state_of(self.engine, ours.branch, commit))
        except NotFound as error:
            raise Conflict(
                f"their common ancestor, commit {commit.id}, can't be read any more ({error.message}): export one of "
                "the branches and load it into the other with mode merge",
                code="merge_base_gone",
                details={"commit": commit.id, "branch": commit.branch},
            ) from error

    def whole_fragments(
        self, table_key: str, base: Snapshot, theirs: Snapshot, ours: Snapshot, rows: int
    ) -> dict[int, dict[str, Any]]:
        """Data files of `theirs`, by fragment number, that hold nothing but rows inserted since `base`.

        Empty where a file of theirs can't stand among those of `ours`. See `takeover`.
        """
        from omnigraph.storage.delta import whole_fragments
        from omnigraph.storage.lineage import common_version
        from omnigraph.storage.takeover import copyable

        refs = [snapshot.tables.get(table_key) for snapshot in (base, theirs, ours)]
        old, new, here = refs
        if old is None or new is None or here is None:
            return {}
        store = self.engine.store
        try:
            grown_from = common_version(store, old, new)
            if grown_from is None or not copyable(store, new, here):
                return {}
            return whole_fragments(store, grown_from, new, rows)
        except NotFound:
            return {}  # the common version was cleaned away: the rows are read instead

    def copy_fragments(
        self, theirs: Snapshot, ours: Snapshot, table_key: str, files: Sequence[Mapping[str, Any]]
    ) -> tuple[str, ...]:
        """Copy data files of `theirs` to the branch of `ours`, invisible until a commit names them."""
        from omnigraph.storage.takeover import copy_fragments

        target = self.write_target(ours, table_key)
        return copy_fragments(self.engine.store, theirs.ref(table_key), target, files)

    def write_target(self, base: Snapshot, table_key: str) -> TableRef:
        """Where data files for this table go on the snapshot's branch; forks the table if that is its first write.

        Raises:
            RecoveryPending: an interrupted write on the branch must be rolled back first.
            Conflict: another write is making the fork.
        """
        from omnigraph.storage.forks import clear_orphan, ensure_fork, fork_lock
        from omnigraph.storage.sweep import heal

        self._writable()
        ref = base.ref(table_key)
        lineage = lance_branch(base.branch)
        if ref.branch == lineage:
            return ref
        engine = self.engine
        heal(engine, base.branch)  # a dead writer's fork would look like one in use, and for ever
        clear_orphan(engine.store, engine.manifest, engine.sidecars, ref, base.branch, None)
        with fork_lock(engine.store, exclusive=False):
            ensure_fork(engine.store, ref, base.branch)
        return TableRef(table_key, ref.location, lineage, ref.version, ref.row_count)

    def write_fragments(
        self,
        base: Snapshot,
        table_key: str,
        data: pa.RecordBatchReader | pa.Table,
        *,
        blobs: BlobSource | None = None,
    ) -> tuple[str, ...]:
        """Write rows as data files, invisible until a commit names them. See `fragments.write_fragments`."""
        from omnigraph.storage import fragments

        return fragments.write_fragments(self.uri, self.write_target(base, table_key), data, blobs=blobs)

    def drop_fragments(self, base: Snapshot, table_key: str, files: Iterable[str]) -> None:
        """Delete data files of `write_fragments` that no commit was asked to name."""
        from omnigraph.storage import fragments

        ref = base.ref(table_key)
        fragments.drop_fragments(self.engine.store, ref.location, ref.branch, files)

    def build_indices(
        self,
        branch: str,
        columns: Mapping[str, Sequence[tuple[str, str]]],
        *,
        actor: str | None = None,
        operation_id: str | None = None,
        own: bool = False,
    ) -> IndexReport:
        from omnigraph.storage.indices import build_indices

        self._writable(actor)
        return build_indices(self.engine, branch, columns, actor=actor, operation_id=operation_id, own=own)

    def optimize(
        self,
        branch: str = MAIN,
        *,
        actor: str | None = None,
        operation_id: str | None = None,
        notice: Notice | None = None,
    ) -> OptimizeReport:
        """Compact the tables of a branch. See `omnigraph.storage.optimize`."""
        from omnigraph.storage.optimize import optimize

        self._writable(actor)
        return optimize(self.engine, branch, actor=actor, operation_id=operation_id, notice=notice)

    def cleanup(
        self,
        *,
        keep: int | None = None,
        older_than: timedelta | None = None,
        confirm: bool = False,
        notice: Notice | None = None,
    ) -> CleanupReport:
        """Remove old versions that nothing needs; without `confirm` only look. See `omnigraph.storage.cleanup`."""
        from omnigraph.storage.cleanup import cleanup

        if confirm:
            self._writable()
        return cleanup(self.engine, keep=keep, older_than=older_than, confirm=confirm, notice=notice)

    def remove_versions(self, locations: Collection[str]) -> list[Removed]:
        """Remove every old version of some tables that nothing alive reads; see `removal.remove_versions`."""
        from omnigraph.storage.removal import remove_versions

        self._writable()
        return remove_versions(self.engine, locations)

    # --- recovery ---

    def sweep(self, mode: Literal["full", "forward"] = "full") -> SweepReport:
        """Settle what dead writers left. See `omnigraph.storage.sweep.sweep`."""
        if mode not in ("full", "forward"):
            raise BadRequest(f"a recovery is 'full' or 'forward', not {mode!r}")
        self._writable()
        if settled(self.engine, mode):
            return SweepReport()
        from omnigraph.storage.sweep import sweep

        return sweep(self.engine, mode)

    def repair(
        self, branch: str | None = None, *, confirm: bool = False, force: bool = False, actor: str | None = None
    ) -> RepairReport:
        """Look at heads ahead of what is published, and publish them on demand. See `omnigraph.storage.repair`."""
        from omnigraph.storage.repair import repair

        if branch is not None:
            _check_name(branch)
        if confirm:
            self._writable(actor)
        return repair(self.engine, branch, confirm=confirm, force=force, actor=actor)

    def working_folders(self) -> list[str]:
        """Names in `__staging` of a folder: what loads that run, or were killed, have laid down."""
        files = self.engine.store.files
        if not isinstance(files, LocalFiles) or not os.path.isdir(files.path(STAGING)):
            return []
        return sorted(os.listdir(files.path(STAGING)))

    def leftovers(self) -> list[tuple[str, str]]:
        """What killed writes and deletions have left, as (kind, words); see `cleanup.leftovers`."""
        from omnigraph.storage.cleanup import leftovers

        return leftovers(self.engine)

    def drift(self, snapshot: Snapshot, table_key: str) -> Drift | None:
        """How a table's head differs from the pin of the branch that writes it; None where it doesn't."""
        from omnigraph.storage.repair import drift_of

        return drift_of(self.engine, snapshot.branch, snapshot.ref(table_key))

    def pending(self) -> list[str]:
        """Names of the sidecars there are, dead or alive, oldest first: one directory listing."""
        return self.engine.sidecars.names()

    def _writable(self, actor: str | None = None) -> None:
        """Where every write begins. Raises Forbidden, and BadRequest for an actor that no commit can keep."""
        check_actor(actor)
        self.engine.store.check_process()
        if self.read_only:
            raise Forbidden(f"{self.uri} is opened for reading only", code="read_only")


def _check_name(branch: object) -> None:
    if not isinstance(branch, str):
        raise BadRequest(f"a branch is given by its name, not by a {type(branch).__name__}")
