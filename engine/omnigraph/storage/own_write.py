"""The end of a write in its own process: it was published, a sweep has decided over it, or it gives up."""

from __future__ import annotations

import logging
from collections.abc import Collection

from omnigraph.errors import Conflict, OmniGraphError
from omnigraph.storage.engine import Engine
from omnigraph.storage.manifest import ManifestState
from omnigraph.storage.recovery_commits import conclude, decided
from omnigraph.storage.schema_settle import finish, scrap
from omnigraph.storage.sidecar import Held, Sidecar
from omnigraph.storage.types import CommitInfo, WriterKind
from omnigraph.storage.undo import observe, roll_back

__all__ = ["give_up", "published_before", "tidy"]

log = logging.getLogger(__name__)


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
            done = decided(engine, sidecar, state)
            # A commit may have landed though its answer was lost: ask the table, not only the writer's memory.
            moved = tuple(
                t.table_key
                for t in sidecar.tables
                if done is None and (t.table_key in known or observe(engine, state, sidecar, t).ours)
            )
            if moved:
                done, restored = roll_back(engine, sidecar, moved)
                if done.recovery_kind == "RolledBack":
                    conclude(engine, held, sidecar, done, "RolledBack", tables=restored)
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


def published_before(engine: Engine, sidecar: Sidecar, begun: CommitInfo, state: ManifestState) -> CommitInfo | None:
    """For the writer's own publish, where nothing tells others that it lives: the commit, if a sweep made it instead.

    Args:
        begun: the head before the sidecar was written: while it stands nobody has decided.

    Raises:
        Conflict: a sweep has decided to undo the write.
    """
    if engine.sidecars.tells_the_dead or state.head.id == begun.id:
        return None
    done = decided(engine, sidecar, state)
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
