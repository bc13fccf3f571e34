"""The graph's history: `_graph_commits`, `_graph_commit_actors`, `_graph_commit_recoveries` (01 §1.5, 1.6).

The manifest's head row is the authority; these tables follow it. What is missing in them is appended by the next
publish. Rows are told apart by the commit's id, so a row that two processes append counts once.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import lance
import pyarrow as pa

from omnigraph.errors import NotFound
from omnigraph.storage.afterwards import Afterwards
from omnigraph.storage.layout import ACTORS, COMMITS, MAIN, RECOVERIES, lance_branch, quoted
from omnigraph.storage.lineage import while_branches_go
from omnigraph.storage.manifest import Manifest
from omnigraph.storage.steps import Step, reach
from omnigraph.storage.store import Store, create_dataset
from omnigraph.storage.translate import is_commit_race, lance_errors
from omnigraph.storage.types import CommitInfo

__all__ = ["History", "commit_rows", "compact", "compact_system"]

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
        self._recorded: set[str] = set()
        self._lock = threading.RLock()

    # --- writing ---

    def record(self, commit: CommitInfo, branch: str) -> None:
        """Append the commit and its actor to the branch's commit table. What is already there isn't added again."""
        with self._lock, lance_errors(f"recording commit {commit.id}"):
            if commit.id in self._recorded:
                return
            self._append(COMMITS, branch, commit_rows([commit]))
            reach(Step.HISTORY_COMMIT)
            if commit.actor is not None:
                self._append(ACTORS, MAIN, actor_rows([commit]))
            reach(Step.HISTORY_ACTOR)
            self._recorded.add(commit.id)

    def fill_gap(self, head: CommitInfo, branch: str) -> None:
        """Before the head row is overwritten: append its commit where a crash kept it from the tables."""
        self.afterwards.settle()
        with self._lock, lance_errors(f"completing the history of branch {branch}"):
            if head.id in self._recorded:
                return
            commits = self._lineage(branch)
            if not commits.count_rows(f"graph_commit_id = {quoted(head.id)}"):
                own = self._own(branch)
                self._merge(own, commit_rows([head]))
                reach(Step.HISTORY_GAP_FILLED)
            if head.actor is not None:
                actors = self.store.latest(ACTORS)
                if not actors.count_rows(f"graph_commit_id = {quoted(head.id)}"):
                    self._merge(actors, actor_rows([head]))
            self._recorded.add(head.id)

    def adopt(self, commits: Sequence[CommitInfo], branch: str) -> None:
        """Add another branch's commits to this one's table, so that they outlive the other. Repeating it adds nothing.

        Until a commit of this branch names one of them as its parent, nothing of them is seen.
        """
        self.afterwards.settle()
        with self._lock, lance_errors(f"completing the history of branch {branch}"):
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
        return [head, *self._read(self._lineage(branch), where)]

    def commits(self, branch: str, head: CommitInfo) -> list[CommitInfo]:
        """The branch's commits, newest first, along first and merged parents from the head."""
        found = {c.id: c for c in self._read(self._lineage(branch), None)}
        found[head.id] = head
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
    lacking = [field for field in COMMITS_SCHEMA if field.name not in dataset.schema.names]
    if lacking:
        try:
            dataset.add_columns(pa.schema(lacking))
        except (OSError, ValueError, RuntimeError):
            dataset.checkout_latest()  # another process added them first?
            if any(field.name not in dataset.schema.names for field in lacking):
                raise
    return dataset


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
