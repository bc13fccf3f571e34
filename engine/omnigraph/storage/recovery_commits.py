"""What a recovery publishes: the commit that decides over an interrupted write, and what follows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from omnigraph.errors import ExpectedVersionMismatch
from omnigraph.storage.engine import Engine
from omnigraph.storage.manifest import ManifestState, Pin, pin_of
from omnigraph.storage.publish import CommitDraft, publish
from omnigraph.storage.schema_settle import finish, scrap
from omnigraph.storage.sidecar import Held, Sidecar
from omnigraph.storage.steps import Step, reach
from omnigraph.storage.types import CommitInfo, TableRef, WriterKind
from omnigraph.ulids import new_ulid

__all__ = [
    "RECOVERY_ACTOR",
    "audit",
    "conclude",
    "decided",
    "entry",
    "publish_decision",
    "publish_heads",
    "still_valid",
]

RECOVERY_ACTOR = "omnigraph:recovery"

RECOVERY_ATTEMPTS = 60
"""How often a settled write is published when other commits come first: left undone, it would block its branch."""


def decided(engine: Engine, sidecar: Sidecar, state: ManifestState) -> CommitInfo | None:
    """The commit that has decided over a write: a sweep's either way, or, of a writer of ours, its own publish."""
    done = engine.history.find_recovery(sidecar.branch, sidecar.name, state.head)
    if done is None and sidecar.marked:
        done = engine.history.find_operation(sidecar.branch, sidecar.operation_id, state.head)
    return done


def publish_decision(
    engine: Engine,
    sidecar: Sidecar,
    kind: str,
    refs: Sequence[TableRef],
    expected: Mapping[str, Pin | None],
    registrations: Mapping[str, str] | None = None,
    tombstones: Sequence[TableRef] = (),
) -> CommitInfo:
    """Publish what a recovery decides over a write, unless another has decided: then that one's commit is the answer.

    Args:
        kind: `RolledForward` or `RolledBack`.
        refs: the tables' versions that become visible.
        expected: the pins they were looked at upon; ExpectedVersionMismatch where one has moved.
    """
    change = sidecar.schema_change if kind == "RolledForward" else None
    draft = CommitDraft(
        id=new_ulid(),
        actor=RECOVERY_ACTOR,
        operation_id=sidecar.operation_id,
        schema_hash=change.schema_hash if change else None,
        schema_ir=change.schema_ir if change else None,
        recovery_kind=kind,
        merged_parent=sidecar.merge_source if kind == "RolledForward" else None,
        extra={"recovered_sidecar": sidecar.name, "recovered_actor": sidecar.actor_id},
    )
    commit = publish(
        engine.manifest,
        engine.history,
        sidecar.branch,
        draft,
        refs,
        expected=expected,
        already=lambda state: decided(engine, sidecar, state),
        check=lambda state: _check_valid(sidecar, state) if kind == "RolledForward" else None,
        registrations=registrations,
        tombstones=tombstones,
        attempts=RECOVERY_ATTEMPTS,
    )
    reach(Step.RECOVERY_PUBLISHED)
    return commit


def _check_valid(sidecar: Sidecar, state: ManifestState) -> None:
    """Right before a roll forward: what the write relied on hasn't moved since it was looked at."""
    if not still_valid(state, sidecar):
        raise ExpectedVersionMismatch("the branch's head or schema", sidecar.file, state.head.id)


def still_valid(state: ManifestState, sidecar: Sidecar) -> bool:
    """Whether what the write relied on stands: the tables it read, the schema, the head."""
    return (
        all(pin_of(state.tables.get(k)) == p for k, p in sidecar.reads.items())
        and (sidecar.schema_hash is None or state.head.schema_hash in (None, sidecar.schema_hash))
        and sidecar.expected_head in (None, state.head.id)
    )


def publish_heads(
    engine: Engine, sidecar: Sidecar, refs: Sequence[TableRef], pins: Mapping[str, Pin | None]
) -> CommitInfo:
    """Publish restored heads: the rows are those of the pins, so the operation isn't named again."""
    draft = CommitDraft(new_ulid(), RECOVERY_ACTOR, None, None, extra={"heads_of_sidecar": sidecar.name})
    return publish(
        engine.manifest,
        engine.history,
        sidecar.branch,
        draft,
        refs,
        expected=pins,
        already=lambda _: None,
        attempts=RECOVERY_ATTEMPTS,
    )


def conclude(
    engine: Engine,
    held: Held,
    sidecar: Sidecar,
    commit: CommitInfo,
    kind: str,
    outcome: str | None = None,
    tables: Sequence[Any] = (),
) -> dict[str, Any]:
    """After the decision is published: what follows it, its audit, and the sidecar goes. Returns the report's entry."""
    # The head row may be all there is of the newest commit: its writer died before history's row.
    engine.history.complete(engine.manifest.current(sidecar.branch).head, sidecar.branch)
    if sidecar.writer_kind is WriterKind.SCHEMA_APPLY:
        (finish if kind == "RolledForward" else scrap)(engine, sidecar)
    audit(engine, sidecar, commit.id, kind, list(tables))
    reach(Step.RECOVERY_AUDITED)
    held.remove()
    return entry(sidecar, outcome=outcome or kind, tables=list(tables))


def audit(engine: Engine, sidecar: Sidecar, commit_id: str, kind: str, outcomes: object) -> None:
    """One row of the recovery audit."""
    engine.history.audit(
        commit_id=commit_id,
        kind=kind,
        actor=sidecar.actor_id,
        operation_id=sidecar.operation_id,
        writer_kind=sidecar.writer_kind.value,
        outcomes=outcomes,
    )


def entry(sidecar: Sidecar, **more: Any) -> dict[str, Any]:
    """A sidecar as a report names it."""
    return {
        "operation_id": sidecar.operation_id,
        "sidecar": sidecar.file,
        "writer_kind": sidecar.writer_kind.value,
        "branch": sidecar.branch,
    } | more
