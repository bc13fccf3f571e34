"""The durable steps of every writer, named in one place.

`reach(step)` does nothing, unless `OMNIGRAPH_TEST_KILL_AT=<step>:<n>` is set: then the process sends itself SIGKILL
when it reaches that step for the n-th time. The crash tests go through every step this way.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from enum import StrEnum

__all__ = ["Step", "reach"]


class Step(StrEnum):
    FORMAT_KEY_MARKED = "format.key-marked"
    FORMAT_RUN_DELETED = "format.run-deleted"
    FORMAT_STAMPED = "format.stamped"
    CREATE_SCHEMA_WRITTEN = "create.schema-written"
    CREATE_TABLE_WRITTEN = "create.table-written"
    CREATE_HISTORY_WRITTEN = "create.history-written"
    CREATE_MANIFEST_WRITTEN = "create.manifest-written"
    CREATE_COMMIT_RECORDED = "create.commit-recorded"
    TABLE_STAGED = "table.staged"
    SIDECAR_TEMPORARY = "sidecar.temporary"
    SIDECAR_WRITTEN = "sidecar.written"
    TABLE_FORKED = "table.forked"
    TAIL_JOINED = "tail.joined"
    TABLE_COMMITTED = "table.committed"
    INDEX_BUILT = "index.built"
    COMPACTION_WRITTEN = "compaction.written"
    TABLE_COMPACTED = "table.compacted"
    SYSTEM_COMPACTED = "system.compacted"
    PUBLISH_BEFORE = "publish.before"
    PUBLISH_DONE = "publish.done"
    HISTORY_GAP_FILLED = "history.gap-filled"
    HISTORY_COMMIT = "history.commit"
    HISTORY_ACTOR = "history.actor"
    SIDECAR_REMOVED = "sidecar.removed"
    RECOVERY_CLASSIFIED = "recovery.classified"
    RECOVERY_DECIDED = "recovery.decided"
    RECOVERY_RESTORED = "recovery.restored"
    RECOVERY_FORK_DELETED = "recovery.fork-deleted"
    RECOVERY_PUBLISHED = "recovery.published"
    RECOVERY_AUDITED = "recovery.audited"
    MERGE_FILE_COPIED = "merge.file-copied"
    MERGE_HISTORY_ADOPTED = "merge.history-adopted"
    SCHEMA_KEPT = "schema.kept"
    SCHEMA_LOCKED = "schema.locked"
    SCHEMA_STAGED = "schema.staged"
    SCHEMA_TABLE_CREATED = "schema.table-created"
    SCHEMA_PROMOTED = "schema.promoted"
    SCHEMA_PURGED = "schema.purged"
    SCHEMA_SCRAPPED = "schema.scrapped"
    SCHEMA_UNLOCKED = "schema.unlocked"
    CLEANUP_ANNOUNCED = "cleanup.announced"
    CLEANUP_FORK_RECLAIMED = "cleanup.fork-reclaimed"
    CLEANUP_TABLE_DROPPED = "cleanup.table-dropped"
    CLEANUP_VERSIONS_REMOVED = "cleanup.versions-removed"
    CLEANUP_TIDIED = "cleanup.tidied"
    BRANCH_CREATED = "branch.created"
    BRANCH_DELETED = "branch.deleted"
    BRANCH_RECLAIMED = "branch.reclaimed"


_KILL_AT = os.environ.get("OMNIGRAPH_TEST_KILL_AT", "")
_reached: Counter[str] = Counter()


def reach(step: Step) -> None:
    """Say that a durable step has just been done."""
    if not _KILL_AT:
        return
    _reached[step] += 1
    if f"{step}:{_reached[step]}" == _KILL_AT:
        os.kill(os.getpid(), signal.SIGKILL)
