"""The graph's history: `_graph_commits`, `_graph_commit_actors`, `_graph_commit_recoveries` (01 §1.5, 1.6).

The manifest's head row is the authority; these tables follow it. Rows are told apart by the commit's id, so a row that
two processes append counts once.

A commit's rows are put off: those of several commits are appended together, when enough of them wait or when nothing
was published for a moment. Until then the head row carries the commits. So at every publish each commit of the lineage
is in the tables or in the head row: a publisher carries on those that its own process has put off, and whatever else
the head row names it first adds to the tables. Who finds his commits in the head row no longer has nothing to append.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import lance
import pyarrow as pa

from omnigraph.errors import NotFound, OmniGraphError
from omnigraph.storage.afterwards import Afterwards, Later
from omnigraph.storage.conditions import one_of
from omnigraph.storage.layout import ACTORS, COMMITS, MAIN, RECOVERIES, lance_branch, quoted
from omnigraph.storage.lineage import while_branches_go
from omnigraph.storage.manifest import Manifest
from omnigraph.storage.steps import Step, reach
from omnigraph.storage.store import Store, create_dataset
from omnigraph.storage.translate import is_commit_race, lance_errors
from omnigraph.storage.types import CommitInfo
from omnigraph.storage.unrecorded import Unrecorded, named_by

__all__ = ["History", "commit_rows", "compact", "compact_system", "may_compact"]

log = logging.getLogger(__name__)

FLUSH_AT = 8
"""Commits of a branch that are appended together: a head row that carries them stays small."""

LINGER_SECONDS = 0.1
"""How long after the last publish rows wait for those of another one."""

SLOWER_ON_A_STORE = 10
"""Times that, on an object store: a loop's commits take so much longer there, and each append is several requests."""

MOST_CARRIED = 32
"""Commits that a head row carries at most; more of them wait only where they can't be appended."""

_ID: pa.Field[Any] = pa.field(
    "graph_commit_id", pa.string(), False, metadata={"lance-schema:unenforced-primary-key": "true"}
)
COMMITS_SCHEMA = pa.schema(
    [
        _ID,
        pa.field("manifest_branch", pa.string()),
        pa.field("manifest_version", pa.uint64()),
        pa.field("parent_commit_id", pa.string()),
        pa.field("merged_parent_commit_id", pa.string()),
        pa.field("created_at", pa.timestamp("us")),
        pa.field("operation_id", pa.string()),
        pa.field("schema_hash", pa.string()),
        pa.field("recovery_kind", pa.string()),
        pa.field("recovered_sidecar", pa.string()),
    ]
)
ACTORS_SCHEMA = pa.schema(
    [
        _ID,
        pa.field("actor_id", pa.string()),
        pa.field("created_at", pa.timestamp("us")),
    ]
)
RECOVERIES_SCHEMA = pa.schema(
    [
        _ID,
        pa.field("recovery_kind", pa.string()),
        pa.field("recovery_for_actor", pa.string()),
        pa.field("operation_id", pa.string()),
        pa.field("sidecar_writer_kind", pa.string()),
        pa.field("per_table_outcomes_json", pa.string()),
        pa.field("created_at", pa.timestamp("us")),
    ]
)
COMPACT_ABOVE = 24
"""Short fragments of a system table from which on they are compacted."""

LONG_ROWS = 2_000
"""Rows from which on a fragment of a system table isn't short."""

VERSIONS_KEPT = 256
"""Versions of a history table between two removals of the old ones: nobody reads them, and every open lists them."""

READING_SECONDS = 60
"""Age up to which an old version of a history table may still be read by someone who opened it as the newest."""


def _naive(when: datetime) -> datetime:
    return when.astimezone(UTC).replace(tzinfo=None)


def commit_rows(commits: Sequence[CommitInfo]) -> pa.Table:
    """`_graph_commits` rows."""
    return pa.Table.from_pylist(
        [
            {
                "graph_commit_id": c.id,
                "manifest_branch": lance_branch(c.branch),
                "manifest_version": c.manifest_version,
                "parent_commit_id": c.parents[0] if c.parents else None,
                "merged_parent_commit_id": c.parents[1] if len(c.parents) > 1 else None,
                "created_at": _naive(c.created_at),
                "operation_id": c.operation_id,
                "schema_hash": c.schema_hash,
                "recovery_kind": c.recovery_kind,
                "recovered_sidecar": c.extra.get("recovered_sidecar"),
            }
            for c in commits
        ],
        schema=COMMITS_SCHEMA,
    )


def actor_rows(commits: Sequence[CommitInfo]) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {"graph_commit_id": c.id, "actor_id": c.actor, "created_at": _naive(c.created_at)}
            for c in commits
            if c.actor is not None
        ],
        schema=ACTORS_SCHEMA,
    )


class History:
    """Reads and completes the history tables of one root. Thread-safe."""

    def __init__(self, store: Store, manifest: Manifest) -> None:
        self.store = store
        self.manifest = manifest
        self.afterwards = Afterwards()
        self._unrecorded = Unrecorded()
        self._later = Later(LINGER_SECONDS * (1 if store.root.is_local else SLOWER_ON_A_STORE))
        self._doubtful: set[str] = set()
        self._pid = os.getpid()
        self._writing = threading.RLock()

    # --- writing ---

    def record(self, commit: CommitInfo, branch: str) -> None:
        """Append the rows of a commit that has none, at once."""
        with self._writing, lance_errors(f"recording commit {commit.id}"):
            self._add([commit], branch)

    def put_off(self, commit: CommitInfo) -> None:
        """A commit of ours is published, and its rows are to follow."""
        self._later.call(self._flush_all, now=self._unrecorded.add(commit) >= FLUSH_AT)

    def carried(self, head: CommitInfo, branch: str) -> tuple[CommitInfo, ...]:
        """Before the head row is overwritten: what the new one must carry, so that no commit is lost.

        That is what this process has put off. What another one has put off, or left as it died, gets its rows here.
        """
        left = self._unrecorded.without_rows(named_by(head), branch)
        if len(left) < MOST_CARRIED and self._unrecorded.all_wait(left, branch):
            return left
        self.complete(head, branch)
        return ()

    def complete(self, head: CommitInfo, branch: str) -> None:
        """Append what a head row names and the branch's tables lack, because of a crash or since it was put off."""
        with self._writing, lance_errors(f"completing the history of branch {branch}"):
            self.flush(branch)
            left = self._unrecorded.without_rows(named_by(head), branch)
            if left:
                self._add_missing(left, branch)

    def flush(self, branch: str) -> None:
        """Append what was put off on a branch."""
        with self._writing, lance_errors(f"recording commits of branch {branch}"):
            waiting = self._unrecorded.waiting(branch)
            if not waiting:
                return
            try:
                head = self.manifest.current(branch).head
            except NotFound:  # the branch has gone
                self._unrecorded.forget(waiting, branch)
                return
            # What it doesn't name has its rows from another publisher, or belongs to a branch that was made anew.
            named = {c.id for c in named_by(head)}
            rows = [c for c in waiting if c.id in named]
            if rows and branch in self._doubtful:
                self._add_missing(rows, branch)
            elif rows:
                self._add(rows, branch)
            self._doubtful.discard(branch)
            self._unrecorded.forget(waiting, branch)

    def settle(self) -> None:
        """Wait for all that follows the publishes so far: rows of commits, and the manifest's upkeep."""
        if self._pid != os.getpid():
            return
        self.afterwards.settle()
        self._flush_all()
        self._later.done()

    def _flush_all(self) -> None:
        """Nobody is told of a failure but the log: the head row carries what has no rows yet."""
        for branch in self._unrecorded.branches():
            try:
                self.flush(branch)
            except OmniGraphError as error:
                log.warning("the history rows of commits on branch %s follow later: %s", branch, error.message)

    def _add(self, commits: Sequence[CommitInfo], branch: str) -> None:
        """Append rows of commits that have none."""
        self._doubtful.add(branch)  # until all of it is done
        self._append(COMMITS, branch, commit_rows(commits))
        reach(Step.HISTORY_COMMIT)
        actors = actor_rows(commits)
        if actors.num_rows:
            self._append(ACTORS, MAIN, actors)
        reach(Step.HISTORY_ACTOR)
        self._doubtful.discard(branch)
        self._unrecorded.recorded(commits, branch)

    def _add_missing(self, commits: Sequence[CommitInfo], branch: str) -> None:
        """Add the rows of those commits that haven't them yet."""
        missing = self._missing(self._lineage(branch), commits)
        if missing:
            self._merge(self._own(branch), commit_rows(missing))
            reach(Step.HISTORY_GAP_FILLED)
        acted = [c for c in commits if c.actor is not None]
        if acted:
            actors = self.store.latest(ACTORS)
            missing = self._missing(actors, acted)
            if missing:
                self._merge(actors, actor_rows(missing))
        self._unrecorded.recorded(commits, branch)

    def _missing(self, dataset: lance.LanceDataset, commits: Sequence[CommitInfo]) -> list[CommitInfo]:
        where = one_of("graph_commit_id", pa.array([c.id for c in commits], pa.string()))
        there = dataset.scanner(columns=["graph_commit_id"], filter=where).to_table()["graph_commit_id"].to_pylist()
        return [c for c in commits if c.id not in there]

    def adopt(self, commits: Sequence[CommitInfo], branch: str) -> None:
        """Add another branch's commits to this one's table, so that they outlive the other. Repeating it adds nothing.

        Until a commit of this branch names one of them as its parent, nothing of them is seen.
        """
        self.settle()
        with self._writing, lance_errors(f"completing the history of branch {branch}"):
            known = set(self._lineage(branch).to_table(columns=["graph_commit_id"])["graph_commit_id"].to_pylist())
            missing = [c for c in commits if c.id not in known]
            if missing:
                self._merge(self._own(branch), commit_rows(missing))
                reach(Step.MERGE_HISTORY_ADOPTED)
            named = set(self._actors())
            unnamed = [c for c in missing if c.actor is not None and c.id not in named]
            if unnamed:
                self._merge(self.store.latest(ACTORS), actor_rows(unnamed))

    def audit(
        self, *, commit_id: str, kind: str, actor: str | None, operation_id: str, writer_kind: str, outcomes: object
    ) -> None:
        """One row per recovery, found again by its commit's id."""
        row = {
            "graph_commit_id": commit_id,
            "recovery_kind": kind,
            "recovery_for_actor": actor,
            "operation_id": operation_id,
            "sidecar_writer_kind": writer_kind,
            "per_table_outcomes_json": json.dumps(outcomes),
            "created_at": _naive(datetime.now(UTC)),
        }
        with lance_errors("writing the recovery audit"):
            dataset = self.store.latest_or_none(RECOVERIES)
            if dataset is None:
                try:
                    dataset = create_dataset(self.store, RECOVERIES, RECOVERIES_SCHEMA.empty_table())
                except OSError:
                    dataset = self.store.latest(RECOVERIES)  # another sweep made it first
            if not dataset.count_rows(f"graph_commit_id = {quoted(commit_id)}"):
                self._merge(dataset, pa.Table.from_pylist([row], schema=RECOVERIES_SCHEMA))

    def _append(self, location: str, branch: str, rows: pa.Table) -> None:
        dataset = self._own(branch) if location == COMMITS else self.store.latest(location)
        known = set(dataset.schema.names)
        before = int(dataset.version)
        written = lance.write_dataset(rows.select([n for n in rows.column_names if n in known]), dataset, mode="append")
        compact(written)
        if before // VERSIONS_KEPT != int(written.version) // VERSIONS_KEPT:
            # Lance keeps what a branch of the table began from.
            old = timedelta(seconds=READING_SECONDS)
            while_branches_go(lambda: written.cleanup_old_versions(older_than=old))

    def _merge(self, dataset: lance.LanceDataset, rows: pa.Table) -> None:
        """Insert the rows whose id isn't there; a race with the same row is lost silently, as it should be."""
        known = set(dataset.schema.names)
        merge = dataset.merge_insert("graph_commit_id").when_not_matched_insert_all().use_index(False)
        merge.execute(rows.select([n for n in rows.column_names if n in known]))

    def _own(self, branch: str) -> lance.LanceDataset:
        """The branch's own commit table; made at the branch's first commit, from its nearest ancestor's."""
        return _with_every_column(self._own_as_it_is(branch))

    def _own_as_it_is(self, branch: str) -> lance.LanceDataset:
        if lance_branch(branch) is None:
            return self.store.latest(COMMITS)
        own = self.store.latest_or_none(COMMITS, branch)
        if own is not None:
            return own
        parent = self._lineage(branch)
        try:
            return parent.create_branch(branch, parent.version)
        except OSError:
            return self.store.latest(COMMITS, branch)  # another process made it first

    def _lineage(self, branch: str) -> lance.LanceDataset:
        """The commit table that holds the branch's commits: its own or the nearest ancestor's."""
        listed: dict[str, dict[str, Any]] | None = None
        while lance_branch(branch) is not None:
            own = self.store.latest_or_none(COMMITS, branch)
            if own is not None:
                return own
            listed = self.manifest.branches() if listed is None else listed
            branch = (listed.get(branch) or {}).get("parent_branch") or MAIN
        return self.store.latest(COMMITS)

    # --- reading ---

    def find_operation(self, branch: str, operation_id: str, head: CommitInfo) -> CommitInfo | None:
        """The commit that published the operation, whoever did it; a roll-back isn't one."""
        for commit in self._matching(branch, f"operation_id = {quoted(operation_id)}", head):
            if commit.operation_id != operation_id or commit.recovery_kind not in (None, "RolledForward"):
                continue
            # The table of a young branch is its parent's, with what the parent got after they parted.
            if commit.branch == branch == MAIN or any(c.id == commit.id for c in self.commits(branch, head)):
                return commit
        return None

    def find_recovery(self, branch: str, sidecar: str, head: CommitInfo) -> CommitInfo | None:
        """The recovery commit that already settled this sidecar."""
        for commit in self._matching(branch, f"recovered_sidecar = {quoted(sidecar)}", head):
            if commit.extra.get("recovered_sidecar") == sidecar:
                return commit
        return None

    def _matching(self, branch: str, where: str, head: CommitInfo) -> list[CommitInfo]:
        return [*reversed(named_by(head)), *self._read(self._lineage(branch), where)]

    def commits(self, branch: str, head: CommitInfo) -> list[CommitInfo]:
        """The branch's commits, newest first, along first and merged parents from the head."""
        found = {c.id: c for c in self._read(self._lineage(branch), None)}
        found |= {c.id: c for c in named_by(head)}
        actors = self._actors()
        out: list[CommitInfo] = []
        seen: set[str] = set()
        queue = [head.id]
        while queue:
            commit_id = queue.pop()
            commit = found.get(commit_id)
            if commit is None or commit_id in seen:
                continue
            seen.add(commit_id)
            out.append(commit if commit.actor else replace(commit, actor=actors.get(commit_id)))
            queue.extend(commit.parents)
        return sorted(out, key=lambda c: (c.created_at, c.manifest_version, c.id), reverse=True)

    def _read(self, dataset: lance.LanceDataset, where: str | None) -> list[CommitInfo]:
        if where and where.split(" ", 1)[0] not in dataset.schema.names:
            return []
        with lance_errors("reading the commit history"):
            rows = dataset.scanner(filter=where).to_table().to_pylist()
        return [_commit(row) for row in rows]

    def _actors(self) -> Mapping[str, str]:
        with lance_errors("reading the commits' actors"):
            rows = self.store.latest(ACTORS).to_table(columns=["graph_commit_id", "actor_id"]).to_pydict()
        return dict(zip(rows["graph_commit_id"], rows["actor_id"], strict=True))

    def recoveries(self) -> list[dict[str, Any]]:
        """The audit rows, oldest first."""
        dataset = self.store.latest_or_none(RECOVERIES)
        if dataset is None:
            return []
        with lance_errors("reading the recovery audit"):
            rows: list[dict[str, Any]] = dataset.to_table().to_pylist()
        return list({r["graph_commit_id"]: r for r in sorted(rows, key=lambda r: r["created_at"])}.values())

    def find(self, branch: str, commit_id: str, head: CommitInfo) -> CommitInfo:
        for commit in self.commits(branch, head):
            if commit.id == commit_id:
                return commit
        raise NotFound(
            f"branch {branch!r} has no commit {commit_id!r}", details={"branch": branch, "commit": commit_id}
        )


def _commit(row: Mapping[str, Any]) -> CommitInfo:
    sidecar = row.get("recovered_sidecar")
    return CommitInfo(
        id=row["graph_commit_id"],
        branch=row["manifest_branch"] or MAIN,
        manifest_version=row["manifest_version"],
        parents=tuple(p for p in (row["parent_commit_id"], row["merged_parent_commit_id"]) if p),
        created_at=row["created_at"].replace(tzinfo=UTC),
        operation_id=row.get("operation_id"),
        schema_hash=row.get("schema_hash"),
        recovery_kind=row.get("recovery_kind"),
        extra={"recovered_sidecar": sidecar} if sidecar else {},
    )


def _with_every_column(dataset: lance.LanceDataset) -> lance.LanceDataset:
    """Add what the commit table of an older maker lacks; without it an operation couldn't be found again."""
    names = set(dataset.schema.names)
    lacking = [field for field in COMMITS_SCHEMA if field.name not in names]
    if lacking:
        try:
            dataset.add_columns(pa.schema(lacking))
        except (OSError, ValueError, RuntimeError):
            dataset.checkout_latest()  # another process added them first?
            if any(field.name not in dataset.schema.names for field in lacking):
                raise
    return dataset


def may_compact(dataset: lance.LanceDataset) -> bool:
    """Whether `compact` may find something to do: a look at what is in memory."""
    return len(dataset.fragment_ids()) > COMPACT_ABOVE


def compact(dataset: lance.LanceDataset) -> None:
    """Keep a system table small: every commit adds a fragment, and every read and publish pays for each.

    Long fragments are left as they are, so that the work of a commit doesn't grow with the history.
    """
    if dataset.stats.dataset_stats(max_rows_per_group=LONG_ROWS)["num_small_files"] > COMPACT_ABOVE:
        compact_system(dataset, target_rows_per_fragment=LONG_ROWS, materialize_deletions=False)


def compact_system(dataset: lance.LanceDataset, **options: Any) -> bool:
    """Compact a system table now. False: there is nothing to gain, or another commit came first.

    Args:
        options: Lance's; none makes it one fragment.
    """
    before = int(dataset.version)
    try:
        dataset.optimize.compact_files(**options)
    except OSError as error:
        if not is_commit_race(error):
            raise
        return False  # the next one tries again
    return int(dataset.version) > before
