"""What storage hands to the rooms above: pinned snapshots, changes as data, commits. No Lance object leaves this room
except inside a `Snapshot`, whose methods speak Arrow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

import pyarrow as pa

from omnigraph.records import dataclass
from omnigraph.storage.blobs import BlobSource

__all__ = ["BranchInfo", "CommitInfo", "Staging", "SweepReport", "TableChange", "TableRef", "WriterKind"]


class WriterKind(StrEnum):
    MUTATION = "Mutation"
    LOAD = "Load"
    SCHEMA_APPLY = "SchemaApply"
    BRANCH_MERGE = "BranchMerge"
    ENSURE_INDICES = "EnsureIndices"
    OPTIMIZE = "Optimize"


@dataclass(frozen=True, slots=True)
class TableRef:
    """Which version of which table a snapshot sees. `branch` None is main's own lineage.

    `stamp` is the id of the commit that published it: a branch deleted and made again may count the same versions.
    """

    table_key: str
    location: str  # relative to the graph's root
    branch: str | None
    version: int
    row_count: int
    stamp: str = ""


@dataclass(frozen=True, slots=True)
class Places:
    """Where rows lie in one version of a table: `id`, `_rowaddr` and `_rowid` of every row with one of some ids."""

    ref: TableRef
    rows: pa.Table


@dataclass(frozen=True, slots=True)
class TableChange:
    """What one write does to one table, in one Lance commit.

    Columns of every Arrow value are exactly the table's, in any order (01 §1.2), with tickets where it holds Blobs.

    Args:
        appends: rows whose ids are known to be new.
        upserts: whole rows; a row with the id is replaced (row id kept), else inserted. Ids are unique within.
        delete_ids: ids to remove, a string array; ids that aren't there are ignored.
        fragments: data files already written by `write_fragments`, each the JSON it returned; their rows are appended.
        overwrite: the table's old rows go; what is given above is all it holds then.
        blobs: where the tickets lead; needed where the table has Blobs and rows are given.
        places: of every id in `upserts` that is stored, and of others perhaps, if they have been looked up already.
    """

    table_key: str
    appends: pa.Table | None = None
    upserts: pa.Table | None = None
    delete_ids: pa.Array[Any] | pa.ChunkedArray[Any] | None = None
    fragments: tuple[str, ...] = ()
    overwrite: bool = False
    blobs: BlobSource | None = None
    places: Places | None = None


@dataclass(frozen=True, slots=True)
class Staging:
    """Everything one write wants to become visible at once.

    Args:
        branch: the graph branch, `main` for the default lineage.
        kind: the writer's kind, for the sidecar.
        changes: at most one per table.
        reads: table keys whose rows the validation relied on (endpoints, uniqueness); pinned by the publisher.
        operation_id: ULID of the write; the same id submitted again changes nothing.
        fresh: the operation id was made for this write, so no earlier one is looked for.
        actor: who asked, or None.
        expect_head: the branch's head commit id the caller saw, or None for any.
        merged_parent: the head of the branch that is merged; then `changes` may be empty.
    """

    branch: str
    kind: WriterKind
    changes: tuple[TableChange, ...]
    reads: frozenset[str] = frozenset()
    operation_id: str = ""
    actor: str | None = None
    expect_head: str | None = None
    merged_parent: str | None = None
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class CommitInfo:
    """One graph commit. `parents`: none for the first, two for a merge. Times are UTC.

    `schema_ir` is the identity of the schema's IR, known of a branch's head alone; None where the ids of types and
    properties are those that the schema's text gives by itself. `unrecorded`, of a branch's head alone too, are earlier
    commits made on that branch whose rows may not be in the history's tables yet.
    """

    id: str
    branch: str  # `main` or the branch it was made on
    manifest_version: int
    parents: tuple[str, ...]
    created_at: datetime
    actor: str | None = None
    operation_id: str | None = None
    schema_hash: str | None = None
    recovery_kind: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    schema_ir: str | None = field(default=None, compare=False)
    unrecorded: tuple[CommitInfo, ...] = field(default=(), compare=False, repr=False)

    def alone(self) -> CommitInfo:
        """Without the commits that it carries."""
        return replace(self, unrecorded=()) if self.unrecorded else self


@dataclass(frozen=True, slots=True)
class BranchInfo:
    """A living branch: its newest commit, and the branch and manifest version it began from (None for main)."""

    name: str
    head: CommitInfo
    parent: str | None = None
    parent_version: int | None = None


@dataclass(frozen=True, slots=True)
class SweepReport:
    """What a sweep did: plain data, one entry a sidecar.

    `outcomes`: operation_id, sidecar, writer_kind, branch, outcome (RolledForward, RolledBack, AlreadyPublished,
    OrphanedBranchDiscarded), tables. `pending`: sidecar, operation_id, branch, reason (Live, NeedsRollBack).
    """

    outcomes: tuple[dict[str, Any], ...] = ()
    pending: tuple[dict[str, Any], ...] = field(default=())
